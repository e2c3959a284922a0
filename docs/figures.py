"""Write the figures of the README and the documentation, from what `dnlnet demo` writes and the study found.

Screenshots of the page need Chromium. The figures of a transformer need its weights, an image and CamVid, which are
not part of this package; without them, these figures stay as they are.

Example: python docs/figures.py --demo demo
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

from dnlnet.bundled import MODELS
from dnlnet.lens.show.panels import save_figure
from dnlnet.runs.study import read_results
from dnlnet.runs.study_report import study_figure
from dnlnet.runs.study_summary import summarise

IMAGES = Path(__file__).parent / "images"
# Figure and file in benchmarks/study.
STUDIES = {
    "study.png": "camvid-mbv2-10",
    "study_pets.png": "pets-mbv2-5",
    "study_r50.png": "camvid-r50-10",
    "study_pets_r50.png": "pets-r50-5",
}
DEMO = {"street.png": "street.png", "attention.png": "demo.png"}  # figure of the demo, and its name here
# Screenshot, fragment of the demo page's address, and size of the window.
PAGES = {
    "street_page.png": ("#picture=0&x=330&y=330&a=0", (1280, 760)),
    "explorer.png": ("#picture=1&x=48&y=60&a=0&b=1", (1280, 1000)),
}
TRANSFORMER = "timm:vit_small_patch14_dinov2"


def main() -> None:
    """Write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, help="folder written by dnlnet demo; by default, run it now")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder for the figures")
    parser.add_argument("--weights", type=Path, help="weights of the transformer, vit_small_patch14.safetensors")
    parser.add_argument("--cat", type=Path, help="image for the transformer, chelsea.png of scikit-image")
    parser.add_argument(
        "--camvid", type=Path, help="folder of CamVid for the transformer's profile; takes many minutes"
    )
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        demo = given.demo
        if demo is None:
            demo = Path(folder) / "demo"
            dnlnet("demo", "--out", demo)
        given.out.mkdir(parents=True, exist_ok=True)
        for source, name in DEMO.items():
            shutil.copyfile(demo / source, given.out / name)
        for name, study in STUDIES.items():
            results = read_results(Path(__file__).parent.parent / "benchmarks" / "study" / f"{study}.json")
            score, rows = summarise(results)
            save_figure(study_figure(rows, score, results[-1]["random"]), given.out / name)
        screenshot(demo / "explore.html", given.out)
        dnlnet("attend", "pets", MODELS["pets"].photos[0], "-o", folder)
        shrink(Path(folder) / "cat.png", given.out / "pets.jpg")
        made = [*DEMO.values(), *PAGES, *STUDIES, "pets.jpg"]
        if given.weights and given.cat:
            dnlnet("attend", TRANSFORMER, given.cat, "--weights", given.weights, "--query", "258,172", "-o", folder)
            shrink(Path(folder) / f"{given.cat.stem}.png", given.out / "transformer.jpg")
            made.append("transformer.jpg")
        if given.weights and given.camvid:
            options = ("--weights", given.weights, "--data", given.camvid, "--picture", given.out / "profile.png")
            dnlnet("profile", TRANSFORMER, *options)
            made.append("profile.png")
    for name in made:
        print(f"written: {given.out / name} ({(given.out / name).stat().st_size / 1e3:.0f} kB)")


def dnlnet(*arguments: object) -> None:
    """Run the command."""
    subprocess.run([sys.executable, "-m", "dnlnet", *map(str, arguments)], check=True)


def shrink(figure: Path, picture: Path) -> None:
    """Save a figure, which has a resolution for printing, for a screen."""
    with Image.open(figure) as opened:
        small = opened.convert("RGB")
        small.thumbnail((1400, 1400))
        small.save(picture, quality=88)


def screenshot(page: Path, out: Path) -> None:
    """Save screenshots of the page in a browser."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (fragment, (width, height)) in PAGES.items():
            opened = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
            opened.goto(f"{page.resolve().as_uri()}{fragment}")
            opened.evaluate("explorer.ready")
            opened.wait_for_timeout(300)
            opened.screenshot(path=out / name)
            opened.close()
        browser.close()


if __name__ == "__main__":
    main()
