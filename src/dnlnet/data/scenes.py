"""Generated landscapes with a label for every pixel: training data without a download.

Sky and water share their colours, as do meadow and tree, and mountain and building. Texture is faint under the noise.
A small patch therefore often fits two classes, but the whole region rarely does.
"""

# H, W size of the image; R regions of one scene; K classes

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch.utils.data import Dataset

from dnlnet.data.classes import Classes
from dnlnet.data.fingerprint import Listed
from dnlnet.data.samples import Sample, require_seed

Floats = NDArray[np.float32]

CLASSES = Classes(
    ("sky", "water", "meadow", "tree", "mountain", "building"),
    ((158, 202, 236), (38, 98, 168), (158, 202, 92), (34, 110, 60), (148, 130, 150), (226, 126, 62)),
)
SKY, WATER, MEADOW, TREE, MOUNTAIN, BUILDING = range(len(CLASSES))

# Two classes share each palette, and each scene gives them different colours of it, so colour alone does not identify
# a class.
_PALETTES = np.array(
    [
        [(0.46, 0.66, 0.86), (0.72, 0.66, 0.80), (0.55, 0.76, 0.74)],  # sky, water
        [(0.34, 0.54, 0.26), (0.66, 0.64, 0.30), (0.72, 0.46, 0.24)],  # meadow, tree
        [(0.50, 0.46, 0.46), (0.66, 0.42, 0.38), (0.78, 0.72, 0.62)],  # mountain, building
    ],
    dtype=np.float32,
)

# Training never uses the scenes of this seed, so that the scores of all runs are comparable.
HELD_OUT_SEED = 0
HELD_OUT_COUNT = 64

SMALLEST = 16
_LARGEST = 4096
_NOISE = 0.05


def scene(seed: int | Sequence[int], size: int | tuple[int, int] = 96) -> tuple[Floats, NDArray[np.int64]]:
    """Return the scene of a seed: its image (3, H, W) in 0..1, and the class of each pixel (H, W).

    Args:
        seed: One or several integers of at least 0.
        size: Side of a square image, or (height, width), each at least 16.

    >>> image, labels = scene(seed=7, size=(64, 96))
    >>> image.shape, labels.shape, CLASSES.names[labels[0, 0]]
    ((3, 64, 96), (64, 96), 'sky')
    """
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < SMALLEST or height * width > _LARGEST**2:
        limits = f"at least {SMALLEST} x {SMALLEST} pixels, and {_LARGEST} x {_LARGEST} at most"
        raise ValueError(f"a scene needs {limits}; got {height} x {width}")
    rng = np.random.default_rng(seed)
    regions, region_class = _layout(rng, height, width)
    labels = region_class[regions]
    image = _colours(rng, region_class)[:, regions] * (1 + _texture(rng, labels))
    image *= _light(rng, height, width)
    image += _NOISE * rng.standard_normal(image.shape, dtype=np.float32)
    return image.clip(0, 1), labels


class SceneSamples(Dataset[Sample]):
    """Generated scenes as samples, by index or `Draw`. Each index has one scene, the same in every epoch.

    >>> scenes = SceneSamples(4, (32, 48))
    >>> scenes[3, 1].image.shape, scenes[3].name
    (torch.Size([3, 32, 48]), 'scene 3 of seed 0')
    """

    def __init__(self, count: int, size: int | tuple[int, int], seed: int = 0) -> None:
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        self.count, self.size, self.seed = count, size, require_seed(seed)
        scene(seed, size)  # raises for an invalid size

    def __len__(self) -> int:
        return self.count

    @property
    def classes(self) -> Classes:
        """Classes of the labels."""
        return CLASSES

    def files(self) -> Iterator[Listed]:
        """Return no files, because scenes are generated."""
        return iter(())

    def __getitem__(self, draw: int | tuple[int, int]) -> Sample:
        index = draw if isinstance(draw, int) else draw[0]
        if not 0 <= index < self.count:
            raise IndexError(f"scene {index} is outside 0..{self.count - 1}")
        image, labels = scene((self.seed, index), self.size)
        name = f"scene {index} of seed {self.seed}"
        return Sample(
            torch.from_numpy((255 * image).astype(np.uint8)), torch.from_numpy(labels.astype(np.uint8)), name
        )


