"""Arguments that several commands take, and options that a user gave."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model file, a run folder, or a name: one in the box, such as street, or on the hub.",
    ),
]

LookModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model file, a run folder, a name in the box or on the hub; or timm:NAME, torchvision:NAME, "
        "transformers:NAME or :FOLDER.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="For a transformer: a local state dict (safetensors or PyTorch), or none for random weights. Default: "
        "its library downloads them.",
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(
        metavar="5,8", help="For a transformer: attention layers by number, from 0, or by name. Default: a few."
    ),
]
Heads = Annotated[
    str | None,
    typer.Option(metavar="mean|all|3", help="For a transformer: the mean over heads, all, or one. Default: mean."),
]
LookSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100_000,
        metavar="PIXELS",
        help="Shorter side at which a transformer sees pictures. Default: their own, up to that of its training.",
    ),
]

BoundaryWidth = Annotated[int, typer.Option(min=1, max=64, help="Pixels nearer than this to a contour are boundary.")]
VoidEdges = Annotated[
    bool, typer.Option("--void-edges", help="Contours between a class and unlabelled pixels count as well.")
]


def layers_of(text: str | None) -> list[int | str] | None:
    """Layers as they are given on the command line: numbers or names with commas between them.

    >>> layers_of("5,blocks.8.attn"), layers_of(None)
    ([5, 'blocks.8.attn'], None)
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"--layers {text}: expected numbers or names with commas between them, such as 5,8")
    return [int(part) if part.isdecimal() else part for part in parts]


def heads_of(text: str | None) -> int | Literal["mean", "all"] | None:
    """Heads as they are given on the command line.

    >>> heads_of("mean"), heads_of("3"), heads_of(None)
    ('mean', 3, None)
    """
    known: Literal["mean", "all"]
    for known in ("mean", "all"):
        if text == known:
            return known
    if text is None:
        return None
    if not text.isdecimal():
        raise ValueError(f"--heads {text}: expected mean, all, or the number of a head, counted from 0")
    return int(text)


def given(**options: Any) -> dict[str, Any]:
    """Those of the options that are not None.

    >>> given(window=None, flip=False)
    {'flip': False}
    """
    return {name: value for name, value in options.items() if value is not None}
