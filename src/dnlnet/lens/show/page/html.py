"""One self-contained HTML page that shows the attention of any point of an image: images, maps and scripts."""

import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dnlnet.files import atomic_write, json_text
from dnlnet.lens.show.attended_image import AttendedImage, AttentionView
from dnlnet.lens.show.layer_views import left_out, with_few_layers
from dnlnet.lens.show.page.fit import Parts, fit_maps, jpeg_data_url, pack, shrink, shrink_labels, text_size
from dnlnet.lens.show.page.grid import CoarseMaps, Grid
from dnlnet.lens.show.strength import HALF_BRIGHT, LEARNT_LITTLE, TICKS, UNIFORM

BUDGET = 4_000_000
_MAX_VIEWS = 32  # transformer views in all images, unless the user selects layers
# Longest side of an image in the page; smaller for pages with many images.
_SIDES = (1024, 768, 512, 384, 256)
_SCRIPTS = ("drawing.js", "findings.js", "page.js", "saving.js", "controls.js")
_VIEW_TEXT = 1000  # bytes for the description of a view

Json = dict[str, Any]


def attention_page(
    images: Sequence[AttendedImage],
    *,
    title: str = "Attention explorer",
    budget: int = BUDGET,
    note: str = "",
) -> str:
    """Return an HTML page to explore attention: point at a pixel to see what its position attends to.

    The page stores maps for as many positions and cells as fit, and says how many and how exact they are.

    Args:
        images: Images with views of one or more blocks.
        title: Title of the page.
        budget: Maximum size of the page in bytes.
        note: Note on omitted layers.

    >>> import torch
    >>> from dnlnet.attention import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl").terms(torch.rand(1, 8, 6, 8))
    >>> image = AttendedImage("a.jpg", np.zeros((48, 64, 3), dtype=np.uint8), [AttentionView("dnl", terms)])
    >>> page = attention_page([image])
    >>> page[:15], len(page) < 100_000
    ('<!doctype html>', True)
    """
    if not images:
        raise ValueError("no images to explore; pass at least one")
    content: Json = {"colours": _colour_tables(), "note": note}
    content["uniform"] = {"most": UNIFORM, "text": f"{LEARNT_LITTLE.capitalize()}."}
    content["heat"] = {"half": HALF_BRIGHT, "ticks": TICKS}
    room = budget - len(_fill_template(title, content).encode())
    content["images"] = shown = _describe_images(images, room // 2)
    room -= sum(len(_json(part)) + _VIEW_TEXT * len(part["views"]) for part in shown)
    views = [view for image in images for view in image.views]
    entries = [entry for part in shown for entry in part["views"]]
    weights = [_weight(view) for view in views]
    for index, (view, entry) in enumerate(zip(views, entries, strict=True)):
        # The next view gets the room that one leaves unused.
        maps, parts = fit_maps(view.terms, room * weights[index] // sum(weights[index:]))
        entry |= _describe_view(view, maps, parts)
        room -= text_size(parts)
    return _fill_template(title, content)


def write_page(path: Path, images: Sequence[AttendedImage], *, all_layers: bool = False) -> str:
    """Write the page of some images. Return a note on the layers it leaves out."""
    most = max(1, _MAX_VIEWS // len(images))
    few = images if all_layers else [with_few_layers(image, most) for image in images]
    note = left_out(images[0].views, few[0].views)
    with atomic_write(path) as temporary:
        temporary.write_text(attention_page(few, note=note), encoding="utf-8")
    return note


def describe_maps(maps: CoarseMaps) -> str:
    """Describe the resolution and precision of a view's maps.

    >>> coarse = CoarseMaps(Grid((45, 60), 2), Grid((45, 60), 3), {}, loss=0.00389)
    >>> describe_maps(coarse).endswith("8 bits per cell: values are within 0.4 % of the maximum of their map.")
    True
    """
    keys, queries = maps.keys, maps.queries
    over = f"Maps of {_by(keys.cells)} cells"
    if keys.factor > 1:
        over += f" from {_by(keys.size)} positions (each cell is the mean of {_square(keys)})"
    of = f"for each of {_by(queries.size)} positions"
    if queries.factor > 1:
        middle = f"the one in the middle of each {_square(queries)}"
        of = f"for {_by(queries.cells)} of {_by(queries.size)} positions ({middle})"
    within = f"values are within {ceil(maps.loss * 1000) / 10} % of the maximum of their map"
    return f"{over}, {of}, 8 bits per cell: {within}."


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]} \N{MULTIPLICATION SIGN} {size[1]}"


def _square(grid: Grid) -> str:
    return _by((grid.factor, grid.factor))


def _weight(view: AttentionView) -> int:
    """Return a view's share of the page, relative to others: one map takes far less room than one per query."""
    return 1 if view.terms.pairwise is None else 16 * (1 + (view.terms.coupled is not None))


def _describe_images(images: Sequence[AttendedImage], room: int) -> list[Json]:
    """Describe everything but the maps, with pixels as large as fit."""
    for side in _SIDES:
        parts = [_describe_image(image, side) for image in images]
        if sum(len(_json(part)) for part in parts) <= room:
            return parts
    raise ValueError(
        f"{len(images)} images of {_SIDES[-1]} pixels take more than half of the page; allow a larger page, or "
        "choose fewer images"
    )


def _describe_image(image: AttendedImage, side: int) -> Json:
    small = shrink(image.pixels, side)
    stored: list[str] = []

    def index(labels: NDArray[np.uint8] | None) -> int | None:
        """Return the index of the stored label map; blocks of one model share its prediction."""
        if labels is None:
            return None
        text = pack(shrink_labels(labels, (small.height, small.width)))
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
        for view in image.views
    ]
    return {
        "name": image.name,
        "size": image.size,
        "start": image.start_point(),
        # A transformer has many layers, which are viewed one at a time.
        "compare": len(image.views) > 1 and all(view.place is None for view in image.views),
        "view": image.first_view,
        "pixels": jpeg_data_url(small),
        "truth": index(image.labels),
        "views": views,
        "labels": stored,
        "labelSize": (small.height, small.width),
        "classes": None
        if image.classes is None
        else {"names": list(image.classes.names), "palette": np.asarray(image.classes.palette).tolist()},
    }


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


@cache
def _colour_tables() -> dict[str, str]:
    """Return 256 colours of three bytes, from weak to strong, by name.

    They are matplotlib's, stored in a file because matplotlib takes long to import.
    """
    tables = json.loads(_read_part("colours.json"))
    return {name: pack(np.frombuffer(bytes.fromhex(colours), np.uint8)) for name, colours in tables.items()}


def _json(content: Json) -> str:
    # A title may contain "</script>" or "<!--".
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
