"""Images with annotated objects. Each object has a box, an outline and a class.

A data set is a function that returns `InstanceImages`. Files are read only when requested.
"""

# H, W size of the image; n objects; K classes

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dnlnet.data.classes import Classes
from dnlnet.data.fingerprint import Listed
from dnlnet.data.images import HeightWidth, read_image_file
from dnlnet.data.problems import BadFileError, Problem, require_complete
from dnlnet.detection.data.outlines import Mask, Outline, draw_masks

_LEAST_SIDE = 1.0  # pixels; boxes that are not wider and higher than this are not used for training


@dataclass(frozen=True, eq=False)
class Instance:
    """One annotated object.

    Args:
        id: Annotation id, for messages.
        label: Class, 1..K; 0 is the background.
        box: Left, top, width and height in pixels.
        outline: Pixels of the object.
        area: Area in pixels, which decides whether the object counts as small, medium or large.
        crowd: Several objects annotated as one. Not used for training; a detection inside it is not an error.
    """

    id: int
    label: int
    box: tuple[float, float, float, float]
    outline: Outline
    area: float
    crowd: bool = False

    def corners(self, size: HeightWidth) -> tuple[float, float, float, float]:
        """Return left, top, right and bottom of the box, clipped to an image of this size."""
        (x, y, box_width, box_height), (height, width) = self.box, size
        left, right = (min(max(value, 0.0), float(width)) for value in (x, x + box_width))
        top, bottom = (min(max(value, 0.0), float(height)) for value in (y, y + box_height))
        return left, top, right, bottom

    def too_small(self, size: HeightWidth) -> bool:
        """Return whether a side of the clipped box is at most 1 pixel."""
        left, top, right, bottom = self.corners(size)
        return min(right - left, bottom - top) <= _LEAST_SIDE


@dataclass(frozen=True, eq=False)
class AnnotatedImage:
    """An image file with its annotated size and objects."""

    id: int
    path: Path
    size: HeightWidth
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True, eq=False)
class Target:
    """The objects of one image as arrays, under torchvision's names.

    Args:
        boxes: Left, top, right, bottom, (n, 4).
        labels: 1..K, (n,).
        masks: 1 inside and 0 outside, (n, H, W).
        area: Areas in pixels, (n,).
        iscrowd: 1 for a crowd and else 0, (n,).
        image_id: Id of the image in the annotations.
    """

    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    masks: Mask
    area: NDArray[np.float32]
    iscrowd: NDArray[np.int64]
    image_id: int

    def __len__(self) -> int:
        return len(self.labels)

    def flipped(self) -> "Target":
        """Mirror the target left to right."""
        width = self.masks.shape[2]
        boxes = self.boxes.copy()
        boxes[:, [0, 2]] = width - self.boxes[:, [2, 0]]
        return replace(self, boxes=boxes, masks=self.masks[:, :, ::-1].copy())

    def visible(self) -> "Target":
        """Drop objects whose mask has no pixel."""
        seen = self.masks.any(axis=(1, 2))
        if seen.all():
            return self
        return replace(self, **{name: value[seen] for name, value in vars(self).items() if name != "image_id"})


