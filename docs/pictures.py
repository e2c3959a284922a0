"""Make every picture of the README and of the documentation anew, from what `dnlnet demo` writes.

Needs Chromium for the pages. Example: python docs/pictures.py --demo demo
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
FIGURES = {"street.png": "street.png", "attention.png": "demo.png"}  # of the demo, and what they are called here
# Pages: what of the demo's page is shown, and the size of the window.
PAGES = {
    "street_page.png": ("#picture=0&x=330&y=330&a=0", (1280, 760)),
    "explorer.png": ("#picture=2&x=48&y=60&a=0&b=1", (1280, 1000)),
}


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, help="a folder that dnlnet demo has written; default: made now")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder for the pictures")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        demo = given.demo
        if demo is None:
            demo = Path(folder) / "demo"
            subprocess.run([sys.executable, "-m", "dnlnet", "demo", "--out", demo], check=True)
        given.out.mkdir(parents=True, exist_ok=True)
        for source, name in FIGURES.items():
            shutil.copyfile(demo / source, given.out / name)
        photograph(demo / "explore.html", given.out)
    for name in (*FIGURES.values(), *PAGES):
        print(f"written: {given.out / name} ({(given.out / name).stat().st_size / 1e3:.0f} kB)")


def photograph(page: Path, out: Path) -> None:
    """Pictures of the page in a browser."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (where, (width, height)) in PAGES.items():
            opened = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
            opened.goto(f"{page.resolve().as_uri()}{where}")
            opened.evaluate("explorer.ready")
            opened.wait_for_timeout(300)
            opened.screenshot(path=out / name)
            opened.close()
        browser.close()


if __name__ == "__main__":
    main()
