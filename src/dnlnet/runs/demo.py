"""The demo: a trained network on photographs, small ones trained on generated scenes, and what they attend to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from dnlnet.artifacts.load import TrainedModel, load
from dnlnet.artifacts.weights import load_network
from dnlnet.attention.spec import find_variant
from dnlnet.bundled import PHOTOS
from dnlnet.data.images import read_pixels
from dnlnet.engine.evaluate import evaluate
from dnlnet.engine.train import Outcome
from dnlnet.files import atomic_write, write_json
from dnlnet.lens.measure.confusion import ConfusionMatrix
from dnlnet.lens.measure.consistency import RANDOM, Average, overlaps_json
from dnlnet.lens.show.attended_image import AttendedImage
from dnlnet.lens.show.attention_figure import attention_figure
from dnlnet.lens.show.page.html import attention_page
from dnlnet.lens.show.panels import save_figure
from dnlnet.progress import SILENT, Prefixed, Progress
from dnlnet.recipes.override import override
from dnlnet.recipes.schema import Recipe
from dnlnet.registry import find_recipe
from dnlnet.runs.consistency import consistency
from dnlnet.runs.evaluate import open_test_data
from dnlnet.runs.train import train

STEPS = 400
MODEL = "street"  # the model that looks at the photographs
BOUNDARY_WIDTH = 2  # of scenes of 96 pixels; the paper's 5 are of images of 1024

# Share of the steps in which the learning rate rises. Trained without, DNL of seed 1 ended at 0.81 mIoU, not 0.86.
_WARMUP = 0.3
# Held-out scenes to be looked at; the first, with all six classes in it, also becomes a figure.
_PICTURED = (1, 0, 2)


@dataclass(frozen=True)
class Net:
    """A trained network, and its counts on the held-out scenes before and after training.

    `seconds` is how long the training took; None if some of it was done by an earlier call.
    """

    model: TrainedModel
    parameters: int
    before: ConfusionMatrix
    after: ConfusionMatrix
    seconds: float | None


@dataclass(frozen=True)
class Demo:
    """What the demo found, by variant, and the files it wrote; the last row of `overlaps` is a uniform map's."""

    street: Path
    nets: Mapping[str, Net]
    overlaps: Mapping[str, Mapping[str, Average | None]]
    figure: Path
    page: Path
    scores: Path


