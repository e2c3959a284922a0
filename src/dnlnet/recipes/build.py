"""From a recipe to what it describes: the network, the task, the data."""

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

from dnlnet.backbones import Backbone, load_weights
from dnlnet.data.catalog import DATA_SETS, open_data_set
from dnlnet.data.classes import Classes
from dnlnet.data.crops import Sample, SceneCrops, TrainingCrops
from dnlnet.data.scenes import CLASSES as SCENE_CLASSES
from dnlnet.data.transforms import Augmentation
from dnlnet.data.unpacked import unpack_into
from dnlnet.errors import unknown
from dnlnet.models.losses import Ohem, SegmentationLoss
from dnlnet.models.segmentor import Segmentor
from dnlnet.models.tiny import TinySegmentor
from dnlnet.recipes.schema import Model, Recipe
from dnlnet.tasks.segmentation import SegmentationTask

IMAGENET = "imagenet"


def build_model(model: Model, classes: int, *, weights: bool = True) -> nn.Module:
    """The network of a recipe.

    Args:
        model: the recipe's model.
        classes: number of classes of its data.
        weights: load the pretrained weights that it names; False leaves the network as it is initialised.

    >>> from dnlnet.recipes import find_recipe
    >>> network = build_model(find_recipe("scenes-tiny-dnl").model, classes=6)
    >>> network(torch.rand(1, 3, 32, 32)).logits.shape
    torch.Size([1, 6, 32, 32])
    """
    if model.network == "tiny":
        return TinySegmentor(classes, model.width // 2, model.variant)
    source = model.weights if weights else None
    backbone = Backbone(
        model.backbone,
        model.output_stride,
        stride_in_1x1=model.stride_in_1x1,
        pretrained=source == IMAGENET,
    )
    if source is not None and source != IMAGENET:
        load_weights(backbone, Path(source))
    return Segmentor(
        backbone,
        classes,
        model.variant,
        width=model.width,
        auxiliary=model.auxiliary,
        preset=model.preset,
        **model.block,
    )


def build_task(recipe: Recipe, classes: Classes) -> SegmentationTask:
    """The task of a recipe on data of these classes."""
    weights, ohem = recipe.loss.class_weights, recipe.loss.ohem
    if weights is not None and len(weights) != len(classes):
        raise ValueError(f"{recipe.name} has {len(weights)} class weights for {len(classes)} classes")
    loss = SegmentationLoss(
        None if weights is None else torch.tensor(weights),
        None if ohem is None else Ohem(ohem.threshold, ohem.kept),
        recipe.loss.auxiliary_weight,
    )
    return SegmentationTask(classes, loss)


def build_training_data(
    recipe: Recipe, root: Path | None, *, split: str | None = None, seed: int = 0, unpacked: Path | None = None
) -> tuple[Dataset[Sample], Classes]:
    """The training samples of a recipe, and the classes of their labels.

    Args:
        recipe: names the data set and how crops are drawn.
        root: folder of the data set; generated scenes need none.
        split: other than the recipe's own.
        seed: of the crops.
        unpacked: a folder to keep decoded pictures in; see `dnlnet.data.unpacked`.
    """
    data = recipe.data
    if data.name == SceneCrops.name:
        return SceneCrops(recipe.schedule.iterations * recipe.schedule.batch, data.crop, seed), SCENE_CLASSES
    if root is None:
        raise ValueError(f"{recipe.name} needs the folder of {data.name}: give it with --data DIR")
    images = open_data_set(data.name, root, data.train if split is None else split)
    if unpacked is not None:
        images = unpack_into(images, unpacked)
    augmentation = Augmentation(data.crop, data.scales, data.aspects, data.short_side, data.flip, data.brightness)
    return TrainingCrops(images, augmentation, seed), images.classes


def class_count(recipe: Recipe) -> int:
    """Number of classes of the recipe's data set, where the data set fixes it."""
    if recipe.data.name == SceneCrops.name:
        return len(SCENE_CLASSES)
    if recipe.data.name not in DATA_SETS:
        raise unknown("data set", recipe.data.name, DATA_SETS)
    count = DATA_SETS[recipe.data.name].num_classes
    if count is None:
        raise ValueError(f"the number of classes of {recipe.data.name!r} data is known only from its folder")
    return count
