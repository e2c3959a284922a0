"""Transformers of other libraries by name, to be looked into: `timm:`, `torchvision:` and `transformers:`."""

# H, W size of the picture; h, w size at which the network sees it

import warnings
from dataclasses import dataclass, field
from itertools import product
from math import log, sqrt
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from dnlnet.errors import is_out_of_memory, unknown
from dnlnet.lens.show.attended_image import AttentionView
from dnlnet.lens.show.layers import Choice, layer_views
from dnlnet.lens.trace.capture import Captured, capture
from dnlnet.lens.trace.recorded import Recorded
from dnlnet.libraries.network import Network, Size
from dnlnet.libraries.readers import LIBRARIES

_SIZES_TOLD = 3


def is_foreign(name: str | Path) -> bool:
    """Whether a model is named as one of another library.

    >>> is_foreign("timm:vit_tiny_patch16_224"), is_foreign("runs/dnl")
    (True, False)
    """
    return str(name).partition(":")[0] in LIBRARIES and ":" in str(name)


def load_foreign(
    name: str | Path,
    weights: Path | str | None = None,
    size: int | Size | None = None,
    *,
    choice: Choice | None = None,
    device: torch.device | str = "cpu",
) -> "ForeignModel":
    """A transformer of another library, ready to look at pictures.

    Args:
        name: `timm:NAME`, `torchvision:NAME`, or `transformers:NAME_OR_FOLDER`.
        weights: a local state dict, safetensors or PyTorch's, of which nothing is executed; "none" for random
            weights; default: the library's own download.
        size: at which it sees pictures: the shorter side, or height and width, in pixels. Default: that of the
            picture, but not larger than what the network was trained with, or the only one that the network takes.
        choice: of layers and heads for `views`; default: the mean over the heads of every layer.
        device: where it runs.

    >>> vit = load_foreign("timm:vit_tiny_patch16_224", "none")
    >>> attention = vit.look(np.zeros((40, 64, 3), np.uint8))
    >>> attention["blocks.11.attn"].maps([(1, 2)], "mean").pairwise.shape  # resized to 48 x 80 pixels
    torch.Size([1, 1, 3, 5])
    """
    library, _, rest = str(name).partition(":")
    if library not in LIBRARIES:
        raise unknown("library", library, LIBRARIES)
    if not rest:
        raise ValueError(f"{name} names no model; expected {library}:NAME")
    network = LIBRARIES[library](rest, None if weights is None else Path(weights))
    network.module.to(device)
    return ForeignModel(str(name), network, _size_asked(str(name), network, size), choice or Choice(), device)


