import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from dnlnet.cli.main import app
from dnlnet.lens.measure.ground_truth import GroundTruth
from dnlnet.lens.measure.profile import OVERLAPS, STATISTICS
from dnlnet.lens.measure.profile import profile as profile_captured
from dnlnet.libraries.transformer import load_transformer
from dnlnet.runs.profile import profile
from trees import camvid_tree, folder_tree, oxford_pets_tree, pascal_context_tree, save, truncate, write_image

VIT = ("timm:vit_tiny_patch16_224", "--weights", "none")


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.jpg", seed=1, size=(40, 56))
    return tmp_path / "a.jpg"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["profile", *map(str, arguments)])


def test_tables_numbers_and_heat_maps_of_a_transformer(photo: Path, tmp_path: Path) -> None:
    write_image(tmp_path / "b.png", seed=2, size=(32, 48))
    out, figure = tmp_path / "out" / "profile.json", tmp_path / "profile.png"
    result = command(*VIT, photo, tmp_path / "b.png", "--json", out, "--picture", figure)
    assert result.exit_code == 0, result.output
    assert "2 images" in result.output
    assert all(f"blocks.{layer}.attn" in result.output for layer in range(12))
    assert "ground truth" not in result.output
    content = json.loads(out.read_text())
    assert content["images"] == [str(photo), str(tmp_path / "b.png")]
    assert (content["data"], len(content["layers"]), len(content["heads"])) == (None, 12, 36)
    assert list(content["statistics"]) == list(STATISTICS)
    assert content["layers"][3]["prefix"]["images"] == 2
    with Image.open(figure) as image:
        assert min(image.size) > 400


def test_layers_and_heads_are_selected(photo: Path) -> None:
    result = command(*VIT, photo, "--layers", "5,blocks.7.attn", "--heads", "all")
    assert result.exit_code == 0, result.output
    assert [line.split()[1:3] for line in result.output.splitlines() if "blocks." in line] == [
        [f"blocks.{layer}.attn", str(head)] for layer in (5, 7) for head in range(3)
    ]
    one = command(*VIT, photo, "--layers", "5", "--heads", "2")
    assert [line.split()[1:3] for line in one.output.splitlines() if "blocks." in line] == [["blocks.5.attn", "2"]]


def test_labelled_images_of_a_data_set_give_overlaps(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    torch.manual_seed(0)
    found = profile(VIT[0], data=root, weights="none", layers=[0], width=3)
    assert (found.data, found.problems) == ("camvid val", [])
    assert found.images == [str(path) for path in sorted((root / "val").iterdir())]
    path = Path(found.images[0])
    with Image.open(path) as image, Image.open(root / "valannot" / f"{path.stem}.png") as raw:
        pixels, labels = np.asarray(image.convert("RGB")), torch.from_numpy(np.array(raw)).long()
    labels[labels == 11] = 255
    torch.manual_seed(0)  # the same random weights
    own = profile_captured(load_transformer(VIT[0], "none").look(pixels), [GroundTruth.of(labels, 11, 3)])
    assert found.profile.statistics == [*STATISTICS, *OVERLAPS]
    assert {name: values[0] for name, values in found.profile[1].values.items()} == {
        name: values[0] for name, values in own[1].values.items()
    }


def test_both_tables_are_printed_with_labels(tmp_path: Path) -> None:
    root = oxford_pets_tree(tmp_path / "pets")
    trimap = np.repeat([1, 3, 2], [12, 6, 14]).astype(np.uint8)  # the border separates the pet from the background
    save(root / "annotations" / "trimaps" / "pug_3.png", np.tile(trimap, (24, 1)))
    found = []
    for option in ((), ("--void-edges",)):
        out = tmp_path / "profile.json"
        result = command(*VIT, "--data", root, "--layers", "0", "--images", 1, "--json", out, *option)
        assert result.exit_code == 0, result.output
        assert "1 image of oxford_pets test" in result.output
        assert "uniform" in result.output
        found.append(json.loads(out.read_text())["layers"][0]["uniform_boundary"]["mean"])
    assert found == pytest.approx([0, 16 / 32], abs=0.02)  # five pixels on each side of two contours, 6 pixels apart


def test_given_images_get_the_labels_of_their_data_set(tmp_path: Path, photo: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    known = sorted((root / "train").iterdir())[0]
    found = profile(VIT[0], [known, photo], data=root, weights="none", layers=[0])
    assert found.images == [str(known)]
    (problem,) = found.problems
    assert str(photo) in problem
    assert "camvid" in problem
    assert found.profile[0].values["pair_within"][0] is not None


def test_a_dnlnet_model_is_profiled_on_images_and_on_its_data(photo: Path, tmp_path: Path) -> None:
    result = command("street", photo)
    assert result.exit_code == 0, result.output
    assert "dependence" in result.output
    root = camvid_tree(tmp_path / "camvid")
    result = command("street", "--data", root, "--split", "val")
    assert result.exit_code == 0, result.output
    assert "of camvid val" in result.output


def test_an_unreadable_image_is_reported_and_the_others_are_profiled(photo: Path, tmp_path: Path) -> None:
    write_image(tmp_path / "broken.png")
    truncate(tmp_path / "broken.png")
    result = command(*VIT, photo, tmp_path / "broken.png", "--layers", "0")
    assert result.exit_code == 1
    assert "1 image;" in result.output
    assert "not done" in result.output
    alone = command(*VIT, tmp_path / "broken.png", "--layers", "0", "--json", tmp_path / "none.json")
    assert alone.exit_code == 2
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ([*VIT], "--data DIR"),
        ([*VIT, "PHOTO", "--split", "val"], "--split val"),
        ([*VIT, "PHOTO", "--data-set", "camvid"], "--data-set camvid"),
        ([*VIT, "PHOTO", "--data", "PETS", "--split", "test"], "--split test"),
        ([*VIT, "--data", "PETS", "--data-set", "oxford_pet"], "'oxford_pets'"),
        ([*VIT, "--data", "PETS", "--split", "tset"], "'test'"),
        ([*VIT, "--data", "CONTEXT"], "pascal_context and pascal_context_60"),
        ([*VIT, "--data", "EMPTY"], "--data-set"),
        ([*VIT, "--data", "NOWHERE"], "NOWHERE"),
        ([*VIT, "PHOTO", "--layers", "12"], "layer 12"),
        ([*VIT, "PHOTO", "--layers", "0", "--heads", "3"], "head 3"),
        (["timm:resnet18", "--weights", "none", "PHOTO"], "timm:resnet18"),
        (["street", "PHOTO", "--layers", "0"], "--layers"),
    ],
)
def test_bad_input_is_reported(arguments: list[str], fact: str, photo: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    places = {
        "PHOTO": photo,
        "PETS": oxford_pets_tree(tmp_path / "pets"),
        "CONTEXT": pascal_context_tree(tmp_path / "context"),
        "EMPTY": tmp_path / "empty",
        "NOWHERE": tmp_path / "nowhere",
    }
    result = command(*(places.get(argument, argument) for argument in arguments))
    assert isinstance(result.exception, ValueError | OSError), result.output
    assert str(places.get(fact, fact)) in str(result.exception)


def test_the_data_set_is_recognised_by_its_folders(tmp_path: Path) -> None:
    root = folder_tree(tmp_path / "mine")
    found = profile(VIT[0], data=root, weights="none", layers=[0], limit=1)
    assert found.data is not None
    assert len(found.images) == 1
