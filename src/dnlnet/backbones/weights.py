"""Pretrained weights from files: timm's and torchvision's names, PyTorch's and safetensors' formats."""

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

from dnlnet.backbones.image import BACKBONES, Backbone
from dnlnet.backbones.resnet3d import SlowOnly, inflate

State = dict[str, Tensor]

# Where other programs keep the weights inside a checkpoint, and what they put before every name.
_ENVELOPES = ("state_dict", "model", "model_state_dict", "model_state")
_PREFIXES = ("module.", "backbone.", "body.", "encoder.")
# Of classifiers, which a backbone has no place for.
_CLASSIFIERS = re.compile(r"(fc|classifier|head|conv_head|incre_modules|downsamp_modules|final_layer)\b.*")


@dataclass(frozen=True)
class LoadReport:
    """What became of the tensors of a file.

    Args:
        loaded: tensors taken over.
        classifier: tensors of a classifier, left out on purpose.
        unused: other tensors of the file that the network has no place for.
        missing: tensors of the network that the file does not have.
        misshapen: tensors of both whose shapes differ, with the shapes.
    """

    loaded: int
    classifier: tuple[str, ...]
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    misshapen: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.loaded} tensors loaded"]
        for kind in ("classifier", "unused", "missing", "misshapen"):
            names: tuple[str, ...] = getattr(self, kind)
            if names:
                shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
                parts.append(f"{len(names)} {kind} ({shown})")
        return "; ".join(parts)


def load_weights(backbone: Backbone | SlowOnly, path: Path, *, partial: bool = False) -> LoadReport:
    """Load a file of ImageNet weights into the backbone, in place, and say what did not match.

    Args:
        backbone: made for the same network; names of torchvision and timm are both understood. A video network is
            given the inflated weights of its image network, or its own.
        path: a state dict saved by PyTorch (never unpickling code) or as safetensors, in any float precision.
        partial: accept a file in which some of the backbone's tensors are missing or of another shape.

    >>> from tempfile import TemporaryDirectory
    >>> backbone = Backbone("resnet18")
    >>> with TemporaryDirectory() as folder:
    ...     torch.save(backbone.body.state_dict(), Path(folder) / "weights.pth")
    ...     print(load_weights(backbone, Path(folder) / "weights.pth"))
    120 tensors loaded
    """
    state = read_state_dict(path)
    fitting, report = _compared(backbone, state)
    if not fitting:
        raise ValueError(f"{path}: none of its {len(state)} tensors fits {backbone.name} ({report})")
    if (report.missing or report.misshapen) and not partial:
        raise ValueError(f"{path}: these are not weights of {backbone.name}: {report}")
    _body(backbone).load_state_dict(fitting, strict=False)
    return report


def find_backbones(state: State) -> list[str]:
    """The rows of `BACKBONES` that these weights are for.

    >>> find_backbones(Backbone("resnet18").body.state_dict())
    ['resnet18']
    """
    with torch.device("meta"):
        reports = {name: _compared(Backbone(name), state)[1] for name in BACKBONES}
    return [name for name, report in reports.items() if not (report.missing or report.misshapen)]


def _body(backbone: Backbone | SlowOnly) -> nn.Module:
    return backbone.body if isinstance(backbone, Backbone) else backbone


def _compared(backbone: Backbone | SlowOnly, given: State) -> tuple[State, LoadReport]:
    """Those of the tensors that the backbone takes, by its names, and what became of the others."""
    body = _body(backbone)
    state = inflate(_timm_names(backbone.name, _without_prefix(given)), body)
    own = body.state_dict()
    fitting = {name: tensor for name, tensor in state.items() if name in own and tensor.shape == own[name].shape}
    strange = [name for name in state if name not in own]
    report = LoadReport(
        loaded=len(fitting),
        classifier=tuple(name for name in strange if _is_classifier(backbone.name, name)),
        unused=tuple(name for name in strange if not _is_classifier(backbone.name, name)),
        missing=tuple(name for name in own if name not in state and not name.endswith("num_batches_tracked")),
        misshapen=tuple(
            f"{name} {tuple(tensor.shape)} for {tuple(own[name].shape)}"
            for name, tensor in state.items()
            if name in own and name not in fitting
        ),
    )
    return fitting, report


