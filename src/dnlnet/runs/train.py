"""Train a recipe into a run folder. Checks for problems early and resumes stopped runs."""

import json
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import dnlnet
from dnlnet.artifacts.model_file import file_metadata
from dnlnet.data.catalog import Samples
from dnlnet.data.fingerprint import fingerprint
from dnlnet.engine.ownership import lock_run_folder
from dnlnet.files import atomic_write
from dnlnet.progress import BARS, SILENT, Progress
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.recipe import Recipe
from dnlnet.registry import find_recipe, parse_recipe
from dnlnet.runs.choose import choose_recipe, require_ready, with_holdout
from dnlnet.runs.run_folder import CACHE, RUN_FILE, read_run

if TYPE_CHECKING:
    from torch import nn

    from dnlnet.engine.train import Outcome


def train(
    recipe: str | Recipe | None,
    data: Path | str | None,
    out: Path | str,
    *,
    seed: int = 0,
    workers: int = 0,
    unpacked: Path | None = None,
    cache: Path | str | None = None,
    skip_nonfinite: int = 0,
    device: str | None = None,
    progress: Progress = BARS,
) -> "Outcome":
    """Train and evaluate a recipe, and save its models.

    Args:
        recipe: Recipe or its name. None chooses a small recipe that suits the data folder.
        data: Folder of the data set. Not needed for generated scenes.
        out: Run folder. An existing run of the same recipe and seed resumes.
        seed: Random seed.
        workers: Number of data-loading processes per training process.
        unpacked: Folder for decoded images.
        cache: Folder for features of a frozen backbone, which runs can share. Default: inside the run folder.
        skip_nonfinite: Maximum number of iterations to skip because their loss is not finite.
        device: Device, such as `cpu`. Default: a GPU if available.
        progress: Progress observer.
    """
    out, root = Path(out), None if data is None else Path(data)
    if recipe is None:
        if root is None:
            raise ValueError("give a recipe, or the folder of data that one is chosen for")
        recipe, why = choose_recipe(root)
        progress.say(why)
    recipe = find_recipe(recipe) if isinstance(recipe, str) else recipe
    require_ready(recipe, root, out)
    recipe = with_holdout(recipe, root, progress)

    from dnlnet.backbones.bfloat16 import bfloat16_problem  # imports torch, which takes seconds
    from dnlnet.engine import distributed
    from dnlnet.engine.train import resume_point
    from dnlnet.engine.train import train as run_stages
    from dnlnet.runs.feasible import require_feasible

    with distributed.process_group(device) as place:
        watch = progress if distributed.is_main() else SILENT
        with lock_run_folder(out, watch):
            if recipe.training.precision == "bfloat16" and (problem := bfloat16_problem(place)) is not None:
                watch.say(problem)
            count = recipe.class_count
            if count is not None:  # before opening the data, which can take long
                require_feasible(recipe, count, workers, place)
            context = RunContext(root, seed, place, _cache_folder(recipe, out, cache), unpacked, watch)
            if root is not None:
                watch.say(f"opening {recipe.data.name} in {root}")
            splits = [recipe.data.train, *(phase.train for phase in recipe.schedule.then)]
            training = [recipe.training_samples(context, split, phase) for phase, split in enumerate(splits)]
            classes = training[0].classes
            if count is None:
                require_feasible(recipe, len(classes), workers, place)
            validation = None if recipe.data.test is None else recipe.validation_samples(context, recipe.data.test)
            _require_same_classes(recipe, training, validation)
            description: dict[str, Any] = {}

            def describe() -> None:
                ours = _description(recipe, seed, root, _fingerprints(root, training, validation))
                if (begun := _begun_run(out)) is not None:
                    _require_same_run(out, begun, ours, watch)
                    ours = {**begun, "folder": ours["folder"]}
                description.update(ours)

            distributed.in_main(describe)
            start = resume_point(out, watch)
            model = recipe.first_network(context, len(classes), pretrained=start is None)
            distributed.in_main(lambda: _require_space(out, model, recipe))
            task = recipe.training_task(classes, context, validation)
            distributed.in_main(lambda: _write_run(out, description))  # after all checks
            return run_stages(
                task,
                model,
                training,
                recipe.settings(seed=seed, workers=workers, skip_nonfinite=skip_nonfinite),
                out,
                device=place,
                start=start,
                validation=validation,
                metadata=file_metadata(recipe, classes),
                unit=recipe.unit,
                progress=watch,
            )


def _require_same_classes(recipe: Recipe, training: Sequence[Samples], validation: Samples | None) -> None:
    """Raise unless all training and validation splits have the same classes."""
    first, *others = [*training, *([] if validation is None else [validation])]
    for other in others:
        if tuple(other.classes.names) != tuple(first.classes.names):
            raise ValueError(
                f"the splits of {recipe.data.name} have different classes: {_few(first)} and {_few(other)}"
            )


