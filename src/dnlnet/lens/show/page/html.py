"""The explorer page: pictures, maps and scripts in one self-contained HTML file."""

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from dnlnet.files import atomic_write, json_text
from dnlnet.lens.show.attended_image import LEARNT_LITTLE, UNIFORM, AttendedImage, AttentionView
from dnlnet.lens.show.layers import left_out, with_few_layers
from dnlnet.lens.show.page.fit import Parts, fit_maps, jpeg_data_url, pack, shrink, shrink_labels
from dnlnet.lens.show.page.grid import CoarseMaps, Grid

BUDGET = 4_000_000
PAGE_VIEWS = 32  # of transformers, in all images, unless layers are chosen
COLOURS = ("inferno", "magma", "viridis", "turbo", "greys")
# Longest side of a picture in the page, smaller for pages with many pictures.
_SIDES = (1024, 768, 512, 384, 256)
_SCRIPTS = ("drawing.js", "findings.js", "page.js", "saving.js", "controls.js")
# Bytes for the description of a view.
_VIEW_TEXT = 1000

Json = dict[str, Any]


def attention_page(
    pictures: Sequence[AttendedImage],
    *,
    title: str = "Attention explorer",
    budget: int = BUDGET,
    note: str = "",
    start: int = 0,
) -> str:
    """An HTML page to explore attention: point at a pixel and see what its position attends to.

    The page contains the maps of as many positions and cells as fit, and says how many and how exact they are.

    Args:
        pictures: each with views of one or more blocks.
        title: of the page.
        budget: maximum size of the page in bytes.
        note: what the page should say about what it leaves out.
        start: the picture that it opens with, counted from 0.

    >>> import torch
    >>> from dnlnet.attention import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl").terms(torch.rand(1, 8, 6, 8))
    >>> image = AttendedImage("a.jpg", np.zeros((48, 64, 3), dtype=np.uint8), [AttentionView("dnl", terms)])
    >>> page = attention_page([image])
    >>> page[:15], len(page) < 100_000
    ('<!doctype html>', True)
    """
    if not pictures:
        raise ValueError("there are no pictures to explore; pass at least one")
    content: Json = {"colours": {name: _colour_table(name) for name in COLOURS}, "note": note, "start": start}
    content["uniform"] = {"most": UNIFORM, "text": f"{LEARNT_LITTLE.capitalize()}."}
    room = budget - len(_fill_template(title, content).encode())
    content["pictures"] = shown = _describe_pictures(pictures, room // 2)
    room -= sum(len(_json(part)) + _VIEW_TEXT * len(part["views"]) for part in shown)
    views = [view for picture in pictures for view in picture.views]
    entries = [entry for part in shown for entry in part["views"]]
    weights = [_weight(view) for view in views]
    for index, (view, entry) in enumerate(zip(views, entries, strict=True)):
        # What one view leaves over goes to the next.
        maps, parts = fit_maps(view.terms, room * weights[index] // sum(weights[index:]))
        entry |= _describe_view(view, maps, parts)
        room -= sum(len(text) for part in parts.values() for text in part.values())
    return _fill_template(title, content)


def write_page(path: Path, pictures: Sequence[AttendedImage], *, every_layer: bool = False) -> str:
    """Write the page that explores pictures, and return what it leaves out, in words."""
    most = max(1, PAGE_VIEWS // len(pictures))
    few = pictures if every_layer else [with_few_layers(picture, most) for picture in pictures]
    missing = left_out(pictures[0].views, few[0].views)
    with atomic_write(path) as temporary:
        temporary.write_text(attention_page(few, note=missing), encoding="utf-8")
    return missing


def describe_maps(maps: CoarseMaps) -> str:
    """Resolution and precision of the maps of a view, in words.

    >>> coarse = CoarseMaps(Grid((45, 60), 2), Grid((45, 60), 3), None, None, None, loss=0.00389)
    >>> describe_maps(coarse).endswith("8 bits a cell: values within 0.4 % of the strongest of their map.")
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


def _weight(view: AttentionView) -> int:
    """Weight of a view in sharing out the page: one map needs far less room than one per query."""
    return 1 if view.terms.pairwise is None else 16 * (1 + (view.terms.coupled is not None))


def _describe_pictures(pictures: Sequence[AttendedImage], room: int) -> list[Json]:
    """Everything but the maps, with pictures as large as fit."""
    for side in _SIDES:
        parts = [_describe_picture(picture, side) for picture in pictures]
        if sum(len(_json(part)) for part in parts) <= room:
            return parts
    raise ValueError(
        f"{len(pictures)} pictures of {_SIDES[-1]} pixels take more than half of the page; allow a larger page, or "
        "choose fewer pictures"
    )


def _describe_picture(picture: AttendedImage, side: int) -> Json:
    image = shrink(picture.pixels, side)
    stored: list[str] = []

    def index(labels: NDArray[np.uint8] | None) -> int | None:
        """Index of the stored label map; blocks of one model share its prediction."""
        if labels is None:
            return None
        text = pack(shrink_labels(labels, (image.height, image.width)))
        if text not in stored:
            stored.append(text)
        return stored.index(text)

    views = [
        {
            "title": view.title,
            "place": None if view.place is None else vars(view.place),
            "prediction": index(view.prediction),
            "boxes": [vars(box) for box in view.boxes],
        }
        for view in picture.views
    ]
    return {
        "name": picture.name,
        "size": picture.size,
        "start": picture.start_point(),
        # Layers of a transformer are many, and looked at one by one.
        "compare": len(picture.views) > 1 and all(view.place is None for view in picture.views),
        "view": _first_view(picture),
        "image": jpeg_data_url(image),
        "truth": index(picture.labels),
        "views": views,
        "labels": stored,
        "labelSize": (image.height, image.width),
        "classes": None
        if picture.classes is None
        else {"names": list(picture.classes.names), "palette": np.asarray(picture.classes.palette).tolist()},
    }


def _first_view(picture: AttendedImage) -> int:
    """The view that is seen first: of the layers of one transformer one at two thirds of the depth.

    Maps of the first layers are of edges and colours, those of later ones of things.
    """
    one = {None if view.place is None else (view.place.model, view.place.head) for view in picture.views}
    return 2 * (len(picture.views) - 1) // 3 if len(one) == 1 and None not in one else 0


def _describe_view(view: AttentionView, maps: CoarseMaps, parts: Parts) -> Json:
    return {
        "covered": view.covered,
        "coupled": view.terms.coupled is not None,
        "queries": _describe_grid(maps.queries),
        "keys": _describe_grid(maps.keys),
        "loss": maps.loss,
        "statement": describe_maps(maps),
        "parts": parts,
    }


def _describe_grid(grid: Grid) -> Json:
    return {"size": grid.size, "factor": grid.factor, "cells": grid.cells}


def _colour_table(name: str) -> str:
    """256 colours, three bytes each, from weak to strong."""
    colours = matplotlib.colormaps["gray" if name == "greys" else name](np.arange(256))[:, :3]
    return pack((colours * 255).round().astype(np.uint8))


def _json(content: Json) -> str:
    # A title may contain "</script>" or "<!--", which would end the element or comment out the rest.
    return json_text(content).replace("<", "\\u003c")


def _fill_template(title: str, content: Json) -> str:
    parts = {
        "title": escape(title),
        "style": _read_part("page.css"),
        "script": "".join(map(_read_part, _SCRIPTS)),
        "content": _json(content),
    }
    # In one pass: inserted text is not searched for placeholders.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _read_part("page.html"))


@cache
def _read_part(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
