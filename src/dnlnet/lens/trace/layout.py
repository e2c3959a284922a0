"""Token layout: positions of an attention's tokens in an image, in its windows, or in a row."""

# H, W size of the image in pixels; N tokens; L windows

from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

BY_HAND = "give their positions with laid_out(Layout(size=(rows, columns), key_size=(rows, columns)"
_MOST_PREFIX = 16  # prefix tokens to try if the model does not declare them


@dataclass(frozen=True)
class Layout:
    """Positions of tokens on a map.

    Args:
        size: Size of the query map: (rows, columns) of an image, or (count,) of tokens in a row.
        key_size: Size of the key map.
        prefix: Number of tokens before the image tokens, such as class and register tokens. They have no position.
        key_prefix: The same for the keys.
        places: (L, N) for windowed attention: map position of each token of each window, -1 for padding. None if
            every token attends to all and they lie row by row.
        key_places: (L, M), the same for the keys. None if they equal `places`.
    """

    size: tuple[int, ...]
    key_size: tuple[int, ...]
    prefix: int = 0
    key_prefix: int = 0
    places: Tensor | None = None
    key_places: Tensor | None = None

    @property
    def places_of_keys(self) -> Tensor | None:
        """Map positions of the keys of windows."""
        return self.places if self.key_places is None else self.key_places

    @property
    def is_image(self) -> bool:
        """True if queries and keys both lie on an image."""
        return len(self.size) == len(self.key_size) == 2


def find_layout(
    model: nn.Module, tokens: tuple[int, int], image: tuple[int, int] | None, groups: int = 1
) -> Layout | str:
    """Return the layout of an attention's queries and keys, or a sentence that explains why it is unknown.

    Args:
        model: Model that contains the attention. It may declare its prefix tokens.
        tokens: Number of queries and of keys.
        image: Height and width of the model's input. None if the input is not an image.
        groups: Number of token groups per image that attend separately, such as windows.
    """
    count, key_count = tokens
    if image is None:
        return Layout((count,), (key_count,))
    if groups != 1:
        return (
            f"the tokens of an image of {image[0]} x {image[1]} pixels attend to each other in {groups} groups "
            f"of {count}, perhaps windows, which are unknown for {type(model).__name__}; {BY_HAND}, places=...))"
        )
    declared = prefix_tokens(model)
    queries, keys = (_grid(number, image, declared) for number in tokens)
    if queries is None or keys is None:
        number = count if queries is None else key_count
        return (
            f"{number} tokens do not form a grid in the shape of an image of {image[0]} x {image[1]} pixels; "
            f"{BY_HAND}, prefix=..., key_prefix=...))"
        )
    return Layout(queries[1], keys[1], queries[0], keys[0])


def prefix_tokens(model: nn.Module) -> int | None:
    """Return the number of prefix tokens that the model declares, or None.

    timm's networks declare the number. In others, it is the number of parameters with names of such tokens.
    """
    declared = getattr(model, "num_prefix_tokens", None)
    if isinstance(declared, int):
        return declared
    names = {name.rpartition(".")[2]: parameter for name, parameter in model.named_parameters()}
    found = [parameter for name, parameter in names.items() if name in _TOKENS]
    return sum(1 if token.dim() == 1 else prod(token.shape[:-1]) for token in found) if found else None


_TOKENS = frozenset({"cls_token", "class_token", "class_embedding", "reg_token", "register_tokens", "dist_token"})


def _grid(count: int, image: tuple[int, int], declared: int | None) -> tuple[int, tuple[int, int]] | None:
    """Return the number of prefix tokens, and a grid in the shape of the image for the others."""
    candidates = range(min(_MOST_PREFIX, count - 1) + 1) if declared is None else dict.fromkeys((declared, 0))
    for prefix in candidates:
        size = grid_of_shape(count - prefix, image)
        if size is not None:
            return prefix, size
    return None


def grid_of_shape(count: int, image: tuple[int, int]) -> tuple[int, int] | None:
    """Return the rows and columns of `count` tokens in the shape of the image, or None if none fit.

    >>> grid_of_shape(27 * 36, (360, 480)), grid_of_shape(972, (360, 360)), grid_of_shape(16, (64, 64))
    ((27, 36), None, (4, 4))
    """
    height, width = image
    if count < 1:
        return None
    rows = min(
        (rows for rows in range(1, count + 1) if count % rows == 0),
        key=lambda rows: abs(rows * width - (count // rows) * height),
    )
    columns = count // rows
    fits = abs(rows - columns * height / width) < 1 or abs(columns - rows * width / height) < 1
    return (rows, columns) if fits else None


def is_instance_of(module: nn.Module, kind: str) -> bool:
    """Return whether a module is of the class with this full name, without importing its library."""
    return any(f"{base.__module__}.{base.__qualname__}" == kind for base in type(module).__mro__)
