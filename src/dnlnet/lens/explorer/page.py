"""The page: pictures, maps and what shows them, in one file that asks for nothing from outside."""

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from math import ceil
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from dnlnet.files import json_text
from dnlnet.lens.explorer.fit import Parts, fitting_maps, jpeg_address, packed, shrunk, shrunk_labels
from dnlnet.lens.explorer.grid import CoarseMaps, Grid
from dnlnet.lens.views import Picture, View

BUDGET = 4_000_000
COLOURS = ("inferno", "magma", "viridis", "turbo", "greys")
# Longest side of a picture in the page; smaller ones are for pages with many pictures.
_SIDES = (1024, 768, 512, 384, 256)
# Bytes for what is said of a view, beside its maps.
_VIEW_TEXT = 1000

Json = dict[str, Any]


def explorer_page(pictures: Sequence[Picture], *, title: str = "Attention explorer", budget: int = BUDGET) -> str:
    """One HTML file to explore attention with: point at a pixel, and see what its position attends to.

    The maps are in the file, of as many positions and cells as fit; the page says how many, and how exact they are.

    Args:
        pictures: with views of one or several blocks each.
        title: of the page.
        budget: the most bytes that the page may take.

    >>> import torch
    >>> from dnlnet.attention import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl").terms(torch.rand(1, 8, 6, 8))
    >>> page = explorer_page([Picture("a.jpg", np.zeros((48, 64, 3), dtype=np.uint8), [View("dnl", terms)])])
    >>> page[:15], len(page) < 100_000
    ('<!doctype html>', True)
    """
    if not pictures:
        raise ValueError("there are no pictures to explore; give at least one")
    content: Json = {"colours": {name: _colour_table(name) for name in COLOURS}}
    room = budget - len(_filled(title, content).encode())
    content["pictures"] = shown = _shown(pictures, room // 2)
    room -= sum(len(_json(part)) + _VIEW_TEXT * len(part["views"]) for part in shown)
    views = [view for picture in pictures for view in picture.views]
    entries = [entry for part in shown for entry in part["views"]]
    weights = [_weight(view) for view in views]
    for index, (view, entry) in enumerate(zip(views, entries, strict=True)):
        # What one view leaves over is for those after it.
        maps, parts = fitting_maps(view.terms, room * weights[index] // sum(weights[index:]))
        entry |= _view_maps(view, maps, parts)
        room -= sum(len(text) for part in parts.values() for text in part.values())
    return _filled(title, content)


def statement(maps: CoarseMaps) -> str:
    """What the maps of a view are, in words.

    >>> coarse = CoarseMaps(Grid((45, 60), 2), Grid((45, 60), 3), None, None, None, loss=0.00389)
    >>> statement(coarse).endswith("8 bits a cell: values within 0.4 % of the strongest of their map.")
    True
    """
    keys, queries = maps.keys, maps.queries
    over = f"Maps of {_by(keys.cells)} cells"
    if keys.factor > 1:
        over += f" from {_by(keys.size)} positions (each cell the mean of {_square(keys)})"
    of = f"for each of {_by(queries.size)} positions"
    if queries.factor > 1:
        middle = f"the one in the middle of each {_square(queries)}"
        of = f"for {_by(queries.cells)} of {_by(queries.size)} positions ({middle})"
    within = f"values within {ceil(maps.loss * 1000) / 10} % of the strongest of their map"
    return f"{over}, {of}, 8 bits a cell: {within}."


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]} \N{MULTIPLICATION SIGN} {size[1]}"


def _square(grid: Grid) -> str:
    return _by((grid.factor, grid.factor))


def _weight(view: View) -> int:
    """The share of the page that the maps of a view get: a single map is small beside one for each query."""
    return 1 if view.terms.pairwise is None else 16 * (1 + (view.terms.coupled is not None))


def _shown(pictures: Sequence[Picture], room: int) -> list[Json]:
    """Everything but the maps, with pictures as large as there is room for."""
    for side in _SIDES:
        parts = [_picture(picture, side) for picture in pictures]
        if sum(len(_json(part)) for part in parts) <= room:
            return parts
    raise ValueError(
        f"{len(pictures)} pictures of {_SIDES[-1]} pixels take more than half of the page; allow it a larger budget, "
        "or give it fewer pictures"
    )


def _picture(picture: Picture, side: int) -> Json:
    image = shrunk(picture.pixels, side)
    stored: list[str] = []

    def index(labels: NDArray[np.uint8] | None) -> int | None:
        """Where the label map is stored; blocks of one model share its prediction."""
        if labels is None:
            return None
        text = packed(shrunk_labels(labels, (image.height, image.width)))
        if text not in stored:
            stored.append(text)
        return stored.index(text)

    views = [{"title": view.title, "prediction": index(view.prediction)} for view in picture.views]
    return {
        "name": picture.name,
        "size": picture.size,
        "image": jpeg_address(image),
        "truth": index(picture.labels),
        "views": views,
        "labels": stored,
        "labelSize": (image.height, image.width),
        "classes": None
        if picture.classes is None
        else {"names": list(picture.classes.names), "palette": np.asarray(picture.classes.palette).tolist()},
    }


def _view_maps(view: View, maps: CoarseMaps, parts: Parts) -> Json:
    return {
        "covered": view.covered,
        "coupled": view.terms.coupled is not None,
        "queries": _grid(maps.queries),
        "keys": _grid(maps.keys),
        "loss": maps.loss,
        "statement": statement(maps),
        "parts": parts,
    }


def _grid(grid: Grid) -> Json:
    return {"size": grid.size, "factor": grid.factor, "cells": grid.cells}


def _colour_table(name: str) -> str:
    """256 colours, three bytes each, from the weakest to the strongest."""
    colours = matplotlib.colormaps["gray" if name == "greys" else name](np.arange(256))[:, :3]
    return packed((colours * 255).round().astype(np.uint8))


def _json(content: Json) -> str:
    # A title may hold "</script>" or "<!--", which would end the element or change how the rest is read.
    return json_text(content).replace("<", "\\u003c")


def _filled(title: str, content: Json) -> str:
    parts = {
        "title": escape(title),
        "style": _part("page.css"),
        "script": "".join(map(_part, ("drawing.js", "page.js", "controls.js"))),
        "content": _json(content),
    }
    # In one pass: what is put in is not searched for further places.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _part("page.html"))


@cache
def _part(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
