"""Documentation: code runs and gives the values in its comments, links resolve, tables match their results."""

import ast
import doctest
import re
import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


# A comment that gives the value of its statement: (1, 512, 33, 33), ['a', ...], Prediction(...).
VALUE = re.compile(r"# ([\[({'\d].*|(True|False|None)\b.*|[A-Z]\w+\(.*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
@pytest.mark.usefixtures("registries")
def test_python_examples_run_and_give_the_values_in_their_comments(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        run_and_compare(code, str(page))


def test_a_wrong_value_in_a_comment_fails() -> None:
    right = "for n in (1, 2):\n    [n, n, 3]  # [..., 3]\nx = (2, 3)  # (2, 3): rows, columns\n"
    assert run_and_compare(right, "page") == 3
    with pytest.raises(AssertionError, match=r"gives \(2, 3\)"):
        run_and_compare("import torch\ntorch.ones(2, 3).shape  # (3, 2)\n", "page")


def run_and_compare(code: str, name: str) -> int:
    """Run a block, compare values with the comments that give them, and return the number of comparisons."""
    lines = code.splitlines()
    compared = 0

    def compare(line: int, value: object) -> None:
        nonlocal compared
        compared += 1
        found = VALUE.search(lines[line - 1])
        assert found is not None
        got = repr(tuple(value) if isinstance(value, torch.Size) else value)
        wanted = found[1], found[1].partition("): ")[0] + ")"  # an explanation may follow
        check = doctest.OutputChecker().check_output
        assert any(check(want, got, doctest.ELLIPSIS) for want in wanted), f"{lines[line - 1].strip()} gives {got}"

    class Insert(ast.NodeTransformer):
        """Wrap commented expressions in a comparison."""

        def visit_Expr(self, node: ast.Expr) -> ast.Expr:
            return ast.Expr(self.wrap(node.value))

        def visit_Assign(self, node: ast.Assign) -> ast.Assign:
            return ast.Assign(node.targets, self.wrap(node.value))

        def wrap(self, value: ast.expr) -> ast.expr:
            line = value.end_lineno or 1
            if not VALUE.search(lines[line - 1]):
                return value
            expression = f"(__value := {ast.unparse(value)}, compare({line}, __value))[0]"
            return ast.parse(expression, mode="eval").body

    tree = ast.fix_missing_locations(Insert().visit(ast.parse(code)))
    exec(compile(tree, name, "exec"), {"compare": compare})
    return compared


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
