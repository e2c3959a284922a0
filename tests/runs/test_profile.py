from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from dnlnet.libraries.transformer import load_transformer
from dnlnet.progress import SILENT
from dnlnet.runs.profile import profile
from trees import save, write_image

VIT = "timm:vit_tiny_patch16_224"


def test_images_in_memory_files_and_folders_are_profiled_together(tmp_path: Path) -> None:
    write_image(tmp_path / "folder" / "a.png", size=(40, 56))
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    vit = load_transformer(VIT, "none", layers=[3])
    found = profile(vit, [tmp_path / "folder", pixels], layers=[3], progress=SILENT)
    assert found.images == [str(tmp_path / "folder" / "a.png"), "image 1"]
    assert [row["layer"] for row in found.table()] == ["blocks.3.attn"]
    assert len(found.table("all")) == 3
    expected = vit.profile(pixels).layers()[3]
    assert found.layers()[0].values["positions"][1] == pytest.approx(expected.values["positions"][0])
    assert found.to_json()["model"] == VIT
    assert repr(found).startswith(f"{VIT} over 2 images\nlayer")
    found.save(tmp_path / "profile.png")
    assert (tmp_path / "profile.png").is_file()


def test_the_network_is_built_and_the_image_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(tmp_path / "a.png", size=(40, 56))
    counts = {"built": 0, "opened": 0, "run": 0}

    def count(owner: Any, name: str, what: str) -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **named: Any) -> Any:
            counts[what] += 1
            return original(*args, **named)

        monkeypatch.setattr(owner, name, counted)

    count(VisionTransformer, "__init__", "built")
    count(VisionTransformer, "forward", "run")
    count(PIL.Image, "open", "opened")
    profile(VIT, tmp_path / "a.png", weights="none", progress=SILENT)
    assert counts == {"built": 1, "opened": 1, "run": 1}


def test_labels_of_padded_images_stay_on_their_cells(tmp_path: Path) -> None:
    """An image of 3 rows is padded for a network that needs 5. All labelled pixels have one class."""
    for kind in ("", "annot"):
        size = (3, 64)
        content = np.zeros((*size, 3) if not kind else size, np.uint8)
        save(tmp_path / f"val{kind}" / "a.png", content)
    torch.manual_seed(0)
    found = profile("street", data=tmp_path, data_set="camvid", split="val", progress=SILENT)
    (layer,) = found.layers()
    assert found.problems == []
    within = layer.values["uniform_within"][0]
    assert within is not None
    assert 0 < within < 1  # padding has no class
