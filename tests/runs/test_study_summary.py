"""Statistics of a study's table."""

import os
import re
from pathlib import Path

import pytest

from dnlnet.runs.study_summary import PAPER_OVERLAPS, PairedDifference, SeedMean, student_quantile, summarise


@pytest.mark.parametrize(
    ("freedom", "published"),  # any table of Student's t distribution, two-sided 95 %
    [(1, 12.706), (4, 2.776), (15, 2.131), (16, 2.120), (20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980)],
)
def test_quantiles_equal_published_tables(freedom: int, published: float) -> None:
    assert student_quantile(freedom) == pytest.approx(published, abs=6e-4)


def test_intervals_use_students_t() -> None:
    """Student's sleep data (1908): textbooks and R give the paired interval 0.70 to 2.46 hours."""
    first = dict(enumerate([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]))
    second = dict(enumerate([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]))
    found = PairedDifference.of(second, first)
    assert found is not None
    assert found.mean == pytest.approx(1.58)
    assert found.low == pytest.approx(0.7001142, abs=2e-4)
    assert found.high == pytest.approx(2.4598858, abs=2e-4)
    assert PairedDifference.of({0: 1.0}, {1: 1.0}) is None
    assert str(PairedDifference.of({0: 1.0}, {0: 0.5})) == "+0.500"
    assert str(SeedMean.of([0.5])) == "0.500"


def test_only_seeds_present_in_both_are_paired() -> None:
    def result(variant: str, seed: int, miou: float) -> dict[str, object]:
        content = {"recipe": f"a-{variant}", "variant": variant, "seed": seed, "scores": {"miou": miou}}
        return content | {"overlaps": None, "random": None, "gamma": {}, "seconds": None, "width": 2}

    runs = [result("nl", 0, 0.5), result("nl", 1, 0.6), result("dnl", 1, 0.7), result("dnl", 2, 0.9)]
    score, (nl, dnl) = summarise(runs)
    assert (score, nl.method, nl.difference) == ("miou", "NL", None)
    assert dnl.difference is not None
    assert (dnl.difference.pairs, dnl.difference.mean) == (1, pytest.approx(0.1))


@pytest.mark.skipif("DNLNET_DATA" not in os.environ, reason="DNLNET_DATA is not set: no source of the paper")
def test_the_papers_overlaps_equal_its_table() -> None:
    (source,) = Path(os.environ["DNLNET_DATA"]).glob("paper/*.tex")
    table = source.read_text().partition("method & pair $\\cap$ within-category")[2].partition(r"\end{tabular}")[0]
    number = r"\s*(0\.\d{3}|-)\s*"
    rows = re.findall(rf"^(.+?)\s*&{number}&{number}&{number}\\\\", table, flags=re.MULTILINE)
    found = [tuple(None if cell == "-" else float(cell) for cell in cells) for _, *cells in rows]
    assert [name.partition(" (")[0] for name, *_ in rows] == [
        *("random", "pairwise NL", "unary NL", "NL", "DNL$^*$", r"DNL$^\dag$", "DNL"),
    ]
    assert found == list(PAPER_OVERLAPS.values())
