import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coco_trees import annotation, coco_tree, edit, write_coco
from dnlnet.cli.commands.data import data
from dnlnet.registry import data_sets
from trees import camvid_tree, cityscapes_tree, flat_tree, folder_tree, truncate, write_image, write_labels
from video_trees import kinetics_tree, video_folder_tree


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(data, [str(argument) for argument in arguments])


def test_list_shows_each_data_set_with_splits_and_folders() -> None:
    result = run("list")
    assert result.exit_code == 0
    for _, row in data_sets().values():
        assert f"  {row.name}: {row.layout}" in result.stdout.splitlines()
        assert any(
            {row.name, "-" if row.classes is None else str(len(row.classes))} <= set(line.split())
            for line in result.stdout.splitlines()
        )
    assert "train, val, trainval, coarse" in result.stdout


def test_valid_splits_exit_with_code_0(tmp_path: Path) -> None:
    result = run("check", "camvid", camvid_tree(tmp_path))
    assert result.exit_code == 0, result.output
    for text in (
        "camvid train: 2 images",
        "camvid val: 1 image",
        "camvid test: 1 image",
        "32 x 24 (2)",
        "0 problems",
    ):
        assert text in result.stdout
    assert "Bicyclist" in result.stdout


def test_shares_are_drawn_as_bars_and_absent_classes_are_highlighted(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    write_labels(root / "masks" / "val" / "c.png", (0, 0, 1, 255))
    lines = run("check", "folder", root, "--split", "val").stdout.splitlines()
    sky, road, car = (next(line for line in lines if f" {name} " in line) for name in ("sky", "road", "car"))
    assert "66.67%" in sky
    assert "33.33%" in road
    assert sky.count("█") == 2 * road.count("█") == 24
    assert "none" in car
    assert any("ignored: 25.00%" in line for line in lines)


def test_problems_are_one_line_each_and_exit_with_code_1(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    truncate(root / "images" / "train" / "a.jpg")
    write_image(root / "images" / "val" / "alone.png")
    result = run("check", "folder", root)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert f"  {root}/images/val/alone.png: has no label file" in lines
    assert any(line.startswith(f"  {root}/images/train/a.jpg: cannot be read: ") for line in lines)
    assert lines.count("1 problem:") == 2


def test_only_the_selected_splits_are_read(tmp_path: Path) -> None:
    root = cityscapes_tree(tmp_path)
    truncate(next((root / "leftImg8bit" / "train" / "bochum").iterdir()))
    result = run("check", "cityscapes", root, "--split", "val", "--split", "coarse")
    assert result.exit_code == 0
    assert "cityscapes val: 1 image" in result.stdout
    assert "cityscapes coarse: 1 image" in result.stdout
    assert "train:" not in result.stdout
    assert run("check", "cityscapes", root, "--split", "trainval").exit_code == 1


def test_a_missing_split_is_mentioned(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    (root / "test").rename(root / "other")
    result = run("check", "camvid", root, "--json", tmp_path / "report.json")
    assert result.exit_code == 0
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["not_there"] == {"test": f"{root}/test: no such folder"}
    assert f"camvid test is missing: {root}/test: no such folder" in result.stdout.splitlines()


@pytest.mark.parametrize("gone", ["images/val", "masks/val"])
def test_an_incomplete_user_defined_split_is_a_problem(gone: str, tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    shutil.rmtree(root / gone)
    result = run("check", "folder", root)
    assert result.exit_code == 1
    assert f"folder val is missing: {root / gone}: no such folder" in result.stdout


def test_annotations_without_their_images_are_a_problem(tmp_path: Path) -> None:
    objects = [annotation(1, 7, 3, (10, 5, 20, 15)), annotation(2, 7, 9, (40, 20, 10, 16))]
    for split in ("train", "val"):
        write_coco(tmp_path / "annotations" / f"{split}.json", tmp_path / split, {7: (40, 60)}, objects)
    shutil.rmtree(tmp_path / "val")
    result = run("check", "coco_folder", tmp_path)
    assert result.exit_code == 1
    assert f"coco_folder val is missing: {tmp_path / 'images'}: no such folder" in result.stdout


def test_many_sizes_are_shortened(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    for side in range(2, 10):
        write_image(root / "images" / "val" / f"{side}.png", size=(side, side))
        write_labels(root / "masks" / "val" / f"{side}.png", (0,), size=(side, side))
    result = run("check", "folder", root, "--split", "val")
    assert "7 x 7 (1) and 3 more" in result.stdout


def test_the_report_is_written_as_json_even_with_problems(tmp_path: Path) -> None:
    root = folder_tree(tmp_path / "data")
    write_labels(root / "masks" / "val" / "c.png", (0, 7))
    path = tmp_path / "report.json"
    result = run("check", "folder", root, "--json", path)
    assert result.exit_code == 1
    content = json.loads(path.read_text())
    assert (content["data_set"], content["folder"]) == ("folder", str(root))
    assert content["splits"]["train"]["problems"] == []
    assert content["splits"]["train"]["images"] == 2
    problem = {
        "path": f"{root}/masks/val/c.png",
        "text": "label 7 at row 0, column 1; expected 0..2 or 255 (ignored)",
    }
    assert content["splits"]["val"]["problems"] == [problem]
    assert f"written: {path}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["camvidd", "."], ["'camvidd'", "'camvid'"]),
        (["camvid", "nowhere"], ["nowhere", "camvid"]),
        (["nowhere"], ["nowhere: no such folder"]),
        (["camvid"], ["folder of camvid"]),
        (["camvid", ".", "."], ["one folder"]),
        (["."], ["looks like no known data set"]),
        (["camvid", ".", "--split", "tset"], ["'tset'", "test"]),
        (["camvid", ".", "--images", "."], ["--images", "camvid"]),
        (["coco", "."], ["instances_train2017.json"]),
        (["coco", ".", "--split", "train"], ["'train'", "'train2017'"]),
        (["coco", "mine.json", "--split", "train2017"], ["mine.json", "--split"]),
        (["ucf101", "."], ["classInd.txt"]),
        (["kinetics", "."], ["train.csv"]),
        (["video_folder", "."], ["<split>/<class>"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_usage_is_reported(
    arguments: list[str], facts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.json").touch()
    error = run("check", *arguments).exception
    assert isinstance(error, ValueError | OSError)
    assert all(fact in str(error) for fact in facts), error


def test_progress_goes_to_stderr(tmp_path: Path) -> None:
    result = run("check", "camvid", camvid_tree(tmp_path), "--split", "val")
    assert "1/1" in result.stderr
    assert "1/1" not in result.stdout


def test_objects_are_counted_and_their_faults_shown(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "coco")
    result = run("check", "coco", root)
    assert result.exit_code == 0, result.output
    assert "coco train2017: 3 images" in result.stdout
    assert "4 objects" in result.stdout
    assert "not used for training: crowds 1, images without objects 1" in result.stdout.splitlines()
    assert "sizes (width x height): 60 x 40 (2), 40 x 60 (1)" in result.stdout
    edit(root / "annotations" / "instances_val2017.json", "annotations", 0, segmentation=[[1, 1, 2]])
    path = tmp_path / "report.json"
    result = run("check", "coco", root, "--json", path)
    assert result.exit_code == 1
    image = root / "val2017" / "000000000011.png"
    assert f"  {image}: annotation 1 has a polygon of 3 coordinates; expected an x and a y for each point" in (
        result.stdout.splitlines()
    )
    content = json.loads(path.read_text())
    assert content["splits"]["train2017"]["problems"] == []
    assert content["splits"]["val2017"]["problems"][0]["path"] == str(image)
    assert run("check", "coco", root, "--split", "train2017").exit_code == 0


def test_a_users_annotation_file_is_checked(tmp_path: Path) -> None:
    objects = [annotation(1, 7, 3, (10, 5, 20, 15))]
    path = write_coco(tmp_path / "mine.json", tmp_path / "photos", {7: (40, 60)}, objects)
    result = run("check", "coco", path, "--images", tmp_path / "photos")
    assert result.exit_code == 0, result.output
    assert "mine: 1 image" in result.stdout
    assert "1 object" in result.stdout
    assert "no such file" in run("check", "coco", path).stdout  # searched next to the JSON file
    write_coco(path, tmp_path / "photos", {7: (40, 60)}, [])
    result = run("check", "coco", path, "--images", tmp_path / "photos")
    assert result.exit_code == 1
    assert f"{path}: has no annotations; expected at least one" in result.stdout


def test_a_subfolder_that_looks_like_the_data_set_is_suggested(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "coco")
    with pytest.raises(FileNotFoundError, match=str(root)):
        CliRunner().invoke(data, ["check", "coco", str(tmp_path)], catch_exceptions=False)


def test_videos_are_counted_and_their_faults_shown(tmp_path: Path) -> None:
    root = video_folder_tree(tmp_path / "mine")
    result = run("check", "video_folder", root)
    assert result.exit_code == 0, result.output
    for text in (
        "video_folder train: 4 videos",
        "video_folder val: 1 video",
        "4 can be read",
        "seconds: 0.2 to 0.2, median 0.2",
        "frames per second: 30.0 to 30.0, median 30.0",
        "sizes (width x height): 64 x 48 (4)",
        "0 problems",
    ):
        assert text in result.stdout
    broken = root / "val" / "run" / "d.avi"
    broken.write_bytes(b"")
    path = tmp_path / "report.json"
    result = run("check", "video_folder", root, "--split", "val", "--json", path)
    assert result.exit_code == 1
    assert f"  {broken}: is empty: 0 bytes; fetch it again" in result.stdout.splitlines()
    assert json.loads(path.read_text())["splits"]["val"]["readable"] == 0


def test_listed_but_missing_videos_are_problems(tmp_path: Path) -> None:
    root = kinetics_tree(tmp_path)
    (root / "f.mp4").unlink()
    result = run("check", "kinetics", root)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert f"  {root}/f.mp4: no such file or folder" in lines
    assert f"kinetics test is missing: {root}/test.csv: no such file" in lines


def test_an_unparsable_list_is_reported(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label,youtube_id,time_start,time_end,split\n")
    result = run("check", "kinetics", tmp_path)
    assert result.exit_code == 1
    assert "kinetics train: 0 videos, no class" in result.stdout
    assert "line 1 is 'label,youtube_id,time_start,time_end,split'; expected a path and a label" in result.stdout


def test_the_layout_of_the_folder_names_the_data_set(tmp_path: Path) -> None:
    result = run("check", camvid_tree(tmp_path), "--json", tmp_path.parent / f"{tmp_path.name}.json")
    assert result.exit_code == 0, result.output
    assert "camvid train: 2 images" in result.stdout
    assert json.loads((tmp_path.parent / f"{tmp_path.name}.json").read_text())["data_set"] == "camvid"


def test_a_json_file_alone_is_taken_as_coco(tmp_path: Path) -> None:
    path = write_coco(tmp_path / "mine.json", tmp_path, {7: (40, 60)}, [annotation(1, 7, 3, (10, 5, 20, 15))])
    assert "mine: 1 image" in run("check", path).stdout


def test_both_parts_of_a_folder_without_splits_are_checked(tmp_path: Path) -> None:
    root = flat_tree(tmp_path)
    truncate(root / "images" / "1.jpg")
    write_image(root / "images" / "alone.png")
    result = run("check", root)
    assert result.exit_code == 1
    counts = re.findall(r"folder (?:train|val): (\d+) image", result.stdout)
    assert [len(counts), sum(map(int, counts))] == [2, 20]
    assert result.stdout.count("alone.png: has no label file") == 1
    assert "--holdout 0.2" in result.stderr


def test_a_class_without_an_example_to_learn_from_is_a_problem(tmp_path: Path) -> None:
    root = folder_tree(tmp_path)
    write_labels(root / "masks" / "val" / "c.png", (0, 1))  # a rare class may be missing from other splits
    assert run("check", root).exit_code == 0
    for name in ("a", "deep/b"):
        write_labels(root / "masks" / "train" / f"{name}.png", (1, 2))
    result = run("check", root)
    assert result.exit_code == 1
    assert f"  {root}: train has no example of 'sky' to learn from" in result.stdout.splitlines()
