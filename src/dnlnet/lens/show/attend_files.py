"""Files written for each input: the figure as PNG and PDF, its maps (.npz) and their description (.json)."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dnlnet.attention import AttentionMaps
from dnlnet.data.outputs import writing_problem
from dnlnet.data.problems import BadFileError, Problem
from dnlnet.files import ResultKind, atomic_write, is_result, write_json
from dnlnet.lens.show.attended_image import AttendedImage, Point, maps_by_term
from dnlnet.lens.show.panels import PRINT_DOTS, save_figure
from dnlnet.signals import hold_stop_signals

Arrays = dict[str, NDArray[np.floating]]


def _files(target: Path) -> tuple[Path, Path, Path, Path]:
    png, pdf, npz, json = (target.with_name(target.name + end) for end in (".png", ".pdf", ".npz", ".json"))
    return png, pdf, npz, json


def require_free(targets: Iterable[Path], inputs: Iterable[Path], force: bool) -> None:
    """Raise if writing figures would overwrite an input or, without `force`, a file that is not a figure."""
    real = {path.resolve() for path in inputs}
    for target in targets:
        png, pdf, npz, json = _files(target)
        # Maps carry no signature; their description does.
        for path, signed in ((png, png), (pdf, pdf), (npz, json), (json, json)):
            if not os.path.exists(path):  # unlike Path.exists, false for a name that is too long
                continue
            if path.resolve() in real:
                raise ValueError(f"{path}: is an input, and its figure would overwrite it; choose another folder")
            kind: ResultKind = "json" if signed is json else "figure"
            if not force and not (signed.is_file() and is_result(signed, kind)):
                raise ValueError(f"{path}: exists and is not a figure of dnlnet; choose another folder, or force it")


def write_attention(
    path: Path,
    target: Path,
    figure: Figure,
    content: dict[str, Any],
    arrays: Mapping[str, Any],
    dots: int = PRINT_DOTS,
) -> None:
    """Write the four files of the input `path`, or none of them and raise `BadFileError`."""
    png, pdf, npz, json = files = _files(target)
    try:
        with hold_stop_signals():
            save_figure(figure, png, dots)
            save_figure(figure, pdf, PRINT_DOTS)
            with atomic_write(npz) as temporary:
                np.savez_compressed(temporary, allow_pickle=False, **arrays)
            write_json(json, content)
    except OSError as error:
        raise BadFileError(Problem(path, writing_problem(error, files))) from None


def describe_image(image: AttendedImage, points: Sequence[Point]) -> tuple[dict[str, Any], Arrays]:
    """Return the queries with their positions on each map, and the maps, named "number of the view/term".

    Pairwise and combined maps are (Q, h, w) for Q points, a unary map is (h, w).

    >>> import torch
    >>> from dnlnet import NonLocalBlock
    >>> from dnlnet.lens.show.attended_image import AttentionView
    >>> terms = NonLocalBlock(8, "nl_pairwise").terms(torch.randn(1, 8, 4, 6))
    >>> image = AttendedImage("sea", np.zeros((16, 24, 3), np.uint8), [AttentionView("mine", terms)])
    >>> content, maps = describe_image(image, [(8, 13)])
    >>> content["views"][0]["queries"], {name: array.shape for name, array in maps.items()}
    ([{'x': 13, 'y': 8, 'row': 2, 'column': 3}], {'0/pairwise': (1, 4, 6), '0/combined': (1, 4, 6)})
    """
    arrays: Arrays = {}
    views = []
    for number, view in enumerate(image.views):
        positions = [view.position(point, image) for point in points]
        arrays |= numbered_maps(number, view.terms.maps(positions))
        queries: list[dict[str, int | str | None]] = []
        for (y, x), (row, column) in zip(points, positions, strict=True):
            query: dict[str, int | str | None] = {"x": x, "y": y, "row": row, "column": column}
            for kind, labels in (("true", image.labels), ("predicted", view.prediction)):
                if labels is not None:
                    query[kind] = image.class_name(int(labels[y, x]))
            queries.append(query)
        views.append(
            {
                "title": view.title,
                **({} if view.place is None else {"layer": view.place.layer, "head": view.place.head}),
                "queries_map": list(view.terms.size),
                "keys_map": list(view.terms.key_size),
                "covered": list(view.covered),
                "queries": queries,
            }
        )
    height, width = image.size
    return {"picture": image.name, "height": height, "width": width, "views": views}, arrays


def numbered_maps(number: int, maps: AttentionMaps) -> Arrays:
    """Return the maps of one image or clip as arrays, named "number/term"."""
    return {f"{number}/{term}": attention[0].cpu().numpy() for term, attention in maps_by_term(maps).items()}
