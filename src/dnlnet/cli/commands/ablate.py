"""`dnlnet ablate`: loss of quality without a term of attention."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.options import (
    MOST,
    AnyModel,
    FirstImages,
    ImageSize,
    Json,
    Weights,
    choose,
    given,
    parse_layers,
    within,
)
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.progress import BARS

if TYPE_CHECKING:
    from dnlnet.lens.measure.ablate import Term
    from dnlnet.runs.ablate import Ablation


@writes("json")
def ablate(
    model: AnyModel,
    pictures: Annotated[
        list[Path] | None, typer.Argument(metavar="IMAGE", help="Images, for a transformer without --data.")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of a labelled data set.")] = None,
    data_set: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of the data set, for a transformer: camvid, oxford_pets, folder, ..."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="SPLIT", help="Split to score. Default: the recipe's test split; for a transformer, val."
        ),
    ] = None,
    training_split: Annotated[
        str, typer.Option(metavar="SPLIT", help="Split that a transformer's linear classifier is trained on.")
    ] = "train",
    weights: Weights = None,
    size: ImageSize = None,
    layers: Annotated[
        str | None, typer.Option(metavar="5,8", help="Layers to ablate, by number (from 0) or name. Default: each.")
    ] = None,
    terms: Annotated[
        str, typer.Option(metavar="TERMS", help="Terms to remove, comma-separated.")
    ] = "unary,pairwise,both",
    images: FirstImages = None,
    training_images: Annotated[int | None, within(1, MOST, "Train the classifier on the first N images.")] = None,
    json: Json = None,
) -> None:
    """Measure what a trained model loses without one term of its attention, in all layers together and in each.

    Nothing is retrained. Without the unary term, attention is softmax((q - mean q).k); without the pairwise term,
    softmax((mean q).k) for all queries; without both, the plain mean.

    Our models show their score. A transformer shows how far the final features of its patches move: the relative
    change of their length, and the cosine. With --data it also shows the mean IoU of a linear classifier of patches,
    trained on the features of the unchanged model. The classifier learns the most frequent label of each patch; its
    logits are resized to the labels, and every pixel counts.

    Example: dnlnet ablate timm:vit_small_patch14_dinov2 --weights vit.safetensors --data ~/camvid --data-set camvid
    """
    from dnlnet.lens.measure.ablate import TERMS
    from dnlnet.libraries.transformer import is_transformer_name
    from dnlnet.runs.ablate import ablate_model, ablate_transformer

    chosen: list[Term] = [term for term in TERMS if term in choose("term", terms, dict.fromkeys(TERMS))]
    numbered = parse_layers(layers)
    if is_transformer_name(model):
        result = ablate_transformer(
            model,
            pictures or (),
            data=data,
            data_set=data_set,
            split=split,
            training_split=training_split,
            weights=weights,
            size=size,
            terms=chosen,
            layers=numbered,
            limit=images,
            training_limit=training_images,
            progress=BARS,
        )
    else:
        for option in given(
            pictures=pictures or None, data_set=data_set, weights=weights, size=size, training_images=training_images
        ):
            raise ValueError(
                f"{option.replace('_', '-')}: is for transformers of other libraries, such as timm:NAME; {model} is "
                "scored on its own data set: give --data DIR"
            )
        result = ablate_model(model, data, split=split, terms=chosen, layers=numbered, limit=images, progress=BARS)
    print_ablation(result, chosen, model)
    rows = [{"layer": e.layer or "all", "term": e.term, **e.values} for e in result.effects]
    write_result(json, {"model": model, "images": result.images, "whole": result.whole, "rows": rows})


def print_ablation(result: "Ablation", terms: "list[Term]", model: str) -> None:
    """Print one table per measure, with layers as rows and terms as columns."""
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.engine.scores import number

    for measure, whole in result.whole.items():
        print_table(
            f"{model}: {measure}",
            [
                {"taken out of": layer or "all layers"}
                | {f"without {term}": number(result.value(layer, term, measure)) for term in terms}
                for layer in result.layers
            ],
            f"{number(whole)} with all terms; {result.images} images",
        )
