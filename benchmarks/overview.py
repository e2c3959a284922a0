"""The overview of docs/study.md, from all results of studies: what of the pairwise term lies on the query's class.

It stands under the line `<!-- benchmarks/overview.py -->`.

Example: python benchmarks/overview.py
"""

import re
from pathlib import Path

from dnlnet.recipes.methods import METHODS
from dnlnet.runs.study import read_results

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent / "docs/study.md"
_PLACE = re.compile(r"^<!-- benchmarks/overview\.py -->\n(?:\|.*\n)*", re.MULTILINE)
VARIANTS = ("nl", "nl_pairwise", "dnl_star", "dnl_dagger", "dnl")
Shares = dict[
    str, list[tuple[float, float]]
]  # of each variant's runs: the pairwise term's share, and a uniform map's
GATED = "camvid-mbv2-10-scalar"
STUDIES = {
    "camvid-mbv2-10": "CamVid, MobileNetV2, 10 epochs",
    "camvid-mbv2": "the same, 20 epochs",
    "camvid-mbv2-10-temperature": "the same, 10 epochs, temperature",
    "camvid-mbv2-10-unfrozen": "the same, last stage trained afterwards",
    GATED: "the same, 10 epochs, behind a gate",
    "camvid-r50-10": "CamVid, ResNet-50, 10 epochs",
    "pets-mbv2-5": "Oxford-IIIT Pet, MobileNetV2, 5 epochs",
    "pets-r50-5": "Oxford-IIIT Pet, ResNet-50, 5 epochs",
}


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(fill(PAGE.read_text()))
    print(f"written: {PAGE.name}")


def fill(text: str) -> str:
    """The page with the table of today's results."""
    return _PLACE.sub(lambda _: f"<!-- benchmarks/overview.py -->\n{table()}", text)


def table() -> str:
    """A row for each study: the lowest and the highest share of any seed, and that of a uniform map."""
    found = {study: _shares(study) for study in STUDIES}
    ungated = [shares for study, shares in found.items() if study != GATED]
    head = ["", "seeds", *(METHODS[variant] for variant in VARIANTS), "uniform"]
    below = (_below_uniform([pair for shares in ungated for pair in shares[variant]]) for variant in VARIANTS)
    last = ["**runs below a uniform map**, without a gate", "", *below, ""]
    rows = (_row(STUDIES[study], shares) for study, shares in found.items())
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows, last]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _shares(study: str) -> Shares:
    found: Shares = {variant: [] for variant in VARIANTS}
    for result in read_results(FOLDER / "study" / study):
        if result["variant"] in found:
            (overlaps,) = result["overlaps"].values()
            found[result["variant"]].append((overlaps["pair_within"], result["random"]["pair_within"]))
    return found


def _row(name: str, found: Shares) -> list[str]:
    counts = sorted({len(shares) for shares in found.values()})
    seeds = "-".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    uniform = found["dnl"][0][1]
    return [name, seeds, *(_span([share for share, _ in shares]) for shares in found.values()), f"{uniform:.2f}"]


def _below_uniform(shares: list[tuple[float, float]]) -> str:
    return f"**{sum(share < uniform for share, uniform in shares)} of {len(shares)}**"


def _span(shares: list[float]) -> str:
    return "-".join(dict.fromkeys(f"{share:.2f}" for share in (min(shares), max(shares))))


if __name__ == "__main__":
    main()