@dataclass(frozen=True, eq=False)
class InstanceImages:
    """The images of one split of a data set.

    Args:
        name: Name of the data set and split, for messages.
        classes: Classes, with the category ids as numbers. Label k in 1..K has name and colour k - 1.
        images: Image files with their objects, in fixed order.
        problems: Missing files and annotation errors found while listing.
        left_out: Number of objects and images that `for_training` removed, by reason.
        boxes_fit: True if boxes should fit their outlines; the check then reports those that do not.

    >>> from dnlnet.detection.data.outlines import Polygons
    >>> crowd = Instance(1, label=1, box=(0, 0, 9, 9), outline=Polygons(()), area=81, crowd=True)
    >>> image = AnnotatedImage(7, Path("a.jpg"), (20, 30), (crowd,))
    >>> images = InstanceImages("mine", Classes(["cat"], [(9, 9, 9)], [1]), [image])
    >>> len(images), images.target(0).boxes.tolist()
    (1, [[0.0, 0.0, 9.0, 9.0]])
    >>> images.for_training().left_out
    {'crowds': 1, 'images without objects': 1}
    """

    name: str
    classes: Classes
    images: Sequence[AnnotatedImage]
    problems: Sequence[Problem] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    boxes_fit: bool = True

    def __len__(self) -> int:
        return len(self.images)

    def files(self) -> Iterator[Listed]:
        """Yield the files in order, each with the classes and boxes of its objects."""
        for image in self.images:
            yield image.path, [(instance.label, instance.box) for instance in image.instances]

    def pixels(self, index: int) -> NDArray[np.uint8]:
        """Read image `index` as (H, W, 3) in 0..255. Raises `BadFileError` if that fails."""
        return annotated_pixels(self.images[index].path, self.images[index].size)

    def target(self, index: int, size: HeightWidth | None = None) -> Target:
        """Return the objects of image `index`, scaled to an image of `size`. Polygons are drawn at that size."""
        image = self.images[index]
        size = size or image.size
        y_scale, x_scale = size[0] / image.size[0], size[1] / image.size[1]
        corners = np.array([one.corners(image.size) for one in image.instances], dtype=np.float64).reshape(-1, 4)
        return Target(
            boxes=(corners * np.array([x_scale, y_scale, x_scale, y_scale])).astype(np.float32),
            labels=np.array([one.label for one in image.instances], dtype=np.int64),
            masks=draw_masks([one.outline for one in image.instances], image.size, size),
            area=np.array([one.area * y_scale * x_scale for one in image.instances], dtype=np.float32),
            iscrowd=np.array([one.crowd for one in image.instances], dtype=np.int64),
            image_id=image.id,
        )

    def for_training(self) -> "InstanceImages":
        """Keep only objects that can be trained on, and images that have one. `left_out` counts the others.

        Dropped are crowds, boxes with a clipped side of at most 1 pixel, and outlines that bound no area.
        """
        counts: Counter[str] = Counter(self.left_out)
        images = []
        for image in self.images:
            reasons = [_unfit(one, image.size) for one in image.instances]
            counts.update(reason for reason in reasons if reason is not None)
            fit = tuple(one for one, reason in zip(image.instances, reasons, strict=True) if reason is None)
            if fit:
                images.append(replace(image, instances=fit))
            else:
                counts["images without objects"] += 1
        return replace(self, images=tuple(images), left_out=dict(counts))

    def require_complete(self) -> "InstanceImages":
        """Return itself. Raises if there are no images or if there are problems."""
        require_complete(self.name, len(self), self.problems)
        return self

    def truth(self) -> dict[str, Any]:
        """Return images, categories and annotations in COCO's format, with compressed run lengths as outlines."""
        numbers = self.classes.numbers
        return {
            "images": [
                {"id": image.id, "height": image.size[0], "width": image.size[1], "file_name": image.path.name}
                for image in self.images
            ],
            "categories": [
                {"id": number, "name": name} for number, name in zip(numbers, self.classes.names, strict=True)
            ],
            "annotations": [
                {
                    "id": one.id,
                    "image_id": image.id,
                    "category_id": numbers[one.label - 1],
                    "bbox": list(one.box),
                    "segmentation": one.outline.rle(image.size),
                    "area": one.area,
                    "iscrowd": int(one.crowd),
                }
                for image in self.images
                for one in image.instances
            ],
        }


def annotated_pixels(path: Path, size: HeightWidth) -> NDArray[np.uint8]:
    """Read an image as (H, W, 3) in 0..255. Raises `BadFileError` unless it has the annotated size.

    The size tells whether annotators saw the image upright or as stored, before its EXIF orientation.
    """
    pixels = read_image_file(path)
    if pixels.shape[:2] != size:
        stored = read_image_file(path, as_stored=True)
        if stored.shape[:2] != size:
            sizes = "is {1} x {0}, but its annotations are for {3} x {2} (width x height)"
            text = sizes.format(*pixels.shape[:2], *size)
            raise BadFileError(Problem(path, f"{text}; replace it with the annotated image"))
        pixels = stored
    return pixels


def _unfit(instance: Instance, size: HeightWidth) -> str | None:
    """Return why an object cannot be used for training, or None."""
    if instance.crowd:
        return "crowds"
    if instance.too_small(size):
        return "boxes of at most 1 pixel"
    if instance.outline.area() == 0:
        return "outlines that bound nothing"
    return None
