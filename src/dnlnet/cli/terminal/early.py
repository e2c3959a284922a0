"""What commands refuse before they import torch, which takes seconds: models, files and packages that are missing."""

from collections.abc import Sequence
from pathlib import Path


def require_models(models: Sequence[str]) -> None:
    """An error if one of them is neither a file, a run, a name nor a transformer of another library."""
    from dnlnet.artifacts.model_file import find_model
    from dnlnet.errors import require_package

    for model in models:
        if model.startswith("transformers:"):
            require_package("transformers", "transformers")
        if ":" not in model:
            find_model(model)


def require_folder(data: Path | None) -> None:
    """An error if a folder of data was given and is not there."""
    if data is not None and not data.exists():
        raise FileNotFoundError(f"{data}: no such folder; give that of the data with --data DIR")
