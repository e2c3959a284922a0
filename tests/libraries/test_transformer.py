"""Transformers get images prepared like in their libraries, and bad input is explained in one sentence."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import timm
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform, resolve_model_data_config
from torchvision import models

import dnlnet
from dnlnet.lens.trace.recorded import LayerChoice
from dnlnet.libraries.transformer import is_transformer_name, load_transformer

TINY = "vit_tiny_patch16_224"


def noise(height: int, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return weight files of timm's smallest ViT: complete, as a checkpoint, without classifier, and damaged."""
    folder = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    state = timm.create_model(TINY).state_dict()
    paths = {name: folder / name for name in ("whole.safetensors", "checkpoint.pth", "headless.safetensors")}
    save_file(state, paths["whole.safetensors"])
    torch.save({"state_dict": state, "epoch": 3}, paths["checkpoint.pth"])
    body = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
    save_file(body, paths["headless.safetensors"])
    paths["cut"] = folder / "cut.pth"
    paths["cut"].write_bytes(paths["checkpoint.pth"].read_bytes()[:5000])
    paths["less"] = folder / "less.safetensors"
    save_file({name: tensor for name, tensor in state.items() if "blocks.3.attn" not in name}, paths["less"])
    return paths


def test_names_of_other_libraries_are_not_taken_for_files() -> None:
    assert all(map(is_transformer_name, ("timm:a", "torchvision:b", "transformers:c/d", "timm:")))
    assert not any(map(is_transformer_name, ("timm", "runs/timm:a", "C:/models/dnl", Path("street"))))


def test_pixels_are_normalised_like_in_timm() -> None:
    model = load_transformer(f"timm:{TINY}", "none")
    config = resolve_model_data_config(model.network) | {"crop_pct": 1.0}
    pixels = noise(224, 224)
    wanted = create_transform(**config, is_training=False)(Image.fromarray(pixels))
    torch.testing.assert_close(model.prepare(pixels)[0], wanted)
    assert [note for note in model.notes if "sees" in note] == []


def test_pixels_are_normalised_like_in_torchvision() -> None:
    model = load_transformer("torchvision:vit_b_32", "none")
    transforms = models.ViT_B_32_Weights.DEFAULT.transforms(resize_size=224)
    pixels = noise(224, 224)
    torch.testing.assert_close(model.prepare(pixels)[0], transforms(Image.fromarray(pixels)))


@pytest.mark.parametrize("kind", ["whole.safetensors", "checkpoint.pth"])
def test_the_network_comes_from_the_library_with_the_files_weights(kind: str, weights: dict[str, Path]) -> None:
    model = load_transformer(f"timm:{TINY}", weights[kind])
    torch.manual_seed(0)
    expected = timm.create_model(TINY).eval()
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(model.network(x), expected(x))
    assert not model.network.training
    assert model.notes == []


def test_a_file_without_the_classifier_is_accepted_with_a_note(weights: dict[str, Path]) -> None:
    (note,) = load_transformer(f"timm:{TINY}", weights["headless.safetensors"]).notes
    assert "no weights for head.weight, head.bias, after the last attention" in note


@pytest.mark.parametrize(
    ("image", "size", "seen"),
    [
        ((360, 480), None, (192, 256)),  # at most as many pixels as in training
        ((60, 100), None, (80, 128)),
        ((64, 96), None, (64, 96)),
        ((1, 1000), None, (16, 1024)),
        ((64, 96), 32, (32, 48)),
        ((64, 96), (48, 80), (48, 80)),
    ],
)
def test_images_keep_their_aspect_ratio_in_multiples_of_the_patch(
    image: tuple[int, int], size: int | tuple[int, int] | None, seen: tuple[int, int]
) -> None:
    model = load_transformer(f"timm:{TINY}", "none", size)
    assert tuple(model.prepare(noise(*image)).shape) == (1, 3, *seen)
    told = f"sees images of {image[1]} x {image[0]} pixels as {seen[1]} x {seen[0]}, multiples of 16"
    assert [told in note for note in model.notes] == [False, *([True] if image != seen else [])]


def test_views_cover_the_whole_image_and_name_layer_and_head() -> None:
    model = load_transformer(f"timm:{TINY}", "none", layers=[2, "blocks.11.attn"], heads="all")
    views = model.attention_views("vit", noise(32, 48))
    assert [view.title for view in views[:2]] == [
        "vit: layer 2 (blocks.2.attn), mean of 3 heads",
        "vit: layer 2 (blocks.2.attn), head 0",
    ]
    assert len(views) == 2 * (1 + 3)
    assert {view.terms.size for view in views} == {(2, 3)}
    mean, *heads = (view.terms.maps([(1, 1)]).combined for view in views[:4])
    torch.testing.assert_close(mean, torch.stack(heads).mean(dim=0))


