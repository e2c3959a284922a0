"""Write the tables of docs/study.md and docs/study/ from the results in benchmarks/study.

A comment marks the place of each table: `<!-- all studies -->`, `<!-- study NAME -->` for means over seeds, or
`<!-- study NAME beside OTHER: LABEL -->` for the values of each seed next to the same seeds in another study.

Example: python benchmarks/study_tables.py
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dnlnet.recipes.recipe import METHODS
from dnlnet.runs.study import read_results
from dnlnet.runs.study_summary import PAPER_OVERLAPS, RecipeSummary, SeedMean, summarise

FOLDER = Path(__file__).resolve().parent
DOCS = FOLDER.parent / "docs"
PAGES = [DOCS / "study.md", *sorted((DOCS / "study").glob("*.md"))]
_PLACE = re.compile(r"^(<!-- (?:all studies|study (\S+)(?: beside (\S+): (.+))?) -->\n)(?:\|.*\n)*", re.MULTILINE)
PAIRWISE = ("nl", "nl_pairwise", "dnl_star", "dnl_dagger", "dnl")
Shares = dict[str, list[tuple[float, float]]]  # per variant and run: shares of the pairwise term and of a uniform map
GATED = ("camvid-mbv2-10-gate", "camvid-mbv2-10-scalar")
STUDIES = {
    "camvid-mbv2-10": "CamVid, MobileNetV2, 10 epochs",
    "camvid-mbv2": "the same, 20 epochs",
    "camvid-mbv2-10-temperature": "the same, 10 epochs, temperature",
    "camvid-mbv2-10-unfrozen": "the same, last stage trained afterwards",
    "camvid-mbv2-10-gate": "the same, 10 epochs, the authors' gate",
    "camvid-mbv2-10-scalar": "the same, 10 epochs, a gate on the whole output",
    "camvid-r50-10": "CamVid, ResNet-50, 10 epochs",
    "pets-mbv2-5": "Oxford-IIIT Pet, MobileNetV2, 5 epochs",
    "pets-r50-5": "Oxford-IIIT Pet, ResNet-50, 5 epochs",
}


def main() -> None:
    """Write the tables into the pages and print their number."""
    for page in PAGES:
        text, count = fill(page.read_text())
        page.write_text(text)
        print(f"{page.relative_to(DOCS)}: {count} tables written")


def fill(text: str) -> tuple[str, int]:
    """Return the page with its tables filled in, and the number of tables."""
    return _PLACE.subn(lambda place: place[1] + _table(*place.groups()[1:]), text)


def _table(study: str | None, other: str | None, label: str | None) -> str:
    if study is None:
        lines = _overview()
    elif other is None or label is None:
        lines = _means(_results(study), paper=study.startswith("camvid"))
    else:
        lines = _beside(_results(study), _results(other), label)
    head, *rows = lines
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, ["---", *["---:"] * (len(head) - 1)], *rows])


def _results(study: str) -> list[dict[str, Any]]:
    results = read_results(FOLDER / "study" / f"{study}.json")
    if not results:
        raise SystemExit(f"benchmarks/study/{study}.json: no results; a page names it above a table")
    return results


def _overview() -> list[list[str]]:
    """Return one row per study: the lowest and highest share of any seed, and the share of a uniform map."""
    found = {study: _shares(study) for study in STUDIES}
    ungated = [shares for study, shares in found.items() if study not in GATED]
    head = ["", "seeds", *(METHODS[variant] for variant in PAIRWISE), "uniform"]
    below = (_below_uniform([pair for shares in ungated for pair in shares[variant]]) for variant in PAIRWISE)
    last = ["**runs below a uniform map**, without a gate", "", *below, ""]
    return [head, *(_overview_row(STUDIES[study], shares) for study, shares in found.items()), last]


def _shares(study: str) -> Shares:
    found: Shares = {variant: [] for variant in PAIRWISE}
    for result in _results(study):
        if result["variant"] in found:
            (overlaps,) = result["overlaps"].values()
            found[result["variant"]].append((overlaps["pair_within"], result["random"]["pair_within"]))
    return found


def _overview_row(name: str, found: Shares) -> list[str]:
    counts = sorted({len(shares) for shares in found.values()})
    seeds = "-".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    uniform = found["dnl"][0][1]
    return [name, seeds, *(_span([share for share, _ in shares]) for shares in found.values()), f"{uniform:.2f}"]


def _below_uniform(shares: list[tuple[float, float]]) -> str:
    return f"**{sum(share < uniform for share, uniform in shares)} of {len(shares)}**"


def _span(shares: list[float]) -> str:
    return "-".join(dict.fromkeys(f"{share:.2f}" for share in (min(shares), max(shares))))


def _means(results: Sequence[Mapping[str, Any]], paper: bool) -> list[list[str]]:
    """Return mean and std over seeds, and the pairwise share of each seed."""
    head = ["", "mIoU", "difference to NL (95 %)", "pair ∩ within-category", "of each seed", "unary ∩ boundary"]
    found, uniform = summarise(results)[1], _uniform(results)
    rows = [_mean_row(row) for row in found]
    rows.append(["uniform map", "", "", uniform["pair_within"], "", uniform["unary_boundary"]])
    if paper:  # the paper's data set also shows street scenes
        head += ["paper: pair ∩ within", "paper: unary ∩ boundary"]
        for cells, variant in zip(rows, [*(row.variant for row in found), "random"], strict=True):
            within, _, boundary = PAPER_OVERLAPS.get(variant or "", (None, None, None))
            cells += [_number(within), _number(boundary)]
    return [head, *rows]


def _mean_row(row: RecipeSummary) -> list[str]:
    pair, unary = row.overlaps["pair_within"], row.overlaps["unary_boundary"]
    means = [str(value or "-") for value in (row.score, row.difference, pair)]
    return [row.method, *means, _values(pair, 2), str(unary or "-")]


def _beside(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], label: str) -> list[list[str]]:
    """Return the values of each seed next to the same seeds and recipes in another study."""
    done = {(result["recipe"], result["seed"]) for result in ours}
    rows = summarise(ours)[1]
    others = {row.recipe: row for row in summarise([r for r in theirs if (r["recipe"], r["seed"]) in done])[1]}
    columns = ("mIoU of each seed", "pair ∩ within-category", "unary ∩ boundary")
    head = ["", *(name for column in columns for name in (column, label))]
    lines = [[row.method, *_side_by_side(row, others[row.recipe])] for row in rows]
    uniform = _uniform(ours)
    lines.append(["uniform map", "", "", uniform["pair_within"], "", uniform["unary_boundary"], ""])
    if any(row.gamma for row in rows):
        head.append("gamma")
        for line, gamma in zip(lines, [*(row.gamma for row in rows), None], strict=True):
            line.append("" if gamma is None else _values(gamma, 2))
    return [head, *lines]


def _side_by_side(ours: RecipeSummary, theirs: RecipeSummary) -> list[str]:
    both = (ours, theirs)
    return [
        *(_values(row.score, 3) for row in both),
        *(_values(row.overlaps["pair_within"], 2) for row in both),
        *(_values(row.overlaps["unary_boundary"], 3) for row in both),
    ]


def _values(mean: SeedMean | None, digits: int) -> str:
    return "-" if mean is None else ", ".join(f"{value:.{digits}f}" for value in mean.values)


def _uniform(results: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {key: _number(value) for key, value in results[-1]["random"].items()}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
