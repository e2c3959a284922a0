"""The overview of docs/study.md, from all results of studies: what of the pairwise term lies on the query's class.

It stands under the line `<!-- benchmarks/overview.py -->`.

Example: python benchmarks/overview.py
"""

import json
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent / "docs/study.md"
_PLACE = re.compile(r"^<!-- benchmarks/overview\.py -->\n(?:\|.*\n)*", re.MULTILINE)
VARIANTS = {"nl": "NL", "nl_pairwise": "NL_p", "dnl_star": "DNL*", "dnl_dagger": "DNL†", "dnl": "DNL"}
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
    head = ["", "seeds", *VARIANTS.values(), "uniform"]
    last = ["**runs below a uniform map**, without a gate", "", *map(_below_uniform, VARIANTS), ""]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *map(_row, STUDIES), last]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _row(study: str) -> list[str]:
    found = {variant: _shares(study, variant) for variant in VARIANTS}
    counts = sorted({len(shares) for shares in found.values()})
    seeds = "-".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    uniform = found["dnl"][0][1]
    return [STUDIES[study], seeds, *(_span([share for share, _ in f]) for f in found.values()), f"{uniform:.2f}"]


def _below_uniform(variant: str) -> str:
    shares = [pair for study in STUDIES if study != GATED for pair in _shares(study, variant)]
    return f"**{sum(share < uniform for share, uniform in shares)} of {len(shares)}**"


def _shares(study: str, variant: str) -> list[tuple[float, float]]:
    """Of each run, the share of the pairwise term on the query's class, and that of a uniform map."""
    found = []
    for path in sorted((FOLDER / "study" / study / "results").iterdir()):
        result = json.loads(path.read_text())
        if result["variant"] == variant:
            (overlaps,) = result["overlaps"].values()
            found.append((overlaps["pair_within"], result["random"]["pair_within"]))
    return found


def _span(shares: list[float]) -> str:
    return "-".join(dict.fromkeys(f"{share:.2f}" for share in (min(shares), max(shares))))


if __name__ == "__main__":
    main()
