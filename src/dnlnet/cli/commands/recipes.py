"""`dnlnet recipes`: what can be trained, and exactly how."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dnlnet.cli.terminal.complete import complete_recipe, complete_setting
from dnlnet.cli.terminal.outputs import writes

if TYPE_CHECKING:
    from dnlnet.recipes.schema import Recipe

recipes = typer.Typer(help="List the recipes, and show what one says.", no_args_is_help=True)


@recipes.command("list")
@writes("json")
def list_recipes(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN", help="A name or a pattern such as 'camvid-*'.", autocompletion=complete_recipe
        ),
    ] = "*",
    json: Annotated[Path | None, typer.Option(help="Also write the recipes to this file.")] = None,
) -> None:
    """Show the recipes, with the paper's score and ours where there is one.

    Example: dnlnet recipes list 'cityscapes-*'
    """
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.files import write_json
    from dnlnet.registry import match_recipes

    found = match_recipes(pattern)
    print_table(
        "Recipes",
        [
            {
                "recipe": recipe.name,
                "iterations": f"{_iterations(recipe):,}",
                "image": recipe.size_text,
                "the paper's": _first(recipe.paper.scores if recipe.paper else {}),
                "ours": _first(recipe.measured.scores if recipe.measured else {}),
            }
            for recipe in found
        ],
        "Everything about one: dnlnet recipes show NAME. Ours is - where it is unmeasured.",
    )
    if json is not None:
        write_json(json, [recipe.model_dump(mode="json") for recipe in found])
        typer.echo(f"written: {json}")


@recipes.command()
@writes("json")
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name of: dnlnet recipes list.", autocompletion=complete_recipe)
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Replace a value; may be repeated.", autocompletion=complete_setting
        ),
    ] = None,
    sources: Annotated[
        bool, typer.Option("--sources", help="Print the source of each value: the paper, its release, or a reason.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write it to this file as JSON instead.")] = None,
) -> None:
    """Print everything that a recipe says, as YAML; with --set, with values replaced.

    Example: dnlnet recipes show camvid-mbv2-dnl --set optim.lr=0.02

    Example: dnlnet recipes show cityscapes-r101-dnl --sources
    """
    import yaml

    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.errors import shown
    from dnlnet.files import write_json
    from dnlnet.recipes.override import override
    from dnlnet.recipes.sources import trace
    from dnlnet.registry import find_recipe

    recipe = override(find_recipe(name), settings or [])
    content: dict[str, Any] = recipe.model_dump(mode="json")
    if sources:
        if recipe.paper is None:
            raise ValueError(f"{name}: only unchanged recipes of the paper's tables have sources; see recipes list")
        traced = trace(recipe)
        content = {
            field: {"value": value, "source": row.text() if row else "unknown"}
            for field, (value, row) in traced.items()
        }
    if json is not None:
        write_json(json, content)
        typer.echo(f"written: {json}")
    elif sources:
        rows = [
            {"field": field, "value": shown(row["value"]), "source": row["source"]} for field, row in content.items()
        ]
        print_table(f"Sources of {name}", rows)
    else:
        typer.echo(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None), nl=False)


def _iterations(recipe: "Recipe") -> int:
    return recipe.schedule.iterations + sum(phase.iterations for phase in recipe.schedule.then)


def _first(scores: Mapping[str, float]) -> str:
    return next((f"{name} {score}" for name, score in scores.items()), "-")
