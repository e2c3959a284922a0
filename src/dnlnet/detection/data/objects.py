"""Images with the objects in them: a box, an outline and a class for each.

A data set is a function to `InstanceImages`, from which nothing is read until it is asked for.
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
from dnlnet.data.labelled import BadFileError, Problem, require_complete
from dnlnet.data.pictures import read_picture
from dnlnet.data.sizes import Size
from dnlnet.detection.data.outlines import Mask, Outline, draw_masks

LEAST_SIDE = 1.0  # pixels; a box must be wider and higher than this to be trained on


@dataclass(frozen=True, eq=False)
class Instance:
    """One object, as its data set describes it.

    Args:
        number: the data set's own number of it, for messages.
        label: its class, 1..K; 0 is the background.
        box: left, top, width and height in pixels.
        outline: which pixels are its own.
        area: in pixels; decides whether it counts as small, medium or large.
        crowd: a group of objects annotated as one; not trained on, and detecting it is not an error.
    """

    number: int
    label: int
    box: tuple[float, float, float, float]
    outline: Outline
    area: float
    crowd: bool = False

    def corners(self, size: Size) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the part of the box that lies in an image of this size."""
        (x, y, across, down), (height, width) = self.box, size
        left, right = (min(max(value, 0.0), float(width)) for value in (x, x + across))
        top, bottom = (min(max(value, 0.0), float(height)) for value in (y, y + down))
        return left, top, right, bottom

    def too_small(self, size: Size) -> bool:
        """Whether a side of the box in the image is at most `LEAST_SIDE`."""
        left, top, right, bottom = self.corners(size)
        return min(right - left, bottom - top) <= LEAST_SIDE


@dataclass(frozen=True, eq=False)
class AnnotatedImage:
    """An image file, what its data set says about its size, and the objects in it."""

    number: int
    path: Path
    size: Size
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True, eq=False)
class Target:
    """The objects of one image as arrays.

    Args:
        boxes: left, top, right, bottom, (n, 4).
        labels: 1..K, (n,).
        masks: 1 inside and 0 outside, (n, H, W).
        area: in pixels, (n,).
        crowd: (n,).
        image: the data set's number of the image.
    """

    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    masks: Mask
    area: NDArray[np.float32]
    crowd: NDArray[np.bool_]
    image: int

    def __len__(self) -> int:
        return len(self.labels)

    def flipped(self) -> "Target":
        """The same, mirrored left to right."""
        width = self.masks.shape[2]
        boxes = self.boxes.copy()
        boxes[:, [0, 2]] = width - self.boxes[:, [2, 0]]
        return replace(self, boxes=boxes, masks=self.masks[:, :, ::-1].copy())

    def visible(self) -> "Target":
        """The same without objects that have no pixel left."""
        seen = self.masks.any(axis=(1, 2))
        if seen.all():
            return self
        arrays = {name: getattr(self, name)[seen] for name in ("boxes", "labels", "masks", "area", "crowd")}
        return Target(**arrays, image=self.image)


