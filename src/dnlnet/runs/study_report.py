"""Run a study and write its report: table, figure and page."""

import shlex
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dnlnet.files import atomic_write, write_json
from dnlnet.lens.measure.consistency import TABLE_1
from dnlnet.lens.show.panels import save_figure
from dnlnet.names import in_figure, in_markdown
from dnlnet.progress import BARS, Progress
from dnlnet.registry import match_recipes
from dnlnet.runs.study import Job, Study, plan, read_results
from dnlnet.runs.study_summary import (
    OVERLAPS,
    PAPER_OVERLAPS,
    STUDY_METHODS,
    RecipeSummary,
    SeedMean,
    pool_folds,
    summarise,
)


def table_of(rows: Sequence[RecipeSummary], score: str, reference: str = "nl") -> list[dict[str, str]]:
    """Format the rows as text. The paper's overlaps have separate columns."""

    def text(value: object, form: str = "") -> str:
        return "-" if value is None else format(value, form)

    nothing = (None,) * len(OVERLAPS)
    return [
        {
            "recipe": row.recipe,
            "method": row.method,
            "seeds": str(row.seeds),
            score: text(row.score),
            f"to {STUDY_METHODS.get(reference, reference)} (95 %)": text(row.difference),
            **{TABLE_1[key]: text(row.overlaps[key]) for key in OVERLAPS},
            "gamma": text(row.gamma),
            "minutes": text(row.minutes and row.minutes.mean, ".1f"),
            **{
                f"paper: {TABLE_1[key]}": text(value, ".3f")
                for key, value in zip(OVERLAPS, PAPER_OVERLAPS.get(row.variant or "", nothing), strict=True)
            },
        }
        for row in rows
    ]


@dataclass(frozen=True)
class StudyReport:
    """Results of a study.

    Args:
        score: Name of the score.
        summaries: One summary per recipe.
        table: Summaries as text.
        files: Written files: study.md, study.json, study.png and study.html.
        problems: Messages of failed runs.
    """

    score: str
    summaries: list[RecipeSummary]
    table: list[dict[str, str]]
    files: list[Path]
    problems: list[str] = field(default_factory=list)


def study(
    recipes: Sequence[str],
    out: Path | str,
    data: Path | str | None = None,
    *,
    seeds: int = 5,
    first_seed: int = 0,
    folds: int | None = None,
    settings: Sequence[str] = (),
    cache: Path | str | None = None,
    processes: int | None = None,
    width: int | None = None,
    void_edges: bool = False,
    against: str = "nl",
    progress: Progress = BARS,
) -> StudyReport:
    """Train each recipe with each seed and compare the results. Resumes an existing study.

    Args:
        recipes: Names of recipes, or patterns with ``*``.
        out: Folder of the study.
        data: Folder of the data set.
        seeds: Number of seeds per recipe.
        first_seed: First seed.
        folds: Number of folds for cross-validation. Default: train and test on the splits of the recipes.
        settings: Overrides for all recipes.
        cache: Folder for features of frozen backbones. Default: inside `out`.
        processes: Number of simultaneous runs. Default: one per core.
        width: Width of boundaries in pixels, for the overlaps of attention. Default: as in the stored results, or 5.
        void_edges: Count contours between a class and unlabelled pixels as boundaries.
        against: Reference variant of the comparisons.
        progress: Progress observer.
    """
    matched = [recipe for pattern in recipes for recipe in match_recipes(pattern)]
    jobs = plan(matched, seeds, settings, first_seed=first_seed, folds=folds)
    root, features = (None if path is None else Path(path) for path in (data, cache))
    place = Study(Path(out), root, features, width, void_edges)
    problems = place.run(jobs, processes=processes, progress=progress)
    command = command_of(recipes, seeds, settings, place.boundary_width(), void_edges, folds)
    return replace(report_study(place.out, jobs, command, against), problems=problems)


def command_of(
    recipes: Sequence[str],
    seeds: int,
    settings: Sequence[str],
    width: int,
    void_edges: bool,
    folds: int | None = None,
) -> str:
    """Return the command line of a study. File settings keep only the file name."""
    edges = " --void-edges" if void_edges else ""
    changed = ""
    for setting in settings:
        key, _, value = setting.partition("=")
        changed += f" --set {shlex.quote(f'{key}={Path(value).name}' if '/' in value else setting)}"
    divided = "" if folds is None else f" --folds {folds}"
    return f"dnlnet study {shlex.join(recipes)} --seeds {seeds}{divided} --width {width}{edges}{changed}"


