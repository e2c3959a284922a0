"""Bad inputs: the arguments of a command, the files it needs, and the expected outcome."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.process import Outcome

Prepare = Callable[[Path], None]
QUICK = ("data.crop=[32, 32]", "schedule.batch=2", "schedule.iterations=1", "training.evaluate_every=1")


@dataclass(frozen=True)
class Case:
    """Bad input: arguments, files to prepare, and whether the command must refuse them."""

    kind: str
    what: str
    arguments: tuple[object, ...]
    prepare: Prepare = lambda _: None
    refused: bool = False  # success is a failure
    check: Callable[[Path, Outcome], str | None] = lambda folder, done: None  # further checks


@dataclass(frozen=True)
class Materials:
    """Valid files to derive bad ones from: a model of each task, and data sets."""

    segmentation: Path
    detection: Path
    video: Path
    folder: Path
    coco: Path
    videos: Path


def settings(*values: str) -> tuple[str, ...]:
    """Return settings as --set options."""
    return tuple(part for value in values for part in ("--set", value))


def write_image(folder: Path, size: tuple[int, int] = (48, 32)) -> None:
    """Write a.png."""
    from PIL import Image

    Image.new("RGB", size, "green").save(folder / "a.png")


def change_metadata(model: Path, path: Path, change: Callable[[dict[str, str]], None]) -> None:
    """Copy a model file with changed metadata."""
    content = model.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header["__metadata__"])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


def change_recipe(model: Path, path: Path, **parts: dict[str, Any]) -> None:
    """Copy a model file with changed parts of its recipe."""

    def change(metadata: dict[str, str]) -> None:
        recipe = json.loads(metadata["recipe"])
        for part, values in parts.items():
            recipe[part] = {**recipe[part], **values}
        metadata["recipe"] = json.dumps(recipe)

    change_metadata(model, path, change)
