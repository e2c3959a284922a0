"""Score a trained model on a data set."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from dnlnet.engine import distributed
from dnlnet.engine.evaluate import evaluate
from dnlnet.recipes.build import builder_of
from dnlnet.recipes.load import load_network
from dnlnet.recipes.model_file import ModelFile
from dnlnet.segmentation.data.samples import Sample
from dnlnet.segmentation.inference import Inference
from dnlnet.segmentation.task import SegmentationTask


def evaluate_model(
    model: ModelFile,
    data: Path | None,
    *,
    split: str | None = None,
    inference: Inference | None = None,
    workers: int = 0,
    start: Callable[[int], None] = lambda _: None,
    progress: Callable[[], None] = lambda: None,
) -> Any:
    """The metric of the model's task over a split; None in all processes but the main one.

    Args:
        model: what to score.
        data: folder of its data set.
        split: other than the one its recipe is tested on.
        inference: how images are fed to a segmentation network; default: the whole image.
        workers: processes that read data.
        start: told how many images this process has.
        progress: called after each of them.
    """
    images = open_test_data(model, data, split)
    with distributed.process_group() as device:
        network = load_network(model)
        task = builder_of(model.recipe).build_task(model.recipe, model.classes, images)
        if isinstance(task, SegmentationTask):
            task.inference = inference or Inference()
        start(len(distributed.shard(range(len(images)))))  # type: ignore[arg-type]
        metric = evaluate(task, network.to(device), images, device=device, workers=workers, progress=progress)
        return metric if distributed.is_main() else None


def open_test_data(model: ModelFile, data: Path | None, split: str | None = None) -> Dataset[Sample]:
    """The images of a split, which must have the model's classes; by itself, those its recipe is tested on."""
    recipe = model.recipe
    if split is not None:  # a name as it stands, and the rest of the recipe as it was trained with
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"test": split})})
    build = builder_of(recipe)
    images: Dataset[Any] | None = build.build_validation_data(recipe, data)
    if images is None:
        raise ValueError(f"{recipe.name} is trained on all that is labelled; say what to score it on with --split")
    classes = build.find_classes(recipe, data)
    if tuple(classes.names) != tuple(model.classes.names):
        ours, theirs = (
            f"{len(some)} classes ({', '.join(some.names[:3])}, ...)" for some in (model.classes, classes)
        )
        raise ValueError(f"{model.path} knows {ours}, but the data has {theirs}")
    return images
