"""Model cards for the Hugging Face hub."""

import json
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from dnlnet.artifacts.model_file import ModelFile, shareable
from dnlnet.bundled import MODELS, BundledModel
from dnlnet.lens.measure.consistency import TABLE_1
from dnlnet.names import fenced, in_markdown

PAPER = "https://arxiv.org/abs/2006.06668"


def model_card(model: ModelFile, name: str = "you/model") -> ModelCard:
    """Return the card of a model: its recipe and scores, and the licence and origin of a bundled model.

    Args:
        model: Model file.
        name: Name of the model on the hub.
    """
    recipe = model.recipe
    pipeline = recipe.card.pipeline
    bundled = MODELS.get(name)
    data = ModelCardData(
        library_name="dnlnet",
        license=None if bundled is None else bundled.licence.lower(),  # as on the hub
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
    """Return the card in Markdown, without the metadata header for the hub."""
    recipe, bundled = shareable(model.recipe), MODELS.get(name)
    block = f"a `{recipe.model.variant}` block" if recipe.model.variant else "no attention block (the baseline)"
    layers = in_markdown(recipe.model.layers)
    origin = ["## Origin and licence", "", bundled.terms, "", fenced(bundled.command, ""), ""] if bundled else []
    return "\n".join(
        [
            f"# {in_markdown(recipe.name if bundled is None else name)}",
            "",
            *([] if bundled is None else [bundled.about, ""]),
            f"A {recipe.task} network on {layers} with {block}, of [Disentangled Non-Local Neural Networks]({PAPER}):"
            f" {len(model.classes)} classes of {in_markdown(recipe.data.name)}"
            + (f", trained with dnlnet for {model.iteration:,} iterations." if model.iteration else "."),
            "",
            *origin,
            "## Scores",
            "",
            *_scores(model, recipe.class_score),
            "",
            *([] if bundled is None else _attention(bundled)),
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


def _scores(model: ModelFile, of_class: str) -> list[str]:
    if not model.scores:
        return ["Not measured."]
    data = model.recipe.data
    rows = [f"| {in_markdown(metric)} | {value:.4f} |" for metric, value in model.scores.items()]
    lines = ["| measured | |", "|---|---|", *rows, ""]
    lines.append(f"On the split {in_markdown(data.test)} of {in_markdown(data.name)}.")
    if model.by_class:
        cells = {name: "absent" if value is None else f"{value:.4f}" for name, value in model.by_class.items()}
        rows = [f"| {in_markdown(name)} | {value} |" for name, value in cells.items()]
        lines += ["", f"| class | {of_class} |", "|---|---|", *rows]
    return lines


def _attention(bundled: BundledModel) -> list[str]:
    """Return the shares of attention measured by `dnlnet consistency`, for the model and a uniform map."""
    measured = json.loads(bundled.measured.read_text(encoding="utf-8"))
    (_, own), (_, uniform) = measured["rows"].items()
    rows = [
        f"| {TABLE_1[key]} | {own[key]['mean']:.3f} | {uniform[key]['mean']:.3f} |"
        for key in TABLE_1
        if own[key] is not None and not key.endswith("void")
    ]
    width, edges = measured["width"], measured.get("void_edges", False)
    options = f"--width {width}{' --void-edges' if edges else ''}"
    return [
        "## Attention",
        "",
        "| share of attention | this model | uniform map |",
        "|---|---|---|",
        *rows,
        "",
        f"Mean over images; boundary: nearer than {width} px to a contour (`dnlnet consistency {options}`).",
        "",
    ]