@dataclass
class ForeignModel:
    """A transformer of another library that looks at pictures.

    Args:
        name: that it was asked for by.
        source: the network, and how it takes pictures.
        size: at which it sees them; see `load_foreign`.
        choice: of layers and heads for `views`.
        device: where it runs.
    """

    name: str
    source: Network
    size: int | Size | None = None
    choice: Choice = field(default_factory=Choice)
    device: torch.device | str = "cpu"
    classes: None = None
    _resized: dict[Size, Size] = field(default_factory=dict)

    @property
    def network(self) -> nn.Module:
        """In evaluation mode."""
        return self.source.module

    @property
    def notes(self) -> list[str]:
        """What a user should know of its weights, and of the pictures that it has seen."""
        notes = list(self.source.notes)
        for (height, width), (rows, columns) in list(self._resized.items())[:_SIZES_TOLD]:
            why = "the only size that it takes" if self.source.multiple is None else f"multiples of {self._step}"
            notes.append(f"{self.name}: sees pictures of {width} x {height} pixels as {columns} x {rows}, {why}")
        if len(self._resized) > _SIZES_TOLD:
            notes.append(f"{self.name}: and pictures of {len(self._resized) - _SIZES_TOLD} other sizes accordingly")
        return notes

    @property
    def _step(self) -> str:
        return " x ".join(map(str, dict.fromkeys(self.source.multiple or ())))

    def prepare(self, pixels: NDArray[np.uint8]) -> Tensor:
        """A picture (H, W, 3) in 0..255 as the network sees it, (1, 3, h, w)."""
        picture = pixels.shape[0], pixels.shape[1]
        size = self._size_for(picture)
        if size != picture:
            self._resized[picture] = size
            pixels = np.asarray(Image.fromarray(pixels).resize((size[1], size[0]), self.source.resample))
        image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]
        return self.source.pixels.normalised(image.to(self.device))

    def run(self, images: Tensor) -> None:
        """Let the network see prepared images."""
        height, width = images.shape[-2:]
        try:
            with torch.no_grad():
                self.source(images)
        except _REFUSALS as error:
            if is_out_of_memory(error):
                raise
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise ValueError(f"{self.name}: cannot see pictures of {width} x {height} pixels: {reason}") from error

    def look(self, pixels: NDArray[np.uint8]) -> Captured:
        """What the network attends to in a picture (H, W, 3) in 0..255."""
        image = self.prepare(pixels)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="no attention was seen")
            with capture(self.network) as attention:
                self.run(image)
        if not attention:
            raise ValueError(
                f"{self.name}: has no attention of the kind softmax(query.key), so there is nothing to see; choose a "
                "transformer, such as timm:vit_small_patch16_224"
            )
        return attention

    def attention_views(self, title: str, pixels: NDArray[np.uint8]) -> list[AttentionView]:
        """Views of the chosen layers and heads, of one pass over the whole picture (H, W, 3)."""
        captured = self.look(pixels)
        views = layer_views(title, captured, self.choice)
        if not views:
            found = [layer for layer in captured.values() if isinstance(layer, Recorded)]
            why = next((layer.layout for layer in found if isinstance(layer.layout, str)), "no picture has one query")
            raise ValueError(f"{self.name}: its attention has no maps of a picture: {why}")
        return views

    def _size_for(self, picture: Size) -> Size:
        source = self.source
        if isinstance(self.size, tuple):
            return self.size
        if source.multiple is None:
            return source.size
        if self.size is None:
            scale = min(1.0, sqrt(source.size[0] * source.size[1] / (picture[0] * picture[1])))
        else:
            scale = self.size / min(picture)
        return fitted_size((picture[0] * scale, picture[1] * scale), source.multiple)


# What networks raise for pictures of a size that they do not take.
_REFUSALS = (RuntimeError, ValueError, TypeError, AssertionError, IndexError, KeyError, AttributeError)


def fitted_size(wanted: tuple[float, float], multiple: Size) -> Size:
    """Multiples near height and width that keep the aspect best.

    >>> fitted_size((360, 480), (14, 14)), fitted_size((224, 224), (16, 16))
    ((378, 504), (224, 224))
    """
    height, width = wanted
    choices = (
        [step * max(1, int(length / step + 1e-6) + more) for more in range(3)]
        for length, step in zip(wanted, multiple, strict=True)
    )
    rows, columns = min(product(*choices), key=lambda size: round(abs(log(size[0] * width / (size[1] * height))), 6))
    return rows, columns


def _size_asked(name: str, network: Network, size: int | Size | None) -> int | Size | None:
    """The size, if the network takes it."""
    sides = (size,) if isinstance(size, int) else size or ()
    if any(side < 1 for side in sides):
        raise ValueError(f"size {size}: expected a number of pixels above 0")
    if size is None:
        return None
    if network.multiple is None:
        height, width = network.size
        if not all(side in network.size for side in sides):
            raise ValueError(f"{name}: takes pictures of {width} x {height} pixels alone, not of {size}")
        return None
    if isinstance(size, tuple) and any(side % step for side, step in zip(size, network.multiple, strict=True)):
        raise ValueError(f"{name}: height and width are multiples of {network.multiple}, not {size}")
    return size
