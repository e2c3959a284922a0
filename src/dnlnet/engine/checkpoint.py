"""Checkpoints of a run: written atomically, verified when read, and never unpickled.

A checkpoint consists of two files. `000400.safetensors` contains every tensor. `000400.json` is written after it, and
contains the rest, the checksum of the first file and its own. Both files must match.
"""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dnlnet.files import NotWrittenError, atomic_write, checksum
from dnlnet.progress import SILENT, Progress

_CONTENT = {"iteration", "sha256", "state"}  # keys of the JSON file, besides their checksum


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after `iteration` iterations: its tensors by name, and everything else."""

    iteration: int
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]


class Checkpoints:
    """Folder of checkpoints that keeps only the last `keep`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     checkpoints = Checkpoints(Path(folder), keep=2)
    ...     for iteration in (10, 20, 30):
    ...         checkpoints.save(Checkpoint(iteration, {"w": torch.ones(2)}, {"best": 0.5}))
    ...     checkpoints.latest().iteration, [path.stem for path in checkpoints.paths()]
    (30, ['000020', '000030'])
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"at least 1 checkpoint must be kept, got {keep}")
        self.folder, self.keep = folder, keep

    def paths(self) -> list[Path]:
        """Return the JSON files, oldest first."""
        paths = (path for path in self.folder.glob("*.json") if re.fullmatch("[0-9]{6,}", path.stem))
        return sorted(paths, key=lambda path: int(path.stem))

    def save(self, checkpoint: Checkpoint, metadata: Mapping[str, str] | None = None) -> None:
        """Write a checkpoint, then delete old ones. If the disk is full, earlier ones stay.

        With the metadata of a model file, the checkpoint can be used like one.

        Also deletes checkpoints of later iterations. They are damaged, because the run did not resume from them, and
        would take precedence over new ones.
        """
        path = self.folder / f"{checkpoint.iteration:06}.json"
        tensors = path.with_suffix(".safetensors")
        try:
            save_tensors(tensors, checkpoint.tensors, metadata)
            content = {"iteration": checkpoint.iteration, "sha256": checksum(tensors), "state": checkpoint.state}
            with atomic_write(path) as temporary:
                temporary.write_text(json.dumps({**content, "checksum": _checksum(content)}, allow_nan=False))
        except OSError as error:
            why = error.strerror if isinstance(error, NotWrittenError) else error
            earlier = [old for old in self.paths() if int(old.stem) < checkpoint.iteration]
            kept = (
                f"the checkpoint of iteration {int(earlier[-1].stem)} is intact"
                if earlier
                else "there is no earlier one"
            )
            raise OSError(
                f"{self.folder}: could not save iteration {checkpoint.iteration}: {why}; {kept}; "
                "free some space and run the same command again to resume"
            ) from error
        paths = self.paths()
        until = paths.index(path) + 1
        for old in (*paths[: max(0, until - self.keep)], *paths[until:]):
            old.unlink()  # first, because the other file is useless without it
            old.with_suffix(".safetensors").unlink(missing_ok=True)

    def latest(self, progress: Progress = SILENT) -> Checkpoint | None:
        """Return the newest intact checkpoint, or None. Damaged newer ones are reported."""
        for path in reversed(self.paths()):
            try:
                return _read(path)
            except PermissionError:
                raise  # the file may be intact
            except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
                progress.say(f"{path.with_suffix('')}: this checkpoint is damaged ({error}); trying the previous one")
        return None


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a safetensors file, atomically."""
    try:
        with atomic_write(path) as temporary:
            contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
            save_file(contiguous, temporary, None if metadata is None else dict(metadata))
    except SafetensorError as error:
        raise OSError(f"{path}: could not be written: {error}") from error


def _read(path: Path) -> Checkpoint:
    content = json.loads(path.read_text())
    expected = content.pop("checksum") if "checksum" in content else None  # absent in files of the first versions
    if set(content) != _CONTENT:
        raise ValueError(f"{path.name} should hold {', '.join(sorted(_CONTENT))}, and nothing else")
    if expected is not None and _checksum(content) != expected:
        raise ValueError(f"{path.name} has changed since it was written")
    if content["iteration"] != int(path.stem):
        raise ValueError(f"{path.name} is of iteration {content['iteration']}")
    tensors = path.with_suffix(".safetensors")
    found = checksum(tensors)
    if found != content["sha256"]:
        raise ValueError(f"its checksum is {found[:12]}..., expected {content['sha256'][:12]}...")
    return Checkpoint(content["iteration"], load_file(tensors), content["state"])


def _checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the content, independent of key order and white space."""
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def random_states(device: torch.device) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the states of the random generators: Python's and NumPy's as JSON, PyTorch's as tensors."""
    kind, keys, *rest = np.random.get_state()
    state = {"python": random.getstate(), "numpy": [str(kind), np.asarray(keys).tolist(), *rest]}
    tensors = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    return state, tensors


def restore_random_states(state: Mapping[str, Any], tensors: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the random generators of this process."""
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    kind, numpy_keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(numpy_keys, dtype=np.uint32), *rest))
    torch.set_rng_state(tensors["torch"].cpu())
    if device.type == "cuda" and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"].cpu(), device)
