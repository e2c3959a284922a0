"""Run folders and their run.yaml. Does not import torch."""

from pathlib import Path
from typing import Any

from dnlnet.data.parsing import parse_yaml
from dnlnet.engine.ownership import LOCK_FILE
from dnlnet.locks import is_leftover

RUN_FILE = "run.yaml"
CACHE = "cache"  # folder for features of a frozen backbone


def require_run_folder(out: Path) -> None:
    """Raise unless the folder is missing, empty or a run folder, even of a run that failed before its first step."""
    if not out.exists() or (out / RUN_FILE).exists():
        return
    if not out.is_dir() or any(
        path.name not in (LOCK_FILE, CACHE) and not is_leftover(path) for path in out.iterdir()
    ):
        raise ValueError(f"{out} exists and is not the folder of a run; choose another --out")


def read_run(path: Path) -> dict[str, Any]:
    """Return the content of a run.yaml."""
    try:
        description = parse_yaml(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read: it {error}; choose another --out") from None
    if not isinstance(description, dict) or not {"recipe", "seed"} <= description.keys():
        raise ValueError(f"{path}: does not name the recipe and the seed of a run; choose another --out")
    return description


def remembered_data(model: Path) -> Path | None:
    """Return the data folder that a model was trained on, or None if its run.yaml names none."""
    folders = (model.parent, model.parent.parent)  # a checkpoint is in a folder of its own
    path = next((folder / RUN_FILE for folder in folders if (folder / RUN_FILE).is_file()), model.parent / RUN_FILE)
    folder = read_run(path).get("folder") if path.is_file() else None
    if not isinstance(folder, str):
        return None
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder}: no such folder, and {path} says that the data are there; give --data DIR")
    return Path(folder)
