"""Trained models from files: the weights, and in the same file what they are weights of."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

import dnlnet
from dnlnet.data.classes import Classes
from dnlnet.inference import Inference
from dnlnet.inference.fold import fold_batch_norms
from dnlnet.models.detector import Detector
from dnlnet.recipes.build import builder_of
from dnlnet.recipes.schema import DetectionRecipe, Evaluation, Recipe, SegmentationRecipe, parse_recipe
from dnlnet.tasks.detections import DetectionModel
from dnlnet.tasks.prediction import SegmentationModel

HUB_FILE = "model.safetensors"


@dataclass(frozen=True)
class ModelFile:
    """What a model file says about itself."""

    path: Path
    recipe: Recipe
    classes: Classes
    iteration: int
    scores: dict[str, float] | None


def find_model(model: str) -> Path:
    """The file of a model given as a file, as the folder of a run, or as a name on the Hugging Face hub.

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
        return _from_hub(model)
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
    )


def describe_model(recipe: Recipe, classes: Classes) -> dict[str, str]:
    """The metadata of a model file, from which `read_model_file` knows later what its weights are."""
    return {
        "recipe": recipe.model_dump_json(),
        "classes": json.dumps(asdict(classes)),
        "dnlnet": dnlnet.__version__,
    }


def inference_of(evaluation: Evaluation, align_corners: bool = True) -> Inference:
    """How a recipe says that images are looked at; `align_corners` is its network's."""
    return Inference(
        evaluation.window,
        evaluation.stride,
        evaluation.short_side,
        evaluation.scales,
        evaluation.flip,
        align_corners=align_corners,
    )


def load_network(model: ModelFile) -> nn.Module:
    """The network of a model file, with its weights, as it was trained."""
    network: nn.Module = builder_of(model.recipe).build_model(model.recipe.model, len(model.classes), weights=False)
    network.load_state_dict(load_file(model.path))
    return network


def load(model: str | Path) -> SegmentationModel | DetectionModel:
    """A trained model, ready for ``model.predict(picture)``.

    The batch norms of a segmentation network are folded into the convolutions and its channels lie last in memory:
    the same function up to rounding, in the form that `dnlnet bench predict` finds fastest without compiling.

    Args:
        model: a model file, the folder of a run, or a name on the Hugging Face hub.
    """
    found = read_model_file(find_model(str(model)))
    trained = load_network(found).eval()
    recipe, device = found.recipe, "cuda" if torch.cuda.is_available() else "cpu"
    if isinstance(recipe, DetectionRecipe) and isinstance(trained, Detector):
        return DetectionModel(trained, found.classes, recipe.data.short_side, recipe.data.long_side, device)
    assert isinstance(recipe, SegmentationRecipe)
    network = fold_batch_norms(trained, torch.zeros(1, 3, 64, 64)).to(memory_format=torch.channels_last)
    inference = inference_of(recipe.evaluation, recipe.model.align_corners)
    return SegmentationModel(network, found.classes, inference, device)


def load_segmentation(model: str | Path) -> SegmentationModel:
    """A trained segmentation model; an error if the file is of another task."""
    loaded = load(model)
    if not isinstance(loaded, SegmentationModel):
        raise ValueError(f"{model}: is a detector; this is for segmentation models")
    return loaded


def load_together(models: Sequence[str]) -> dict[str, SegmentationModel | DetectionModel]:
    """Models to be compared, by what to call them: their recipes, with their files where recipes are the same."""
    files = read_together(models)
    return {title: load(file.path) for title, file in files.items()}


def read_together(models: Sequence[str]) -> dict[str, ModelFile]:
    """Model files to be compared, by what to call them; they must know the same classes."""
    files = [read_model_file(find_model(model)) for model in models]
    for file in files[1:]:
        if tuple(file.classes.names) != tuple(files[0].classes.names):
            raise ValueError(
                f"{file.path} and {files[0].path} know different classes; compare models of one data set"
            )
    names = [file.recipe.name for file in files]
    return {
        f"{name} ({file.path})" if names.count(name) > 1 else name: file
        for name, file in zip(names, files, strict=True)
    }


def _from_hub(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, HUB_FILE))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise FileNotFoundError(
            f"{name}: no such file or folder here, and the hub has no such model or cannot be reached "
            f"({type(error).__name__})"
        ) from None
