"""One bad input: arguments of the command, the files that it needs, and what has to come of it."""

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
    """Arguments of the command, files to be made for it, and whether it has to refuse."""

    kind: str
    what: str
    arguments: tuple[object, ...]
    prepare: Prepare = lambda _: None
    refused: bool = False  # success would be silence
    check: Callable[[Path, Outcome], str | None] = lambda folder, done: None  # what else falls short


@dataclass(frozen=True)
class Materials:
    """Good files, of which bad ones are made: a model of each system and data sets."""

    segmentation: Path
    detection: Path
    video: Path
    folder: Path
    coco: Path
    videos: Path


def settings(*values: str) -> tuple[str, ...]:
    """Return settings as options of the command."""
    return tuple(part for value in values for part in ("--set", value))


def picture(folder: Path, size: tuple[int, int] = (48, 32)) -> None:
    """Write an image, a.png."""
    from PIL import Image

    Image.new("RGB", size, "green").save(folder / "a.png")


def change_metadata(model: Path, path: Path, change: Callable[[dict[str, str]], None]) -> None:
    """Write a model file with other texts."""
    content = model.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header["__metadata__"])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


def change_recipe(model: Path, path: Path, **parts: dict[str, Any]) -> None:
    """Write a model file whose recipe has other values in some of its parts."""

    def change(metadata: dict[str, str]) -> None:
        recipe = json.loads(metadata["recipe"])
        for part, values in parts.items():
            recipe[part] = {**recipe[part], **values}
        metadata["recipe"] = json.dumps(recipe)

    change_metadata(model, path, change)
