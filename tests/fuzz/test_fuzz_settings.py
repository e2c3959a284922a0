"""Arbitrary settings and model files are accepted, or refused with a plain sentence."""

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dnlnet.artifacts.model_file import read_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.recipes.override import override
from dnlnet.registry import RECIPES, parse_recipe

STORED = Path(__file__).parents[1] / "artifacts" / "stored" / "model.safetensors"
# Internals of Python and its libraries, which must not appear in messages to users.
INTERNAL = re.compile(r"pydantic|Traceback|<class|object at 0x|Value error|Input should|validation error|NoneType")
FIXED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NAMES = ("camvid-mbv2-baseline", "cityscapes_test-r101-dnl", "scenes-tiny-dnl", "coco-r50-dnl-c4", "ucf6-r50-nl")
VALUES = (
    *("", "null", "true", "no", "0", "-0", "1", "-1", "2.5", "1e300", "-1e300", "1e-300", ".inf", "-.inf", ".nan"),
    *("4294967296", "18446744073709551616", "9" * 400, "9" * 5000, "0x" + "f" * 5000, "0o7", "1:30", "2020-01-01"),
    *("[]", "{}", "[1]", "[1, 2]", "[2, 1]", "[.inf, 1]", "[[1, 2], 3]", "[a, b]", "['(']", "{a: 1}", "{1: 2}"),
    *("[" * 500, "{a: " * 500, "&a [*a]", "!!python/object:os.system x", "!!bool x", "!!int ''", "!!binary x"),
    *("'\\u0000'", '"\\u0000"', "tiny", "imagenet", "dnl", "../..", "x" * 9999, "ä²³", "? :", "- -", "%", "@"),
)


def require_sentence(text: str) -> None:
    assert len(text.splitlines()) <= 2, text
    assert 0 < len(text) < 700, text
    assert not INTERNAL.search(text), text


def paths(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in nested data."""
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from paths(value, (*path, key))


KEYS = {name: [".".join(map(str, path)) for path in paths(RECIPES[name].model_dump(mode="json"))] for name in NAMES}
ENDINGS = st.sampled_from(["", "", "", "", ".", ".x", ".0", ".x.y"])


@st.composite
def overrides(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draw a recipe name, and values for known and unknown settings."""
    name = draw(st.sampled_from(NAMES))
    key = st.builds(str.__add__, st.sampled_from(KEYS[name]), ENDINGS) | st.text(max_size=12)
    value = st.sampled_from(VALUES) | st.integers().map(str) | st.floats().map(str) | st.text(max_size=12)
    return name, draw(st.lists(st.builds("{}={}".format, key, value), min_size=1, max_size=3))


def require_accepted_or_refused(name: str, given_settings: list[str]) -> None:
    try:
        recipe = override(RECIPES[name], given_settings)
    except (ValueError, OSError) as error:
        require_sentence(str(error))
    else:
        stored = recipe.stored()
        assert parse_recipe(json.dumps(stored)).stored() == stored


@settings(FIXED, max_examples=500)
@given(overrides())
def test_any_setting_is_accepted_or_refused_with_a_sentence(chosen: tuple[str, list[str]]) -> None:
    require_accepted_or_refused(*chosen)


@pytest.mark.parametrize("name", NAMES[-3:])
def test_every_value_of_a_setting_is_accepted_or_refused_with_a_sentence(name: str) -> None:
    for key in KEYS[name]:
        for value in VALUES:
            if len(value) < 100:  # longer ones are slow to parse
                require_accepted_or_refused(name, [f"{key}={value}"])


CONTENT = STORED.read_bytes()
(LENGTH,) = struct.unpack("<Q", CONTENT[:8])
HEADER = json.loads(CONTENT[8 : 8 + LENGTH])
TEXTS = {name: json.loads(text) for name, text in HEADER["__metadata__"].items() if name != "dnlnet"}
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [0, 1, -1, 2**64, 10**400, 1e300, "video", "detection", "gc", "resnet18", "hrnet_w18", "segmentor"]
    ),
)
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
GONE = object()


def replaced(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Copy nested data with one value replaced or removed."""
    if not path:
        return value
    copy = dict(content) if isinstance(content, dict) else list(content)
    if len(path) == 1 and value is GONE:
        del copy[path[0]]
    else:
        copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """Draw a changed header of the stored model."""
    texts, header = dict(TEXTS), {name: entry for name, entry in HEADER.items() if name != "__metadata__"}
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.integers(0, 3)):
            name = draw(st.sampled_from(sorted(texts)))
            path = draw(st.sampled_from(list(paths(texts[name]))))
            texts[name] = replaced(texts[name], path, draw(ANYTHING | st.just(GONE) if path else ANYTHING))
        else:
            path = draw(st.sampled_from(list(paths(header))[1:]))
            header = replaced(header, path, draw(ANYTHING | st.just(GONE)))
    metadata: Any = {name: json.dumps(text) for name, text in texts.items()}
    metadata |= draw(st.dictionaries(st.sampled_from([*TEXTS, "converted"]), st.text(max_size=20), max_size=1))
    if not draw(st.integers(0, 19)):
        metadata = draw(ANYTHING)
    return json.dumps({"__metadata__": metadata, **header}).encode()


def require_read_or_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    try:
        load_network(read_model_file(path))
    except (ValueError, OSError) as error:
        named, _, sentence = str(error).partition(f"{path}: ")
        require_sentence(sentence + named)


@settings(FIXED, max_examples=300)
@pytest.mark.filterwarnings("ignore:.*hold values that are not finite")
@given(headers())
def test_any_model_file_is_read_or_refused_with_a_sentence(tmp_path: Path, header: bytes) -> None:
    content = struct.pack("<Q", len(header)) + header + CONTENT[8 + LENGTH :]
    require_read_or_refused(content, tmp_path / "a.safetensors")


@settings(FIXED, max_examples=200)
@pytest.mark.filterwarnings("ignore:.*hold values that are not finite")
@given(st.integers(0, 8 + LENGTH - 1), st.binary(max_size=3), st.booleans())
def test_a_damaged_model_file_is_read_or_refused_with_a_sentence(
    tmp_path: Path, place: int, damage: bytes, cut: bool
) -> None:
    end = len(CONTENT) if not cut else place
    content = (CONTENT[:place] + damage + CONTENT[place + len(damage) :])[:end]
    require_read_or_refused(content, tmp_path / "a.safetensors")
