"""Transformers of other libraries by name: `timm:`, `torchvision:` and `transformers:`."""

# H, W size of the image; h, w size of the network's input

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from dnlnet.data.images import HeightWidth, ImageLike, read_pixels
from dnlnet.errors import is_out_of_memory, unknown
from dnlnet.lens.measure.profile import Profile
from dnlnet.lens.show.attend import AttendRequest, AttendResult, Query, attend_images
from dnlnet.lens.show.attended_image import AttentionView
from dnlnet.lens.show.layer_views import layer_views
from dnlnet.lens.trace.capture import Captured, capture
from dnlnet.lens.trace.recorded import HeadChoice, LayerChoice, RecordedAttention
from dnlnet.libraries.network import LibraryNetwork
from dnlnet.libraries.readers import LIBRARIES

_MAX_SIZE_NOTES = 3


def is_transformer_name(name: str | Path) -> bool:
    """Return whether a name refers to a transformer of another library.

    >>> is_transformer_name("timm:vit_tiny_patch16_224"), is_transformer_name("runs/dnl")
    (True, False)
    """
    return str(name).partition(":")[0] in LIBRARIES and ":" in str(name)


def load_transformer(
    name: str | Path,
    weights: Path | str | None = None,
    size: int | HeightWidth | None = None,
    *,
    layers: Sequence[int | str] | None = None,
    heads: HeadChoice = "mean",
    device: torch.device | str = "cpu",
) -> "Transformer":
    """Load a transformer of another library.

    Args:
        name: `timm:NAME`, `torchvision:NAME`, or `transformers:NAME_OR_FOLDER`.
        weights: Local state dict (safetensors or PyTorch, loaded without running code), or "none" for random weights.
            Default: downloaded by the library.
        size: Input size in pixels: the shorter side, or height and width. Default: the image size up to the training
            size, or the only size that the network accepts.
        layers: Layers to show, by number or name. Default: all.
        heads: Heads to show: "mean", one head number, or "all".
        device: Device of the network.

    >>> vit = load_transformer("timm:vit_tiny_patch16_224", "none")
    >>> attention = vit.look(np.zeros((40, 64, 3), np.uint8))
    >>> attention["blocks.11.attn"].maps([(1, 2)], "mean").pairwise.shape  # resized to 48 x 80 pixels
    torch.Size([1, 1, 3, 5])
    """
    library, _, rest = str(name).partition(":")
    if library not in LIBRARIES:
        raise unknown("library", library, LIBRARIES)
    if not rest:
        raise ValueError(f"{name} names no model; expected {library}:NAME")
    source = LIBRARIES[library](rest, None if weights is None else Path(weights))
    source.module.to(device)
    size = _checked_size(str(name), source, size)
    return Transformer(str(name), source, size, LayerChoice(layers, heads), device)


