"""Continuous integration runs make targets, so that everything it does can be run on any machine."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TARGETS = set(re.findall(r"^([a-z ]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
TARGETS = {name for line in TARGETS for name in line.split()}


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_run_make_targets_that_exist(path: Path) -> None:
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        commands = [step["run"] for step in job["steps"] if "run" in step]
        chosen = job.get("strategy", {}).get("matrix", {}).get("target", [])
        for command in commands:
            named = re.match(r"make (\S+|\$\{\{ matrix.target \|\| 'test' \}\})( PYTHON=python)?$", command)
            assert named, command
            assert set(chosen or ["test"] if "matrix" in command else [named[1]]) <= TARGETS, command


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"], ids=lambda path: path.name
)
def test_configuration_is_yaml(path: Path) -> None:
    content: Any = yaml.safe_load(path.read_text())
    assert content
