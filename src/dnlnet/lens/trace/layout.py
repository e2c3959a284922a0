"""Where the tokens of an attention lie: in a picture, in the windows of one, or in a row."""

# H, W size of the picture in pixels; N tokens; L windows

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

_BY_HAND = "say how they lie with laid_out(Layout(size=(rows, columns), key_size=(rows, columns)"
_MOST_PREFIX = 16  # tokens before those of the picture, if nobody says how many there are


@dataclass(frozen=True)
class Layout:
    """How tokens lie.

    Args:
        size: of the map of queries: (rows, columns) of a picture, or (count,) of tokens in a row.
        key_size: of the map of keys.
        prefix: tokens before those of the picture, such as class and registers, which have no place in it.
        key_prefix: the same of the keys.
        places: (L, N) for attention inside of windows: the position on the map of each token of each window, -1 for
            padding; None if every token attends to all, and they lie row by row.
        key_places: (L, M), the same of the keys; None if they are those of the queries.
    """

    size: tuple[int, ...]
    key_size: tuple[int, ...]
    prefix: int = 0
    key_prefix: int = 0
    places: Tensor | None = None
    key_places: Tensor | None = None

    @property
    def places_of_keys(self) -> Tensor | None:
        """Where the keys of windows lie."""
        return self.places if self.key_places is None else self.key_places


def find_layout(
    model: nn.Module,
    chain: Sequence[tuple[nn.Module, Sequence[int]]],
    tokens: tuple[int, int],
    picture: tuple[int, int] | None,
    groups: int = 1,
) -> Layout | str:
    """How the queries and keys of an attention lie, or a sentence that says why nobody knows.

    Args:
        model: that it ran in, which may say how many prefix tokens it has.
        chain: the modules around the attention, innermost first, with the shapes of their inputs.
        tokens: number of queries and of keys.
        picture: height and width of the model's input; None for anything but pictures.
        groups: of tokens of each picture that attend to each other, such as windows.
    """
    for number, (module, shape) in enumerate(chain):
        for kind, windows in WINDOWS.items():
            if is_a(module, kind):
                return windows(Cut(module, shape, [each for each, _ in chain[:number]], tokens, groups, picture))
    count, key_count = tokens
    if picture is None:
        return Layout((count,), (key_count,))
    if groups != 1:
        return (
            f"the tokens of a picture of {picture[0]} x {picture[1]} pixels attend to each other in {groups} groups "
            f"of {count}, perhaps windows, which are not known for {type(model).__name__}; {_BY_HAND}, places=...))"
        )
    said = prefix_tokens(model)
    queries, keys = (_grid(number, picture, said) for number in tokens)
    if queries is None or keys is None:
        number = count if queries is None else key_count
        return (
            f"{number} tokens are no grid of the shape of a picture of {picture[0]} x {picture[1]} pixels; "
            f"{_BY_HAND}, prefix=..., key_prefix=...))"
        )
    return Layout(queries[1], keys[1], queries[0], keys[0])


def prefix_tokens(model: nn.Module) -> int | None:
    """How many tokens a model puts before those of the picture, if it says so; None if nothing is known.

    timm's networks say it; of others, the parameters of such tokens are counted by their names.
    """
    said = getattr(model, "num_prefix_tokens", None)
    if isinstance(said, int):
        return said
    names = {name.rpartition(".")[2]: parameter for name, parameter in model.named_parameters()}
    found = [parameter for name, parameter in names.items() if name in _TOKENS]
    return sum(1 if token.dim() == 1 else prod(token.shape[:-1]) for token in found) if found else None


# Names of parameters that are tokens of their own.
_TOKENS = frozenset({"cls_token", "class_token", "class_embedding", "reg_token", "register_tokens", "dist_token"})


def _grid(count: int, picture: tuple[int, int], said: int | None) -> tuple[int, tuple[int, int]] | None:
    """Prefix tokens and the grid of the others, of the shape of the picture."""
    wanted = range(min(_MOST_PREFIX, count - 1) + 1) if said is None else dict.fromkeys((said, 0))
    for prefix in wanted:
        size = _shape_of(count - prefix, picture)
        if size is not None:
            return prefix, size
    return None


