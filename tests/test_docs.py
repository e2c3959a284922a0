"""Documentation: code runs and gives the values in its comments, links resolve, and tables match their results."""

import ast
import doctest
import re
import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


# Comment with the value of its statement: (1, 512, 33, 33), ['a', ...], Prediction(...).
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
    """Run code, compare values with the comments that state them, and return the number of comparisons."""
    lines = code.splitlines()
    compared = 0

    def compare(line: int, value: object) -> object:
        nonlocal compared
        compared += 1
        found = VALUE.search(lines[line - 1])
        assert found is not None
        got = repr(tuple(value) if isinstance(value, torch.Size) else value)
        wanted = found[1], found[1].partition("): ")[0] + ")"  # an explanation may follow
        check = doctest.OutputChecker().check_output
        assert any(check(want, got, doctest.ELLIPSIS) for want in wanted), f"{lines[line - 1].strip()} gives {got}"
        return value

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
            return ast.parse(f"compare({line}, {ast.unparse(value)})", mode="eval").body

    tree = ast.fix_missing_locations(Insert().visit(ast.parse(code)))
    exec(compile(tree, name, "exec"), {"compare": compare})
    return compared


@pytest.mark.parametrize(
    "page",
    sorted({*PAGES, *ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("examples/*.md")}),
    ids=lambda p: p.name,
)
def test_links_to_files_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(("name", "expected"), [("tables.py", 22), ("study_tables.py", 11)])
def test_tables_match_the_results(name: str, expected: int) -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / name))
    count = 0
    for page in script["PAGES"]:
        filled, tables = script["fill"](page.read_text())
        assert filled == page.read_text(), f"{page.name}: run python benchmarks/{name}"
        count += tables
    assert count == expected


def test_the_deviations_page_matches_the_sources_of_recipes() -> None:
    made = runpy.run_path(str(ROOT / "docs/deviations.py"))["page"]()
    assert (ROOT / "docs/deviations.md").read_text(encoding="utf-8") == made, "run: python docs/deviations.py"


def test_the_lock_has_hashes_and_names_no_package_index() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    packages = re.findall(r"^[a-z0-9_.-]+==", lock, flags=re.MULTILINE)
    assert len(packages) > 50
    assert lock.count("--hash=sha256:") >= len(packages)
    assert "://" not in lock
    assert not re.search(r"^--|find-links|index-url", lock, flags=re.MULTILINE)
