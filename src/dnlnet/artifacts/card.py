"""Model cards: what a model is, what it scored and how to use it, as the Hugging Face hub shows it."""

import json
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from dnlnet.artifacts.model_file import ModelFile, shareable
from dnlnet.box import BOX, Boxed
from dnlnet.lens.measure.consistency import STATISTICS
from dnlnet.names import fenced, in_markdown

PAPER = "https://arxiv.org/abs/2006.06668"


def model_card(model: ModelFile, name: str = "you/model") -> ModelCard:
    """The card of a model, from its recipe and its measured scores; for one in the box, also its licence and origin.

    Args:
        model: what the model file says.
        name: to load it by.
    """
    recipe = model.recipe
    pipeline = recipe.card.pipeline
    boxed = BOX.get(name)
    data = ModelCardData(
        library_name="dnlnet",
        license=None if boxed is None else boxed.licence,
        pipeline_tag=pipeline,
        tags=["dnlnet", "non-local", "attention"],
        model_name=recipe.name,
        eval_results=[
            EvalResult(
                task_type=pipeline,
                dataset_type=recipe.data.name,
                dataset_name=f"{recipe.data.name} {recipe.data.test}",
                metric_type=metric,
                metric_value=value,
            )
            for metric, value in (model.scores or {}).items()
        ]
        or None,
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{card_text(model, name)}")


def card_text(model: ModelFile, name: str) -> str:
    """The card in Markdown, without the header that the hub reads."""
    recipe, boxed = shareable(model.recipe), BOX.get(name)
    block = f"a `{recipe.model.variant}` block" if recipe.model.variant else "no attention block (the baseline)"
    layers = in_markdown(recipe.model.layers)
    return "\n".join(
        [
            f"# {in_markdown(recipe.name if boxed is None else name)}",
            "",
            *([] if boxed is None else [boxed.about, ""]),
            f"A {recipe.task} network on {layers} with {block}, of [Disentangled Non-Local Neural Networks]({PAPER}):"
            f" {len(model.classes)} classes of {in_markdown(recipe.data.name)}"
            + (f", trained with dnlnet for {model.iteration:,} iterations." if model.iteration else "."),
            "",
            *([] if boxed is None else _origin(boxed)),
            "## Scores",
            "",
            *_scores(model, recipe.class_score),
            "",
            *([] if boxed is None else _attention(boxed)),
            "## Use",
            "",
            "```python",
            "import dnlnet",
            "",
            f'model = dnlnet.load("{name}")',
            recipe.card.use,
            "```",
            "",
            f"`dnlnet attend {name} {recipe.card.example} -o maps` shows what its blocks attend to.",
            "",
            *([] if model.by_class else ["## Classes", "", ", ".join(map(in_markdown, model.classes.names)), ""]),
            "## Recipe",
            "",
            fenced(_as_yaml(recipe.stored()), "yaml"),
            "",
        ]
    )


def _as_yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None).rstrip()


def _origin(boxed: Boxed) -> list[str]:
    return ["## Origin and licence", "", boxed.terms, "", fenced(boxed.command, ""), ""]


def _scores(model: ModelFile, of_class: str) -> list[str]:
    if not model.scores:
        return ["Not measured."]
    data = model.recipe.data
    rows = [f"| {in_markdown(metric)} | {value:.4f} |" for metric, value in model.scores.items()]
    lines = ["| measured | |", "|---|---|", *rows, ""]
    lines.append(f"On the split {in_markdown(data.test)} of {in_markdown(data.name)}.")
    if model.by_class:
        cells = {name: "not there" if value is None else f"{value:.4f}" for name, value in model.by_class.items()}
        rows = [f"| {in_markdown(name)} | {value} |" for name, value in cells.items()]
        lines += ["", f"| class | {of_class} |", "|---|---|", *rows]
    return lines


def _attention(boxed: Boxed) -> list[str]:
    """How much of its attention lies where, as `dnlnet consistency` measured it, beside a uniform map's."""
    measured = json.loads(boxed.measured.read_text(encoding="utf-8"))
    (_, own), (_, uniform) = measured["rows"].items()
    rows = [
        f"| {STATISTICS[key]} | {own[key]['mean']:.3f} | {uniform[key]['mean']:.3f} |"
        for key in STATISTICS
        if own[key] is not None and not key.endswith("void")
    ]
    width = measured["width"]
    return [
        "## Attention",
        "",
        "| share of attention | this model | uniform map |",
        "|---|---|---|",
        *rows,
        "",
        f"Mean over images; boundary: nearer than {width} px to a contour (`dnlnet consistency --width {width}`).",
        "",
    ]
