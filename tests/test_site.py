"""Documentation site: a broken link stops its build, and its pages work in a browser without a network."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
CONFIGURATION = (ROOT / "mkdocs.yml").read_text()


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("zensical", reason="zensical not found: install the extra docs")
    (folder / "src").symlink_to(ROOT / "src")
    command = [sys.executable, "-m", "zensical", "build"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "mkdocs.yml").write_text(CONFIGURATION)
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("[lost](nowhere.md)", "page does not exist"),
        ("[lost](index.md#nothing)", "anchor does not exist"),
        ("::: dnlnet.nothing", "dnlnet.nothing"),
    ],
)
def test_a_broken_link_stops_the_build(link: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n{link}\n")
    shutil.copy(ROOT / "docs" / "doctests.py", tmp_path / "docs")
    (tmp_path / "mkdocs.yml").write_text(CONFIGURATION.partition("nav:")[0])
    done = build(tmp_path)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def pages(entries: list[Any]) -> list[Any]:
    """Return the pages of a navigation, with those of its sections."""
    found = []
    for entry in entries:
        sections = entry.values() if isinstance(entry, dict) else ()
        found += [page for section in sections for page in pages(section)] if sections else [entry]
    return found


def test_the_navigation_has_every_page_under_its_own_title() -> None:
    """An entry that is only a path gets the title of its page."""
    listed = pages(yaml.safe_load(CONFIGURATION)["nav"])
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
    for page in listed:
        title = re.match(r"(?:---\n.*?---\n\n)?# \S", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
        assert title, f"{page}: its title is not in its first line"


def test_pages_show_equations_code_and_the_reference_without_a_network(browser: Any, site: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    asked: list[str] = []
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    assert page.inner_text("h1").startswith("dnlnet")
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    page.click("text=Gallery >> visible=true")  # links lead to files, not folders
    page.wait_for_url("**/gallery.html")
    page.click(".md-search__button")
    page.keyboard.type("whitening", delay=20)
    page.wait_for_selector("[role=option] >> text=whitening")  # without a server
    page.goto((site / "block.html").as_uri())
    page.wait_for_selector(".katex-display")
    assert page.locator(".katex").count() > 10
    assert page.locator(".katex-error").count() == 0
    assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px KaTeX_Math'))")
    assert page.locator(".md-footer__link--next").count() == 1
    assert page.locator("button[data-clipboard-target], .md-code__button, .md-clipboard").count() > 0
    page.goto((site / "api.html").as_uri())
    assert page.locator("h3.doc-heading").count() > 15
    assert "Memory" in page.content() or "memory" in page.content()
    page.close()
    assert asked == []
