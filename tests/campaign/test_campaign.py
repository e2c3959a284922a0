"""Campaign: faults are detected, and a sample of cases passes."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.inputs import Case, fault
from campaign.nasty import mutated_bytes, mutated_json
from campaign.process import Outcome
from campaign.results import Results, Try

SENTENCE = "error: a.png: is not an image"


@pytest.mark.parametrize(
    ("outcome", "new", "expected"),
    [
        (Outcome(0, "done"), ["out"], None),
        (Outcome(2, SENTENCE), [], None),
        (Outcome(2, SENTENCE), ["out"], "left behind out"),
        (Outcome(1, "Traceback (most recent call last):\nKeyError: 3"), [], "exit code 1: KeyError: 3"),
        (Outcome(70, "error: internal error"), [], "exit code 70: error: internal error"),
        (Outcome(-11, ""), [], "died of SIGSEGV"),
        (Outcome(-9, "", hung=True), [], "hung"),
        (Outcome(2, ""), [], "exit code 2 without a message"),
        (Outcome(0, ""), ["executed"], "code in the file was executed"),
    ],
)
def test_faults_are_detected(outcome: Outcome, new: list[str], expected: str | None) -> None:
    assert fault(Case("kind", "what", ()), outcome, new) == expected


def test_each_seed_damages_files_differently() -> None:
    content = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": [], "categories": [{"id": 3}]}
    assert len({mutated_json(content, random.Random(seed)) for seed in range(50)}) > 25
    good = bytes(range(200))
    assert sum(mutated_bytes(good, random.Random(seed)) != good for seed in range(50)) > 45


def test_chains_of_kills_count_as_many_tries(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(Try("kills", "SIGKILL", "3 kills", None, 3))
    results.add(Try("kills", "SIGKILL", "2 kills", "the log differs", 2))
    assert results.table() == [{"part": "kills", "kind": "SIGKILL", "tries": 5, "passed": 3, "failed": 2}]


def test_a_sample_of_bad_inputs_and_signals_passes(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--sample", "2", "--seed", "1", "--json", str(report)]
    command = [sys.executable, "-m", "campaign", "inputs", "signals", *options]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert json.loads(report.read_text())["failures"] == []
    assert done.returncode == 0, done.stdout + done.stderr
