"""Report of a training run: curves, scores and recipe."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dnlnet.artifacts.model_file import without_folders
from dnlnet.engine.log import read_log
from dnlnet.files import atomic_write
from dnlnet.lens.show.panels import save_figure
from dnlnet.names import fenced, in_figure, in_markdown
from dnlnet.registry import recipe_kind
from dnlnet.runs.run_folder import RUN_FILE, read_run

SMOOTHING = 0.95


def write_report(folder: Path) -> Path:
    """Write `report.md` and its figures from the log of a run. Return the path of the report."""
    events = list(read_log(folder))
    steps = _alike([event for event in events if event["event"] == "train" and "skipped" not in event])
    evaluations = _alike([event for event in events if event["event"] == "evaluation"])
    if not steps:
        raise ValueError(f"{folder}: has no log of a training run")
    run = read_run(folder / RUN_FILE)
    save_figure(loss_figure(steps), folder / "loss.png")
    parts = [f"# {in_markdown(run['recipe']['name'])}", _summary(run, steps), "![loss](loss.png)"]
    if evaluations:
        save_figure(score_figure(evaluations), folder / "scores.png")
        parts += ["![scores](scores.png)", _scores(evaluations, recipe_kind(run["recipe"]).class_score)]
    parts += [
        "## Recipe",
        fenced(yaml.safe_dump(_shareable(run), sort_keys=False, allow_unicode=True).strip(), "yaml"),
    ]
    path = folder / "report.md"
    with atomic_write(path) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def _shareable(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a run without local folders. Accepts the run.yaml of any version."""
    recipe = {key: value for key, value in run["recipe"].items() if key not in ("paper", "measured")}
    if isinstance(model := recipe.get("model"), dict) and isinstance(weights := model.get("weights"), str):
        recipe["model"] = model | {"weights": without_folders(weights)}
    return {key: value for key, value in run.items() if key != "folder"} | {"recipe": recipe}


def _alike(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the events with the most common keys. A damaged log line can still be valid JSON.

    >>> _alike([{"lr": 1}, {"lr": 2}, {"mr": 3}])
    [{'lr': 1}, {'lr': 2}]
    """
    (usual, _), *_ = Counter(map(tuple, events)).most_common(1) or [((), 0)]
    return [event for event in events if tuple(event) == usual]


def loss_figure(steps: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot each loss over the iterations, raw (faint) and smoothed (bold), with the learning rate below."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    iterations = [step["iteration"] for step in steps]
    for name in (key for key in steps[0] if key not in ("event", "iteration", "lr")):
        values = [step[name] for step in steps]
        (line,) = upper.plot(iterations, smoothed(values), label=in_figure(name), linewidth=1.6)
        upper.plot(iterations, values, color=line.get_color(), alpha=0.2, linewidth=0.7)
    upper.set_ylabel("loss")
    upper.legend(frameon=False)
    lower.plot(iterations, [step["lr"] for step in steps], color="0.4", linewidth=1.2)
    lower.set_ylabel("learning rate")
    lower.set_xlabel("iteration")
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    return figure


def score_figure(evaluations: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot each score over the iterations. The legend shows the last values.

    >>> float(score_figure([{"iteration": 400, "miou": 0.5}]).axes[0].get_xlim()[0])
    0.0
    """
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    iterations = [evaluation["iteration"] for evaluation in evaluations]
    highest = 0.0
    for name in _score_names(evaluations[0]):
        values = [math.nan if evaluation[name] is None else evaluation[name] for evaluation in evaluations]
        last = "unknown" if math.isnan(values[-1]) else f"{values[-1]:.3f}"
        axes.plot(iterations, values, marker="o", markersize=4, label=f"{in_figure(name)} {last}")
        highest = max([highest, *(value for value in values if not math.isnan(value))])
    axes.set_ylim(0, min(1, 1.1 * highest) or 1)
    axes.set_xlabel("iteration")
    axes.set_xlim(0, 1.02 * iterations[-1] or 1)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def smoothed(values: Sequence[float], keep: float = SMOOTHING) -> list[float]:
    """Return the exponential moving average, with bias correction.

    >>> smoothed([2.0, 2.0, 2.0])
    [2.0, 2.0, 2.0]
    """
    out, total, weight = [], 0.0, 0.0
    for value in values:
        total, weight = keep * total + value, keep * weight + 1
        out.append(total / weight)
    return out


def _score_names(evaluation: Mapping[str, Any]) -> list[str]:
    """Return the names of the scores of an evaluation. A score is None if nothing is labelled."""
    return [name for name, value in evaluation.items() if value is None or isinstance(value, float)]


def _summary(run: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in (run.get("versions") or {}).items())
    commit = run.get("commit") or "unknown"
    return (
        f"{steps[-1]['iteration']} iterations, seed {run['seed']}; {versions or 'unknown versions'}; commit {commit}."
    )


def _scores(evaluations: Sequence[Mapping[str, Any]], of_class: str) -> str:
    names = _score_names(evaluations[0])
    known = [evaluation for evaluation in evaluations if evaluation[names[0]] is not None]
    if not known:
        return "No evaluation has a score: nothing in the evaluated data is labelled."
    best = max(known, key=lambda evaluation: evaluation[names[0]])
    rows = ["| | iteration | " + " | ".join(names) + " |", "|---|---:|" + "---:|" * len(names)]
    for label, evaluation in (("best", best), ("last", evaluations[-1])):
        cells = " | ".join("-" if evaluation[name] is None else f"{evaluation[name]:.4f}" for name in names)
        rows.append(f"| {label} | {evaluation['iteration']} | {cells} |")
    by_class = best.get("by_class")
    if by_class:
        rows += ["", "Scores of the best model by class:", "", f"| class | {of_class} |", "|---|---:|"]
        rows += [
            f"| {in_markdown(name)} | {'-' if iou is None else format(iou, '.3f')} |"
            for name, iou in by_class.items()
        ]
    return "\n".join(rows)
