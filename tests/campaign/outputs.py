"""Outputs that must not be overwritten: inputs, files of a run, links, foreign files, folders and devices."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from campaign.cases import Case, Materials, write_image

Place = Callable[[Path], None]


def output_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield bad paths for every option that names a file to write."""
    commands: dict[str, tuple[object, ...]] = {
        "info --json": ("info", "run", "--json"),
        "eval --json": ("eval", "run", "--workers", 0, "--json"),
        "eval --picture": ("eval", "run", "--workers", 0, "--picture"),
        "predict": ("predict", "run", "a.png", "-o"),
        "attend": ("attend", "run", "a.png", "-o"),
        "attend --page": ("attend", "run", "a.png", "--page"),
        "export": ("export", "run", "--format", "safetensors", "-o"),
        "recipes show --json": ("recipes", "show", "scenes-tiny-dnl", "--json"),
        "data check --json": ("data", "check", "folder", "data", "--json"),
    }
    places: dict[str, tuple[str, Place, bool]] = {
        "the image": ("a.png", lambda _: None, True),
        "the model": ("run/best.safetensors", lambda _: None, True),
        "the run's description": ("run/run.yaml", lambda _: None, True),
        "the classes of the data": ("data/classes.yaml", lambda _: None, True),
        "a link to the model": ("link", lambda folder: (folder / "link").symlink_to("run/best.safetensors"), True),
        "a foreign file": ("thesis.json", lambda folder: _write(folder / "thesis.json", '{"mine": 1}'), True),
        "below a file": ("a.png/out.json", lambda _: None, True),
        "a link to nothing": ("link", lambda folder: (folder / "link").symlink_to("target"), False),
        "a link to a device": ("link", lambda folder: (folder / "link").symlink_to("/dev/null"), False),
        "a device": ("/dev/null", lambda _: None, False),
    }
    cases = [(command, place) for command in commands for place in places]
    for command, place in rng.sample(cases, min(count, len(cases))):
        path, make, refused = places[place]

        def prepare(folder: Path, make: Place = make) -> None:
            write_image(folder)
            shutil.copytree(materials.folder, folder / "data")
            shutil.copytree(materials.segmentation.parent, folder / "run")
            make(folder)

        yield Case("outputs", f"{command} to {place}", (*commands[command], path), prepare, refused)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
