"""What a study found: means and deviations over seeds, paired differences, Table 1's columns."""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from io import BytesIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.figure import Figure

from dnlnet.files import atomic_write, write_json
from dnlnet.lens.measure.consistency import STATISTICS
from dnlnet.lens.show.panels import save_figure
from dnlnet.names import in_figure, in_markdown
from dnlnet.recipes.methods import METHODS

# Two-sided 95 % quantiles of Student's t by degrees of freedom, as every table prints them; beyond, the normal's.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_SHOWN = ("pair_within", "pair_boundary", "unary_boundary")
# The global context block is in the paper's comparison of detection alone.
_METHODS: Mapping[str | None, str] = {**METHODS, "gc": "GC"}
# Table 1 and Table 2 of the paper: Cityscapes, ResNet-101. Never ours.
PAPER_OVERLAPS: Mapping[str, tuple[float | None, float | None, float | None]] = {
    "random": (0.259, 0.132, 0.135),
    "nl_pairwise": (0.635, 0.141, None),
    "nl_unary": (None, None, 0.460),
    "nl": (0.318, 0.160, 0.172),
    "dnl_star": (0.446, 0.146, 0.305),
    "dnl_dagger": (0.679, 0.137, 0.657),
    "dnl": (0.759, 0.130, 0.696),
}


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its deviation; of one seed the deviation is not known."""

    mean: float
    deviation: float | None
    seeds: int
    values: tuple[float, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread | None":
        """Of the known values; None if there are none.

        >>> Spread.of([0.5, None, 0.7])
        Spread(mean=0.6, deviation=0.1414..., seeds=2)
        """
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(fmean(known), stdev(known) if len(known) > 1 else None, len(known), tuple(known))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.deviation is None else f"{self.mean:.3f} ± {self.deviation:.3f}"


def student_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution with this many degrees of freedom.

    Beyond the table it is the expansion in 1/freedom (Abramowitz and Stegun, 26.7.5).

    >>> student_quantile(4), round(student_quantile(16), 3)
    (2.776, 2.12)
    """
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z, n = 1.959964, freedom
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / float(n) ** power for power, term in enumerate(terms, start=1))


@dataclass(frozen=True)
class Difference:
    """A mean paired difference with its 95 % confidence interval; of one pair there is none."""

    mean: float
    low: float | None
    high: float | None
    pairs: int

    @classmethod
    def of(cls, ours: Mapping[int, float], theirs: Mapping[int, float]) -> "Difference | None":
        """Of values by seed; those that both have are paired.

        >>> Difference.of({0: 0.66, 1: 0.65, 2: 0.67}, {0: 0.65, 1: 0.65, 2: 0.65})
        Difference(mean=0.01..., low=-0.0148..., high=0.0348..., pairs=3)
        """
        seeds = sorted(set(ours) & set(theirs))
        if not seeds:
            return None
        values = [ours[seed] - theirs[seed] for seed in seeds]
        mean, count = fmean(values), len(values)
        if count == 1:
            return cls(mean, None, None, 1)
        reach = student_quantile(count - 1) * stdev(values) / math.sqrt(count)
        return cls(mean, mean - reach, mean + reach, count)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:+.3f}"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@dataclass(frozen=True)
class Row:
    """One recipe of a study over its seeds."""

    recipe: str
    variant: str | None
    seeds: int
    score: Spread | None
    difference: Difference | None
    overlaps: Mapping[str, Spread | None]
    gamma: Spread | None
    minutes: Spread | None

    @property
    def method(self) -> str:
        """As the paper writes it."""
        return _METHODS.get(self.variant, self.variant or "")


def summarise(results: Sequence[Mapping[str, Any]], reference: str = "nl") -> tuple[str, list[Row]]:
    """The name of the score, and a row for each recipe, in the order of the paper's variants.

    Args:
        results: from `read_results`.
        reference: the variant that others are compared with.
    """
    by_recipe: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        by_recipe.setdefault(result["recipe"], []).append(result)
    score = next((next(iter(result["scores"]), "") for result in results), "")
    stems = {name: name.rpartition("-")[0] for name in by_recipe}
    order = list(_METHODS)

    def place(name: str) -> tuple[str, int]:
        variant = by_recipe[name][0]["variant"]
        return stems[name], order.index(variant) if variant in order else len(order)

    rows = []
    for name in sorted(by_recipe, key=place):
        runs = by_recipe[name]
        theirs = by_recipe.get(f"{stems[name]}-{reference}", [])
        same = name == f"{stems[name]}-{reference}"
        rows.append(
            Row(
                name,
                runs[0]["variant"],
                len(runs),
                Spread.of([run["scores"].get(score) for run in runs]),
                None if same else Difference.of(_by_seed(runs, score), _by_seed(theirs, score)),
                {key: Spread.of([_overlap(run, key) for run in runs]) for key in _SHOWN},
                Spread.of([next(iter(run["gamma"].values()), None) for run in runs]),
                Spread.of([None if run["seconds"] is None else run["seconds"] / 60 for run in runs]),
            )
        )
    return score, rows


def _by_seed(runs: Sequence[Mapping[str, Any]], score: str) -> dict[int, float]:
    return {run["seed"]: run["scores"][score] for run in runs if run["scores"].get(score) is not None}


def _overlap(run: Mapping[str, Any], key: str) -> float | None:
    if not run["overlaps"]:
        return None
    value: float | None = next(iter(run["overlaps"].values()))[key]
    return value


