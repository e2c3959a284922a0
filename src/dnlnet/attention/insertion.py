"""Insert blocks into an existing model without renaming its parameters."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.attention.block import NonLocalBlock
from dnlnet.attention.spec import find_variant
from dnlnet.errors import unknown
from dnlnet.layout import map_tensors

BLOCK_NAME = "non_local"

Example = Tensor | list[Tensor] | tuple[Any, ...]  # a batch, a list of images as detectors take it, or several inputs


def insert(
    model: nn.Module,
    placement: str | Sequence[str] | Mapping[str, str],
    *,
    example: Example | None = None,
    before: bool = False,
    preset: str = "paper",
    **options: Any,
) -> dict[str, NonLocalBlock]:
    """Add a block after (or before) each named submodule of any model, in place.

    The block becomes the child `non_local` of the submodule and is applied to its output by a forward hook, so
    existing parameters keep their names and pretrained weights load as before. In a `Sequential`, the block follows
    the last layer. Channel counts and dimensions come from one pass on the meta device, which computes nothing. A
    model that cannot run there is run on the example until they are known. If the model calls a submodule several
    times per pass, so does the block, and a warning says so.

    Args:
        model: Any model, e.g. from timm or torchvision.
        placement: Name of a submodule, a list of names, or the variant of each by name, e.g. ``{"layer3.4": "nl"}``.
            The default variant is `dnl`.
        example: Input of the model: a batch, a list of images as detectors take it, or a tuple of several inputs,
            ``(x, y)``. Default: one that fits the first convolution.
        before: Apply the block to the submodule's input instead of its output, e.g. before an activation.
        preset, **options: See `NonLocalBlock`.

    Returns:
        The blocks by name.

    >>> net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU())
    >>> insert(net, {"1": "dnl"})["1"].channels
    16
    """
    if not isinstance(placement, Mapping):
        placement = dict.fromkeys([placement] if isinstance(placement, str) else placement, "dnl")
    names = [name for name, _ in model.named_modules() if name]
    targets = {}
    for name, variant in placement.items():
        if name not in names:
            raise unknown("submodule", name, names)
        find_variant(variant)
        targets[name] = _find_target(model.get_submodule(name), name, before)
    if len({id(target) for target in targets.values()}) < len(targets):
        raise ValueError(f"two of {', '.join(placement)} name the same place; keep one of them")
    shapes = _probe_shapes(model, targets, example, before)
    blocks = {
        name: NonLocalBlock(shapes[name][1], variant, dims=len(shapes[name]) - 2, preset=preset, **options)
        for name, variant in placement.items()
    }
    for name, block in blocks.items():
        reference = next((p for p in targets[name].parameters()), next(model.parameters(), None))
        if reference is not None and reference.is_floating_point():
            block.to(reference.device, reference.dtype)
        block.train(targets[name].training)
        targets[name].add_module(BLOCK_NAME, block)
        if before:
            targets[name].register_forward_pre_hook(_apply_before)
        else:
            targets[name].register_forward_hook(_apply_after)
    return blocks


def _apply_after(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    block: nn.Module = module.get_submodule(BLOCK_NAME)
    result: Tensor = block(output)
    return result


def _apply_before(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    block: nn.Module = module.get_submodule(BLOCK_NAME)
    return (block(args[0]), *args[1:])


def _find_target(module: nn.Module, name: str, before: bool) -> nn.Module:
    """Return the module that gets the block: for a Sequential, which would run any child, its last or first layer."""
    while type(module).forward is nn.Sequential.forward and len(list(module.children())):
        module = list(module.children())[0 if before else -1]
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        raise ValueError(
            f"{name!r} is a {type(module).__name__}, which may run a new child on its own; "
            "name the layer inside it that the block should follow"
        )
    if hasattr(module, BLOCK_NAME):
        raise ValueError(f"{name!r} already has a block; insert one per place")
    return module


class _ShapesKnown(Exception):  # noqa: N818 - not an error
    """End of the pass on an example: all shapes are known."""


def _probe_shapes(
    model: nn.Module, targets: Mapping[str, nn.Module], example: Example | None, before: bool
) -> dict[str, torch.Size]:
    """Return the shape of each target's output (or input). Warn about targets that run more than once."""
    seen: dict[str, list[Any]] = {name: [] for name in targets}

    def recorder(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def record(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            found = inputs[0] if before else output
            seen[name].append(found)
            if all(seen.values()) and isinstance(found, Tensor) and not found.is_meta:
                raise _ShapesKnown

        return record

    hooks = [target.register_forward_hook(recorder(name)) for name, target in targets.items()]
    try:
        _run_once(model, example, lambda: all(seen.values()))
    finally:
        for hook in hooks:
            hook.remove()
    for name, target in targets.items():
        _check_features(name, target, seen[name][0] if seen[name] else None, before)
    for name, calls in seen.items():
        if len(calls) > 1:
            parent = name.rpartition(".")[0]
            warnings.warn(
                f"{name!r} runs {len(calls)} times per forward pass, and so will its block; "
                f"for a single run, name a module that runs once" + (f", such as {parent!r}" if parent else ""),
                stacklevel=3,
            )
    return {name: seen[name][0].shape for name in targets}


@torch.no_grad()
def _run_once(model: nn.Module, example: Example | None, found: Callable[[], bool]) -> None:
    """Run the model on the meta device. If that fails before all is found, run it on the example if there is one."""
    # List a tensor under every name it has: `functional_call` restores tied tensors wrongly when it ties them itself.
    tensors = {
        f"{name}.{own}".lstrip("."): tensor
        for name, module in model.named_modules()
        for named in (module.named_parameters, module.named_buffers)
        for own, tensor in named(recurse=False, remove_duplicate=False)
    }
    attempts: list[tuple[dict[str, Tensor], str | torch.device]] = [
        ({name: tensor.detach().to("meta") for name, tensor in tensors.items()}, "meta")
    ]
    if example is not None:
        attempts.append(({}, next((tensor.device for tensor in tensors.values()), torch.device("cpu"))))
    else:
        example = _guess_input(model)
    for replaced, device in attempts:
        try:
            with _eval_mode(model):
                moved = map_tensors(partial(Tensor.to, device=device), example)
                inputs = moved if isinstance(moved, tuple) else (moved,)
                torch.func.functional_call(model, replaced, inputs, tie_weights=False)
            return
        except Exception as error:
            if found():
                return
            reason = error
    shape = map_tensors(lambda x: tuple(x.shape), example)
    raise ValueError(
        f"the model did not run on an input of shape {shape} ({reason}); pass an input that it accepts as example=, "
        "or a tuple of several"
    ) from reason


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode, then restore all attributes, including caches such as a detector's anchors."""
    before = {module: dict(vars(module)) for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, attributes in before.items():
            vars(module).clear()
            vars(module).update(attributes)


def _check_features(name: str, target: nn.Module, found: Any, before: bool) -> None:
    """Require features with channels in the second dimension."""
    what = "nothing" if found is None else type(found).__name__
    if isinstance(found, Tensor):
        what = f"a tensor of shape {tuple(found.shape)}"
        if 3 <= found.dim() <= 5:
            width = _last_width(target, before)
            if width is None or width != found.shape[-1] or width == found.shape[1]:
                return
            what += ", channels last"
    verb = "receives" if before else "returns"
    raise ValueError(f"{name!r} {verb} {what}; a block needs (B, C, L), (B, C, H, W) or (B, C, T, H, W)")


def _last_width(target: nn.Module, before: bool) -> int | None:
    """Return the width of the layer nearest to the block that acts on the last dimension, as in transformers."""
    widths = [
        (layer.in_features, layer.out_features) if isinstance(layer, nn.Linear) else (layer.normalized_shape[-1],) * 2
        for layer in target.modules()
        if isinstance(layer, nn.Linear | nn.LayerNorm)
    ]
    if not widths:
        return None
    return widths[0][0] if before else widths[-1][1]


def _guess_input(model: nn.Module) -> Tensor:
    """Return a small input that suits the model's first convolution."""
    for module in model.modules():
        for dims, kind in enumerate((nn.Conv1d, nn.Conv2d, nn.Conv3d), start=1):
            if isinstance(module, kind):
                size = {1: (224,), 2: (224, 224), 3: (8, 224, 224)}[dims]
                return torch.empty(1, module.in_channels, *size, dtype=module.weight.dtype, device="meta")
    raise ValueError("the model has no convolution to guess its input from; pass an input as example=")
