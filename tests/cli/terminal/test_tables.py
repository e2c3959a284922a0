"""Tables keep short cells whole on a terminal of 80 columns."""

import pytest

from dnlnet.cli.terminal.tables import print_table

OVERLAPS = {
    "attention": "camvid-r50_frozen-dnl",
    "pair ∩ within-category": "0.801±0.003",
    "pair ∩ boundary": "0.072±0.002",
    "unary ∩ boundary": "0.096±0.002",
    "pair ∩ void": "0.5%",
    "unary ∩ void": "1.1%",
}


def test_headings_wrap_at_spaces_before_a_cell_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_table("Overlaps", [OVERLAPS])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert list(OVERLAPS.values()) in [line.split() for line in lines]
    rule = next(number for number, line in enumerate(lines) if line.startswith("──"))
    words = " ".join(lines[1:rule]).split()
    assert sorted(words) == sorted(word for name in OVERLAPS for word in name.split())


def test_short_cells_stay_whole_if_there_is_space(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    print_table("Overlaps", [OVERLAPS])
    assert "unary ∩ void" in capsys.readouterr().out
