import json
from pathlib import Path
from typing import Any

import pytest

from coco_trees import HIGH, WIDE, annotation, coco_tree, write_coco
from dnlnet.detection.data.check import InstanceReport, check_instances
from dnlnet.detection.data.coco import open_coco, open_coco_file
from observer import Recorder
from trees import truncate, write_image


def check_one(folder: Path, *entries: dict[str, Any]) -> InstanceReport:
    """Check image 7, a wide one, with these annotations."""
    return check_instances(open_coco_file(write_coco(folder / "mine.json", folder, {7: WIDE}, entries), folder))


def texts(report: InstanceReport) -> list[str]:
    return [f"{problem.path.name}: {problem.text}" for problem in report.problems]


def test_a_valid_data_set_is_counted(tmp_path: Path) -> None:
    recorder = Recorder()
    report = check_instances(open_coco(coco_tree(tmp_path), "train2017"), recorder)
    assert (report.name, report.images, report.problems) == ("coco train2017", 3, ())
    assert (report.class_names, report.class_instances, report.class_images) == (("cat", "dog"), (2, 2), (2, 2))
    assert report.left_out == {"crowds": 1, "images without objects": 1}
    assert report.sizes == {WIDE[::-1]: 2, HIGH[::-1]: 1}
    assert recorder.done("coco train2017") == [1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"segmentation": []}, ["no polygon", "without a pixel"]),
        ({"segmentation": [[1, 1, 5, 5]]}, ["polygon of 2 points", "without a pixel"]),
        ({"segmentation": [[10, 5, 30, 5, 30, 20, 10, 20], [1, 2, 3]]}, ["polygon of 3 coordinates"]),
        (
            {"segmentation": [[10, 5, 75, 5, 75, 20, 10, 20]], "bbox": [10, 5, 65, 15]},
            ["the point (75, 5) outside the 60 x 40 image", "[10.0, 5.0, 65.0, 15.0]"],
        ),
        ({"bbox": [10, 5, 20, 1]}, ["at most 1 pixel", "14 pixels off its outline"]),
        ({"bbox": [10, 5, 20, 25]}, ["10 pixels off its outline"]),
        ({"bbox": [10, 5, 20.5, 15]}, []),
        ({"bbox": [10, 5, 20, 25], "iscrowd": 1}, []),
    ],
)
def test_faults_of_an_object_are_found(tmp_path: Path, changes: dict[str, Any], facts: list[str]) -> None:
    found = texts(check_one(tmp_path, annotation(4, 7, 3, (10, 5, 20, 15), **changes)))
    assert len(found) == len(facts)
    for text, fact in zip(found, facts, strict=True):
        assert text.startswith("000000000007.png: annotation 4 has ")
        assert fact in text


def test_every_kind_of_fault_is_found_in_one_run(tmp_path: Path) -> None:
    path = write_coco(
        tmp_path / "mine.json",
        tmp_path,
        {1: WIDE, 2: WIDE, 3: WIDE, 4: HIGH},
        [
            annotation(1, 1, 3, (10, 5, 20, 15)),
            annotation(1, 4, 3, (10, 5, 20, 15)),
            annotation(2, 99, 3, (10, 5, 20, 15)),
            annotation(3, 1, 8, (10, 5, 20, 15)),
            annotation(4, 4, 9, (10, 5, 20, 15), segmentation=[[1, 2, 3, 4]]),
        ],
    )
    (tmp_path / "000000000001.png").unlink()
    truncate(tmp_path / "000000000002.png")
    write_image(tmp_path / "000000000003.png", size=(9, 9))
    report = check_instances(open_coco_file(path, tmp_path))
    found = texts(report)
    expected = [
        "mine.json: annotation 2 has the image_id 99",
        "mine.json: annotation 3 has the category_id 8",
        "000000000001.png: no such file",
        "000000000002.png: cannot be read",
        "000000000003.png: is 9 x 9",
        "000000000004.png: annotation 4 has a polygon of 2 points",
        "000000000004.png: annotation 4 has an outline without a pixel",
    ]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found
    assert report.sizes == {HIGH[::-1]: 1}
    assert report.images == 3


def test_repeated_ids_are_found(tmp_path: Path) -> None:
    report = check_one(tmp_path, *(annotation(4, 7, 3, (10, 5, 20, 15)) for _ in range(3)))
    assert len(texts(report)) == 2
    assert all(text.startswith("000000000007.png: annotation 4 has the same id") for text in texts(report))


def test_the_report_can_be_written_as_json(tmp_path: Path) -> None:
    content = json.loads(json.dumps(check_one(tmp_path, annotation(4, 7, 3, (0, 0, 1, 1), iscrowd=1)).to_json()))
    assert content["classes"][0] == {"name": "cat", "instances": 1, "images": 1}
    assert content["left_out"] == {"crowds": 1, "images without objects": 1}
    assert content["sizes"] == [{"width": 60, "height": 40, "images": 1}]
    assert [problem["path"] for problem in content["problems"]] == [str(tmp_path / "000000000007.png")]


def test_real_coco_has_at_most_one_wrong_box(real_data: Path) -> None:
    reports = [check_instances(open_coco(real_data / "coco_micro", split)) for split in ("train2017", "val2017")]
    assert [sum(report.class_instances) for report in reports] == [2004, 905]
    assert reports[1].problems == ()
    assert {problem.text.partition(" has ")[0] for problem in reports[0].problems} <= {"annotation 1463315"}
