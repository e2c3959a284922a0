"""Score a trained model on a data set."""

from collections.abc import Callable
from pathlib import Path

from torch.utils.data import Dataset

from dnlnet.data.samples import Sample
from dnlnet.engine import distributed
from dnlnet.engine.evaluate import evaluate
from dnlnet.inference import Inference
from dnlnet.metrics.miou import ConfusionMatrix
from dnlnet.recipes.build import build_task, build_validation_data, find_classes
from dnlnet.recipes.load import ModelFile, load_network
from dnlnet.recipes.schema import override


def evaluate_model(
    model: ModelFile,
    data: Path | None,
    *,
    split: str | None = None,
    inference: Inference | None = None,
    workers: int = 0,
    start: Callable[[int], None] = lambda _: None,
    progress: Callable[[], None] = lambda: None,
) -> ConfusionMatrix | None:
    """Counts of the model's predictions over a split; None in all processes but the main one.

    Args:
        model: what to score.
        data: folder of its data set.
        split: other than the one its recipe is tested on.
        inference: how images are looked at; by itself, whole.
        workers: processes that read data.
        start: told how many images this process has.
        progress: called after each of them.
    """
    images = open_test_data(model, data, split)
    with distributed.process_group() as device:
        network = load_network(model)
        task = build_task(model.recipe, model.classes)
        task.inference = inference or Inference()
        start(len(distributed.share_of(range(len(images)))))  # type: ignore[arg-type]
        matrix: ConfusionMatrix = evaluate(
            task, network.to(device), images, device=device, workers=workers, progress=progress
        )
        return matrix if distributed.is_main() else None


def open_test_data(model: ModelFile, data: Path | None, split: str | None = None) -> Dataset[Sample]:
    """The images of a split, which must have the model's classes; by itself, those its recipe is tested on."""
    recipe = model.recipe if split is None else override(model.recipe, [f"data.test={split}"])
    images = build_validation_data(recipe, data)
    if images is None:
        raise ValueError(f"{recipe.name} is trained on all that is labelled; say what to score it on with --split")
    classes = find_classes(recipe, data)
    if tuple(classes.names) != tuple(model.classes.names):
        ours, theirs = (
            f"{len(some)} classes ({', '.join(some.names[:3])}, ...)" for some in (model.classes, classes)
        )
        raise ValueError(f"{model.path} knows {ours}, but the data has {theirs}")
    return images