@pytest.mark.parametrize("name", ["timm:swin_tiny_patch4_window7_224", "torchvision:vit_b_32"])
def test_networks_with_a_fixed_size_resize_every_image_with_a_note(name: str) -> None:
    model = load_transformer(name, "none", layers=[0])
    (view,) = model.attention_views("net", noise(40, 100))
    assert view.terms.size in ((56, 56), (7, 7))
    assert model.notes[-1] == f"{name}: sees images of 100 x 40 pixels as 224 x 224, the only size that it takes"
    with pytest.raises(ValueError, match=r"224 x 224 .*64"):
        load_transformer(name, "none", 64)


def test_many_sizes_give_few_notes() -> None:
    model = load_transformer(f"timm:{TINY}", "none")
    for width in range(20, 30):
        model.prepare(noise(16, width))
    assert len(model.notes) == 5
    assert model.notes[-1].endswith("and images of 7 other sizes accordingly")


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("timm:vit_tinny_patch16_224", None, "unknown model of timm .*; did you mean 'vit_tiny_patch16_224'"),
        (
            f"timm:{TINY}.imagenet",
            None,
            r"unknown weights of timm's .*; did you mean 'vit_tiny_patch16_224\.augreg",
        ),
        ("torchvision:vit_b16", None, "unknown image classifier of torchvision 'vit_b16'; did you mean 'vit_b_16'"),
        ("torchvision:maskrcnn_resnet50_fpn", None, "unknown image classifier of torchvision"),
        ("timm:", None, "timm: names no model; expected timm:NAME"),
        (f"timm:{TINY}", "cut", r"cut\.pth: is not a weights file, or is damaged"),
        (f"timm:{TINY}", "less", r"less\.safetensors: these are not weights of .* 4 missing \(blocks\.3\.attn\.qkv"),
        (
            "timm:vit_tiny_patch16_384",
            "whole.safetensors",
            r"misshapen \(pos_embed \(1, 197, 192\) for \(1, 577, 192\)",
        ),
        ("torchvision:vit_b_32", "whole.safetensors", r"these are not weights of torchvision:vit_b_32: .* unused"),
        ("timm:vit_tiny_patch16_18x2", "none", "unknown model of timm"),
    ],
)
def test_bad_names_and_weights_are_refused(
    name: str, given: str | None, message: str, weights: dict[str, Path]
) -> None:
    with pytest.raises(ValueError, match=message):
        load_transformer(name, weights.get(given or "", None if given is None else Path(given)))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no such file"):
        load_transformer(f"timm:{TINY}", tmp_path / "gone.pth")


def test_a_network_without_attention_is_refused() -> None:
    with pytest.raises(ValueError, match=r"timm:resnet18: has no attention of the kind softmax\(query.key\)"):
        load_transformer("timm:resnet18", "none").look(noise(32, 32))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (LayerChoice([12]), "there is no attention layer 12; the model has 12, counted from 0"),
        (LayerChoice(["blocks.1"]), r"unknown attention layer 'blocks.1'; did you mean 'blocks.1.attn'"),
        (LayerChoice([0], 3), "there is no head 3; it has 3, counted from 0"),
    ],
)
def test_unknown_layers_and_heads_are_refused(choice: LayerChoice, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_transformer(f"timm:{TINY}", "none", layers=choice.layers, heads=choice.heads).attention_views(
            "vit", noise(32, 32)
        )


@pytest.mark.parametrize(("size", "message"), [(0, "above 0"), ((20, 32), "multiples of"), (-3, "above 0")])
def test_impossible_sizes_are_refused(size: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_transformer(f"timm:{TINY}", "none", size)


def fail(error: Exception) -> Callable[..., Any]:
    def raises(*_: object, **__: object) -> Any:
        raise error

    return raises


def test_without_a_connection_the_error_asks_for_local_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "create_model", fail(LocalEntryNotFoundError("no connection\nat all")))
    with pytest.raises(
        OSError, match=r"cannot be downloaded.*\(the hub cannot be reached, .*\); give a local copy: --weights FILE$"
    ):
        load_transformer(f"timm:{TINY}")
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fail(URLError("unreachable")))
    with pytest.raises(OSError, match=r"torchvision:vit_b_32: cannot be downloaded.* --weights FILE"):
        load_transformer("torchvision:vit_b_32")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "dnlnet\[transformers\]"'):
        load_transformer("transformers:google/vit-base-patch16-224")


def test_a_loaded_transformer_profiles_and_draws_images(tmp_path: Path) -> None:
    model = load_transformer(f"timm:{TINY}", "none", layers=[0, 5])
    profile = model.profile(noise(32, 48))
    assert len(profile.layers()) == 12
    Image.fromarray(noise(32, 48)).save(tmp_path / "a.png")
    drawn = model.attend([tmp_path / "a.png", noise(48, 32)], queries=[(3, 4)])
    assert len(drawn.figures) == 2
    assert dnlnet.attend(model, noise(32, 48)).shown == 1


