"""Loading of pretrained weights from PyTorch and safetensors files with names of timm or torchvision."""

import errno
import pickle
import re
import struct
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from dnlnet.backbones.image import Backbone
from dnlnet.backbones.pickles import find_names
from dnlnet.backbones.resnet3d import SlowOnly, inflate
from dnlnet.backbones.rows import BACKBONES
from dnlnet.errors import require_printable

State = dict[str, Tensor]

# Keys under which other programs store the weights in a checkpoint, and prefixes that they add to the names.
_ENVELOPES = ("state_dict", "model", "model_state_dict", "model_state")
_PREFIXES = ("module.", "backbone.", "body.", "encoder.")
_SHARED = 8  # largest ratio of the tensors' size to the file's; tensors may share their data
# Names of classifier layers, which a backbone does not have.
_CLASSIFIERS = re.compile(r"(fc|classifier|head|conv_head|incre_modules|downsamp_modules|final_layer)\b.*")


@dataclass(frozen=True)
class LoadReport:
    """Result of loading a file: the number of loaded tensors, and the names of the others.

    Args:
        loaded: Number of tensors loaded.
        classifier: Tensors of a classifier, ignored on purpose.
        unused: Other tensors of the file that the network does not have.
        missing: Tensors of the network that the file does not have.
        misshapen: Tensors with another shape in the file than in the network, with both shapes.
    """

    loaded: int
    classifier: tuple[str, ...]
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    misshapen: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.loaded} tensors loaded"]
        kinds = {
            "of a classifier left out": self.classifier,
            "unused": self.unused,
            "missing": self.missing,
            "misshapen": self.misshapen,
        }
        for kind, names in kinds.items():
            if names:
                shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
                parts.append(f"{len(names)} {kind} ({shown})")
        return "; ".join(parts)


def load_weights(backbone: Backbone | SlowOnly, path: Path, *, partial: bool = False) -> LoadReport:
    """Load a file of ImageNet weights into the backbone, in place, and report what did not match.

    Args:
        backbone: Backbone to load into. A video network takes its own weights, or those of its image network, which
            are inflated.
        path: State dict with names of torchvision or timm, in PyTorch's format (no code is unpickled) or safetensors,
            in any float precision.
        partial: Accept a file in which tensors of the backbone are missing or have another shape.

    >>> from tempfile import TemporaryDirectory
    >>> backbone = Backbone("resnet18")
    >>> with TemporaryDirectory() as folder:
    ...     torch.save(backbone.body.state_dict(), Path(folder) / "weights.pth")
    ...     print(load_weights(backbone, Path(folder) / "weights.pth"))
    120 tensors loaded
    """
    state = read_state_dict(path)
    fitting, report = _match(backbone, state)
    if not fitting:
        raise ValueError(f"{path}: none of its {len(state)} tensors fits {backbone.name} ({report})")
    if (report.missing or report.misshapen) and not partial:
        raise ValueError(f"{path}: these are not weights of {backbone.name}: {report}")
    _body(backbone).load_state_dict(fitting, strict=False)
    return report


def find_backbones(state: State) -> list[str]:
    """Return the names of the rows of `BACKBONES` that these weights fit.

    >>> find_backbones(Backbone("resnet18").body.state_dict())
    ['resnet18']
    """
    with torch.device("meta"):
        reports = {name: _match(Backbone(name), state)[1] for name in BACKBONES}
    return [name for name, report in reports.items() if not (report.missing or report.misshapen)]


def _body(backbone: Backbone | SlowOnly) -> nn.Module:
    """Return the module that the names of weights are relative to; timm wraps transformers in another module."""
    if not isinstance(backbone, Backbone):
        return backbone
    body: nn.Module = backbone.body
    inner = getattr(body, "model", None)
    return inner if isinstance(inner, nn.Module) else body


def _match(backbone: Backbone | SlowOnly, given: State) -> tuple[State, LoadReport]:
    """Return the tensors that fit the backbone, under its names, and a report on the others."""
    body = _body(backbone)
    rename = _RENAMES.get(backbone.name, str)
    state = inflate({rename(name): tensor for name, tensor in _strip_prefixes(given).items()}, body)
    return match_tensors(body.state_dict(), state, lambda name: _is_classifier(backbone.name, name))


def match_tensors(own: State, given: State, is_classifier: Callable[[str], bool]) -> tuple[State, LoadReport]:
    """Return the given tensors that fit a network's own, and a report on the others."""
    fitting = {name: tensor for name, tensor in given.items() if name in own and tensor.shape == own[name].shape}
    unknown = [name for name in given if name not in own]
    report = LoadReport(
        loaded=len(fitting),
        classifier=tuple(name for name in unknown if is_classifier(name)),
        unused=tuple(name for name in unknown if not is_classifier(name)),
        missing=tuple(name for name in own if name not in given and not name.endswith("num_batches_tracked")),
        misshapen=tuple(
            f"{name} {tuple(tensor.shape)} for {tuple(own[name].shape)}"
            for name, tensor in given.items()
            if name in own and name not in fitting
        ),
    )
    return fitting, report


