"""`dnlnet study`: comparison of recipes over several seeds."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dnlnet.cli.terminal.complete import complete_recipe, complete_variant
from dnlnet.cli.terminal.inputs import require_folder, say
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

    from rich.table import Table

    from dnlnet.runs.study import Job, State


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
    overlaps of attention with the ground truth, next to the paper's numbers.

    Example: dnlnet study 'camvid-mbv2_frozen-*' --seeds 5 --data ~/camvid --out study
    """
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.registry import match_recipes

    for name in recipes:
        match_recipes(name)
    require_folder(data)

    from dnlnet.runs.study import plan, read_results, run_study
    from dnlnet.runs.study_report import cells, summarise, write_study

    jobs = plan(recipes, seeds, settings or [], first_seed=first_seed)
    with _Live(jobs, out) as live:
        problems = run_study(
            jobs,
            data,
            out,
            cache=cache,
            processes=processes,
            width=width,
            void_edges=void_edges,
            done=live.tell,
        )
    results = [result for result in read_results(out) if result["recipe"] in {job.recipe.name for job in jobs}]
    if results:
        score, rows = summarise(results, against)
        table = cells(rows, score, against)
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


class _Live:
    """Live table of all runs; without a terminal, one line per finished run."""

    def __init__(self, jobs: "Sequence[Job]", out: Path) -> None:
        from rich.live import Live

        from dnlnet.cli.terminal.progress import main_process_console

        self.jobs, self.out = jobs, out
        self.console = main_process_console()
        self.live: Any = Live(
            get_renderable=self._table, console=self.console, refresh_per_second=0.5, transient=True
        )

    def __enter__(self) -> "_Live":
        if self.console.is_terminal:
            self.live.start()
        else:
            self._say(_count(self._states()))
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def tell(self, job: "Job", problem: str | None) -> None:
        """Report that a run has ended."""
        if self.console.is_terminal:
            self.live.refresh()
            return
        found = self._states()
        score = next(state.score for state in found if state.job == job)
        ended = "failed" if problem else "-" if score is None else f"{score:.3f}"
        self._say(f"{_count(found)}; {job.recipe.name}, seed {job.seed}: {ended}")

    def _say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def _states(self) -> "list[State]":
        from dnlnet.runs.study import states

        return states(self.jobs, self.out)

    def _table(self) -> "Table":
        from rich.table import Table

        found = self._states()
        table = Table(title=_count(found))
        for column in ("recipe", "seed", "iteration", "score"):
            table.add_column(column)
        for state in found:
            if state.done or state.begun:
                done = "done" if state.done else f"{state.iteration} of {state.iterations}"
                score = "-" if state.score is None else f"{state.score:.3f}"
                table.add_row(state.job.recipe.name, str(state.job.seed), done, score)
        return table


def _count(found: "Sequence[State]") -> str:
    return f"{sum(state.done for state in found)} of {len(found)} runs done"
