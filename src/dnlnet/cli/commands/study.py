"""`dnlnet study`: comparison of recipes over several seeds."""

import shlex
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
    from dnlnet.runs.study import Study, plan, read_results
    from dnlnet.runs.study_report import table_of, write_study
    from dnlnet.runs.study_summary import summarise

    jobs = plan(matched, seeds, settings or [], first_seed=first_seed)
    studied = Study(out, data, cache, width, void_edges)
    problems = studied.run(jobs, processes=processes, progress=StudyTable(studied, jobs))
    results = [result for result in read_results(out) if result["recipe"] in {job.recipe.name for job in jobs}]
    if results:
        score, rows = summarise(results, against)
        table = table_of(rows, score, against)
        counts = sorted({row.seeds for row in rows})
        over = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] > 1)}"
        print_table("Study", _shown(table), f"± standard deviation over {over}; more in study.md")
        changed = "".join(f" --set {shlex.quote(setting)}" for setting in _shareable(settings or []))
        edges = " --void-edges" if void_edges else ""
        command = f"dnlnet study {shlex.join(recipes)} --seeds {seeds} --width {width}{edges}{changed}"
        for path in write_study(out, results, command, against):
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


def _shareable(settings: "Sequence[str]") -> list[str]:
    """Strip folders from file names in settings."""
    return [
        f"{key}={Path(value).name}" if "/" in value else setting
        for setting in settings
        for key, _, value in [setting.partition("=")]
    ]