def read_state_dict(path: Path) -> State:
    """The tensors of a file by name, taken out of the envelope of a training checkpoint if there is one.

    Nothing in the file is executed: a file that would need it is refused.
    """
    return split_checkpoint(path, read_content(path))[0]


def read_content(path: Path, stand_ins: Mapping[str, Callable[..., Any]] = {}) -> Any:
    """What a file of weights holds: by name, for safetensors.

    Nothing in the file is executed: a file that would need it is refused.

    Args:
        path: saved by PyTorch or as safetensors.
        stand_ins: what is made in place of objects of other programs, by the full names of their classes.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of weights")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError):
            raise _damaged(path) from None
    try:
        with (
            torch.serialization.safe_globals([*((made, name) for name, made in stand_ins.items())]),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # what is wrong with a file is said below, in our words
            return torch.load(path, "cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(
            f"{path}: is damaged, or holds more than tensors and would have to run code to be read"
            f"{f' ({wanted[1]})' if wanted else ''}; save its state dict alone"
        ) from None
    except _UNREADABLE as error:
        if "TorchScript" in str(error):
            raise ValueError(f"{path}: is a program of TorchScript; save the state dict of its network") from None
        raise _damaged(path) from None


# What PyTorch raises for bytes that are not what they claim to be.
_UNREADABLE = (
    *(RuntimeError, EOFError, ValueError, KeyError, AttributeError, TypeError, IndexError, AssertionError),
    *(struct.error, OverflowError, MemoryError),
)


def split_checkpoint(path: Path, content: Any) -> tuple[State, dict[str, Any]]:
    """The network's tensors by name, and what else lies beside them in the envelope of a training checkpoint."""
    rest: dict[str, Any] = {}
    for envelope in _ENVELOPES:
        if isinstance(content, Mapping) and isinstance(content.get(envelope), Mapping):
            rest |= {str(name): value for name, value in content.items() if name != envelope}
            content = content[envelope]
    if not isinstance(content, Mapping) or not any(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"{path}: holds no tensors by name; expected a state dict")
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}, rest


def _damaged(path: Path) -> ValueError:
    return ValueError(f"{path}: is not a file of weights, or is damaged")


def _without_prefix(state: State) -> State:
    """Names without what wrappers put before them, as long as all weights of the network share it."""
    for prefix in _PREFIXES * 2:
        inside = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        if len(inside) > len(state) / 2:
            state = inside
    return state


def _is_classifier(network: str, name: str) -> bool:
    return bool(_CLASSIFIERS.match(name)) or (network == "mobilenetv2" and name.startswith("bn2."))


def _timm_names(network: str, state: State) -> State:
    rename = _RENAMES.get(network)
    return state if rename is None else {rename(name): tensor for name, tensor in state.items()}


def _mobilenet_name(name: str) -> str:
    """torchvision's `features.I.conv.J.weight` as timm's `blocks.S.B.layer.weight`; other names stay."""
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
# The first block has no expansion; torchvision counts its layers from there.
_MOBILENET_LAYERS: tuple[dict[str, str], dict[str, str]] = (
    {"0.0": "conv_pw", "0.1": "bn1", "1.0": "conv_dw", "1.1": "bn2", "2": "conv_pwl", "3": "bn3"},
    {"0.0": "conv_dw", "0.1": "bn1", "1": "conv_pw", "2": "bn2"},
)
# ResNets have the same names in both; torchvision has no HRNet.
_RENAMES: Mapping[str, Callable[[str], str]] = {"mobilenetv2": _mobilenet_name}
