"""`dnlnet study`: comparison of recipes over several seeds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.complete import complete_recipe, complete_variant
from dnlnet.cli.terminal.inputs import say
from dnlnet.cli.terminal.options import (
    LARGEST_SEED,
    MOST_THREADS,
    BoundaryWidth,
    Data,
    Settings,
    VoidEdges,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def study(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE",
            help="Recipe names, or patterns such as 'camvid-mbv2_frozen-*'.",
            autocompletion=complete_recipe,
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="STUDY", help="Folder of the study. If it holds a stopped study, it resumes.")
    ],
    data: Data = None,
    seeds: Annotated[
        int, typer.Option(metavar="N", callback=within(1, 1000), help="Number of seeds per recipe.")
    ] = 5,
    first_seed: Annotated[int, typer.Option(metavar="N", callback=within(0, LARGEST_SEED), help="First seed.")] = 0,
    settings: Settings = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for features of frozen backbones. Default: in STUDY.")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", callback=within(1, MOST_THREADS), help="Runs at a time. Default: one per core."),
    ] = None,
    width: BoundaryWidth = 2,
    void_edges: VoidEdges = False,
    against: Annotated[
        str,
        typer.Option(
            metavar="VARIANT", help="Variant that the others are compared with.", autocompletion=complete_variant
        ),
    ] = "nl",
) -> None:
    """Train every recipe with every seed, and compare the results.

    Runs are spread over the cores. Run the same command again to resume a stopped study; finished runs are kept.

    STUDY gets the runs, a result per run (results/*.json), and study.md, study.json, study.png and study.html. They
    show the mean score and its standard deviation over seeds, paired differences with confidence intervals, and the
    overlaps of attention with the ground truth, next to the paper's numbers. study.json includes all results.

    Example: dnlnet study 'camvid-mbv2_frozen-*' --seeds 5 --data ~/camvid --out study
    """
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.registry import match_recipes

    matched = [recipe for pattern in recipes for recipe in match_recipes(pattern)]

    from dnlnet.cli.terminal.study_table import StudyTable
    from dnlnet.runs.study import Study, plan
    from dnlnet.runs.study_report import command_of, report_study

    jobs = plan(matched, seeds, settings or [], first_seed=first_seed)
    place = Study(out, data, cache, width, void_edges)
    problems = place.run(jobs, processes=processes, progress=StudyTable(place, jobs))
    if any(place.state(job).done for job in jobs):
        report = report_study(out, jobs, command_of(recipes, seeds, settings or [], width, void_edges), against)
        counts = sorted({row.seeds for row in report.summaries})
        over = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] > 1)}"
        print_table("Study", _shown(report.table), f"± standard deviation over {over}; more in study.md")
        for path in report.files:
            typer.echo(f"written: {path}")
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(1)


_IN_FILE_ALONE = ("seeds", "pair ∩ boundary", "gamma", "minutes")


def _shown(table: "Sequence[Mapping[str, str]]") -> list[dict[str, str]]:
    """Return the columns that fit into 80 characters, with recipes as row names if methods repeat.

    >>> row = {"recipe": "camvid-nl", "method": "NL", "seeds": "2", "miou": "0.650 ± 0.005", "paper: miou": "0.8"}
    >>> _shown([row])
    [{'method': 'NL', 'miou': '0.650±0.005'}]
    """
    same = len({row["method"] for row in table}) < len(table)
    left_out = (*_IN_FILE_ALONE, "method" if same else "recipe")
    return [
        {key: text.replace(" ± ", "±") for key, text in row.items() if key not in left_out and "paper:" not in key}
        for row in table
    ]
