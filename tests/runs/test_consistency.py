from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from dnlnet.cli.main import app
from dnlnet.lens.measure.consistency import RANDOM
from dnlnet.libraries.transformer import load_transformer
from dnlnet.progress import SILENT
from dnlnet.runs.consistency import consistency
from dnlnet.runs.profile import profile
from trees import camvid_tree

VIT = "timm:vit_tiny_patch16_224"


def test_a_transformer_has_one_row_per_layer_averaged_over_heads(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    torch.manual_seed(0)
    found = consistency([VIT], root, weights="none", width=3)
    torch.manual_seed(0)  # the same random weights
    profiled = profile(VIT, data=root, weights="none", width=3)
    assert found.images == profiled.images
    assert list(found.rows) == [*(f"{VIT}: blocks.{layer}.attn" for layer in range(12)), RANDOM]
    for row, layer in zip(found.table().values(), profiled.profile.layers(), strict=False):
        for name in ("pair_within", "pair_boundary", "unary_boundary"):
            assert row[name].mean == pytest.approx(layer.average(name).mean)
            assert row[name].error == pytest.approx(layer.average(name).error, abs=1e-7)


def test_the_result_can_be_plotted_and_written_as_json(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    vit = load_transformer(VIT, "none")
    found = consistency(vit, root, width=3, limit=1, progress=SILENT)
    assert found.to_json()["rows"][RANDOM]["pair_within"]["error"] is None  # a single image has no standard error
    assert found.to_json()["width"] == 3
    assert list(found.to_json()["images"][0]) == ["image", *found.rows]
    assert len(found.plot().axes[0].patches) == 3 * 12
    assert repr(found).startswith("Consistency(1 images: ")


def test_the_command_prints_no_standard_error_of_a_single_image(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    result = CliRunner().invoke(app, ["consistency", "street", "--data", str(root), "--images", "1"])
    assert result.exit_code == 0, result.output
    assert "1 image;" in result.output
    assert "±" not in result.output


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        ([VIT], {}, "--data DIR"),
        ([VIT, "street"], {"data": "x"}, "our models, or transformers"),
        ([VIT, f"{VIT}.augreg_in21k"], {"data": "x", "weights": "none"}, "--weights: .*single"),
        (["street"], {"data": "x", "weights": "none"}, "--weights"),
    ],
)
def test_incomparable_models_are_refused(models: list[str], options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        consistency(models, **options)