def _few(samples: Samples) -> str:
    names = samples.classes.names
    return f"{len(names)} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


def _fingerprints(
    root: Path | None, training: Sequence[Samples], validation: Samples | None
) -> dict[str, Any] | None:
    """Return the fingerprint of each split that a run reads, or None for generated data."""
    if root is None:
        return None
    named = {"train" if number == 1 else f"train {number}": some for number, some in enumerate(training, start=1)}
    if validation is not None:
        named["test"] = validation
    return {name: fingerprint(samples.files(), root, samples.classes.names) for name, samples in named.items()}


def _description(recipe: Recipe, seed: int, root: Path | None, data: dict[str, Any] | None) -> dict[str, Any]:
    import torch

    return {
        "recipe": recipe.stored(),
        "seed": seed,
        "folder": None if root is None else str(root.resolve()),  # for dnlnet eval; this file is never shared
        "data": data,
        "versions": {
            "dnlnet": dnlnet.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
        "commit": _commit(),
    }


def _cache_folder(recipe: Recipe, out: Path, given: Path | str | None) -> Path | None:
    """Return the folder for cached features, or None if the recipe does not cache them."""
    if not recipe.training.cache:
        if given is not None:
            raise ValueError(f"--cache is for recipes with training.cache=true, which {recipe.name} does not have")
        return None
    return out / CACHE if given is None else Path(given)


def _begun_run(out: Path) -> dict[str, Any] | None:
    """Return the description of the run in a folder. Without a checkpoint or a model, the folder may be reused."""
    from dnlnet.engine.train import CHECKPOINTS

    begun = any(out.glob(f"{CHECKPOINTS}/*.json")) or any(out.glob("*.safetensors"))
    return read_run(out / RUN_FILE) if begun and (out / RUN_FILE).exists() else None


def _require_same_run(
    out: Path, before: Mapping[str, Any], description: Mapping[str, Any], progress: Progress
) -> None:
    """Raise if the recipe, seed or data of a run differ from those that it was started with."""
    for key, then in (("recipe", _completed(before["recipe"])), ("seed", before["seed"])):
        if (change := _difference(then, description[key], key)) is not None:
            raise ValueError(f"{out} holds another run: {change}; choose another --out, or delete it")
    then, now = before.get("data"), description["data"]
    noted = isinstance(then, dict) and all(isinstance(part, dict) and "labels" in part for part in then.values())
    if now is not None and not noted:
        progress.say(
            f"{out}: started by a version that did not note its labels; whether the data are the same is not checked"
        )
    elif then != now:
        change = _difference(then, now, "data")
        raise ValueError(
            f"{out} holds a run on other data: {change}; give the data it was started on, or another --out"
        )


def _completed(recipe: Any) -> Any:
    """Add defaults for newer settings to a stored recipe. An unreadable recipe is returned unchanged."""
    try:
        return parse_recipe(json.dumps(recipe)).stored()
    except (ValueError, TypeError):
        return recipe


def _write_run(out: Path, description: Mapping[str, Any]) -> None:
    with atomic_write(out / RUN_FILE) as temporary:
        temporary.write_text(
            yaml.safe_dump(dict(description), sort_keys=False, allow_unicode=True, default_flow_style=None)
        )


def _difference(before: Any, now: Any, where: str) -> str | None:
    """Describe the first value that differs, or return None."""
    if isinstance(before, dict) and isinstance(now, dict):
        changes = (_difference(before.get(key), now.get(key), f"{where}.{key}") for key in {**before, **now})
        return next((change for change in changes if change is not None), None)
    return None if before == now else f"its {where} is {before}, not {now}"


def _require_space(out: Path, model: "nn.Module", recipe: Recipe) -> None:
    """Raise unless the disk has room for all checkpoints, one more while it is written, and three models.

    A checkpoint holds weights, optimiser moments and possibly an average. Existing files of the run will be replaced.
    """
    from dnlnet.engine.optim import MOMENTS
    from dnlnet.engine.train import CHECKPOINTS

    weights = sum(tensor.nbytes for tensor in model.state_dict().values())
    checkpoint = 2 + MOMENTS[recipe.optim.kind]
    held = sum(path.stat().st_size for path in [*out.glob(f"{CHECKPOINTS}/*"), *out.glob("*.safetensors")])
    needed = weights * (checkpoint * (recipe.training.keep + 1) + 3) - held
    free = shutil.disk_usage(next(place for place in (out, *out.resolve().parents) if place.exists())).free
    if free < needed:
        raise OSError(
            f"{out}: {free / 1e6:,.1f} MB free, but checkpoints and models may take {needed / 1e6:,.1f} MB more"
        )


def _commit() -> str | None:
    """Return the commit of the package's repository, or None if installed."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
