"""Layouts of windowed attention: Swin, MobileViT and Hiera of timm, torchvision and transformers."""

# h, w size of the map; L windows, N tokens of each

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.lens.trace.layout import BY_HAND, Layout, grid_of_shape, is_instance_of


@dataclass(frozen=True)
class WindowedModule:
    """Module that splits its map into windows, and one attention inside it.

    Args:
        module: Module that splits its map.
        shape: Shape of its input.
        inside: Modules between it and the attention, innermost first.
        tokens: Number of queries and of keys of a window.
        groups: Number of windows per image.
        image: Height and width of the model's input. None if the input is not an image.
    """

    module: Any
    shape: Sequence[int]
    inside: Sequence[Any]
    tokens: tuple[int, int]
    groups: int
    image: tuple[int, int] | None


LayoutReader = Callable[[WindowedModule], Layout | str]
Partition = Callable[[Tensor, tuple[int, int], tuple[int, int]], Tensor]  # positions (h, w), window, shift -> (L, N)


def find_windows(
    chain: Sequence[tuple[nn.Module, Sequence[int]]],
    tokens: tuple[int, int],
    image: tuple[int, int] | None,
    groups: int = 1,
) -> Layout | str | None:
    """Return the layout of windowed attention, None without windows, or a sentence that explains why it is unknown.

    Args:
        chain: Modules around the attention, innermost first, with the shapes of their inputs.
        tokens, image, groups: See `find_layout`.
    """
    for number, (module, shape) in enumerate(chain):
        for kind, read in _WINDOWED.items():
            if is_instance_of(module, kind):
                return read(
                    WindowedModule(module, shape, [each for each, _ in chain[:number]], tokens, groups, image)
                )
    return None


# ---- Swin


def _swin(partition: Partition) -> LayoutReader:
    """Return a reader for modules with an input of (B, h, w, C), or (B, h w, C) of a map of the image's shape."""

    def read(windowed: WindowedModule) -> Layout | str:
        module, shape, image = windowed.module, windowed.shape, windowed.image
        if len(shape) == 4:
            size: tuple[int, int] | None = (int(shape[1]), int(shape[2]))
        else:
            size = grid_of_shape(int(shape[1]), image) if len(shape) == 3 and image is not None else None
        if size is None:
            return (
                f"the windows of {type(module).__name__} can be placed for an input (B, h, w, C), or (B, h w, C) "
                f"in the shape of the image; this one is {shape}"
            )
        window, shift = (pair(getattr(module, name)) for name in ("window_size", "shift_size"))
        places = partition(torch.arange(prod(size)).view(size), window, shift)
        if places.shape[1] != windowed.tokens[0]:
            return f"windows of {window} positions were expected, but {windowed.tokens[0]} tokens were seen"
        return Layout(size, size, places=places)

    return read


def _timm_partition(index: Tensor, window: tuple[int, int], shift: tuple[int, int]) -> Tensor:
    """Shift, then pad."""
    return _partition(_shift(index, shift), window)


def _torchvision_partition(index: Tensor, window: tuple[int, int], shift: tuple[int, int]) -> Tensor:
    """Pad, then shift, except along a side with a single window."""
    down, across = (shift[axis] if window[axis] < index.shape[axis] else 0 for axis in (0, 1))
    return _partition(_shift(_pad(index, window), (down, across)), window)


