"""Loading of the weights of model files, checked against the network of their recipe."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dnlnet.artifacts.model_file import ModelFile, read_header
from dnlnet.layout import convert_to_channels_last

_FLOATS = ("F16", "BF16", "F32", "F64")  # names in safetensors


def load_network(model: ModelFile) -> nn.Module:
    """Load the network of a model file in the form that was trained.

    Raises if the tensors do not match the network, and warns about values that are not finite.
    """
    problem = weights_problem(model)
    if problem is not None:
        raise ValueError(f"{model.path}: {problem}")
    network = model.recipe.build(len(model.classes), pretrained=False)
    state = load_weights(model)
    not_finite = [name for name, tensor in state.items() if not tensor.isfinite().all()]
    if not_finite:
        warnings.warn(
            f"{model.path}: {len(not_finite)} of {len(state)} tensors hold values that are not finite "
            f"({_few(not_finite)}); its predictions are meaningless",
            stacklevel=2,
        )
    network.load_state_dict(state)
    return network


def load_weights(model: ModelFile) -> dict[str, Tensor]:
    """Load the tensors of a model file, or the weights in a checkpoint."""
    with safe_open(model.path, "pt") as file:
        names = [name for name in file.keys() if name.startswith(model.prefix)]  # noqa: SIM118
        return {name.removeprefix(model.prefix): file.get_tensor(name) for name in names}


def load_for_inference(model: ModelFile) -> nn.Module:
    """Load the network of a model file in evaluation mode, with folded batch norms and channels-last memory.

    The network computes the same function up to rounding, in the fastest form that needs no compiling (`dnlnet bench
    predict`).
    """
    return convert_to_channels_last(model.recipe.fold(load_network(model).eval()))


def weights_problem(model: ModelFile) -> str | None:
    """Return a description of the mismatch between a model file's tensors and its recipe's network, or None.

    Reads only the header of the file, and builds the network without allocating memory.
    """
    try:
        with torch.device("meta"), _Unsampled():
            network = model.recipe.build(len(model.classes), pretrained=False)
    except ValueError as error:
        return f"its recipe describes no network: {error}"
    own: dict[str, Tensor] = network.state_dict()
    kinds = {
        name.removeprefix(model.prefix): kind
        for name, kind in read_header(model.path)[1].items()
        if name.startswith(model.prefix)
    }
    missing = [name for name in own if name not in kinds]
    unknown = [name for name in kinds if name not in own]
    other = [
        f"{name} is {shape} of {dtype}, expected {tuple(own[name].shape)}"
        for name, (shape, dtype) in kinds.items()
        if name in own and (shape != tuple(own[name].shape) or (dtype in _FLOATS) != own[name].is_floating_point())
    ]
    parts = [
        f"{what} {_few(names)}"
        for what, names in (("missing", missing), ("unexpected", unknown), ("wrong shape or type:", other))
        if names
    ]
    if not parts:
        return None
    kind = f"{model.recipe.model.variant or 'baseline'} network of its recipe for {len(model.classes)} classes"
    return f"its tensors are not those of the {kind}: {'; '.join(parts)}"


_SAMPLERS = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)


class _Unsampled(TorchFunctionMode):
    """Skip random initial values. Without memory, sampling them would import PyTorch's compiler, which is slow."""

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if function in _SAMPLERS:
            return (*args, *options.values())[0]
        return function(*args, **options)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