def _layout(rng: Generator, height: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the region of each pixel (H, W) and the class of each region (R,); later regions cover earlier ones."""
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    x = np.linspace(0, 1, width, dtype=np.float32)[None, :]
    regions = np.zeros((height, width), dtype=np.int64)
    classes = [SKY]

    def paint(mask: NDArray[np.bool_], label: int) -> None:
        regions[mask] = len(classes)
        classes.append(label)

    horizon = rng.uniform(0.35, 0.65)
    for _ in range(rng.integers(1, 4)):
        peak_x, peak_y, slope = rng.uniform(0, 1), horizon - rng.uniform(0.2, 0.35), rng.uniform(0.6, 1.2)
        paint(y > peak_y + slope * np.abs(x - peak_x), MOUNTAIN)
    ground = y > horizon + 0.02 * np.sin(x * rng.uniform(4, 12) + rng.uniform(0, 6))
    paint(ground, MEADOW)
    # The shore is a wavy line through a point of the ground, at any angle.
    angle, bend = rng.uniform(0, 2 * np.pi), rng.uniform(4, 9)
    across = (x - rng.uniform(0.3, 0.7)) * np.cos(angle) + (y - rng.uniform(horizon, 1)) * np.sin(angle)
    paint(ground & (across > 0.04 * np.sin(bend * (x + y))), WATER)
    for _ in range(rng.integers(1, 4)):
        left, base = rng.uniform(0, 0.85), horizon + rng.uniform(0.02, 0.25)
        wide, high = rng.uniform(0.15, 0.3), rng.uniform(0.25, 0.45)
        paint((x > left) & (x < left + wide) & (y < base) & (y > base - high), BUILDING)
    for _ in range(rng.integers(1, 4)):
        centre_x, centre_y, radius = rng.uniform(0, 1), horizon + rng.uniform(-0.05, 0.35), rng.uniform(0.1, 0.2)
        paint((x - centre_x) ** 2 + (y - centre_y) ** 2 < radius**2, TREE)
    return regions, np.array(classes)


def _colours(rng: Generator, region_class: NDArray[np.int64]) -> Floats:
    """Return a colour for each region, (3, R): the colour of its class in this scene, slightly varied."""
    of_class = np.concatenate([rng.permutation(palette)[:2] for palette in _PALETTES])  # (K, 3)
    change = rng.uniform(0.95, 1.05, (len(region_class), 1))
    return (of_class[region_class] * change).astype(np.float32).T


def _texture(rng: Generator, labels: NDArray[np.int64]) -> Floats:
    """Return the relative brightness of each pixel, (H, W), around 0 and in the pattern of its class."""
    height, width = labels.shape
    y = np.arange(height, dtype=np.float32)[:, None]
    x = np.arange(width, dtype=np.float32)[None, :]
    drift = 2 * _blobs(rng, height, width, cell=12)
    patterns = (
        0.1 * _blobs(rng, height, width, cell=6),  # clouds
        0.14 * np.sin(2.1 * y + drift),  # ripples
        0.2 * _blobs(rng, height, width, cell=3)[:, rng.permutation(width)],  # blades
        0.2 * np.sin(1.4 * x + drift) * np.sin(1.4 * y - drift),  # leaves
        0.14 * np.sin(0.9 * (x + y) + drift),  # strata
        0.3 * ((x % 6 < 3) & (y % 6 < 3)).astype(np.float32) - 0.07,  # windows
    )
    shown = (0.5 * _blobs(rng, height, width, cell=16) + 0.5).clip(0.1, 1)
    texture: Floats = (shown * np.choose(labels, patterns)).astype(np.float32)
    return texture


def _light(rng: Generator, height: int, width: int) -> Floats:
    """Return the gain of each channel and pixel, (3, H, W): one tint for the scene, brighter on one side."""
    tint = rng.uniform(0.88, 1.08, (3, 1, 1))
    slope_y, slope_x = rng.uniform(-0.15, 0.15, 2)
    ramp = 1 + slope_y * np.linspace(-1, 1, height)[:, None] + slope_x * np.linspace(-1, 1, width)
    gain: Floats = (tint * ramp).astype(np.float32)
    return gain


def _blobs(rng: Generator, height: int, width: int, cell: int) -> Floats:
    """Return noise of unit variance at the nodes of a grid of `cell` pixels, interpolated linearly."""
    nodes = rng.standard_normal((height // cell + 2, width // cell + 2), dtype=np.float32)
    rows, columns = _between(height, cell, nodes.shape[0]), _between(width, cell, nodes.shape[1])
    blobs: Floats = np.matmul(np.matmul(rows, nodes), columns.T)
    return blobs


def _between(length: int, cell: int, nodes: int) -> Floats:
    """Return the weights (length, nodes) of linear interpolation from nodes `cell` pixels apart."""
    position = np.arange(length, dtype=np.float32)[:, None] / cell
    weights: Floats = np.maximum(0, 1 - np.abs(position - np.arange(nodes, dtype=np.float32))).astype(np.float32)
    return weights
