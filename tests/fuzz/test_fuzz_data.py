"""Damaged annotations and images are read, or refused with one sentence.

A crash inside pycocotools or Pillow ends the test process and counts as a failure.
"""

import copy
import io
import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from coco_trees import coco_tree
from dnlnet.data.classes import Classes, spread_colours
from dnlnet.data.decoders import colour_labels, index_labels
from dnlnet.data.images import read_image_file
from dnlnet.data.labelled import LabelledImages, Pair
from dnlnet.detection.data.check import check_instances
from dnlnet.detection.data.coco import open_coco_file
from dnlnet.detection.data.samples import TrainingInstances
from dnlnet.detection.metric import AveragePrecision
from dnlnet.detection.schema import InstanceData


def fuzzed(examples: int) -> settings:
    """Return settings for a fixed set of examples."""
    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


LONGEST = 600  # maximum characters of a message, with its paths


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else []


NASTY = [
    *(None, True, False, -1, 0, 1, 2, 3, 2**31, 2**32, 2**63 - 1, 2**63, 10**30, 10**400),
    *(0.5, -0.0, 1e9, 1e300, -1e300, math.nan, math.inf, -math.inf, 5e-324),
    *(
        "",
        " ",
        "a",
        "0",
        "\0",
        "\ud800",
        "\x1b[2J",
        "é" * 300,
        "..",
        "../a.png",
        "/etc/passwd",
        "o" * 200,
        "0" * 3000,
    ),
    *([], {}, [[]], [None], {"a": 1}, [1e300] * 8, [-5, 2**40] * 3, [2**63 - 1, 2**63 - 1, 2402], deep(60)),
    {"size": [40, 60], "counts": [2**32 + 2400]},
    {"size": [2**31, 2**31], "counts": "0" * 40},
    {"size": [40, 60], "counts": [0] * 99 + [2400]},
]

Route = tuple[Any, ...]


def routes(node: Any, route: Route = ()) -> Iterator[Route]:
    """Yield the path of every node of a JSON value."""
    if route:
        yield route
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from routes(child, (*route, key))


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coco_tree(tmp_path_factory.mktemp("coco")) / "annotations" / "instances_train2017.json"


@cache
def whole(path: Path) -> tuple[str, tuple[Route, ...]]:
    text = path.read_text()
    return text, tuple(routes(json.loads(text)))


def assert_sentence(text: str) -> None:
    assert len(text.splitlines()) <= 2, text
    assert 10 < len(text) <= LONGEST, text
    text.encode()  # has no lone surrogates


def changed(content: Any, route: Route, change: Any) -> None:
    """Replace, remove or duplicate a node, if it still exists."""
    for key in route[:-1]:
        if not isinstance(content, dict | list) or (isinstance(content, list) and not isinstance(key, int)):
            return
        try:
            content = content[key]
        except LookupError:
            return
    try:
        if change == "remove":
            del content[route[-1]]
        elif change == "double" and isinstance(content, list):
            content.insert(0, copy.deepcopy(content[route[-1]]))
        else:
            content[route[-1]] = change
    except (LookupError, TypeError):
        return


def use(path: Path) -> None:
    """Open, check, train on and score against annotations."""
    images = open_coco_file(path, path.parents[1] / "train2017")
    for problem in check_instances(images).problems:
        assert_sentence(str(problem))
    samples = TrainingInstances(images.require_complete(), InstanceData(short_side=30, long_side=60))
    for index in range(len(samples)):
        samples[index, 0]
    AveragePrecision(images.truth()).scores()


@fuzzed(400)
@given(choices=st.data())
def test_any_change_of_annotations_is_used_or_refused(coco: Path, choices: st.DataObject) -> None:
    text, nodes = whole(coco)
    content = json.loads(text)
    for _ in range(choices.draw(st.integers(1, 3))):
        change = choices.draw(st.sampled_from([*NASTY, "remove", "double"]))
        changed(content, choices.draw(st.sampled_from(nodes)), copy.deepcopy(change))
    path = coco.with_name("changed.json")
    path.write_text(json.dumps(content))
    try:
        use(path)
    except (ValueError, OSError) as error:
        assert_sentence(str(error))


@fuzzed(150)
@given(at=st.floats(0, 1), size=st.integers(0, 40), put=st.binary(max_size=8))
def test_any_bytes_in_annotations_are_used_or_refused(coco: Path, at: float, size: int, put: bytes) -> None:
    content = whole(coco)[0].encode()
    place = int(at * len(content))
    path = coco.with_name("changed.json")
    path.write_bytes(content[:place] + put + content[place + size :])
    try:
        use(path)
    except (ValueError, OSError) as error:
        assert_sentence(str(error))


@cache
def images() -> tuple[bytes, ...]:
    """Return small images of every usual format, mode and compression."""
    rng = np.random.default_rng(0)
    rgb = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    grey = Image.fromarray(rng.integers(0, 3, (5, 7), dtype=np.uint8))
    deep16 = Image.fromarray(rng.integers(0, 65536, (5, 7), dtype=np.uint16))
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds: list[tuple[Image.Image, str, dict[str, Any]]] = [
        *(
            (image, "PNG", {})
            for image in (rgb, grey, deep16, rgb.quantize(4), rgb.convert("RGBA"), rgb.convert("1"))
        ),
        *((image, "JPEG", {"exif": exif}) for image in (rgb, grey, rgb.convert("CMYK"))),
        *((image, "GIF", {"save_all": True, "append_images": [grey]}) for image in (rgb, grey)),
        *((rgb, "WEBP", {"lossless": lossless}) for lossless in (False, True)),
        *((rgb, "TIFF", {"compression": name}) for name in (None, "tiff_lzw", "tiff_deflate")),
        *((image, "TIFF", {}) for image in (grey, deep16, rgb.convert("CMYK"), rgb.convert("F"))),
        *((image, "BMP", {}) for image in (rgb, grey)),
    ]
    saved = []
    for image, kind, options in kinds:
        file = io.BytesIO()
        image.save(file, kind, **options)
        saved.append(file.getvalue())
    return tuple(saved)


@fuzzed(500)
@given(
    which=st.integers(0, len(images()) - 1),
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([0, 1, 127, 128, 254, 255]), st.booleans()), max_size=5
    ),
    length=st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_any_change_of_an_image_is_read_or_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    which: int,
    edits: list[tuple[float, int, bool]],
    length: float,
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)  # larger images are refused
    content = bytearray(images()[which])
    for at, value, early in edits:  # most faults are in the header
        content[int(at * (min(len(content), 120 if early else len(content)) - 1))] = value
    path = tmp_path / "a.png"
    path.write_bytes(content[: math.ceil(length * len(content))])
    classes = Classes(("a", "b", "c"), spread_colours(3))
    numbers = LabelledImages("mine", classes, [Pair(path, path)], index_labels({0: 0, 1: 1, 2: 2}, "0..2"))
    colours = LabelledImages("mine", classes, [Pair(path, path)], colour_labels({(0, 0, 0): 0}), colour_labels=True)
    for read in (
        lambda: read_image_file(path),
        lambda: numbers.decoded(0, numbers.open_labels(0)),
        lambda: colours.decoded(0, colours.open_labels(0)),
    ):
        try:
            pixels = read()
        except ValueError as error:
            assert_sentence(str(error))
        else:
            assert pixels.dtype == np.uint8
            assert pixels.size > 0
