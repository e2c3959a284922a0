"""From a segmentation recipe to what it describes: the network, the task, the data."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from dnlnet.data.classes import Classes
from dnlnet.data.transforms import Augmentation
from dnlnet.errors import unknown
from dnlnet.recipes.catalog import DATA_SETS, open_data_set
from dnlnet.recipes.fingerprint import Listed
from dnlnet.recipes.parts import build_backbone, required_folder
from dnlnet.recipes.schema import SegmentationRecipe, SegmentorModel
from dnlnet.segmentation.data.samples import Sample, SceneSamples, TrainingCrops, WholeImages
from dnlnet.segmentation.data.scenes import CLASSES as SCENE_CLASSES
from dnlnet.segmentation.data.scenes import HELD_OUT_COUNT, HELD_OUT_SEED
from dnlnet.segmentation.data.unpacked import unpack_into
from dnlnet.segmentation.losses import Ohem, SegmentationLoss
from dnlnet.segmentation.network import Segmentor
from dnlnet.segmentation.task import SegmentationTask
from dnlnet.segmentation.tiny import TinySegmentor

SCENES = "scenes"  # generated, so they have no folder


def build_model(
    model: SegmentorModel, classes: int, *, weights: bool = True, report: Callable[[str], None] = lambda _: None
) -> nn.Module:
    """The network of a recipe.

    Args:
        model: the recipe's model.
        classes: number of classes of its data.
        weights: load the pretrained weights that it names; False leaves the network as it is initialised.
        report: told what became of the tensors of a file.

    >>> from dnlnet.recipes import find_recipe
    >>> network = build_model(find_recipe("scenes-tiny-dnl").model, classes=6)
    >>> network(torch.rand(1, 3, 32, 32)).logits.shape
    torch.Size([1, 6, 32, 32])
    """
    if model.network == "tiny":
        return TinySegmentor(classes, model.width // 2, model.variant, preset=model.preset, **model.block)
    return Segmentor(
        build_backbone(model, model.output_stride, weights, report, model.dilations),
        classes,
        model.variant,
        width=model.width,
        auxiliary=model.auxiliary,
        auxiliary_width=model.auxiliary_width,
        auxiliary_bias=model.auxiliary_bias,
        dilation=model.head_dilation,
        align_corners=model.align_corners,
        preset=model.preset,
        **model.block,
    )


def build_task(
    recipe: SegmentationRecipe,
    classes: Classes,
    validation: Dataset[Sample] | None = None,
    average: Callable[[Tensor], Tensor] = lambda number: number,
    device: torch.device | str = "cpu",
    report: Callable[[str], None] = lambda _: None,
) -> SegmentationTask:
    """The task of a recipe on data of these classes; `average` is over the processes that share a batch."""
    weights, ohem = recipe.loss.class_weights, recipe.loss.ohem
    _require_weights(recipe, classes)
    loss = SegmentationLoss(
        None if weights is None else torch.tensor(weights),
        None if ohem is None else Ohem(ohem.threshold, ohem.kept),
        recipe.loss.auxiliary_weight,
        average=average,
    )
    return SegmentationTask(classes, loss.to(device))


def build_training_data(
    recipe: SegmentationRecipe,
    root: Path | None,
    *,
    split: str | None = None,
    seed: int = 0,
    unpacked: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Dataset[Sample]:
    """The training samples of a recipe.

    Args:
        recipe: names the data set and how crops are drawn.
        root: folder of the data set; generated scenes need none.
        split: other than the recipe's own.
        seed: of the crops.
        unpacked: a folder to keep decoded pictures in; see `dnlnet.segmentation.data.unpacked`.
        report: told how many images there are.
    """
    data = recipe.data
    split = data.train if split is None else split
    if data.name == SCENES:
        _require_weights(recipe, SCENE_CLASSES)
        _require_scenes(split, "train")
        return SceneSamples(recipe.schedule.iterations * recipe.schedule.batch, data.crop, HELD_OUT_SEED + 1 + seed)
    images = open_data_set(data.name, required_folder(recipe, root), split)
    _require_weights(recipe, images.classes)
    report(f"{images.name}: {len(images)} images to train on")
    if unpacked is not None:
        images = unpack_into(images, unpacked)
    augmentation = Augmentation(data.crop, data.scales, data.aspects, data.short_side, data.flip, data.brightness)
    return TrainingCrops(images, augmentation, seed)


def build_validation_data(recipe: SegmentationRecipe, root: Path | None) -> Dataset[Sample] | None:
    """The images that a recipe is evaluated on, or None if it trains on all that is labelled."""
    if recipe.data.test is None:
        return None
    if recipe.data.name == SCENES:
        _require_scenes(recipe.data.test, "val")
        return SceneSamples(HELD_OUT_COUNT, recipe.data.crop, HELD_OUT_SEED)
    return WholeImages(open_data_set(recipe.data.name, required_folder(recipe, root), recipe.data.test))


def listed_files(samples: TrainingCrops | WholeImages | SceneSamples) -> Iterator[Listed]:
    """The files of samples, in order; generated scenes have none."""
    for pair in () if isinstance(samples, SceneSamples) else samples.images.pairs:
        yield pair.image, None
        yield pair.labels, None


def find_classes(recipe: SegmentationRecipe, root: Path | None = None) -> Classes:
    """The classes of the recipe's data; one's own folder is asked for them.

    >>> from dnlnet.recipes import find_recipe
    >>> len(find_classes(find_recipe("cityscapes-r101-dnl")))
    19
    """
    name = recipe.data.name
    if name == SCENES:
        return SCENE_CLASSES
    if name not in DATA_SETS:
        raise unknown("data set", name, [*DATA_SETS, SCENES])
    classes = DATA_SETS[name].classes
    return (
        classes
        if classes is not None
        else open_data_set(name, required_folder(recipe, root), recipe.data.train).classes
    )


def _require_weights(recipe: SegmentationRecipe, classes: Classes) -> None:
    weights = recipe.loss.class_weights
    if weights is not None and len(weights) != len(classes):
        raise ValueError(f"{recipe.name} has {len(weights)} class weights for {len(classes)} classes")


def _require_scenes(split: str, expected: str) -> None:
    if split != expected:
        raise ValueError(f"{SCENES} has no split {split!r} for this; expected {expected!r}")
