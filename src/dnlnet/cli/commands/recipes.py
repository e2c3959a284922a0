"""`dnlnet recipes`: recipes that can be trained, and their exact settings."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dnlnet.cli.terminal.complete import complete_recipe
from dnlnet.cli.terminal.options import Json, Recipe, Settings
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.cli.terminal.tables import print_table

if TYPE_CHECKING:
    from dnlnet.recipes.recipe import Recipe as AnyRecipe

recipes = typer.Typer(name="recipes", help="List the recipes, or show the settings of one.", no_args_is_help=True)


@recipes.command("list")
@writes("json")
def list_recipes(
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="PATTERN",
            help="Name, or pattern such as 'camvid-*', to list single recipes.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    json: Json = None,
) -> None:
    """List the families of recipes, or all recipes that match a pattern with the paper's scores and ours.

    Example: dnlnet recipes list 'cityscapes-*'
    """
    from dnlnet.registry import match_recipes

    found = match_recipes(pattern or "*")
    if pattern is None:
        _print_families(found)
    else:
        print_table(
            "Recipes",
            [
                {"recipe": recipe.name}
                | _summary(recipe)
                | {
                    "the paper's": _first(recipe.paper.scores if recipe.paper else {}),
                    "ours": _first(recipe.measured.scores if recipe.measured else {}),
                }
                for recipe in found
            ],
            "dnlnet recipes show NAME prints all settings of a recipe. A dash means unmeasured.",
        )
    write_result(json, [recipe.model_dump(mode="json") for recipe in found])


def _print_families(found: Sequence["AnyRecipe"]) -> None:
    """Print one row per family: recipes whose names differ only after their last hyphen, or after the second."""
    from dnlnet.attention.spec import VARIANTS

    every = ["baseline", *VARIANTS]
    families: dict[str, dict[str, AnyRecipe]] = {}
    for recipe in found:
        *family, variant = recipe.name.split("-", 2)
        families.setdefault("-".join(family) or variant, {})[variant] = recipe
    print_table(
        f"{len(families)} families of recipes",
        [
            {"family": name} | _summary(next(iter(family.values()))) | {"variants": _in_words(family, every)}
            for name, family in families.items()
        ],
        f"all: {', '.join(every)}. Recipes are named FAMILY-VARIANT, such as {found[-1].name}. To list those of a "
        "family with their scores: dnlnet recipes list 'camvid-mbv2-*'",
    )


def _in_words(variants: Collection[str], every: Collection[str]) -> str:
    """Abbreviate a list of variants.

    >>> _in_words(["nl", "dnl"], ["nl", "dnl", "gc"]), _in_words(["nl-c4"], ["nl", "dnl", "gc"])
    ('all but gc', 'nl-c4')
    """
    missing = [name for name in every if name not in variants]
    if len(missing) > 1 or len(variants) + len(missing) > len(every):
        return ", ".join(variants)
    return " but ".join(["all", *missing])


def _summary(recipe: "AnyRecipe") -> dict[str, str]:
    return {"iterations": f"{recipe.schedule.total:,}", "image": recipe.size_text}


@recipes.command()
@writes("json")
def show(
    name: Recipe,
    settings: Settings = None,
    sources: Annotated[
        bool,
        typer.Option("--sources", help="Print the source of each value: the paper, its released code, or a reason."),
    ] = False,
    json: Json = None,
) -> None:
    """Print all settings of a recipe as YAML.

    Example: dnlnet recipes show camvid-mbv2-dnl --set optim.lr=0.02

    Example: dnlnet recipes show cityscapes-r101-dnl --sources
    """
    import yaml

    from dnlnet.errors import shown
    from dnlnet.recipes.override import override
    from dnlnet.recipes.sources import trace
    from dnlnet.registry import find_recipe

    recipe = override(find_recipe(name), settings or [])
    content: dict[str, Any] = recipe.model_dump(mode="json")
    if sources:
        if recipe.paper is None:
            raise ValueError(
                f"{name}: only unchanged recipes of the paper's tables have sources (see dnlnet recipes list)"
            )
        traced = trace(recipe)
        content = {
            field: {"value": value, "source": row.text() if row else "unknown"}
            for field, (value, row) in traced.items()
        }
    if json is not None:
        write_result(json, content)
    elif sources:
        rows = [
            {"field": field, "value": shown(row["value"]), "source": row["source"]} for field, row in content.items()
        ]
        print_table(f"Sources of {name}", rows)
    else:
        typer.echo(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None), nl=False)


def _first(scores: Mapping[str, float]) -> str:
    return next((f"{name} {score}" for name, score in scores.items()), "-")