def _shape_of(count: int, picture: tuple[int, int]) -> tuple[int, int] | None:
    """Rows and columns that are nearest to the shape of the picture, if they are near.

    >>> _shape_of(27 * 36, (360, 480)), _shape_of(972, (360, 360)), _shape_of(16, (64, 64))
    ((27, 36), None, (4, 4))
    """
    height, width = picture
    if count < 1:
        return None
    rows = min(
        (rows for rows in range(1, count + 1) if count % rows == 0),
        key=lambda rows: abs(rows * width - (count // rows) * height),
    )
    columns = count // rows
    fits = abs(rows - columns * height / width) < 1 or abs(columns - rows * width / height) < 1
    return (rows, columns) if fits else None


# ---- attention inside of windows


@dataclass(frozen=True)
class Cut:
    """A module that divides its map among several attentions, and what one of them saw.

    Args:
        module: that divides.
        shape: of its input.
        inside: the modules between it and the attention, innermost first.
        tokens: number of queries and of keys of a window.
        groups: that attend apart in each picture: how many windows there are.
        picture: height and width of the model's input; None for anything but pictures.
    """

    module: Any
    shape: Sequence[int]
    inside: Sequence[Any]
    tokens: tuple[int, int]
    groups: int
    picture: tuple[int, int] | None


def _partition(index: Tensor, window: tuple[int, int]) -> Tensor:
    """(L, N): the positions of a map (h, w) in windows; -1 where padding fills them."""
    padded = _padded(index, window)
    rows, columns = (length // side for length, side in zip(padded.shape, window, strict=True))
    return padded.view(rows, window[0], columns, window[1]).permute(0, 2, 1, 3).reshape(rows * columns, -1)


def _padded(index: Tensor, window: tuple[int, int]) -> Tensor:
    height, width = index.shape
    return nn.functional.pad(index, (0, -width % window[1], 0, -height % window[0]), value=-1)


def _shifted(index: Tensor, shift: tuple[int, int]) -> Tensor:
    return index.roll((-shift[0], -shift[1]), dims=(0, 1))


def _timm_windows(index: Tensor, window: tuple[int, int], shift: tuple[int, int]) -> Tensor:
    """Shifted, then padded."""
    return _partition(_shifted(index, shift), window)


def _torchvision_windows(index: Tensor, window: tuple[int, int], shift: tuple[int, int]) -> Tensor:
    """Padded, then shifted, but not along a side that has one window only."""
    sides = (shift[axis] if window[axis] < index.shape[axis] else 0 for axis in (0, 1))
    return _partition(_shifted(_padded(index, window), (next(sides), next(sides))), window)


def _shifted_windows(cut: Callable[[Tensor, tuple[int, int], tuple[int, int]], Tensor]) -> "Windows":
    """Swin: the module's input is (B, h, w, C), or (B, h w, C) of a map of the shape of the picture."""

    def find(cut_out: Cut) -> Layout | str:
        module, shape, picture = cut_out.module, cut_out.shape, cut_out.picture
        if len(shape) == 4:
            size: tuple[int, int] | None = (int(shape[1]), int(shape[2]))
        else:
            size = _shape_of(int(shape[1]), picture) if len(shape) == 3 and picture is not None else None
        if size is None:
            return (
                f"the windows of {type(module).__name__} are known for an input of (B, h, w, C), or of (B, h w, C) "
                f"in the shape of the picture; this one is {shape}"
            )
        height, width = size
        window, shift = (pair(getattr(module, name)) for name in ("window_size", "shift_size"))
        places = cut(torch.arange(height * width).view(height, width), window, shift)
        if places.shape[1] != cut_out.tokens[0]:
            return f"windows of {window} positions were expected, and {cut_out.tokens[0]} tokens seen"
        return Layout((height, width), (height, width), places=places)

    return find


def _interleaved(cut: Cut) -> Layout | str:
    """MobileViT: the tokens with one offset in their patches attend to each other; the input is (B, C, H, W)."""
    down, across = pair(cut.module.patch_size)
    height, width = (-(-int(cut.shape[axis]) // side) * side for axis, side in ((2, down), (3, across)))
    index = torch.arange(height * width).view(height // down, down, width // across, across)
    places = index.permute(1, 3, 0, 2).reshape(down * across, -1)
    if places.shape[1] != cut.tokens[0]:
        return f"{places.shape[1]} patches were expected, and {cut.tokens[0]} tokens seen"
    return Layout((height, width), (height, width), places=places)


def _timm_mask_units(cut: Cut) -> Layout | str:
    """Hiera of timm, by the number of the block that the attention is in."""
    hiera, (attention, block) = cut.module, cut.inside[:2]
    number = next(index for index, each in enumerate(hiera.blocks) if each is block)
    pooled = sum(end < number for end in hiera.stage_ends[: hiera.q_pool])
    return _mask_units(cut, hiera.patch_stride, hiera.unroll.schedule, pooled, attention.q_stride > 1)


def _transformers_mask_units(cut: Cut) -> Layout | str:
    """Hiera of transformers, by the number of the stage that the attention is in."""
    config, (attention, _, stage, encoder) = cut.module.config, cut.inside[:4]
    number = next(index for index, each in enumerate(encoder.stages) if each is stage)
    schedule = [config.query_stride] * (len(config.depths) - 1)
    pooled = min(number, config.num_query_pool)
    return _mask_units(cut, config.patch_stride, schedule, pooled, attention.query_stride > 1)


def _mask_units(
    cut: Cut, patch: Sequence[int], schedule: Sequence[Sequence[int]], pooled: int, pools: bool
) -> Layout | str:
    """Hiera: its tokens are sorted so that those to be pooled together stand apart, and so do those of a window.

    Args:
        cut: the network.
        patch: stride of the patches.
        schedule: strides of all poolings.
        pooled: how many of them the queries have behind them.
        pools: the last of them is of this attention, so that its keys are not pooled yet.
    """
    if cut.picture is None or len(patch) != 2:
        return f"the mask units of {type(cut.module).__name__} are known for pictures alone"
    size = cut.picture[0] // patch[0], cut.picture[1] // patch[1]
    sizes, places = [], []
    for done, count in zip((pooled, pooled - pools), cut.tokens, strict=True):
        down, across = (prod(stride[axis] for stride in schedule[:done]) for axis in (0, 1))
        rows, columns = size[0] // down, size[1] // across
        order = _unrolled(rows, columns, schedule[done:])
        if len(order) != cut.groups * count:
            return (
                f"{rows} x {columns} tokens were expected, and {cut.groups} windows of {count} seen; if a mask "
                f"leaves some out, {_BY_HAND}, places=..., key_places=...))"
            )
        sizes.append((rows, columns))
        places.append(order.view(count, -1).T)
    return Layout(sizes[0], sizes[1], places=places[0], key_places=places[1])


def _unrolled(rows: int, columns: int, schedule: Sequence[Sequence[int]]) -> Tensor:
    """(N,), the positions of a map in the order of Hiera's tokens: sorted by their offsets, stride by stride.

    >>> _unrolled(2, 4, [(2, 2)])
    tensor([0, 2, 1, 3, 4, 6, 5, 7])
    """
    index = torch.arange(rows * columns).view(1, rows, columns)
    for down, across in schedule:
        groups, rows, columns = index.shape
        index = index.view(groups, rows // down, down, columns // across, across).permute(0, 2, 4, 1, 3)
        index = index.reshape(-1, rows // down, columns // across)
    return index.flatten()


def pair(value: Any) -> tuple[int, int]:
    """Height and width, from both or from one number for both."""
    first, second = (value, value) if isinstance(value, int) else value
    return int(first), int(second)


def is_a(module: nn.Module, kind: str) -> bool:
    """Whether a module is of the class of this full name, without that its library need be imported."""
    return any(f"{base.__module__}.{base.__qualname__}" == kind for base in type(module).__mro__)


# Modules that divide their map among several attentions, and how.
Windows = Callable[[Cut], Layout | str]
WINDOWS: Mapping[str, Windows] = {
    "timm.models.swin_transformer.SwinTransformerBlock": _shifted_windows(_timm_windows),
    "timm.models.swin_transformer_v2.SwinTransformerV2Block": _shifted_windows(_timm_windows),
    "torchvision.models.swin_transformer.ShiftedWindowAttention": _shifted_windows(_torchvision_windows),
    "transformers.models.swin.modeling_swin.SwinLayer": _shifted_windows(_torchvision_windows),
    "transformers.models.swinv2.modeling_swinv2.Swinv2Layer": _shifted_windows(_torchvision_windows),
    "timm.models.mobilevit.MobileVitBlock": _interleaved,
    "timm.models.hiera.Hiera": _timm_mask_units,
    "transformers.models.hiera.modeling_hiera.HieraModel": _transformers_mask_units,
}
# Attention whose heads come before its windows, (B, H, L, N, D), and not behind them.
HEADS_FIRST = (
    "timm.models.hiera.MaskUnitAttention",
    "transformers.models.hiera.modeling_hiera.HieraMaskUnitAttention",
)
