"""Model files: the weights, and in the same file what they are weights of."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

import dnlnet
from dnlnet.data.classes import Classes
from dnlnet.files import json_text, written_whole
from dnlnet.recipes.schema import Recipe, parse_recipe

HUB_FILE = "model.safetensors"


@dataclass(frozen=True)
class ModelFile:
    """What a model file says about itself."""

    path: Path
    recipe: Recipe
    classes: Classes
    iteration: int
    scores: dict[str, float] | None
    converted: str | None = None  # the code base and the file that it comes from, if it was converted


def find_model(model: str, **options: Any) -> Path:
    """The file of a model given as a file, as the folder of a run, or as a name on the Hugging Face hub.

    `options` are of `huggingface_hub.hf_hub_download`, for a name: revision, token, cache_dir and others.

    >>> find_model("nowhere.safetensors")
    Traceback (most recent call last):
    FileNotFoundError: nowhere.safetensors: no such model file or run folder
    """
    path = Path(model)
    if path.is_file():
        return path
    if path.is_dir():
        for name in ("best.safetensors", "last.safetensors", HUB_FILE):
            if (path / name).is_file():
                return path / name
        raise FileNotFoundError(
            f"{path}: no best.safetensors or last.safetensors in it; has the run been evaluated yet?"
        )
    if model.count("/") == 1 and not path.suffix:
        return _from_hub(model, options)
    raise FileNotFoundError(f"{model}: no such model file or run folder")


def read_model_file(path: Path) -> ModelFile:
    """What is known about a model, without reading its weights."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: is not a model file, or is damaged ({error})") from None
    if "recipe" not in metadata or "classes" not in metadata:
        raise ValueError(f"{path}: has weights but no recipe; expected a file that dnlnet train has written")
    classes = json.loads(metadata["classes"])
    try:
        recipe = parse_recipe(metadata["recipe"])
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"{path}: its recipe is not one that this version of dnlnet reads ({first})") from None
    return ModelFile(
        path,
        recipe,
        Classes(
            tuple(classes["names"]),
            tuple(tuple(colour) for colour in classes["palette"]),
            tuple(classes.get("numbers", ())),
        ),
        json.loads(metadata.get("iteration", "0")),
        json.loads(metadata["scores"]) if "scores" in metadata else None,
        metadata.get("converted"),
    )


def write_model_file(path: Path, state: Mapping[str, Tensor], model: ModelFile) -> None:
    """Write weights with what a model file says about itself; whole, or not at all."""
    metadata = about(model.recipe, model.classes) | {"iteration": json.dumps(model.iteration)}
    if model.scores is not None:
        metadata["scores"] = json_text(model.scores)
    if model.converted is not None:
        metadata["converted"] = model.converted
    with written_whole(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, temporary, metadata)


def about(recipe: Recipe, classes: Classes) -> dict[str, str]:
    """What a file of weights must say to be a model file."""
    return {
        "recipe": recipe.model_dump_json(),
        "classes": json.dumps(asdict(classes)),
        "dnlnet": dnlnet.__version__,
    }


def _from_hub(name: str, options: Mapping[str, Any]) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, HUB_FILE, **options))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise FileNotFoundError(
            f"{name}: no such file or folder here, and the hub has no such model or cannot be reached "
            f"({type(error).__name__})"
        ) from None