def report_study(out: Path, jobs: Sequence[Job], command: str, reference: str = "nl") -> StudyReport:
    """Summarise the results of the jobs and write study.md, study.json, study.png and study.html."""
    results = results_of(out, jobs)
    if not results:
        finished = "no run has finished" if jobs[0].folds is None else "no seed has finished all folds"
        raise ValueError(f"{out}: {finished} yet")
    score, rows = summarise(pool_folds(results), reference)
    table = table_of(rows, score, reference)
    random = next((result["random"] for result in results if result["random"]), None)
    notes = _notes(results, random, command)
    figure = study_figure(rows, score, random)
    text, content, image, page = (out / f"study.{suffix}" for suffix in ("md", "json", "png", "html"))
    with atomic_write(text) as temporary:
        temporary.write_text(_markdown(table, notes), encoding="utf-8")
    write_json(content, {"command": command, "reference": reference, "rows": table, "runs": results})
    save_figure(figure, image)
    with atomic_write(page) as temporary:
        temporary.write_text(_page(table, notes, figure), encoding="utf-8")
    return StudyReport(score, rows, table, [text, content, image, page])


def results_of(out: Path, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Return the results of the recipes of these jobs, without seeds that have not finished all folds."""
    known = {(job.recipe.name, job.folds) for job in jobs}
    results = [result for result in read_results(out) if (result["recipe"], result.get("folds")) in known]
    whole = {(pooled["recipe"], pooled["seed"]) for pooled in pool_folds(results)}
    return [result for result in results if (result["recipe"], result["seed"]) in whole]


def _notes(
    results: Sequence[Mapping[str, Any]], random: Mapping[str, float | None] | None, command: str
) -> list[str]:
    notes = [
        f"Mean ± standard deviation over seeds; {len(results)} runs. Scores and overlaps are those of a run's last "
        "weights. Differences are paired by seed, with Student's 95 % intervals. Overlaps are means over all images."
    ]
    if folds := results[0].get("folds"):
        notes.append(
            f"Cross-validation: {folds} folds per seed, and a seed's score is the mean over all their test samples."
        )
    if random is not None:
        shown = ", ".join(f"{TABLE_1[key]} {random[key]:.3f}" for key in OVERLAPS if random[key] is not None)
        paper = ", ".join(f"{value:.3f}" for value in PAPER_OVERLAPS["random"])
        edges = ", including edges of unlabelled pixels" if results[0].get("void_edges") else ""
        width = f"boundary: pixels nearer than {results[0]['width']} to a contour{edges}"
        notes.append(f"A uniform map: {shown} ({width}). In the paper: {paper}.")
    return [*notes, f"Command: {command}"]


def _markdown(table: Sequence[Mapping[str, str]], notes: Sequence[str]) -> str:
    columns = list(table[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(in_markdown(row[column]) for column in columns) + " |" for row in table]
    return "\n".join(["# Study", "", *lines, "", *(f"{note}\n" for note in notes)])


def study_figure(rows: Sequence[RecipeSummary], score: str, random: Mapping[str, float | None] | None) -> Figure:
    """Plot the score and the three overlaps of each recipe. A line marks a uniform map."""
    figure = Figure(figsize=(11, 0.9 + 0.32 * len(rows)), layout="constrained")
    panels = figure.subplots(1, 4, sharey=True)
    places = list(range(len(rows)))[::-1]
    columns: list[tuple[str, list[SeedMean | None], float | None]] = [(score, [row.score for row in rows], None)]
    columns += [
        (TABLE_1[key], [row.overlaps[key] for row in rows], None if random is None else random[key])
        for key in OVERLAPS
    ]
    for axes, (title, means, line) in zip(panels, columns, strict=True):
        known = [(place, mean) for place, mean in zip(places, means, strict=True) if mean is not None]
        axes.errorbar(
            [mean.mean for _, mean in known],
            [place for place, _ in known],
            xerr=[mean.std or 0.0 for _, mean in known],
            fmt="o",
            markersize=5,
            capsize=3,
            color="#2b6cb0",
        )
        for place, mean in known:  # show each seed: they may form two groups, with the mean between
            axes.plot(mean.values, [place - 0.22] * len(mean.values), "o", markersize=3, color="#dd6b20", alpha=0.8)
        if line is not None:
            axes.axvline(line, color="0.5", linestyle="--", linewidth=1)
        axes.set_title(in_figure(title), fontsize=10)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("blue: mean and std over seeds; orange: each seed; dashed: a uniform map", fontsize=9)
    panels[0].set_yticks(places, [in_figure(row.recipe) for row in rows])
    return figure


def _page(table: Sequence[Mapping[str, str]], notes: Sequence[str], figure: Figure) -> str:
    """Return a self-contained HTML page."""
    content = BytesIO()
    figure.savefig(content, format="png", dpi=130)
    image = b64encode(content.getvalue()).decode()
    head = "".join(f"<th>{escape(column)}</th>" for column in table[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in table)
    text = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Study</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto }}
th, td {{ padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }}
th {{ white-space: normal; font-weight: 600 }}
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) {{ text-align: left }}
img {{ max-width: 100% }}
</style>
<h1>Study</h1><img alt="Scores and overlaps of each recipe" src="data:image/png;base64,{image}">
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{text}
</html>
"""
