"""Options and arguments that several commands share, and the parsing of their values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dnlnet.cli.terminal.complete import complete_data_set, complete_recipe, complete_setting
from dnlnet.errors import unknown

LARGEST_SEED = 2**32 - 1  # the largest that NumPy takes
MOST = 1_000_000_000  # iterations, images or pixels
MOST_THREADS = 1024  # threads or processes; a larger number is a typing error
SMALLEST_SIDE, LARGEST_SIDE = 16, 65_536  # pixels; networks reduce smaller images to nothing
MOST_FRAMES = 65_536


def within(low: float, high: float, text: str, metavar: str = "N") -> Any:
    """Return an option with the help `text` that accepts numbers from `low` to `high`.

    Unlike typer's `min` and `max`, it refuses NaN and keeps long ranges out of the help.
    """

    def check(value: float | None) -> float | None:
        if value is not None and not low <= value <= high:
            raise typer.BadParameter(f"{value} is not within {low}..{high}")
        return value

    return typer.Option(metavar=metavar, callback=check, help=text)


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Model file, run folder, name of a bundled model such as pets, or name on the Hugging Face hub.",
    ),
]
AnyModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Model file, run folder, bundled model, or name on the Hugging Face hub; or a transformer: timm:NAME, "
        "torchvision:NAME, transformers:NAME or transformers:FOLDER.",
    ),
]
Inputs = Annotated[
    list[str], typer.Argument(metavar="INPUT", help="Images or videos, folders of them, or web addresses.")
]
Against = Annotated[
    list[str] | None, typer.Option(metavar="MODEL", help="Model to compare with. Repeat for several models.")
]
OptionalInputs = Annotated[
    list[str] | None, typer.Argument(metavar="IMAGE", help="Images, folders of them, or web addresses.")
]
DataSetName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of the data set in --data, such as camvid. Default: recognised by its folders.",
        autocompletion=complete_data_set,
    ),
]
Recipe = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="Recipe name (see `dnlnet recipes list`).", autocompletion=complete_recipe),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the recipe. Repeat for several values.",
        autocompletion=complete_setting,
    ),
]
Json = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the result to this JSON file.")]
Data = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the data set.")]
Seed = Annotated[int, within(0, LARGEST_SEED, "Random seed.")]
Workers = Annotated[int, within(0, MOST_THREADS, "Number of data-loading processes.")]
Device = Annotated[
    str | None, typer.Option(metavar="cpu|cuda:1", help="Device to compute on. Default: a GPU if there is one.")
]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16"],
    typer.Option(help="Precision. bfloat16 is faster on processors with instructions for it; auto is float32."),
]
FirstImages = Annotated[int | None, within(1, MOST, "Use only the first N images.")]
BoundaryWidth = Annotated[int, within(1, 64, "Count pixels nearer than this to a contour as boundary.", "PIXELS")]
VoidEdges = Annotated[
    bool, typer.Option("--void-edges", help="Also count contours between a class and unlabelled pixels.")
]

# Options for transformers of other libraries.
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Weights of a transformer: a local state dict (safetensors or PyTorch), or `none` for random weights. "
        "Default: downloaded by its library.",
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(metavar="5,8", help="Layers of a transformer, by number (from 0) or name. Default: as many as fit."),
]
Heads = Annotated[
    str | None,
    typer.Option(metavar="mean|all|3", help="Heads of a transformer: their mean, all, or one. Default: mean."),
]
ImageSize = Annotated[
    int | None,
    within(
        1,
        100_000,
        "Shorter side of the images given to a transformer. Default: unchanged up to its training size.",
        "PIXELS",
    ),
]


def parse_layers(text: str | None) -> list[int | str] | None:
    """Return the layers in a comma-separated list of numbers and names.

    >>> parse_layers("5,blocks.8.attn"), parse_layers(None)
    ([5, 'blocks.8.attn'], None)
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"--layers {text}: expected comma-separated numbers or names, such as 5,8")
    return [int(part) if part.isdecimal() else part for part in parts]


def parse_heads(text: str | None) -> int | Literal["mean", "all"] | None:
    """Return the chosen heads: their mean, all of them, or the number of one.

    >>> parse_heads("mean"), parse_heads("3"), parse_heads(None)
    ('mean', 3, None)
    """
    known: Literal["mean", "all"]
    for known in ("mean", "all"):
        if text == known:
            return known
    if text is None:
        return None
    if not text.isdecimal():
        raise ValueError(f"--heads {text}: expected mean, all, or the number of a head (from 0)")
    return int(text)


def parse_size(text: str, example: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths in a `--size` such as 8x112x112: height and width, for clips after the number of frames.

    Args:
        text: Value of the option.
        example: Valid lengths, to tell images from clips and for the error message.

    >>> parse_size("8x112x112", (8, 256, 256))
    (8, 112, 112)
    """
    lengths = text.lower().split("x")
    if len(lengths) != len(example) or not all(length.isdecimal() and len(length) < 10 for length in lengths):
        names = " x ".join(("frames", "height", "width")[-len(example) :])
        raise ValueError(f"--size {text[:60]}: expected {names} in pixels, such as {'x'.join(map(str, example))}")
    *frames, height, width = map(int, lengths)
    if not all(SMALLEST_SIDE <= side <= LARGEST_SIDE for side in (height, width)):
        raise ValueError(f"--size {text}: expected sides of {SMALLEST_SIDE} to {LARGEST_SIDE} pixels")
    if not all(1 <= count <= MOST_FRAMES for count in frames):
        raise ValueError(f"--size {text}: expected 1 to {MOST_FRAMES} frames")
    return *frames, height, width


def parse_counts(option: str, text: str, most: int = 65_536) -> list[int]:
    """Return the whole numbers in a comma-separated list.

    >>> parse_counts("--batch", "1, 8")
    [1, 8]
    """
    counts = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) < 10 and 1 <= int(word) <= most for word in counts):
        raise ValueError(f"{option} {text[:60]}: expected comma-separated whole numbers within 1..{most}")
    return [int(word) for word in counts]


def choose(kind: str, text: str, known: Mapping[str, object], separator: str = ",") -> list[str]:
    """Return the known names in a separated list, or all of them for `all`.

    >>> choose("size", "large,small", {"small": 1, "large": 2})
    ['large', 'small']
    """
    names = list(known) if text == "all" else [name.strip() for name in text.split(separator)]
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)
    return names


def given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None.

    >>> given(window=None, flip=False)
    {'flip': False}
    """
    return {name: value for name, value in options.items() if value is not None}
