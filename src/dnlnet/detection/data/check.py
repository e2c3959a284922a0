"""Read every image of a data set of objects once, and look at every object: what there is, and all that is wrong."""

# K classes

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dnlnet.data.check import (
    Contents,
    Size,
    collecting,
    count_of,
    counts_or_none,
    most_frequent_first,
    read_all,
    sizes_and_problems,
)
from dnlnet.data.labelled import Problem
from dnlnet.detection.data.objects import AnnotatedImage, Instance, InstanceImages
from dnlnet.detection.data.outlines import count_pixels

_OVER_THE_EDGE = 1.0  # pixels by which a box may leave its image, and
_APART = 2.0  # by which it may differ from its outline, before that is a fault


@dataclass(frozen=True)
class InstanceReport:
    """What a split holds.

    Args:
        name: of the images.
        images: how many of them.
        class_names: the K names.
        class_instances: objects of each class, crowds among them.
        class_images: images with an object of each class.
        left_out: how many objects and images are not trained on, by reason.
        sizes: (width, height) -> how many images, the most frequent first.
        problems: all that is wrong, each with its path.
    """

    name: str
    images: int
    class_names: Sequence[str]
    class_instances: Sequence[int]
    class_images: Sequence[int]
    left_out: Mapping[str, int]
    sizes: Mapping[Size, int]
    problems: Sequence[Problem]

    def to_json(self) -> dict[str, object]:
        """The report in types that JSON has.

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
        """What the table shows."""
        reasons = [f"{reason} {count}" for reason, count in self.left_out.items()]
        return Contents(
            count_of(self.images, "image"),
            self.class_instances,
            {"objects": counts_or_none(self.class_instances), "images": counts_or_none(self.class_images)},
            count_of(sum(self.class_instances), "object"),
            [f"not learnt from: {', '.join(reasons) or 'none'}"],
        )


def check_instances(images: InstanceImages, progress: Callable[[], None] | None = None) -> InstanceReport:
    """Read all files and draw all objects; what is wrong becomes a problem of the report and does not stop it.

    Args:
        images: what to read.
        progress: called after each image, in their order.

    >>> from pathlib import Path
    >>> from dnlnet.data.classes import Classes
    >>> cats = InstanceImages("mine", Classes(["cat"], [(9, 9, 9)], [1]), [AnnotatedImage(7, Path("/a.jpg"), (2, 2))])
    >>> check_instances(cats).problems
    (Problem(path=PosixPath('/a.jpg'), text='no such file'),)
    """
    problems = [*images.problems, *_repeated(images.images)]
    sizes: Counter[Size] = Counter()
    for size, found in read_all(partial(_read, images), range(len(images)), progress):
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
    """A problem for each object whose number was there before."""
    seen: dict[int, AnnotatedImage] = {}
    for image in images:
        for one in image.instances:
            if one.number in seen:
                other = seen[one.number].path.name
                yield Problem(image.path, f"annotation {one.number} has the id of another one, in {other}")
            seen.setdefault(one.number, image)


def _read(images: InstanceImages, index: int) -> tuple[Size | None, list[Problem]]:
    """Width and height of an image, if it can be read, and all that is wrong with it and its objects."""
    problems: list[Problem] = []
    size = None
    with collecting(problems):
        height, width, _ = images.picture(index).shape
        size = width, height
    image = images.images[index]
    for one in image.instances:
        faults = [*one.outline.faults(image.size), *_box_faults(one, image), *_mask_faults(one, image)]
        problems += [Problem(image.path, f"annotation {one.number} {fault}") for fault in faults]
    return size, problems


def _box_faults(one: Instance, image: AnnotatedImage) -> Iterator[str]:
    (x, y, across, down), (height, width) = one.box, image.size
    box = f"the box {[round(value, 2) for value in one.box]} (left, top, width, height)"
    if min(x, y, width - x - across, height - y - down) < -_OVER_THE_EDGE:
        yield f"has {box} outside the {width} x {height} image"
    if one.too_small(image.size):
        yield f"has {box}, of which a side in the image is at most 1 pixel"
    bounds = one.outline.bounds()
    if bounds is not None and not one.crowd:
        apart = max(abs(a - b) for a, b in zip((x, y, x + across, y + down), bounds, strict=True))
        if apart > _APART:
            yield f"has {box}, {apart:.0f} pixels off its outline"


def _mask_faults(one: Instance, image: AnnotatedImage) -> Iterator[str]:
    if not count_pixels(one.outline, image.size):
        yield "has an outline without a pixel"
