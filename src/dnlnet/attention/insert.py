"""Put blocks into a finished model without renaming any of its parameters."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from dnlnet.attention.block import NonLocalBlock
from dnlnet.attention.spec import Options, find_variant
from dnlnet.errors import unknown

BLOCK_NAME = "non_local"

Example = Tensor | Sequence[Tensor]  # a batch, or a list of images as detectors take it


def insert(
    model: nn.Module,
    placement: Mapping[str, str],
    *,
    example: Example | None = None,
    before: bool = False,
    preset: str = "paper",
    **options: Unpack[Options],
) -> dict[str, NonLocalBlock]:
    """Add a block after each named submodule of any model, or before it, in place.

    The block becomes the child `non_local` of the submodule it follows and is applied to its output by a
    forward hook, so every parameter that was there keeps its name and pretrained weights load as before. A
    `Sequential` is followed by following its last layer. Channel count and dimensionality are found by one pass
    on the meta device, which computes nothing and ends at the last of the places. Only where the data decide what
    runs, as in the heads of a detector, an example that was given is computed with.

    Args:
        model: timm, torchvision or one's own.
        placement: submodule name -> variant, e.g. ``{"layer3.4": "dnl"}``.
        example: an input the model accepts, a batch or a list of images; without it, one is guessed from the
            model's first convolution.
        before: apply the block to what the submodule is given, not to what it puts out: for an activation, say.
        preset, **options: as for `NonLocalBlock`.

    Returns:
        The blocks by the names in `placement`.

    >>> net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU())
    >>> insert(net, {"1": "dnl"})["1"].channels
    16
    """
    names = [name for name, _ in model.named_modules() if name]
    targets = {}
    for name, variant in placement.items():
        if name not in names:
            raise unknown("submodule", name, names)
        find_variant(variant)
        targets[name] = _layer(model.get_submodule(name), name, before)
    if len({id(target) for target in targets.values()}) < len(targets):
        raise ValueError(f"two of {', '.join(placement)} name the same place; keep one of them")
    shapes = _shapes(model, targets, example, before)
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
            targets[name].register_forward_hook(_apply_block)
    return blocks


def _apply_block(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    block: nn.Module = module.get_submodule(BLOCK_NAME)
    result: Tensor = block(output)
    return result


def _apply_before(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    block: nn.Module = module.get_submodule(BLOCK_NAME)
    return (block(args[0]), *args[1:])


def _layer(module: nn.Module, name: str, before: bool) -> nn.Module:
    """A plain Sequential would run a new child by itself, so the block goes to its last, or first, layer instead."""
    while type(module).forward is nn.Sequential.forward and len(list(module.children())):
        module = list(module.children())[0 if before else -1]
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        raise ValueError(
            f"{name!r} is a {type(module).__name__}, which may run a new child by itself; "
            "name the layer inside it that the block should follow"
        )
    if hasattr(module, BLOCK_NAME):
        raise ValueError(f"{name!r} is followed by a block already; insert one per place")
    return module


class _AllSeen(Exception):  # noqa: N818 - not an error
    """Ends a pass over the model as soon as it has told what is wanted."""


def _shapes(
    model: nn.Module, targets: Mapping[str, nn.Module], example: Example | None, before: bool
) -> dict[str, torch.Size]:
    """The shape of what each target puts out, or is given, from a pass over meta tensors."""
    seen: dict[str, Any] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def look(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            seen[name] = inputs[0] if before else output
            if len(seen) == len(targets):
                raise _AllSeen

        return look

    hooks = [target.register_forward_hook(note(name)) for name, target in targets.items()]
    try:
        _pass(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    for name, target in targets.items():
        _check(name, target, seen.get(name), before)
    return {name: seen[name].shape for name in targets}


@torch.no_grad()
def _pass(model: nn.Module, example: Example | None) -> None:
    """Run the model on the meta device; if it needs values to run at all, on the example if there is one."""
    # Every tensor once in each module that holds it, whatever other names that module has: `functional_call`, left to
    # find tensors of several names by itself, puts them back wrongly.
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
            with _evaluating(model):
                torch.func.functional_call(model, replaced, (_to(example, device),), tie_weights=False)
            return
        except _AllSeen:
            return
        except Exception as error:
            reason = error
    shape = tuple(example.shape) if isinstance(example, Tensor) else [tuple(image.shape) for image in example]
    raise ValueError(
        f"the model did not run on an input of shape {shape} ({reason}); pass an input that it accepts as example="
    ) from reason


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; what the model notes about itself meanwhile, such as cached anchors, is undone."""
    before = {module: dict(vars(module)) for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, attributes in before.items():
            vars(module).clear()
            vars(module).update(attributes)


def _to(example: Example, device: str | torch.device) -> Example:
    return example.to(device) if isinstance(example, Tensor) else [image.to(device) for image in example]


def _check(name: str, target: nn.Module, found: Any, before: bool) -> None:
    """A block needs features whose second dimension is the channels."""
    what = "nothing" if found is None else type(found).__name__
    if isinstance(found, Tensor):
        what = f"a tensor of shape {tuple(found.shape)}"
        if 3 <= found.dim() <= 5:
            width = _last_width(target, before)
            if width is None or width != found.shape[-1] or width == found.shape[1]:
                return
            what += ", channels last"
    verb = "was given" if before else "put out"
    raise ValueError(f"{name!r} {verb} {what}; a block needs (B, C, L), (B, C, H, W) or (B, C, T, H, W)")


def _last_width(target: nn.Module, before: bool) -> int | None:
    """Width of the layer nearest to the block that works on the last dimension, as transformers' layers do."""
    widths = [
        (layer.in_features, layer.out_features) if isinstance(layer, nn.Linear) else (layer.normalized_shape[-1],) * 2
        for layer in target.modules()
        if isinstance(layer, nn.Linear | nn.LayerNorm)
    ]
    if not widths:
        return None
    return widths[0][0] if before else widths[-1][1]


def _guess_input(model: nn.Module) -> Tensor:
    """One small input for the model's first convolution."""
    for module in model.modules():
        for dims, kind in enumerate((nn.Conv1d, nn.Conv2d, nn.Conv3d), start=1):
            if isinstance(module, kind):
                size = {1: (224,), 2: (224, 224), 3: (8, 224, 224)}[dims]
                return torch.empty(1, module.in_channels, *size, dtype=module.weight.dtype, device="meta")
    raise ValueError("the model has no convolution to guess its input from; pass an input as example=")
