from pathlib import Path

import pytest

from dnlnet.artifacts.load import TrainedModel
from dnlnet.libraries.transformer import Transformer
from dnlnet.runs.explore import open_explorer
from dnlnet.runs.look import load_to_look
from observer import Recorder
from trees import write_image

TINY = "timm:vit_tiny_patch16_224"


def test_models_keep_their_order_and_weights_come_from_the_first(run: Path) -> None:
    models = load_to_look([TINY, run], weights="none")
    assert [type(model) for model in models.values()] == [Transformer, TrainedModel]
    assert list(models) == [TINY, "scenes-tiny-dnl"]


def test_transformer_options_are_refused_for_dnlnet_models(run: Path) -> None:
    for option in ("weights", "size", "layers", "heads"):
        with pytest.raises(ValueError, match=f"--{option}: is for transformers of other libraries"):
            load_to_look([run], **{option: 3})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"--weights: .*{run}"):
        load_to_look([run, TINY], weights="none")
    with pytest.raises(ValueError, match="named twice"):
        load_to_look([TINY, TINY])


def test_the_application_shows_few_layers_or_the_selected_ones(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", size=(40, 56))
    observer = Recorder()
    explorer = open_explorer(TINY, weights="none", progress=observer)
    image = explorer.open(tmp_path / "a.png")
    lines, shown = explorer.at(image, (20, 20))
    assert len(lines) == 1 + 4
    assert shown[0][1].startswith("Pairwise, layer 2 (blocks.2.attn), mean of 3 heads")
    assert observer.said[0] == f"{TINY}: its weights are random (--weights none)"
    assert observer.said[1].startswith(
        f"layers 2, 5, 8, 11 of the 12 of {TINY} are shown; select others with --layers"
    )
    chosen = open_explorer(TINY, weights="none", layers=[0, 1, 2, 3, 4], heads=1, progress=observer)
    assert len(chosen.open(tmp_path / "a.png").views) == 5


def test_the_application_needs_attention_to_show() -> None:
    with pytest.raises(ValueError, match="has no attention"):
        open_explorer("timm:resnet18", weights="none")
    with pytest.raises(ValueError, match="there is no attention layer 40"):
        open_explorer(TINY, weights="none", layers=[40])
