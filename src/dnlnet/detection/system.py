"""From a detection recipe to what it describes: the network, the task, the data."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from dnlnet.data.classes import Classes
from dnlnet.detection.data.samples import InstanceSample, TrainingInstances, WholeInstances, WholeSample
from dnlnet.detection.network import Detector
from dnlnet.detection.task import DetectionTask
from dnlnet.recipes.catalog import open_instance_set
from dnlnet.recipes.fingerprint import Listed
from dnlnet.recipes.parts import build_backbone, required_folder
from dnlnet.recipes.schema import DetectionRecipe, DetectorModel

OUTPUT_STRIDE = 32


def build_model(
    model: DetectorModel, classes: int, *, weights: bool = True, report: Callable[[str], None] = lambda _: None
) -> Detector:
    """The detector of a recipe; weights go into its backbone before the blocks do, whose names they do not know.

    >>> from dnlnet.recipes import find_recipe
    >>> with torch.device("meta"):
    ...     detector = build_model(find_recipe("coco-r50-dnl-c4").model, classes=80, weights=False)
    >>> detector.roi_heads.box_predictor.cls_score.out_features
    81
    """
    return Detector(
        build_backbone(model, OUTPUT_STRIDE, weights, report),
        classes,
        model.variant,
        model.placement,
        after_activation=model.after_activation,
        boxes=model.boxes,
        proposals=model.proposals,
        anchor=model.anchor,
        preset=model.preset,
        **model.block,
    )


def build_task(
    recipe: DetectionRecipe,
    classes: Classes,
    validation: Dataset[WholeSample] | None = None,
    average: Callable[[Tensor], Tensor] = lambda number: number,
    device: torch.device | str = "cpu",
    report: Callable[[str], None] = lambda _: None,
) -> DetectionTask:
    """The task of a recipe; it is scored against the objects of the validation data."""
    truth = validation.images.truth() if isinstance(validation, WholeInstances) else None
    return DetectionTask(classes, truth)


def build_training_data(
    recipe: DetectionRecipe,
    root: Path | None,
    *,
    split: str | None = None,
    seed: int = 0,
    unpacked: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Dataset[InstanceSample]:
    """The training samples of a recipe; `report` is told how many there are, and what is not learnt from."""
    if unpacked is not None:
        raise ValueError("--unpack is for crops of labelled images; images with objects are read whole")
    data = recipe.data
    images = open_instance_set(data.name, required_folder(recipe, root), data.train if split is None else split)
    samples = TrainingInstances(images, data.short_side, data.long_side, data.flip, seed)
    left_out = ", ".join(f"{reason} {count}" for reason, count in samples.images.left_out.items())
    report(f"{images.name}: {len(samples)} images to train on; not learnt from: {left_out or 'none'}")
    return samples


def build_validation_data(recipe: DetectionRecipe, root: Path | None) -> Dataset[WholeSample] | None:
    """The images that a recipe is evaluated on, or None if it trains on all that is labelled."""
    data = recipe.data
    if data.test is None:
        return None
    images = open_instance_set(data.name, required_folder(recipe, root), data.test)
    return WholeInstances(images, data.short_side, data.long_side)


def listed_files(samples: TrainingInstances | WholeInstances) -> Iterator[Listed]:
    """The files of samples, in order, with the class and the box of each object."""
    for image in samples.images.images:
        yield image.path, [(instance.label, instance.box) for instance in image.instances]


def find_classes(recipe: DetectionRecipe, root: Path | None = None) -> Classes:
    """The classes of the recipe's data, as its annotations name them."""
    data = recipe.data
    return open_instance_set(data.name, required_folder(recipe, root), data.test or data.train).classes
