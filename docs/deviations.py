"""Write docs/deviations.md from the sources of the paper's recipes. Example: python docs/deviations.py"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from dnlnet.recipes.recipe import Recipe
from dnlnet.recipes.sources import ANY, Source, trace
from dnlnet.registry import match_recipes

PAGE = Path(__file__).with_suffix(".md")
TITLES = {"segmentation": "Semantic segmentation", "detection": "Detection", "video": "Action recognition"}
INTRODUCTION = """# Deviations

<!-- Written by docs/deviations.py. -->

Recipes named after a table of the paper follow the paper's text. Where the text is silent, they follow the authors'
release, or the implementation that the paper says it follows. Where the two contradict each other, the tables below
give our decision and its reason. Recipes with `_authors` in their name reproduce a configuration of the release.

Nothing here has been trained at the paper's scale, so what a difference costs or gains is unknown.

Tests compare every value of every such recipe with these tables, and every quotation with the paper's LaTeX source.
`dnlnet recipes show NAME --sources` prints the rows of one recipe.

Some differences have no setting:

- **Detection**: pyramid and heads start from torchvision's initial values; the release draws the pyramid's from
  Xavier's uniform distribution. Norms are plain (synchronised) batch norms; the release uses InPlaceABN.
- **Action recognition**: batch norms are synchronised over all GPUs and use running statistics; PySlowFast has
  separate norms on each GPU and computes their statistics from 200 batches.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page as Markdown."""
    recipes = [recipe for recipe in match_recipes("*") if recipe.paper is not None]
    parts = [INTRODUCTION]
    for task, title in TITLES.items():
        own = [recipe for recipe in recipes if recipe.task == task]
        rows = used_rows(own)
        parts += [
            f"## {title}\n",
            "### Where paper, release and this package differ, or both are silent\n",
            table([row for row in rows if decided(row)], rows),
            "### Everything else\n",
            table([row for row in rows if not decided(row)], rows),
        ]
    return "\n".join(parts)


def used_rows(recipes: Iterable[Recipe]) -> list[Source]:
    """Return the sources that some field uses, in their order."""
    used = {id(row) for recipe in recipes for _, row in trace(recipe).values()}
    rows = {id(row): row for recipe in recipes for row in type(recipe).sources}
    return [row for key, row in rows.items() if key in used]


def decided(row: Source) -> bool:
    """Return whether results depend on the value and it is our decision."""
    return bool(row.reason) and any(value is not ANY for value in row.settings.values())


def table(rows: Sequence[Source], every: Sequence[Source]) -> str:
    """Return sources as a table. A row for all recipes covers those that no row before it covers."""
    lines = ["| ours | recipes | paper | release | why |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        before = {name for other in every[: every.index(row)] for name in other.settings}
        others = "all others" if before & row.settings.keys() else "all"
        names = others if row.recipes == "*" else ", ".join(f"`{name}`" for name in row.recipes.split())
        ours = ", ".join(f"`{name}`" if value is ANY else f"`{name}={value}`" for name, value in row.settings.items())
        paper = f"`{row.paper}`" if row.paper else "-"
        cells = [ours, names, paper, row.release or "-", row.reason or "-"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
