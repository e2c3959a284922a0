"""Features of a frozen network, which are computed once per file and view and cached.

Features are float16, cached or not, so that both give the same training to the bit.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Generic, Protocol, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from dnlnet.backbones.bfloat16 import InBfloat16, bfloat16_problem
from dnlnet.backbones.fold import fold_batch_norms
from dnlnet.engine import distributed
from dnlnet.engine.checkpoint import save_tensors
from dnlnet.files import content_checksum, make_folder, write_json
from dnlnet.layout import convert_to_channels_last
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.context import RunContext

FORMAT = 2  # version of the cache; raise it when its files or the way of reading images change


class FileView(Protocol):
    """View of a file, such as a flipped image. Its text is part of the names of cached files."""

    @property
    def relative_size(self) -> float:
        """Disk space of the features, relative to other views."""
        ...

    def __str__(self) -> str: ...


AnyView = TypeVar("AnyView", bound=FileView)
AnyViewIn = TypeVar("AnyViewIn", bound=FileView, contravariant=True)


class Source(Protocol[AnyViewIn]):
    """Source of features, computed or cached."""

    def __call__(self, file: Path, view: AnyViewIn, /) -> list[Tensor]:
        """Return the features of a file in a view, in float16."""
        ...


class Extractor(Source[AnyViewIn], Protocol[AnyViewIn]):
    """Source that computes features.

    Attributes:
        key: Hash of everything that the features depend on, except the file and the view.
        settings: Settings that describe the features.
        names: Name of each tensor of the features.
    """

    key: str
    settings: Mapping[str, Any]
    names: Sequence[str]


class FrozenNetwork:
    """Network in evaluation mode that computes features, with folded batch norms and channels last.

    Args:
        network: Network from a batch to a list of maps.
        settings: Settings of the recipe that identify the features.
        names: Names or indices of the features; they identify them too.
        precision: Precision of training. bfloat16 is also used here, and identifies the features, if the CPU has it.
    """

    def __init__(
        self,
        network: nn.Module,
        settings: Mapping[str, Any],
        names: Sequence[str | int],
        precision: str = "float32",
    ) -> None:
        half = precision == "bfloat16" and bfloat16_problem("cpu") is None
        self.settings: Mapping[str, Any] = {**settings, "precision": precision} if half else dict(settings)
        self.names: Sequence[str] = tuple(map(str, names))
        digest = sha256(json.dumps([FORMAT, self.settings, list(names)], sort_keys=True).encode())
        for name, tensor in network.state_dict().items():
            digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
        self.key = digest.hexdigest()[:16]
        network = convert_to_channels_last(fold_batch_norms(network.eval(), torch.zeros(1, 3, 64, 64)))
        self.network = InBfloat16(network) if half else network

    @torch.inference_mode()
    def maps(self, batch: Tensor) -> list[Tensor]:
        """Return the maps of a normalised batch in float16."""
        return [x.half().contiguous() for x in self.network(batch.contiguous(memory_format=torch.channels_last))]


class FeatureCache(Generic[AnyView]):
    """Features in a folder, with one memory-mapped file per file and view. Files are written atomically.

    The key of the extractor names the folder, and a hash of the file's content names each entry. Entries are
    therefore never stale, and runs with other heads, seeds and crops share them.

    Args:
        folder: Folder of all caches.
        extractor: Extractor of missing features.
        holds: Name of the files in messages.
    """

    def __init__(self, folder: Path, extractor: Extractor[AnyView], holds: str = "images") -> None:
        self.folder, self.extractor, self.holds = folder / extractor.key, extractor, holds
        self._contents: dict[Path, str] = {}

    def fill(self, wanted: Sequence[tuple[Path, AnyView]], progress: Progress = SILENT) -> None:
        """Compute missing features. Report the disk space they take first, and raise if it is not available.

        Several processes may fill the same cache at once. Each works in its own random order and skips files that
        another process has written.
        """
        files = f"{len({file for file, _ in wanted})} {self.holds}"
        missing = [(file, view) for file, view in wanted if not _is_whole(self.path(file, view))]
        if not missing:
            progress.say(f"features: all {len(wanted)} maps of {files} are in the cache")
            return
        Random().shuffle(missing)  # a separate generator, so that the cache does not affect other random numbers
        make_folder(self.folder)
        write_json(self.folder / "about.json", {"format": FORMAT, **self.extractor.settings})
        first = self._write(*missing[0])
        needed = int(first / missing[0][1].relative_size * sum(view.relative_size for _, view in missing[1:]))
        free = shutil.disk_usage(self.folder).free
        views = len(wanted) // len({file for file, _ in wanted})
        seen = "one view" if views == 1 else f"{views} views"
        what = f"features of {files} in {seen} take about {max(needed, 1e6) / 1e6:,.0f} MB"
        if needed > free:
            raise OSError(f"{what}, but {self.folder.parent} has {free / 1e6:,.0f} MB; give another --cache DIR")
        progress.say(f"{what}; {len(wanted) - len(missing)} of {len(wanted)} maps are in the cache")
        with progress.track("features", len(missing), start=1) as done:
            for file, view in missing[1:]:
                if not _is_whole(self.path(file, view)):
                    self._write(file, view)
                done.advance()

    def __call__(self, file: Path, view: AnyView) -> list[Tensor]:
        """Return the features of a file in a view, in float16."""
        path = self.path(file, view)
        try:
            with safe_open(path, "pt") as entry:
                return [entry.get_tensor(name) for name in self.extractor.names]
        except (SafetensorError, OSError) as error:
            raise OSError(f"{path}: this part of the cache cannot be read ({error}); run the command again") from None

    def path(self, file: Path, view: AnyView) -> Path:
        """Return the entry of a file in a view."""
        if file not in self._contents:
            self._contents[file] = content_checksum(file)[:32]
        return self.folder / f"{self._contents[file]}-{view}.safetensors"

    def _write(self, file: Path, view: AnyView) -> int:
        tensors = dict(zip(self.extractor.names, self.extractor(file, view), strict=True))
        path = self.path(file, view)
        save_tensors(path, tensors, {})
        return path.stat().st_size


def feature_source(
    extractor: Extractor[AnyView], wanted: Sequence[tuple[Path, AnyView]], run: RunContext, holds: str = "images"
) -> Source[AnyView]:
    """Return the cache of the run, which the main process fills first, or the extractor if there is no cache."""
    folder = run.cache
    if folder is None:
        return extractor
    cache = run.once("cache", lambda: FeatureCache(folder, extractor, holds))
    distributed.in_main(lambda: cache.fill(wanted, run.progress))
    distributed.barrier()
    return cache


def _is_whole(path: Path) -> bool:
    try:
        with safe_open(path, "pt") as file:
            return bool(file.keys())
    except (SafetensorError, OSError):
        return False
