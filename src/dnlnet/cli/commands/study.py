"""`dnlnet study`: comparison of recipes over several seeds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.complete import complete_recipe, complete_variant
from dnlnet.cli.terminal.inputs import say
from dnlnet.cli.terminal.options import (
    LARGEST_SEED,
    MOST_THREADS,
    Data,
    Settings,
    VoidEdges,
    within,
)
from dnlnet.cli.terminal.tables import print_table
from dnlnet.progress import Bars, Tracker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from dnlnet.runs.study import Job, Study


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
    seeds: Annotated[int, within(1, 1000, "Number of seeds per recipe.")] = 5,
    first_seed: Annotated[int, within(0, LARGEST_SEED, "First seed.")] = 0,
    folds: Annotated[
        int | None,
        within(2, 100, "Number of folds for cross-validation (ucf101). Default: the splits of the recipes."),
    ] = None,
    settings: Settings = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for features of frozen backbones. Default: in STUDY.")
    ] = None,
    processes: Annotated[
        int | None, within(1, MOST_THREADS, "Number of parallel runs. Default: one per core.")
    ] = None,
    width: Annotated[
        int | None, within(1, 64, "Width of boundaries. Default: that of the stored results, or 5.", "PIXELS")
    ] = None,
    void_edges: VoidEdges = False,
    against: Annotated[
        str,
        typer.Option(metavar="VARIANT", help="Variant to compare the others with.", autocompletion=complete_variant),
    ] = "nl",
) -> None:
    """Train every recipe with every seed, and compare the results.

    Runs are spread over the cores. Run the same command again to resume a stopped study; finished runs are kept.

    STUDY gets the runs, one result per run (results/*.json), and a report as study.md, study.json, study.png and
    study.html: mean scores and their standard deviation over seeds, paired differences with confidence intervals, and
    overlaps of attention with the ground truth, next to the paper's numbers. study.json includes all results.

    Example: dnlnet study 'camvid-mbv2_frozen-*' --seeds 5 --data ~/camvid --out study
    """
    from dnlnet.registry import match_recipes

    matched = [recipe for pattern in recipes for recipe in match_recipes(pattern)]

    from dnlnet.runs.study import Study, plan
    from dnlnet.runs.study_report import command_of, report_study, results_of

    jobs = plan(matched, seeds, settings or [], first_seed=first_seed, folds=folds)
    place = Study(out, data, cache, width, void_edges)
    problems = place.run(jobs, processes=processes, progress=StudyTable(place, jobs))
    if results_of(out, jobs):
        command = command_of(recipes, seeds, settings or [], place.boundary_width(), void_edges, folds)
        report = report_study(out, jobs, command, against)
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


class StudyTable(Bars):
    """Progress of a study: a table of all runs in a terminal, elsewhere a line per finished run."""

    def __init__(self, study: "Study", jobs: "Sequence[Job]") -> None:
        super().__init__()
        self.study, self.jobs = study, jobs

    def track(self, name: str, total: int | None = None, *, start: int = 0, unit: str | None = None) -> Tracker:
        """Return a tracker that shows the table."""
        return _LiveTable(self) if self.console.is_terminal else super().track(name, total, start=start, unit=unit)

    def draw(self) -> "Table":
        """Draw the table from the logs of all runs."""
        from rich.table import Table

        states = [self.study.state(job) for job in self.jobs]
        table = Table(title=f"{sum(state.done for state in states)} of {len(states)} runs done")
        folds = ["fold"] if any(job.folds for job in self.jobs) else []
        for column in ("recipe", "seed", *folds, "iteration", "score"):
            table.add_column(column)
        for state in states:
            if state.done or state.begun:
                done = "done" if state.done else f"{state.iteration} of {state.iterations}"
                score = "-" if state.score is None else f"{state.score:.3f}"
                fold = [str(state.job.fold)] if folds else []
                table.add_row(state.job.recipe.name, str(state.job.seed), *fold, done, score)
        return table


class _LiveTable:
    def __init__(self, shown: StudyTable) -> None:
        from rich.live import Live

        self.live = Live(get_renderable=shown.draw, console=shown.console, refresh_per_second=0.5, transient=True)

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.live.refresh()

    def __enter__(self) -> "_LiveTable":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()
