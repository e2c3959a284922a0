"""Files written for each input: figure, printable figure, maps and their description."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dnlnet.data.outputs import writing_problem
from dnlnet.data.problems import BadFileError, Problem
from dnlnet.files import atomic_write, write_json
from dnlnet.lens.show.attended_image import AttendedImage
from dnlnet.lens.show.panels import PRINT_DOTS, save_figure
from dnlnet.lens.show.query_points import Point
from dnlnet.results import Kind, is_result
from dnlnet.signals import hold_stop_signals


def shown_files(target: Path) -> list[Path]:
    """Return the files that show one input: figure, printable figure, maps, and their description."""
    return [target.with_name(target.name + end) for end in (".png", ".pdf", ".npz", ".json")]


def require_free(targets: Iterable[Sequence[Path]], inputs: Iterable[Path], force: bool) -> None:
    """Raise if writing figures would destroy an input or, without `force`, a file that is not of a figure."""
    real = {path.resolve() for path in inputs}
    for png, pdf, npz, json in targets:
        for path, sign in ((png, png), (pdf, pdf), (npz, json), (json, json)):
            if not os.path.exists(path):  # a name that is too long does not exist either
                continue
            if path.resolve() in real:
                raise ValueError(f"{path}: is an input, and its figure would have this name; choose another folder")
            kind: Kind = "json" if sign is json else "figure"
            if not force and not (sign.is_file() and is_result(sign, kind)):
                raise ValueError(f"{path}: exists, and is no figure of dnlnet; choose another folder, or force it")


def write_shown(
    path: Path,
    target: Path,
    figure: Figure,
    content: dict[str, Any],
    arrays: Mapping[str, Any],
    dots: int = PRINT_DOTS,
) -> None:
    """What is shown of a picture or video, under one name with four endings, or none of it and a `BadFileError`."""
    png, pdf, npz, json = files = shown_files(target)
    try:
        with hold_stop_signals():
            save_figure(figure, png, dots)
            save_figure(figure, pdf, PRINT_DOTS)
            with atomic_write(npz) as temporary:
                np.savez_compressed(temporary, allow_pickle=False, **arrays)
            write_json(json, content)
    except OSError as error:
        raise BadFileError(Problem(path, writing_problem(error, files))) from None


def record(picture: AttendedImage, points: Sequence[Point]) -> tuple[dict[str, Any], dict[str, NDArray[np.floating]]]:
    """The queries with the positions they snapped to, and the maps, named "number of the view/term".

    Pairwise and combined maps are (Q, h, w) for Q points, a unary map is (h, w).

    >>> import torch
    >>> from dnlnet import NonLocalBlock
    >>> from dnlnet.lens.show.attended_image import AttentionView
    >>> terms = NonLocalBlock(8, "nl_pairwise").terms(torch.randn(1, 8, 4, 6))
    >>> picture = AttendedImage("sea", np.zeros((16, 24, 3), np.uint8), [AttentionView("mine", terms)])
    >>> content, maps = record(picture, [(8, 13)])
    >>> content["views"][0]["queries"], {name: array.shape for name, array in maps.items()}
    ([{'x': 13, 'y': 8, 'row': 2, 'column': 3}], {'0/pairwise': (1, 4, 6), '0/combined': (1, 4, 6)})
    """
    arrays: dict[str, NDArray[np.floating]] = {}
    views = []
    for number, view in enumerate(picture.views):
        positions = [view.position(point, picture) for point in points]
        maps = view.terms.maps(positions)
        for term, attention in (("pairwise", maps.pairwise), ("unary", maps.unary), ("combined", maps.combined)):
            if attention is not None:
                arrays[f"{number}/{term}"] = attention[0].cpu().numpy()
        queries: list[dict[str, int | str | None]] = []
        for (y, x), (row, column) in zip(points, positions, strict=True):
            query: dict[str, int | str | None] = {"x": x, "y": y, "row": row, "column": column}
            for kind, labels in (("true", picture.labels), ("predicted", view.prediction)):
                if labels is not None:
                    query[kind] = picture.class_name(int(labels[y, x]))
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
    height, width = picture.size
    return {"picture": picture.name, "height": height, "width": width, "views": views}, arrays
