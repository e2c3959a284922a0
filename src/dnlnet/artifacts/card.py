"""Model cards: what a model is, what it scored and how to use it, as the Hugging Face hub shows it."""

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from dnlnet.artifacts.model_file import ModelFile
from dnlnet.data.names import fenced, in_markdown
from dnlnet.systems import system_of

PAPER = "https://arxiv.org/abs/2006.06668"


def model_card(model: ModelFile, name: str = "you/model") -> ModelCard:
    """The card of a model, from its recipe and its measured scores.

    Args:
        model: what the model file says.
        name: to load it by.
    """
    recipe = model.recipe
    pipeline = system_of(recipe).pipeline
    data = ModelCardData(
        library_name="dnlnet",
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
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{_text(model, name)}")


def _text(model: ModelFile, name: str) -> str:
    recipe = model.recipe
    block = f"a `{recipe.model.variant}` block" if recipe.model.variant else "no attention block (the baseline)"
    system = system_of(recipe)
    layers = in_markdown(system.describe_layers(recipe.model))
    scores = [f"| {in_markdown(metric)} | {value:.4f} |" for metric, value in (model.scores or {}).items()]
    measured = (
        [
            "| measured | |",
            "|---|---|",
            *scores,
            "",
            f"On the split {in_markdown(recipe.data.test)} of {in_markdown(recipe.data.name)}.",
        ]
        if scores
        else ["Not measured."]
    )
    return "\n".join(
        [
            f"# {in_markdown(recipe.name)}",
            "",
            f"A {recipe.task} network on {layers} with {block}, of [Disentangled Non-Local Neural Networks]({PAPER}):"
            f" {len(model.classes)} classes of {in_markdown(recipe.data.name)}"
            + (f", trained with dnlnet for {model.iteration} iterations." if model.iteration else "."),
            "",
            "## Scores",
            "",
            *measured,
            "",
            "## Use",
            "",
            "```python",
            "import dnlnet",
            "",
            f'model = dnlnet.load("{name}")',
            system.use,
            "```",
            "",
            f"`dnlnet attend {name} {system.example} -o maps` shows what its blocks attend to.",
            "",
            "## Classes",
            "",
            ", ".join(map(in_markdown, model.classes.names)),
            "",
            "## Recipe",
            "",
            fenced(recipe.model_dump_json(indent=2, exclude={"paper", "measured"}), "json"),
            "",
        ]
    )