@dataclass(frozen=True, eq=False)
class InstanceImages:
    """The images of one split of a data set.

    Args:
        name: of the data set, for messages.
        classes: what the labels 1..K mean; label k has the name and the colour k - 1.
        images: the files with their objects, in a fixed order.
        problems: what was missing or wrong when the data set was listed.
        left_out: how many were left out of another such value to make this one, by reason.

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

    def __len__(self) -> int:
        return len(self.images)

    def files(self) -> Iterator[Listed]:
        """The files in order, with the class and the box of each object."""
        for image in self.images:
            yield image.path, [(instance.label, instance.box) for instance in image.instances]

    @property
    def categories(self) -> tuple[int, ...]:
        """The data set's own number of each class."""
        return tuple(self.classes.numbers)

    @property
    def instance_count(self) -> int:
        """Objects in all images."""
        return sum(len(image.instances) for image in self.images)

    def category_of(self, label: int) -> int:
        """The data set's number of the class with a label of 1..K."""
        if not 1 <= label <= len(self.categories):
            raise ValueError(f"label {label} is outside 1..{len(self.categories)}")
        return self.categories[label - 1]

    def picture(self, index: int) -> NDArray[np.uint8]:
        """Image `index` as (H, W, 3) in 0..255; a bad file raises `BadFileError`.

        The size that the data set states says which way round the annotators saw a picture with an EXIF orientation.
        """
        image = self.images[index]
        pixels = read_picture(image.path)
        if pixels.shape[:2] != image.size:
            stored = read_picture(image.path, as_stored=True)
            if stored.shape[:2] != image.size:
                sizes = "is {1} x {0}, but its annotations are for {3} x {2} (width x height)"
                text = sizes.format(*pixels.shape[:2], *image.size)
                raise BadFileError(Problem(image.path, f"{text}; put the annotated picture in its place"))
            pixels = stored
        return pixels

    def target(self, index: int, size: Size | None = None) -> Target:
        """The objects of image `index`, as they are if it is resized to `size`; polygons are drawn at that size."""
        image = self.images[index]
        size = size or image.size
        down, across = size[0] / image.size[0], size[1] / image.size[1]
        corners = np.array([one.corners(image.size) for one in image.instances], dtype=np.float64).reshape(-1, 4)
        return Target(
            boxes=(corners * np.array([across, down, across, down])).astype(np.float32),
            labels=np.array([one.label for one in image.instances], dtype=np.int64),
            masks=draw_masks([one.outline for one in image.instances], image.size, size),
            area=np.array([one.area * down * across for one in image.instances], dtype=np.float32),
            crowd=np.array([one.crowd for one in image.instances], dtype=np.bool_),
            image=image.number,
        )

    def read(self, index: int) -> tuple[NDArray[np.uint8], Target]:
        """Image `index` and its objects, in their own size."""
        return self.picture(index), self.target(index)

    def for_training(self, *, keep_empty: bool = False) -> "InstanceImages":
        """The images with only those objects that can be trained on; `left_out` counts the others.

        Crowds, boxes with a side of at most one pixel in the image and outlines that bound nothing are left out.

        Args:
            keep_empty: keep images without objects.
        """
        counts: Counter[str] = Counter(self.left_out)
        images = []
        for image in self.images:
            reasons = [_unfit(one, image.size) for one in image.instances]
            counts.update(reason for reason in reasons if reason is not None)
            fit = tuple(one for one, reason in zip(image.instances, reasons, strict=True) if reason is None)
            if fit or keep_empty:
                images.append(replace(image, instances=fit))
            else:
                counts["images without objects"] += 1
        return replace(self, images=tuple(images), left_out=dict(counts))

    def require_complete(self) -> "InstanceImages":
        """Itself, if it has images and nothing is missing."""
        require_complete(self.name, len(self), self.problems)
        return self

    def truth(self) -> dict[str, Any]:
        """Images, categories and annotations in COCO's format, all outlines as compressed run lengths."""
        return {
            "images": [
                {"id": image.number, "height": image.size[0], "width": image.size[1], "file_name": image.path.name}
                for image in self.images
            ],
            "categories": [
                {"id": number, "name": name} for number, name in zip(self.categories, self.classes.names, strict=True)
            ],
            "annotations": [
                {
                    "id": one.number,
                    "image_id": image.number,
                    "category_id": self.category_of(one.label),
                    "bbox": list(one.box),
                    "segmentation": one.outline.rle(image.size),
                    "area": one.area,
                    "iscrowd": int(one.crowd),
                }
                for image in self.images
                for one in image.instances
            ],
        }


def _unfit(instance: Instance, size: Size) -> str | None:
    """Why an object cannot be trained on, or None."""
    if instance.crowd:
        return "crowds"
    if instance.too_small(size):
        return "boxes of at most 1 pixel"
    if instance.outline.area() == 0:
        return "outlines that bound nothing"
    return None