@dataclass
class Transformer:
    """Image transformer of another library.

    ``look(image)`` captures its attention, ``profile(image)`` measures every head, ``attend(image)`` draws it.

    Args:
        name: Name passed to `load_transformer`.
        source: Network, with its preprocessing.
        size: Input size; see `load_transformer`.
        choice: Layers and heads for `views`.
        device: Device of the network.
    """

    name: str
    source: LibraryNetwork
    size: int | HeightWidth | None = None
    choice: LayerChoice = field(default_factory=LayerChoice)
    device: torch.device | str = "cpu"
    classes: None = None
    _resized: dict[HeightWidth, HeightWidth] = field(default_factory=dict)

    @property
    def network(self) -> nn.Module:
        """Network in evaluation mode."""
        return self.source.module

    @property
    def notes(self) -> list[str]:
        """Notes on the weights, and on the sizes of images so far."""
        notes = list(self.source.notes)
        step = " x ".join(map(str, dict.fromkeys(self.source.multiple or ())))
        why = f"multiples of {step}" if step else "the only size that it takes"
        for (height, width), (rows, columns) in list(self._resized.items())[:_MAX_SIZE_NOTES]:
            notes.append(f"{self.name}: sees images of {width} x {height} pixels as {columns} x {rows}, {why}")
        if len(self._resized) > _MAX_SIZE_NOTES:
            notes.append(f"{self.name}: and images of {len(self._resized) - _MAX_SIZE_NOTES} other sizes accordingly")
        return notes

    def look(self, image: ImageLike) -> Captured:
        """Capture the attention over an image, in any form that `read_pixels` accepts."""
        prepared = self.prepare(read_pixels(image))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="no attention was seen")
            with capture(self.network) as attention:
                self.run(prepared)
        if not attention:
            raise ValueError(
                f"{self.name}: has no attention of the kind softmax(query.key); choose a transformer, such as "
                "timm:vit_small_patch16_224"
            )
        return attention

    def profile(self, image: ImageLike) -> Profile:
        """Measure the attention of each head over an image. See `dnlnet.profile` for many images and labels."""
        return self.look(image).profile()

    def attend(self, source: Any, queries: Sequence[Query] = (), **options: Any) -> AttendResult:
        """Show what the network attends to, like `dnlnet.attend`.

        Args:
            source: Image in any form that `read_pixels` accepts, folder, or a list of these.
            queries: Points (x, y) in pixels. Default: the centre.
            options: Further fields of `AttendRequest`, such as `out` and `page`.
        """
        return attend_images({self.name: self}, AttendRequest.of(source, queries, **options))

    def prepare(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Resize and normalise an image (H, W, 3) in 0..255 to the network's input (1, 3, h, w)."""
        own = pixels.shape[0], pixels.shape[1]
        size = self._size_for(own)
        if size != own:
            self._resized[own] = size
            pixels = np.asarray(Image.fromarray(pixels).resize((size[1], size[0]), self.source.resample))
        image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]
        return self.source.pixels.normalised(image.to(self.device))

    def run(self, images: Tensor) -> None:
        """Run the network on prepared images."""
        height, width = images.shape[-2:]
        try:
            with torch.no_grad():
                self.source(images)
        except _REFUSALS as error:
            if is_out_of_memory(error):
                raise
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise ValueError(f"{self.name}: cannot process images of {width} x {height} pixels: {reason}") from error

    def attention_views(self, title: str, pixels: NDArray[np.uint8]) -> list[AttentionView]:
        """Return views of the chosen layers and heads, from one pass over the whole image (H, W, 3)."""
        captured = self.look(pixels)
        views = layer_views(title, captured, self.choice)
        if not views:
            found = [layer for layer in captured.values() if isinstance(layer, RecordedAttention)]
            why = next((layer.layout for layer in found if isinstance(layer.layout, str)), "each has one query")
            raise ValueError(f"{self.name}: its attention has no maps of an image: {why}")
        return views

    def _size_for(self, image: HeightWidth) -> HeightWidth:
        source = self.source
        if isinstance(self.size, tuple):
            return self.size
        if source.multiple is None:
            return source.size
        if self.size is None:
            scale = min(1.0, sqrt(source.size[0] * source.size[1] / (image[0] * image[1])))
        else:
            scale = self.size / min(image)
        return fit_size((image[0] * scale, image[1] * scale), source.multiple)


# Errors that networks raise for unsupported image sizes.
_REFUSALS = (RuntimeError, ValueError, TypeError, AssertionError, IndexError, KeyError, AttributeError)


def fit_size(wanted: tuple[float, float], multiple: HeightWidth) -> HeightWidth:
    """Return the multiples near height and width that best keep the aspect ratio.

    >>> fit_size((360, 480), (14, 14)), fit_size((224, 224), (16, 16))
    ((378, 504), (224, 224))
    """
    height, width = wanted
    choices = (
        [step * max(1, int(length / step + 1e-6) + more) for more in range(3)]
        for length, step in zip(wanted, multiple, strict=True)
    )
    rows, columns = min(product(*choices), key=lambda size: round(abs(log(size[0] * width / (size[1] * height))), 6))
    return rows, columns


def _checked_size(name: str, network: LibraryNetwork, size: int | HeightWidth | None) -> int | HeightWidth | None:
    """Return the size. Raises if the network does not accept it."""
    sides = (size,) if isinstance(size, int) else size or ()
    if any(side < 1 for side in sides):
        raise ValueError(f"size {size}: expected a number of pixels above 0")
    if size is None:
        return None
    if network.multiple is None:
        height, width = network.size
        if not all(side in network.size for side in sides):
            raise ValueError(f"{name}: takes only images of {width} x {height} pixels, not of {size}")
        return None
    if isinstance(size, tuple) and any(side % step for side, step in zip(size, network.multiple, strict=True)):
        raise ValueError(f"{name}: height and width must be multiples of {network.multiple}, not {size}")
    return size
