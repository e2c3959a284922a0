"""The maps of a picture as plain numbers, to be written to a file."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dnlnet.lens.show.views import Picture, Point


def record(picture: Picture, points: Sequence[Point]) -> tuple[dict[str, Any], dict[str, NDArray[np.floating]]]:
    """The queries with the positions they snapped to, and the maps, named "number of the view/term".

    Pairwise and combined maps are (Q, h, w) for Q points, a unary map is (h, w).

    >>> import torch
    >>> from dnlnet import NonLocalBlock
    >>> from dnlnet.lens.show.views import View
    >>> terms = NonLocalBlock(8, "nl_pairwise").terms(torch.randn(1, 8, 4, 6))
    >>> picture = Picture("sea", np.zeros((16, 24, 3), np.uint8), [View("mine", terms)])
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
