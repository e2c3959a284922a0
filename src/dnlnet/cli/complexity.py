"""`dnlnet complexity`: size and cost of the networks of recipes, beside the paper's."""

from pathlib import Path
from typing import Annotated, Any

import typer

# The rows of the paper's table.
_DEFAULT = ["cityscapes-r101-baseline", "cityscapes-r101-nl", "cityscapes-r101-dnl"]


def complexity(
    recipe: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE]...", help="Names, or patterns such as 'ade20k-*'. Default: the paper's table."
        ),
    ] = None,
    latency: Annotated[bool, typer.Option("--latency", help="Also measure the time of an image here.")] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
) -> None:
    """Show parameters and multiply-accumulates of the networks of recipes, and what the paper says.

    Counting needs no weights and computes nothing. An image has the size of the recipe's crop, a
    clip that of its tests.

    Example: dnlnet complexity 'cityscapes-r101-*' --latency
    """
    from dnlnet.cli.tables import print_table
    from dnlnet.files import write_json
    from dnlnet.lens.complexity import CONVENTION
    from dnlnet.runs.complexity import measure_complexity

    rows = measure_complexity(recipe or _DEFAULT, latency=latency)
    print_table("Size and cost of networks", [_cells(row, latency) for row in rows], caption=CONVENTION)
    if json is not None:
        write_json(json, {"convention": CONVENTION, "rows": rows})
        typer.echo(f"written: {json}")


def _cells(row: dict[str, Any], latency: bool) -> dict[str, str]:
    def number(value: float | None, form: str, unit: str = "") -> str:
        return "-" if value is None else format(value, form) + unit

    paper = row["paper"]
    cells = {
        "recipe": row["recipe"],
        "input": " x ".join(map(str, row["size"])),
        "parameters": f"{row['parameters']:,}",
        "paper": number(paper["parameters"], ".3f", " M"),
        "MACs": number(row["macs"] / 1e9, ",.3f", " G"),
        "paper's": number(paper["macs"], ".2f", " G"),
    }
    if latency:
        cells |= {
            "seconds here": number(row["seconds"], ".3f"),
            "paper's GPU": number(paper["latency"], ".3f"),
        }
    return cells