# ---- transformers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of tiny models as `save_pretrained` writes them."""
    transformers = pytest.importorskip("transformers", reason="transformers not installed")
    transformers.utils.logging.disable_progress_bar()
    where: Path = tmp_path_factory.mktemp("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    image = small | {"image_size": 32, "patch_size": 8}
    torch.manual_seed(0)
    vit = transformers.ViTForImageClassification(transformers.ViTConfig(**image))
    vit.save_pretrained(where / "vit")
    transformers.ViTImageProcessorPil(image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]).save_pretrained(
        where / "vit"
    )
    transformers.Dinov2Model(transformers.Dinov2Config(**image)).save_pretrained(where / "dinov2")
    bert = transformers.BertModel(transformers.BertConfig(**small, vocab_size=50))
    bert.save_pretrained(where / "bert")
    text = small | {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}
    clip = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=8))
    clip.save_pretrained(where / "clip")
    (where / "damaged").mkdir()
    (where / "damaged" / "config.json").write_text("{")
    for name, wrong in (("untyped", {"hidden_size": "big"}), ("zero", {"patch_size": 0})):
        (where / name).mkdir()
        (where / name / "config.json").write_text(json.dumps({"model_type": "vit"} | wrong))
    black = {"image_processor_type": "ViTImageProcessor", "image_std": [0, 0, 0]}
    for name, content in (("unsaid", "{"), ("colourless", json.dumps(black))):
        shutil.copytree(where / "dinov2", where / name)
        (where / name / "preprocessor_config.json").write_text(content)
    (where / "other").mkdir()
    (where / "other" / "config.json").write_bytes((where / "dinov2" / "config.json").read_bytes())
    (where / "other" / "model.safetensors").write_bytes((where / "vit" / "model.safetensors").read_bytes())
    transformers.utils.logging.enable_progress_bar()
    return where


def test_the_weights_and_preprocessing_of_a_folder_are_used(folder: Path) -> None:
    import transformers

    model = load_transformer(f"transformers:{folder / 'vit'}", size=32)
    pixels = noise(32, 48)
    prepared = model.prepare(pixels)
    wanted = (torch.from_numpy(pixels) / 255 - torch.tensor([0.1, 0.2, 0.3])) / torch.tensor([0.4, 0.5, 0.6])
    torch.testing.assert_close(prepared[0], wanted.permute(2, 0, 1), check_stride=False)
    expected = transformers.ViTForImageClassification.from_pretrained(folder / "vit", attn_implementation="eager")
    attentions = expected(prepared, output_attentions=True, interpolate_pos_encoding=True).attentions
    seen = list(model.look(pixels).values())
    for layer, weights in zip(seen, attentions, strict=True):
        torch.testing.assert_close(layer.weights(), weights.detach(), check_stride=False)


@pytest.mark.parametrize("name", ["dinov2", "clip"])
def test_other_families_accept_images_of_any_aspect_ratio(name: str, folder: Path) -> None:
    model = load_transformer(f"transformers:{folder / name}")
    views = model.attention_views(name, noise(24, 40))
    assert [view.terms.size for view in views] == [(3, 5), (3, 5)]  # at most as many pixels as the training size
    assert "does not declare how pixels are normalised" in model.notes[0]


def test_the_weights_of_a_file_load_into_the_network_of_a_folder(folder: Path) -> None:
    given = load_transformer(
        f"transformers:{folder / 'vit'}", folder / "vit" / "model.safetensors"
    ).network.state_dict()
    own = load_transformer(f"transformers:{folder / 'vit'}").network.state_dict()
    assert all(torch.equal(tensor, own[name]) for name, tensor in given.items() if not name.startswith("pooler"))
    with pytest.raises(ValueError, match=r"model\.safetensors: these are not weights of .* missing"):
        load_transformer(f"transformers:{folder / 'dinov2'}", folder / "vit" / "model.safetensors")
    (_, note) = load_transformer(f"transformers:{folder / 'dinov2'}", "none").notes
    assert note.endswith("its weights are random (--weights none)")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bert", "takes input_ids, not images"),
        ("damaged", "cannot be loaded from this folder"),
        ("other", "these are not weights of transformers.* missing"),
        ("", "cannot be loaded from this folder"),
        ("untyped", "cannot be loaded from this folder: .*hidden_size.* expected int, got str"),
        ("zero", "cannot be loaded from this folder: .*zero"),
        ("unsaid", "cannot be loaded from this folder"),
        ("colourless", "cannot be divided by a std of 0"),
    ],
)
def test_bad_folders_are_refused(name: str, message: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_transformer(f"transformers:{folder / name}")


def test_a_missing_folder_is_refused(folder: Path) -> None:
    with pytest.raises(OSError, match="give a local copy: transformers:FOLDER"):
        load_transformer(f"transformers:{folder / 'gone'}")


# ---- real weights


def test_a_real_vision_transformer_has_27_by_36_patches_for_a_street(real_data: Path) -> None:
    weights = real_data / "weights" / "vit_small_patch14_imgfocus_fp16.safetensors"
    model = load_transformer("timm:vit_small_patch14_dinov2", weights)
    assert model.notes == []
    assert {view.terms.size for view in model.attention_views("vit", noise(360, 480))} == {(27, 36)}
