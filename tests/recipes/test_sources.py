"""Every value of every paper recipe comes from the paper, its release, or a stated decision."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dnlnet.recipes.recipe import Recipe
from dnlnet.recipes.sources import ANY, Source, trace
from dnlnet.registry import match_recipes

RECIPES = [recipe for recipe in match_recipes("*") if recipe.paper is not None]
ROWS = {id(row): row for recipe in RECIPES for row in type(recipe).sources}.values()


@pytest.fixture(scope="module")
def paper() -> str:
    """Return the paper's LaTeX source with single blanks."""
    found = sorted(Path(os.environ.get("DNLNET_DATA", "nowhere")).glob("paper/*.tex"))
    if not found:
        pytest.skip("the paper's LaTeX source is in the folder that DNLNET_DATA names, which is not set")
    return " ".join(found[0].read_text().split())


def used() -> Iterator[Source]:
    for recipe in RECIPES:
        yield from (row for _, row in trace(recipe).values() if row is not None)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_value_follows_from_its_source(recipe: Recipe) -> None:
    for field, (value, row) in trace(recipe).items():
        assert row is not None, f"{field}={value!r} has no source"
        expected = row.value(field)
        assert expected is ANY or expected == value, f"{field} is {value!r}, and its source says {expected!r}"


def test_every_source_is_used() -> None:
    found = {id(row) for row in used()}
    assert [row.settings for row in ROWS if id(row) not in found] == []


def test_quotations_appear_in_the_paper(paper: str) -> None:
    quoted = [row.paper for row in ROWS if row.paper]
    assert len(quoted) > 20
    for words in quoted:
        for part in re.split(r" ?\[\.\.\.\] ?", words):
            assert part in paper, f"the paper does not say: {part}"
