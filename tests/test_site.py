"""Documentation site: a broken link stops its build, and its pages work in a browser without a network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", folder / "mkdocs.yml", "--site-dir", site],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs not found: install the extra docs")
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_broken_links_stop_the_build(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs not found: install the extra docs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[lost](nowhere.md)\n\n[lost](index.md#nothing)\n")
    lines = (ROOT / "mkdocs.yml").read_text().splitlines(keepends=True)
    (tmp_path / "mkdocs.yml").write_text("".join(lines[: lines.index("nav:\n")]))
    shutil.copytree(ROOT / "docs" / "katex", tmp_path / "docs" / "katex")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
    assert "#nothing" in done.stderr
    assert "Aborted with 2 warnings" in done.stdout + done.stderr


def test_pages_show_equations_code_and_the_reference_without_a_network(browser: Any, site: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    asked: list[str] = []
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    assert page.inner_text("h1").startswith("dnlnet")
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    page.click("text=Gallery >> nth=0")  # links lead to files, not folders
    page.wait_for_url("**/gallery.html")
    page.click(".md-search__input")
    page.keyboard.type("whitening", delay=20)
    page.wait_for_selector(".md-search-result__link")  # without a server
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