class StoppedError(Exception):
    """A signal stopped the training; its checkpoint is saved."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"stopped after iteration {outcome.iteration}")
        self.outcome = outcome


def run_demo(
    out: Path,
    variants: Iterable[str] = ("dnl", "nl"),
    *,
    steps: int = STEPS,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Demo:
    """Show the model `street` on two photographs; then train networks on generated scenes, score and show them.

    The networks are those of the recipes `scenes-tiny-VARIANT`, scored on held-out scenes.
    The learning rate rises for the first three tenths of the steps, then falls as the recipe says.
    Every training is a run in `out/runs`, in a folder named by variant, steps and seed: one that was stopped goes on,
    one that is finished is not trained again. Writes `street.png`, `attention.png`, `scores.json`, and the page
    `explore.html`: first with the photographs alone, after training with the scenes as well.

    Args:
        out: folder for the results; made if it is not there.
        variants: attention of each network's block, rows of `dnlnet.VARIANTS`.
        steps: batches to train on.
        seed: of the first weights and of the training scenes; the held-out scenes are the same for all.
        progress: Observer of the trainings.

    Raises:
        StoppedError: if a signal asked to stop; the same call goes on from there.
    """
    names = list(dict.fromkeys(variants))
    if not names:
        raise ValueError("a demo needs at least one variant")
    for name in names:
        find_variant(name)
    length = [f"schedule.iterations={steps}", f"schedule.warmup={int(_WARMUP * steps)}"]
    recipes = {name: override(find_recipe(f"scenes-tiny-{name}"), length) for name in names}
    for folder in (out, out / "runs"):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file, and --out needs a folder there; choose another --out")
    runs = {name: out / "runs" / f"{name}-{steps}-{seed}" for name in names}
    street, page = out / "street.png", out / "explore.html"
    bundled = load(MODEL)
    photographs = [_look_at_photograph(photo, bundled, progress) for photo in PHOTOS]
    save_figure(attention_figure(photographs[0], photographs[0].interior_points()), street)
    _write_page(page, photographs)
    progress.say(f"written: {street}, {page}; now two small networks learn from nothing, and join them")
    nets = {name: _train(name, recipes[name], runs[name], seed, progress) for name in names}
    overlaps = _overlaps(nets)
    scenes = [_look(nets, index) for index in _PICTURED]
    demo = Demo(street, nets, overlaps, out / "attention.png", page, out / "scores.json")
    save_figure(attention_figure(scenes[0], scenes[0].interior_points()), demo.figure)
    _write_page(page, [*photographs, *scenes], start=len(photographs))  # where there is something to compare
    write_json(demo.scores, {"steps": steps, "seed": seed, **_content(demo)})
    return demo


def _look_at_photograph(photo: Path, model: TrainedModel, progress: Progress) -> AttendedImage:
    """Return an image with the predictions and attention of the bundled model."""
    pixels = read_pixels(photo)
    views = model.predictor.attention_views(MODEL, pixels)
    shares = model.classes.shares(views[0].prediction)
    largest = ", ".join(f"{name} {share:.0%}" for name, share in list(shares.items())[:4])
    progress.say(f"{MODEL}: {photo.name}: {largest}")
    return AttendedImage(photo.name, pixels, views, classes=model.classes)


def _write_page(page: Path, pictures: Sequence[AttendedImage], start: int = 0) -> None:
    with atomic_write(page) as temporary:
        temporary.write_text(attention_page(pictures, title="What attention learnt", start=start), encoding="utf-8")


def _train(variant: str, recipe: Recipe, run: Path, seed: int, progress: Progress) -> Net:
    start = perf_counter()
    outcome = train(recipe, None, run, seed=seed, progress=Prefixed(progress, variant))
    seconds = None if outcome.began else perf_counter() - start
    if not outcome.finished:
        raise StoppedError(outcome)
    # Not the best: that one is chosen by the scenes that are scored here.
    model = load(run / "last.safetensors")
    classes = model.classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # as for the run: the weights that it began with
        untrained = recipe.build(len(classes))
    scenes = open_test_data(model.file, None)
    task = recipe.test_task(classes, scenes)
    before, after = (
        evaluate(task, network, scenes, device=torch.device("cpu"))
        for network in (untrained, load_network(model.file))
    )
    parameters = sum(parameter.numel() for parameter in untrained.parameters())
    return Net(model, parameters, before, after, seconds)


def _overlaps(nets: Mapping[str, Net]) -> dict[str, dict[str, Average | None]]:
    """Overlaps of each net's attention with the truth of the held-out scenes, and those of a uniform map."""
    rows: dict[str, dict[str, Average | None]] = {}
    random = {}
    for name, net in nets.items():
        found = consistency(net.model, width=BOUNDARY_WIDTH, progress=SILENT)
        (_, row), (_, uniform) = found.table().items()
        rows[name], random[RANDOM] = row, uniform
    return rows | random


def _look(nets: Mapping[str, Net], index: int) -> AttendedImage:
    """A held-out scene, with what each net made of it."""
    first = next(iter(nets.values())).model
    scene = open_test_data(first.file, None)[index]
    pixels = scene.image.permute(1, 2, 0).numpy()
    views = [view for name, net in nets.items() for view in net.model.predictor.attention_views(name, pixels)]
    return AttendedImage(f"scene {index}", pixels, views, scene.labels.numpy(), first.classes)


def _content(demo: Demo) -> dict[str, Any]:
    """What was found, for the file of scores."""
    nets = {
        name: {
            "parameters": net.parameters,
            "seconds": None if net.seconds is None else round(net.seconds, 1),
            "miou": {"before": net.before.miou(), "after": net.after.miou()},
            "iou": {
                label: {"before": before, "after": after}
                for label, before, after in zip(
                    net.model.classes.names, net.before.known_iou(), net.after.known_iou(), strict=True
                )
            },
        }
        for name, net in demo.nets.items()
    }
    return {"nets": nets, "overlaps": {"boundary_width": BOUNDARY_WIDTH, "rows": overlaps_json(demo.overlaps)}}