def read_state_dict(path: Path) -> State:
    """Return the tensors of a file by name; for a training checkpoint, those of the network.

    Never runs code from the file; a file that needs it is refused.
    """
    return split_checkpoint(path, read_content(path))[0]


def read_content(path: Path, stand_ins: Callable[[set[str]], Mapping[str, Callable[..., Any]]] = lambda _: {}) -> Any:
    """Return the content of a weights file.

    Never runs code from the file. A file that needs it is refused, and so is one that takes far more work to read
    than its size suggests.

    Args:
        path: File in PyTorch's format or safetensors.
        stand_ins: Function from the full names of the classes in the file to the replacements that are created
            instead of their objects.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError):
            raise _damaged_error(path) from None
    replaced = stand_ins(find_names(path))
    try:
        with (
            torch.serialization.safe_globals([*((made, name) for name, made in replaced.items())]),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # failures raise our own errors below
            return torch.load(path, "cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise ValueError(
            f"{path}: is damaged, or holds more than tensors and cannot be read without running code"
            f"{f' ({wanted[1]})' if wanted else ''}; save its state dict alone"
        ) from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # PyTorch looked for the end of an archive before the start of the file
            raise _damaged_error(path) from None
        raise
    except _UNREADABLE:
        raise _damaged_error(path) from None


# Errors that PyTorch raises for damaged files.
_UNREADABLE = (
    *(RuntimeError, EOFError, ValueError, LookupError, AttributeError, TypeError, AssertionError),
    *(struct.error, OverflowError, MemoryError),
)


def split_checkpoint(path: Path, content: Any) -> tuple[State, dict[str, Any]]:
    """Return the network's tensors by name, and the rest of a training checkpoint."""
    rest: dict[str, Any] = {}
    for envelope in _ENVELOPES:
        if isinstance(content, Mapping) and isinstance(content.get(envelope), Mapping):
            rest |= {str(name): value for name, value in content.items() if name != envelope}
            content = content[envelope]
    if not isinstance(content, Mapping) or not any(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"{path}: holds no tensors by name; expected a state dict")
    state = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    require_printable(path, state)
    taken, size = sum(tensor.numel() * tensor.element_size() for tensor in state.values()), path.stat().st_size
    if taken > _SHARED * size or any(tensor.is_meta for tensor in state.values()):
        raise ValueError(
            f"{path}: its tensors take {taken:,} bytes, but the file has {size:,}; expected tensors that are stored "
            "whole: save copies of them"
        )
    return state, rest


def _damaged_error(path: Path) -> ValueError:
    return ValueError(f"{path}: is not a weights file, or is damaged")


def _strip_prefixes(state: State) -> State:
    """Strip the prefixes of wrappers if most names have them, and drop the other tensors."""
    for prefix in _PREFIXES * 2:
        inside = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        if len(inside) > len(state) / 2:
            state = inside
    return state


def _is_classifier(network: str, name: str) -> bool:
    return bool(_CLASSIFIERS.match(name)) or (network == "mobilenetv2" and name.startswith("bn2."))


def _to_timm_mobilenet(name: str) -> str:
    """Translate torchvision's `features.I.conv.J.weight` to timm's `blocks.S.B.layer.weight`; keep other names."""
    parts = re.fullmatch(r"features\.(\d+)\.(?:conv\.)?([\d.]+)\.(\w+)", name)
    if parts is None:
        return name
    index, layer, kind = int(parts[1]), parts[2], parts[3]
    if index == 0:
        return f"{('conv_stem', 'bn1')[int(layer)]}.{kind}"
    if index == 18:
        return f"{('conv_head', 'bn2')[int(layer)]}.{kind}"
    stage, block = _MOBILENET_BLOCKS[index - 1]
    return f"blocks.{stage}.{block}.{_MOBILENET_LAYERS[index == 1][layer]}.{kind}"


_MOBILENET_BLOCKS = [(stage, block) for stage, count in enumerate((1, 2, 3, 4, 3, 3, 1)) for block in range(count)]
# The first block has no expansion layer, so torchvision numbers its layers differently.
_MOBILENET_LAYERS: tuple[dict[str, str], dict[str, str]] = (
    {"0.0": "conv_pw", "0.1": "bn1", "1.0": "conv_dw", "1.1": "bn2", "2": "conv_pwl", "3": "bn3"},
    {"0.0": "conv_dw", "0.1": "bn1", "1": "conv_pw", "2": "bn2"},
)
# ResNets have the same names in torchvision and timm, and torchvision has no HRNet.
_RENAMES: Mapping[str, Callable[[str], str]] = {"mobilenetv2": _to_timm_mobilenet}
