"""Trained models from files, ready to be used."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from dnlnet.inference import Inference
from dnlnet.inference.fold import fold_batch_norms
from dnlnet.models.detector import Detector
from dnlnet.recipes.build import builder_of
from dnlnet.recipes.model_file import ModelFile, find_model, read_model_file
from dnlnet.recipes.schema import DetectionRecipe, Evaluation, SegmentationRecipe
from dnlnet.tasks.detections import DetectionModel
from dnlnet.tasks.prediction import SegmentationModel


def inference_of(evaluation: Evaluation) -> Inference:
    """How a recipe says that images are looked at."""
    return Inference(evaluation.window, evaluation.stride, evaluation.short_side, evaluation.scales, evaluation.flip)


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
    return SegmentationModel(network, found.classes, inference_of(recipe.evaluation), device)


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
