"""Logits of an image with the inference settings of a recipe: windows, scales and flips."""

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil, prod

import torch
import torch.nn.functional as F
from torch import Tensor

from dnlnet.errors import TooMuchWorkError, shown
from dnlnet.fields import Flag, PositiveInt
from dnlnet.segmentation.inference.windows import Network, Size, sliding_logits, window_count
from dnlnet.segmentation.schema import Evaluation

# Limits on the work that a model file may request. The largest bundled recipe takes 25 times the image's pixels.
MOST_WORK = 256  # times the pixels of an image
_LEAST_PIXELS = 2**16  # a smaller image counts as this many
_RESIZED_PIXELS = 2**21  # limit after resizing to `short_side`, unless the image is larger anyway
_LEAST_PASS = 128 * 128  # least cost of a pass through the network, in pixels
_QUADRATIC = 4_000_000  # pixels in a pass beyond which attention takes most of the time
LEAST_SIDE = 5  # pixels; the tiny network's reflection padding needs two positions after its two strides
_LONGEST = 8  # limit of the longer side, in multiples of `short_side`; a narrow strip would become enormous
_STRIP = 2**18  # pixels whose logits are interpolated to the image's size together


class Inference(Evaluation):
    """Inference settings of a network. Logits of all scales and flips are averaged at the image's own size.

    Args:
        batch: Windows per pass through the network.
        align_corners: Alignment of logits when resized. Best set as in the network.
        fill: Normalised colour of the padding.

    >>> import torch
    >>> Inference(scales=(0.5, 1.0), flip=True)(lambda x: x[:, :1], torch.ones(1, 3, 8, 12)).shape
    torch.Size([1, 1, 8, 12])
    """

    batch: PositiveInt = 4
    align_corners: Flag = True
    fill: tuple[float, ...] = (0.0, 0.0, 0.0)

    def __call__(self, network: Network, image: Tensor) -> Tensor:
        """Return the logits (1, K, H, W) of an image (1, 3, H, W)."""
        size = image.shape[-2:]
        total: Tensor | None = None
        for look in self._looks(network, image):
            logits = _resized(look, size, self.align_corners)
            total = logits if total is None else total + logits
        assert total is not None  # there is at least one scale
        return total if len(self.scales) == 1 else total / len(self.scales)

    def labels(self, network: Network, image: Tensor) -> Tensor:
        """Return the most likely class of each pixel, (H, W) of uint8.

        If the network sees the image at a reduced size, only the small logits are kept in memory. They are
        interpolated to the image's size a few rows at a time.
        """
        height, width = image.shape[-2:]
        if sum(rows * columns for rows, columns in self._sizes((height, width))) >= height * width:
            return self(network, image).argmax(dim=1)[0].to(torch.uint8)
        looks = list(self._looks(network, image))
        strips = [
            torch.stack([self._resized_rows(look, (height, width), rows) for look in looks])
            .sum(dim=0)  # the sum has the same argmax as the mean
            .argmax(dim=1)[0]
            .to(torch.uint8)
            for rows in torch.arange(height, device=image.device).split(max(1, _STRIP // width))
        ]
        return torch.cat(strips)

    def for_tiles_of(self, size: Size) -> "Inference":
        """Return the settings for tiles of a larger image, at the scale of the whole image.

        >>> Inference(short_side=50, scales=(0.5, 1.0)).for_tiles_of((100, 300))._sizes((40, 60))
        [(10, 15), (20, 30)]
        """
        base = self.scale(size)
        scales = tuple(base * scale for scale in self.scales)
        return self.model_copy(update={"short_side": None, "long_side": None, "scales": scales})

    def scale(self, size: Sequence[int]) -> float:
        """Return the factor that resizes an image of this height and width to `short_side`."""
        if self.short_side is None:
            return 1.0
        longest = _LONGEST * self.short_side if self.long_side is None else self.long_side
        return min(self.short_side / min(size), longest / max(size))

    def passes(self, size: Size) -> int:
        """Return the number of passes through the network for an image of this height and width.

        >>> Inference(window=(4, 4), stride=(3, 3), scales=(1.0, 2.0), flip=True).passes((4, 7))
        10
        """
        if self.window is None or self.stride is None:
            looks = len(self.scales)
        else:
            padded = (self._padded(scaled) for scaled in self._sizes(size))
            windows = (prod(map(window_count, scaled, self.window, self.stride)) for scaled in padded)
            looks = sum(ceil(count / self.batch) for count in windows)
        return looks * (1 + self.flip)

    def work(self, size: Size) -> int:
        """Return the number of pixels that the network would process for an image of this height and width.

        A small pass counts as 128 x 128 pixels. A pass of n times 4 million pixels counts n times, rounded down.

        >>> Inference(window=(200, 200), stride=(100, 100), flip=True).work((200, 300)) == 2 * 2 * 200 * 200
        True
        """
        total = 0
        for scaled in self._sizes(size):
            seen, count = self._padded(scaled), 1
            if self.window is not None and self.stride is not None:
                count = prod(map(window_count, seen, self.window, self.stride))
                seen = min(seen[0], self.window[0]), min(seen[1], self.window[1])
            pixels = max(seen[0] * seen[1], _LEAST_PASS)
            total += count * pixels * max(1, pixels // _QUADRATIC)
        return total * (1 + self.flip)

    def most_work(self, size: Size) -> int:
        """Return the limit of `work` for an image of this height and width."""
        pixels = size[0] * size[1]
        resized = min(int(pixels * self.scale(size) ** 2), _RESIZED_PIXELS)
        return MOST_WORK * max(pixels, resized, _LEAST_PIXELS)

    def require_affordable(self, size: Size, work: int) -> None:
        """Raise `TooMuchWorkError` if `work` exceeds its limit for an image of this height and width."""
        height, width = size
        if work <= self.most_work(size):
            return
        settings = ("window", "stride", "short_side", "scales", "divisor")
        asked = ", ".join(f"{name} {shown(getattr(self, name))}" for name in settings if getattr(self, name))
        raise TooMuchWorkError(
            f"an image of {width} x {height} would take the network {work // (height * width):,} times its pixels, "
            f"with {asked}; {self.most_work(size) // (height * width):,} times are allowed: give the recipe's "
            "evaluation a larger stride, or fewer and smaller scales"
        )

    def covered(self, size: Size) -> tuple[float, float]:
        """Return the fractions of the padded height and width that an image of this size covers.

        >>> Inference().covered((1, 40)), Inference(short_side=20).covered((1, 2))
        ((0.2, 1.0), (1.0, 1.0))
        """
        height, width = self._sizes(size)[0]
        rows, columns = self._padded((height, width))
        return height / max(rows, LEAST_SIDE), width / max(columns, LEAST_SIDE)

    def _sizes(self, size: Sequence[int]) -> list[Size]:
        """Return the height and width of an image of this size at each scale."""
        base = self.scale(size)
        height, width = size
        factors = [base * scale for scale in self.scales]
        return [(max(1, int(height * factor + 0.5)), max(1, int(width * factor + 0.5))) for factor in factors]

    def _padded(self, size: Size) -> Size:
        height, width = size
        return height + -height % self.divisor, width + -width % self.divisor

    def _looks(self, network: Network, image: Tensor) -> Iterator[Tensor]:
        """Yield the logits (1, K, h, w) at each scale, averaged over flips."""
        height, width = image.shape[-2:]
        self.require_affordable((height, width), self.work((height, width)))
        for size in self._sizes((height, width)):
            scaled = _resized(image, size, self.align_corners if self.image_corners is None else self.image_corners)
            logits = self._look(network, scaled)
            yield (logits + self._look(network, scaled.flip(-1)).flip(-1)) / 2 if self.flip else logits

    def _look(self, network: Network, image: Tensor) -> Tensor:
        height, width = image.shape[-2:]
        rows, columns = self._padded((height, width))
        if (rows, columns) != (height, width):
            fill = image.new_tensor(self.fill).view(1, 3, 1, 1)
            image = F.pad(image - fill, (0, columns - width, 0, rows - height)) + fill
        if self.window is None or self.stride is None:
            logits = _with_room(network, image)
        else:
            padded_network = partial(_with_room, network)
            logits = sliding_logits(padded_network, image, self.window, self.stride, self.batch)
        return logits[..., :height, :width]

    def _resized_rows(self, x: Tensor, size: Size, rows: Tensor) -> Tensor:
        """Interpolate only these rows of the image: (1, K, h, w) -> (1, K, len(rows), W)."""
        height, above = x.shape[-2], rows.to(x.dtype)
        if self.align_corners:
            position = above * ((height - 1) / max(1, size[0] - 1))
        else:
            position = ((above + 0.5) * (height / size[0]) - 0.5).clamp(0, height - 1)
        upper = position.floor().long()
        lower = (upper + 1).clamp(max=height - 1)
        mixed = torch.lerp(x[..., upper, :], x[..., lower, :], (position - upper)[:, None])
        return _resized(mixed, (len(rows), size[1]), self.align_corners)


def _resized(x: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Interpolate bilinearly. Return `x` itself if it has this size."""
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=align_corners)


def _with_room(network: Network, images: Tensor) -> Tensor:
    """Return logits of images. Sides below `LEAST_SIDE` are padded by repeating the last row or column."""
    height, width = images.shape[-2:]
    below, right = max(0, LEAST_SIDE - height), max(0, LEAST_SIDE - width)
    if not (below or right):
        return network(images)
    return network(F.pad(images, (0, right, 0, below), mode="replicate"))[..., :height, :width]
