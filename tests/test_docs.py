"""The documentation's code runs, its links lead somewhere, and its lock names no package index."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
@pytest.mark.usefixtures("registries")
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(code, str(page), "exec"), {})


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md"], ids=lambda p: p.name
)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_tables_of_the_benchmarks_are_those_of_their_results() -> None:
    page = (ROOT / "benchmarks/README.md").read_text()
    filled, count = runpy.run_path(str(ROOT / "benchmarks/tables.py"))["fill"](page)
    assert count >= 6
    assert filled == page, "run: python benchmarks/tables.py"


def test_the_tables_of_the_study_are_those_of_its_results() -> None:
    page = (ROOT / "docs/study.md").read_text()
    filled, count = runpy.run_path(str(ROOT / "benchmarks/study_tables.py"))["fill"](page)
    assert count == 11
    assert filled == page, "run: python benchmarks/study_tables.py"


def test_the_page_of_deviations_is_made_from_the_sources_of_recipes() -> None:
    made = runpy.run_path(str(ROOT / "docs/deviations.py"))["page"]()
    assert (ROOT / "docs/deviations.md").read_text(encoding="utf-8") == made, "run: python docs/deviations.py"


def test_the_lock_has_hashes_and_names_no_index() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    packages = re.findall(r"^[a-z0-9_.-]+==", lock, flags=re.MULTILINE)
    assert len(packages) > 50
    assert lock.count("--hash=sha256:") >= len(packages)
    assert "://" not in lock
    assert not re.search(r"^--|find-links|index-url", lock, flags=re.MULTILINE)
