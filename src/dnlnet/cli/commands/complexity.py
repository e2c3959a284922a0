"""`dnlnet complexity`: parameters and cost of networks, next to the paper's numbers."""

from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.complete import complete_recipe
from dnlnet.cli.terminal.options import Json
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.cli.terminal.tables import number, print_table

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
    """Count the parameters and multiply-accumulates of networks, next to the paper's numbers.

    Counting neither loads weights nor runs the network. The input is an image of the recipe's crop size, or a clip of
    its test size.

    Example: dnlnet complexity 'cityscapes-r101-*' --latency
    """
    from dnlnet.runs.complexity import complexity as count

    rows = count(recipe or _PAPER_TABLE, latency=latency)

    from dnlnet.lens.measure.complexity import CONVENTION

    print_table("Size and cost of networks", [_cost(row) for row in rows], caption=CONVENTION)
    if latency:
        print_table(
            "Seconds per image or clip",
            [
                {
                    "recipe": row.recipe,
                    "here": number(row.seconds, ".3f"),
                    "paper's GPU": number(row.paper["latency"], ".3f"),
                }
                for row in rows
            ],
        )
    write_result(json, {"convention": CONVENTION, "rows": [row.to_json() for row in rows]})


def _cost(row: "NetworkCost") -> dict[str, str]:
    return {
        "recipe": row.recipe,
        "input": "x".join(map(str, row.size)),
        "parameters": f"{row.parameters:,}",
        "paper's (M)": number(row.paper["parameters"], ".3f"),
        "MACs (G)": f"{row.macs / 1e9:,.3f}",
        "paper's (G)": number(row.paper["macs"], ".2f"),
    }
