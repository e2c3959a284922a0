"""`dnlnet complexity`: parameters and cost of networks, next to the paper's numbers."""

from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.complete import complete_recipe
from dnlnet.cli.terminal.options import Json
from dnlnet.cli.terminal.outputs import write_result, writes

if TYPE_CHECKING:
    from dnlnet.runs.complexity import NetworkCost

_PAPER_TABLE = ["cityscapes-r101-baseline", "cityscapes-r101-nl", "cityscapes-r101-dnl"]


@writes("json")
def complexity(
    recipe: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE",
            help="Recipe names, or patterns such as 'ade20k-*'. Default: the paper's table.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    latency: Annotated[
        bool, typer.Option("--latency", help="Also measure the time per image on this machine.")
    ] = False,
    json: Json = None,
) -> None:
    """Count the parameters and multiply-accumulates of networks, and show the paper's numbers.

    Counting needs neither weights nor computation. Images have the size of the recipe's crop, clips that of its
    tests.

    Example: dnlnet complexity 'cityscapes-r101-*' --latency
    """
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.runs.complexity import complexity as count

    rows = count(recipe or _PAPER_TABLE, latency=latency)

    from dnlnet.lens.measure.complexity import CONVENTION

    print_table("Size and cost of networks", [_cost(row) for row in rows], caption=CONVENTION)
    if latency:
        print_table("Seconds per image or clip", [_time(row) for row in rows])
    write_result(json, {"convention": CONVENTION, "rows": [row.to_json() for row in rows]})


def _cost(row: "NetworkCost") -> dict[str, str]:
    paper = row.paper
    return {
        "recipe": row.recipe,
        "input": "x".join(map(str, row.size)),
        "parameters": f"{row.parameters:,}",
        "paper": _number(paper["parameters"], ".3f", " M"),
        "MACs": _number(row.macs / 1e9, ",.3f", " G"),
        "paper's": _number(paper["macs"], ".2f", " G"),
    }


def _time(row: "NetworkCost") -> dict[str, str]:
    return {
        "recipe": row.recipe,
        "here": _number(row.seconds, ".3f"),
        "paper's GPU": _number(row.paper["latency"], ".3f"),
    }


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else format(value, form) + unit
