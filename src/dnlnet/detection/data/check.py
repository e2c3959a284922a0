"""Check a detection data set by reading every image and drawing every object."""

# K classes

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dnlnet.data.check import (
    Contents,
    WidthHeight,
    collecting,
    count_of,
    counts_or_none,
    most_frequent_first,
    read_all,
    sizes_and_problems,
)
from dnlnet.data.problems import Problem
from dnlnet.detection.data.objects import AnnotatedImage, Instance, InstanceImages
from dnlnet.detection.data.outlines import count_pixels
from dnlnet.progress import SILENT, Progress

_BEYOND_IMAGE = 1.0  # pixels that a box may extend beyond its image
_OFF_OUTLINE = 2.0  # pixels that a box may differ from its outline


@dataclass(frozen=True)
class InstanceReport:
    """Contents of a split, and its problems.

    Args:
        name: Name of the data set and split.
        images: Number of images.
        class_names: Names of the K classes.
        class_instances: Number of objects per class, including crowds.
        class_images: Number of images per class.
        left_out: Number of objects and images not used for training, by reason.
        sizes: (width, height) -> number of images, most frequent first.
        problems: Problems, with paths.
    """

    name: str
    images: int
    class_names: Sequence[str]
    class_instances: Sequence[int]
    class_images: Sequence[int]
    left_out: Mapping[str, int]
    sizes: Mapping[WidthHeight, int]
    problems: Sequence[Problem]

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON types.

        >>> InstanceReport("mine", 1, ["cat"], [3], [1], {"crowds": 1}, {(2, 2): 1}, []).to_json()["classes"]
        [{'name': 'cat', 'instances': 3, 'images': 1}]
        """
        rows = zip(self.class_names, self.class_instances, self.class_images, strict=True)
        return {
            "name": self.name,
            "images": self.images,
            "classes": [{"name": name, "instances": count, "images": images} for name, count, images in rows],
            "left_out": dict(self.left_out),
            **sizes_and_problems(self.sizes, self.problems),
        }

    def contents(self) -> Contents:
        """Return the table of the classes."""
        reasons = [f"{reason} {count}" for reason, count in self.left_out.items()]
        return Contents(
            count_of(self.images, "image"),
            self.class_instances,
            {"objects": counts_or_none(self.class_instances), "images": counts_or_none(self.class_images)},
            count_of(sum(self.class_instances), "object"),
            [f"not used for training: {', '.join(reasons)}"] if reasons else [],
        )


def check_instances(images: InstanceImages, progress: Progress = SILENT) -> InstanceReport:
    """Read all files and draw all objects. Problems go into the report and do not stop the check.

    Args:
        images: Images to check.
        progress: Progress observer.

    >>> from pathlib import Path
    >>> from dnlnet.data.classes import Classes
    >>> cats = InstanceImages("mine", Classes(["cat"], [(9, 9, 9)], [1]), [AnnotatedImage(7, Path("/a.jpg"), (2, 2))])
    >>> check_instances(cats).problems
    (Problem(path=PosixPath('/a.jpg'), text='no such file'),)
    """
    problems = [*images.problems, *_repeated(images.images)]
    sizes: Counter[WidthHeight] = Counter()
    for size, found in read_all(partial(_read, images), range(len(images)), images.name, progress):
        problems += found
        if size is not None:
            sizes[size] += 1
    labels = range(1, len(images.classes) + 1)
    instances = Counter(one.label for image in images.images for one in image.instances)
    holding = Counter(label for image in images.images for label in {one.label for one in image.instances})
    return InstanceReport(
        name=images.name,
        images=len(images),
        class_names=tuple(images.classes.names),
        class_instances=tuple(instances[label] for label in labels),
        class_images=tuple(holding[label] for label in labels),
        left_out=images.for_training().left_out,
        sizes=most_frequent_first(sizes),
        problems=tuple(problems),
    )


def _repeated(images: Sequence[AnnotatedImage]) -> Iterator[Problem]:
    """Yield a problem for each object whose id occurred before."""
    seen: dict[int, AnnotatedImage] = {}
    for image in images:
        for one in image.instances:
            if one.id in seen:
                text = f"annotation {one.id} has the same id as another one, in {seen[one.id].path.name}"
                yield Problem(image.path, text)
            seen.setdefault(one.id, image)


def _read(images: InstanceImages, index: int) -> tuple[WidthHeight | None, list[Problem]]:
    """Return width and height of an image, None if unreadable, and the problems of the image and its objects."""
    problems: list[Problem] = []
    size = None
    with collecting(problems):
        height, width, _ = images.pixels(index).shape
        size = width, height
    image = images.images[index]
    for one in image.instances:
        faults = [*one.outline.faults(image.size), *_box_faults(one, image, images.boxes_fit)]
        if not count_pixels(one.outline, image.size):
            faults.append("has an outline without a pixel")
        problems += [Problem(image.path, f"annotation {one.id} {fault}") for fault in faults]
    return size, problems


def _box_faults(one: Instance, image: AnnotatedImage, fit: bool) -> Iterator[str]:
    (x, y, box_width, box_height), (height, width) = one.box, image.size
    box = f"the box {[round(value, 2) for value in one.box]} (left, top, width, height)"
    if min(x, y, width - x - box_width, height - y - box_height) < -_BEYOND_IMAGE:
        yield f"has {box} outside the {width} x {height} image"
    if one.too_small(image.size):
        yield f"has {box}, with a side of at most 1 pixel in the image"
    bounds = one.outline.bounds()
    if fit and bounds is not None and not one.crowd:
        apart = max(abs(a - b) for a, b in zip((x, y, x + box_width, y + box_height), bounds, strict=True))
        if apart > _OFF_OUTLINE:
            yield f"has {box}, {apart:.0f} pixels off its outline"
