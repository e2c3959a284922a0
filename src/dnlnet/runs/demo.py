"""Demo: a trained network on photos, and small networks trained on generated scenes, with their attention."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from dnlnet.artifacts.load import TrainedModel, load
from dnlnet.artifacts.weights import load_network
from dnlnet.attention.spec import find_variant
from dnlnet.bundled import MODELS
from dnlnet.data.images import read_pixels
from dnlnet.engine.evaluate import evaluate
from dnlnet.engine.train import Outcome
from dnlnet.files import atomic_write, write_json
from dnlnet.lens.measure import BOUNDARY_WIDTH
from dnlnet.lens.measure.confusion import ConfusionMatrix
from dnlnet.lens.measure.consistency import RANDOM, Average, overlaps_json
from dnlnet.lens.show.attended_image import AttendedImage
from dnlnet.lens.show.block_figure import block_figure
from dnlnet.lens.show.page.html import attention_page
from dnlnet.lens.show.panels import save_figure
from dnlnet.progress import SILENT, Prefixed, Progress
from dnlnet.recipes.override import override
from dnlnet.recipes.recipe import Recipe
from dnlnet.registry import find_recipe
from dnlnet.runs.consistency import consistency
from dnlnet.runs.evaluate import open_test_data
from dnlnet.runs.train import train

STEPS = 400

# Share of warm-up steps. Without warm-up, DNL with seed 1 reached 0.81 mIoU instead of 0.86.
_WARMUP = 0.3
# Held-out scenes to show. The first has all six classes and also becomes a figure.
_SHOWN_SCENES = (1, 0, 2)


@dataclass(frozen=True)
class Net:
    """Trained network, and its confusion matrices on the held-out scenes before and after training.

    `seconds` is the duration of training, or None if training resumed an earlier call.
    """

    model: TrainedModel
    parameters: int
    before: ConfusionMatrix
    after: ConfusionMatrix
    seconds: float | None


@dataclass(frozen=True)
class Demo:
    """Results of the demo by variant, and the files it wrote. The last row of `overlaps` belongs to a uniform map."""

    photo: Path
    nets: Mapping[str, Net]
    overlaps: Mapping[str, Mapping[str, Average | None]]
    figure: Path
    page: Path
    scores: Path


class StoppedError(Exception):
    """A signal stopped the training. Its checkpoint is saved."""

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
    """Show a trained model on its photos, then train small networks on generated scenes, score and show them.

    The model is `street` if its package is installed, or else `pets`. The networks are those of the recipes
    `scenes-tiny-VARIANT`, with a warm-up of 30 % of the steps. They are scored on held-out scenes. Each run has a
    folder in `out/runs`, named by variant, steps and seed. A stopped run resumes, and a finished run is not repeated.

    Writes `MODEL.png`, `attention.png`, `scores.json` and the page `explore.html`, which gains the scenes after
    training.

    Args:
        out: Folder for the results, created if missing.
        variants: Attention variant of each network (see `dnlnet.VARIANTS`).
        steps: Number of training steps.
        seed: Random seed of the initial weights and the training scenes. The held-out scenes are fixed.
        progress: Progress observer.

    Raises:
        StoppedError: A signal stopped the training. The same call resumes it.
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
    title = "street" if "street" in MODELS else "pets"
    photo, page = out / f"{title}.png", out / "explore.html"
    model = load(title)
    photos = [_view_photo(path, title, model, progress) for path in MODELS[title].photos]
    save_figure(block_figure(photos[0], photos[0].interior_points()), photo)
    _write_page(page, photos)
    progress.say(
        f"written: {photo}, {page} (open it in a browser); training small networks, which the page will show"
    )
    nets = {name: _train(name, recipes[name], runs[name], seed, progress) for name in names}
    overlaps = _overlaps(nets, progress)
    scenes = [_view_scene(nets, index) for index in _SHOWN_SCENES]
    demo = Demo(photo, nets, overlaps, out / "attention.png", page, out / "scores.json")
    save_figure(block_figure(scenes[0], scenes[0].interior_points()), demo.figure)
    _write_page(page, [*photos[:1], *scenes, *photos[1:]])
    write_json(demo.scores, {"steps": steps, "seed": seed, **_content(demo)})
    return demo


def _view_photo(photo: Path, title: str, model: TrainedModel, progress: Progress) -> AttendedImage:
    """Return a photo with the predictions and attention of the bundled model."""
    pixels = read_pixels(photo)
    views = model.predictor.attention_views(title, pixels)
    shares = model.classes.shares(views[0].prediction)
    largest = ", ".join(f"{label} {share:.0%}" for label, share in list(shares.items())[:4])
    progress.say(f"{title}: {photo.name}: {largest}")
    return AttendedImage(photo.name, pixels, views, classes=model.classes)


def _write_page(page: Path, images: Sequence[AttendedImage]) -> None:
    with atomic_write(page) as temporary:
        temporary.write_text(attention_page(images, title="What attention learnt"), encoding="utf-8")


def _train(variant: str, recipe: Recipe, run: Path, seed: int, progress: Progress) -> Net:
    start = perf_counter()
    outcome = train(recipe, None, run, seed=seed, progress=Prefixed(progress, variant))
    seconds = None if outcome.began else perf_counter() - start
    if not outcome.finished:
        raise StoppedError(outcome)
    # Not the best model, which was chosen by its score on these same scenes.
    model = load(run / "last.safetensors")
    classes = model.classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # the seed of the run gives its initial weights
        untrained = recipe.build(len(classes))
    scenes = open_test_data(model.file, None)
    task = recipe.test_task(classes, scenes)
    before, after = (
        evaluate(task, network, scenes, device=torch.device("cpu"))
        for network in (untrained, load_network(model.file))
    )
    parameters = sum(parameter.numel() for parameter in untrained.parameters())
    return Net(model, parameters, before, after, seconds)


def _overlaps(nets: Mapping[str, Net], progress: Progress) -> dict[str, dict[str, Average | None]]:
    """Return the overlaps with the ground truth of the held-out scenes, per network and for a uniform map."""
    rows: dict[str, dict[str, Average | None]] = {}
    random = {}
    for name, net in nets.items():
        found = consistency(net.model, progress=Prefixed(progress, name))
        (_, row), (_, uniform) = found.table().items()
        rows[name], random[RANDOM] = row, uniform
    return rows | random


def _view_scene(nets: Mapping[str, Net], index: int) -> AttendedImage:
    """Return a held-out scene with the predictions and attention of each network."""
    first = next(iter(nets.values())).model
    scene = open_test_data(first.file, None)[index]
    pixels = scene.image.permute(1, 2, 0).numpy()
    views = [view for name, net in nets.items() for view in net.model.predictor.attention_views(name, pixels)]
    return AttendedImage(f"scene {index}", pixels, views, scene.labels.numpy(), first.classes)


def _content(demo: Demo) -> dict[str, Any]:
    """Return the content of `scores.json`."""
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
