"""Score a trained model on a data set."""

from dataclasses import replace
from pathlib import Path

from dnlnet.artifacts.model_file import ModelFile, open_model
from dnlnet.artifacts.weights import load_for_inference
from dnlnet.backbones.bfloat16 import choose_precision
from dnlnet.data.catalog import Samples
from dnlnet.engine import distributed
from dnlnet.engine.evaluate import evaluate as evaluate_task
from dnlnet.engine.scores import Scores
from dnlnet.progress import BARS, Progress
from dnlnet.registry import accepted_options
from dnlnet.runs.run_folder import remembered_data


def evaluate(
    model: str | Path | ModelFile,
    data: Path | str | None = None,
    *,
    split: str | None = None,
    whole: bool = False,
    window: int | None = None,
    scales: str | None = None,
    flip: bool | None = None,
    workers: int = 0,
    device: str | None = None,
    precision: str = "auto",
    progress: Progress = BARS,
) -> Scores | None:
    """Score a trained model on a data set.

    Batch norms are folded and memory is channels-last, as in prediction. Under torchrun, the processes share the
    samples, and only the main process returns scores; the others return None.

    Args:
        model: Model file, run folder, or name on the Hugging Face hub.
        data: Folder of the data set. Default: the folder that the model was trained on.
        split: Split to score on. Default: the test split of the recipe.
        whole: Feed whole images to a segmentation network, not sliding windows.
        window: Side of the sliding windows of a segmentation network, in pixels. The stride is two thirds of it.
        scales: Image scales for a segmentation network, separated by commas.
        flip: Also feed mirrored images to a segmentation network.
        workers: Number of processes that read data.
        device: Device. Default: a GPU if available.
        precision: Precision of the network: `float32` or `bfloat16`; `auto` is float32.
        progress: Progress observer.
    """
    file = open_model(model)
    recipe, tested = file.recipe, getattr(file.recipe, "tested", None)
    options = {"whole": whole or None, "window": window, "scales": scales, "flip": flip}
    options = accepted_options(recipe.task, tested, **options)
    if tested is not None:
        recipe = tested(**options)
    if data is None and (data := remembered_data(file.path)) is not None:
        progress.say(f"data: {data} (used for training)")
    samples = open_test_data(file, None if data is None else Path(data), split)
    with distributed.process_group(device) as place:
        precision = choose_precision(precision, place)
        network = load_for_inference(file)
        if precision == "bfloat16":
            network = recipe.in_bfloat16(network)
        task = recipe.test_task(file.classes, samples)
        metric = evaluate_task(task, network.to(place), samples, device=place, workers=workers, progress=progress)
        if not distributed.is_main():
            return None
        scores = task.summarize(metric, f"{recipe.name} after {file.iteration} iterations")
        if precision != "float32":
            scores = replace(scores, content={**scores.content, "precision": precision})
        return scores


def open_test_data(model: ModelFile, data: Path | None, split: str | None = None) -> Samples:
    """Open a split. Default: the test split of the recipe. Raises unless it has the model's classes."""
    recipe = model.recipe
    split = recipe.data.test if split is None else split
    if split is None:
        raise ValueError(f"{recipe.name} is trained on all labelled data; name the split to score with --split")
    samples = recipe.test_samples(data, split)
    if tuple(samples.classes.names) != tuple(model.classes.names):
        ours, theirs = (
            f"{len(some)} classes ({', '.join(some.names[:3])}, ...)" for some in (model.classes, samples.classes)
        )
        raise ValueError(f"{model.path} knows {ours}, but the data has {theirs}")
    return samples