def cells(rows: Sequence[Row], score: str, reference: str = "nl") -> list[dict[str, str]]:
    """The rows as text, with the paper's overlaps in columns of their own."""

    def text(value: object) -> str:
        return "-" if value is None else str(value)

    def paper(row: Row, number: int) -> str:
        value = PAPER_OVERLAPS.get(row.variant or "", (None,) * 3)[number]
        return "-" if value is None else f"{value:.3f}"

    return [
        {
            "recipe": row.recipe,
            "method": row.method,
            "seeds": str(row.seeds),
            score: text(row.score),
            f"to {_METHODS.get(reference, reference)} (95 %)": text(row.difference),
            **{STATISTICS[key]: text(row.overlaps[key]) for key in _SHOWN},
            "gamma": text(row.gamma),
            "minutes": "-" if row.minutes is None else f"{row.minutes.mean:.1f}",
            **{f"paper: {STATISTICS[key]}": paper(row, number) for number, key in enumerate(_SHOWN)},
        }
        for row in rows
    ]


def write_study(out: Path, results: Sequence[Mapping[str, Any]], command: str, reference: str = "nl") -> list[Path]:
    """Write study.md, study.json, study.png and study.html, and return their paths.

    Args:
        out: folder of the study.
        results: from `read_results`.
        command: that made it, to be shown.
        reference: the variant that others are compared with.
    """
    if not results:
        raise ValueError(f"{out}: no run is done yet")
    score, rows = summarise(results, reference)
    table = cells(rows, score, reference)
    random = next((result["random"] for result in results if result["random"]), None)
    notes = _notes(results, random, command)
    markdown, picture, page = out / "study.md", out / "study.png", out / "study.html"
    with atomic_write(markdown) as temporary:
        temporary.write_text(_markdown(table, notes), encoding="utf-8")
    figure = study_figure(rows, score, random)
    save_figure(figure, picture)
    write_json(out / "study.json", {"command": command, "reference": reference, "rows": table, "runs": list(results)})
    with atomic_write(page) as temporary:
        temporary.write_text(_page(table, notes, figure), encoding="utf-8")
    return [markdown, out / "study.json", picture, page]


def _notes(
    results: Sequence[Mapping[str, Any]], random: Mapping[str, float | None] | None, command: str
) -> list[str]:
    width = results[0]["width"]
    edges = ", edges of unlabelled pixels counted" if results[0].get("void_edges") else ""
    uniform = (
        []
        if random is None
        else [
            "A uniform map: "
            + ", ".join(f"{STATISTICS[key]} {random[key]:.3f}" for key in _SHOWN if random[key] is not None)
            + f" (boundary: nearer than {width} pixels to a contour{edges}). The paper's: 0.259, 0.132, 0.135."
        ]
    )
    return [
        f"Mean ± standard deviation over seeds; {len(results)} runs. Scores and overlaps are of a run's last "
        "weights; differences are paired by seed, their intervals Student's t. Overlaps are means over all images.",
        *uniform,
        f"Command: {command}",
    ]


def _markdown(table: Sequence[Mapping[str, str]], notes: Sequence[str]) -> str:
    columns = list(table[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(in_markdown(row[column]) for column in columns) + " |" for row in table]
    return "\n".join(["# Study", "", *lines, "", *(f"{note}\n" for note in notes)])


def study_figure(rows: Sequence[Row], score: str, random: Mapping[str, float | None] | None) -> Figure:
    """The score and the three overlaps of each recipe, with deviations over seeds; a uniform map as a line."""
    figure = Figure(figsize=(11, 0.9 + 0.32 * len(rows)), layout="constrained")
    panels = figure.subplots(1, 4, sharey=True)
    places = list(range(len(rows)))[::-1]
    columns: list[tuple[str, list[Spread | None], float | None]] = [(score, [row.score for row in rows], None)]
    columns += [
        (STATISTICS[key], [row.overlaps[key] for row in rows], None if random is None else random[key])
        for key in _SHOWN
    ]
    for axes, (title, spreads, line) in zip(panels, columns, strict=True):
        known = [(place, spread) for place, spread in zip(places, spreads, strict=True) if spread is not None]
        axes.errorbar(
            [spread.mean for _, spread in known],
            [place for place, _ in known],
            xerr=[spread.deviation or 0.0 for _, spread in known],
            fmt="o",
            markersize=5,
            capsize=3,
            color="#2b6cb0",
        )
        for place, spread in known:  # two groups of seeds have a mean where none of them is
            axes.plot(spread.values, [place - 0.22] * spread.seeds, "o", markersize=3, color="#dd6b20", alpha=0.8)
        if line is not None:
            axes.axvline(line, color="0.5", linestyle="--", linewidth=1)
        axes.set_title(in_figure(title), fontsize=10)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("blue: mean and deviation over seeds; orange: each seed; dashed: a uniform map", fontsize=9)
    panels[0].set_yticks(places, [in_figure(row.recipe) for row in rows])
    return figure


def _page(table: Sequence[Mapping[str, str]], notes: Sequence[str], figure: Figure) -> str:
    """One file that needs nothing else."""
    content = BytesIO()
    figure.savefig(content, format="png", dpi=130)
    picture = b64encode(content.getvalue()).decode()
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
<h1>Study</h1><img alt="Scores and overlaps of each recipe" src="data:image/png;base64,{picture}">
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{text}
</html>
"""