def _partition(index: Tensor, window: tuple[int, int]) -> Tensor:
    """Cut a map (h, w) into windows (L, N), with -1 as padding."""
    padded = _pad(index, window)
    rows, columns = (length // side for length, side in zip(padded.shape, window, strict=True))
    return padded.view(rows, window[0], columns, window[1]).permute(0, 2, 1, 3).reshape(rows * columns, -1)


def _pad(index: Tensor, window: tuple[int, int]) -> Tensor:
    height, width = index.shape
    return nn.functional.pad(index, (0, -width % window[1], 0, -height % window[0]), value=-1)


def _shift(index: Tensor, shift: tuple[int, int]) -> Tensor:
    return index.roll((-shift[0], -shift[1]), dims=(0, 1))


# ---- MobileViT


def _interleaved(windowed: WindowedModule) -> Layout | str:
    """Group the tokens by their offset inside their patch; the module's input is (B, C, h, w)."""
    down, across = pair(windowed.module.patch_size)
    height, width = (-(-int(windowed.shape[axis]) // side) * side for axis, side in ((2, down), (3, across)))
    index = torch.arange(height * width).view(height // down, down, width // across, across)
    places = index.permute(1, 3, 0, 2).reshape(down * across, -1)
    if places.shape[1] != windowed.tokens[0]:
        return f"{places.shape[1]} patches were expected, but {windowed.tokens[0]} tokens were seen"
    return Layout((height, width), (height, width), places=places)


# ---- Hiera


def _timm_mask_units(windowed: WindowedModule) -> Layout | str:
    """Read the layout of timm's Hiera from the number of the block around the attention."""
    hiera, (attention, block) = windowed.module, windowed.inside[:2]
    number = next(index for index, each in enumerate(hiera.blocks) if each is block)
    pooled = sum(end < number for end in hiera.stage_ends[: hiera.q_pool])
    return _mask_units(windowed, hiera.patch_stride, hiera.unroll.schedule, pooled, attention.q_stride > 1)


def _transformers_mask_units(windowed: WindowedModule) -> Layout | str:
    """Read the layout of transformers' Hiera from the number of the stage around the attention."""
    config, (attention, _, stage, encoder) = windowed.module.config, windowed.inside[:4]
    number = next(index for index, each in enumerate(encoder.stages) if each is stage)
    schedule = [config.query_stride] * (len(config.depths) - 1)
    pooled = min(number, config.num_query_pool)
    return _mask_units(windowed, config.patch_stride, schedule, pooled, attention.query_stride > 1)


def _mask_units(
    windowed: WindowedModule, patch: Sequence[int], schedule: Sequence[Sequence[int]], pooled: int, pools: bool
) -> Layout | str:
    """Lay out Hiera's tokens, which are sorted so that pooling and windows become plain reshapes.

    Args:
        windowed: Windowed module.
        patch: Stride of the patches.
        schedule: Strides of all poolings.
        pooled: Number of poolings applied to the queries.
        pools: True if the last of them belongs to this attention, so that its keys are not pooled yet.
    """
    if windowed.image is None or len(patch) != 2:
        return f"the mask units of {type(windowed.module).__name__} can be placed on images only"
    size = windowed.image[0] // patch[0], windowed.image[1] // patch[1]
    sizes, places = [], []
    for done, count in zip((pooled, pooled - pools), windowed.tokens, strict=True):
        down, across = (prod(stride[axis] for stride in schedule[:done]) for axis in (0, 1))
        rows, columns = size[0] // down, size[1] // across
        order = _unroll(rows, columns, schedule[done:])
        if len(order) != windowed.groups * count:
            return (
                f"{rows} x {columns} tokens were expected, but {windowed.groups} windows of {count} were seen; if a "
                f"mask leaves some out, {BY_HAND}, places=..., key_places=...))"
            )
        sizes.append((rows, columns))
        places.append(order.view(count, -1).T)
    return Layout(sizes[0], sizes[1], places=places[0], key_places=places[1])


def _unroll(rows: int, columns: int, schedule: Sequence[Sequence[int]]) -> Tensor:
    """Return the map positions in the order of Hiera's tokens: sorted by their offsets, stride by stride.

    >>> _unroll(2, 4, [(2, 2)])
    tensor([0, 2, 1, 3, 4, 6, 5, 7])
    """
    index = torch.arange(rows * columns).view(1, rows, columns)
    for down, across in schedule:
        groups, rows, columns = index.shape
        index = index.view(groups, rows // down, down, columns // across, across).permute(0, 2, 4, 1, 3)
        index = index.reshape(-1, rows // down, columns // across)
    return index.flatten()


def pair(value: Any) -> tuple[int, int]:
    """Return (height, width) from a pair, or from one number for both."""
    first, second = (value, value) if isinstance(value, int) else value
    return int(first), int(second)


_WINDOWED: Mapping[str, LayoutReader] = {
    "timm.models.swin_transformer.SwinTransformerBlock": _swin(_timm_partition),
    "timm.models.swin_transformer_v2.SwinTransformerV2Block": _swin(_timm_partition),
    "torchvision.models.swin_transformer.ShiftedWindowAttention": _swin(_torchvision_partition),
    "transformers.models.swin.modeling_swin.SwinLayer": _swin(_torchvision_partition),
    "transformers.models.swinv2.modeling_swinv2.Swinv2Layer": _swin(_torchvision_partition),
    "timm.models.mobilevit.MobileVitBlock": _interleaved,
    "timm.models.hiera.Hiera": _timm_mask_units,
    "transformers.models.hiera.modeling_hiera.HieraModel": _transformers_mask_units,
}
# Attention whose heads come before its windows: (B, H, L, N, D), not (B, L, H, N, D).
HEADS_FIRST = (
    "timm.models.hiera.MaskUnitAttention",
    "transformers.models.hiera.modeling_hiera.HieraMaskUnitAttention",
)
