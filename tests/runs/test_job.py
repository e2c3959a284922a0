"""Prediction jobs with damaged images, changed images, and their own results in the input folder."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import dnlnet
from dnlnet.backbones import Backbone
from dnlnet.cli.main import app
from dnlnet.data.classes import Classes
from dnlnet.detection.network import Detector
from dnlnet.detection.outputs import DetectionOutputs
from dnlnet.detection.predictor import DetectionModel
from dnlnet.detection.schema import DetectorModel, InstanceData
from dnlnet.runs.job import Job
from dnlnet.runs.predict import FileResult, predict, write_predictions
from dnlnet.segmentation.outputs import SegmentationOutputs
from dnlnet.video.data.videos import named_classes
from dnlnet.video.outputs import VideoOutputs
from dnlnet.video.predictor import VideoModel
from dnlnet.video.schema import VideoData, Views
from observer import Recorder
from trees import truncate, write_image
from video_trees import write_video


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


AGAIN = "{} of them again, because the image or a result has changed"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number, name in enumerate(("a.png", "b.png")):
        write_image(tmp_path / "photos" / name, seed=number, size=(20, 24))
    return tmp_path / "photos"


def test_the_results_of_a_job_are_not_its_input(run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    for said in ("2 done;", "0 done, 2 done before;"):
        done = command("predict", run, ".")
        assert done.exit_code == 0, done.output
        assert said in done.output
    assert "left out: predicted: the folder for the results" in done.output
    other = command("predict", run, ".", "-o", "elsewhere")
    assert "2 done;" in other.output
    assert "left out: predicted: the predictions in it (colours, labels, overlay)" in other.output
    for said in ("2 done;", "2 done;"):  # in the folder of the images
        assert said in command("predict", run, ".", "-o", ".", "--force").output
    assert "0 done, 2 done before" in command("predict", run, ".", "-o", ".").output


def test_a_changed_image_is_predicted_again(run: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command("predict", run, photos, "-o", out)
    kept = (out / "labels" / "a.png").stat().st_mtime_ns
    write_image(photos / "b.png", seed=9, size=(30, 30))
    done = command("predict", run, photos, "-o", out)
    assert f"1 done, {AGAIN.format(1)}, 1 done before" in done.output
    with Image.open(out / "labels" / "b.png") as labels:
        np.testing.assert_array_equal(np.asarray(labels), dnlnet.load(run).predict(photos / "b.png").labels)
    assert (out / "labels" / "a.png").stat().st_mtime_ns == kept
    shutil.copy2(photos / "b.png", photos / "a.png")  # copies the time; the size differs
    assert "1 done, 1 of them again" in command("predict", run, photos, "-o", out).output
    assert "0 done, 2 done before" in command("predict", run, photos, "-o", out).output


def test_a_change_that_keeps_size_and_time_is_noticed(run: Path, photos: Path, tmp_path: Path) -> None:
    path, out = photos / "c.bmp", tmp_path / "out"  # not compressed
    write_image(path, seed=1, size=(20, 24))
    before = path.stat()
    command("predict", run, photos, "-o", out)
    write_image(path, seed=2, size=(20, 24))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert f"1 done, {AGAIN.format(1)}, 2 done before" in command("predict", run, photos, "-o", out).output
    os.utime(path)
    assert "0 done, 3 done before" in command("predict", run, photos, "-o", out).output


def test_an_empty_or_truncated_result_is_computed_again(run: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command("predict", run, photos, "-o", out)
    expected = {path: path.read_bytes() for path in out.rglob("*.png")}
    (out / "labels" / "a.png").write_bytes(b"")
    truncate(out / "overlay" / "b.png", 0.9)
    assert f"2 done, {AGAIN.format(2)};" in command("predict", run, photos, "-o", out).output
    assert {path: path.read_bytes() for path in out.rglob("*.png")} == expected


def test_records_of_earlier_versions_are_computed_again(run: Path, photos: Path, tmp_path: Path) -> None:
    """Earlier versions recorded the size and time of each image."""
    out = tmp_path / "out"
    command("predict", run, photos, "-o", out)
    notes = out / "predict.0.jsonl"
    lines = [json.loads(line) for line in notes.read_text().splitlines() if line]
    notes.write_text("\n".join(json.dumps([*line[:3], [734, 1_700_000_000_000_000_000]]) for line in lines))
    assert f"2 done, {AGAIN.format(2)};" in command("predict", run, photos, "-o", out).output
    assert "0 done, 2 done before" in command("predict", run, photos, "-o", out).output


def test_results_of_another_job_are_not_reused(photos: Path, tmp_path: Path) -> None:
    first, second = (Job(tmp_path / "out", {"model": name}) for name in ("one", "two"))
    first.claim()
    first.note(Path("a"), [1, 2])
    first.note(Path("b"), [3, 4])
    with pytest.raises(ValueError, match="holds predictions of another model"):
        second.claim()
    second.claim(force=True)
    second.note(Path("a"), [1, 2])
    assert second.done_before() == {"a": [1, 2]}
    assert first.done_before() == {"b": [3, 4]}


def test_a_line_cut_off_by_a_stopped_process_costs_one_image(tmp_path: Path) -> None:
    job, other = (Job(tmp_path, {"model": "one"}, rank) for rank in (0, 1))
    job.note(Path("a"), [1, 2])
    job.note(Path("b"), [3, 4])
    notes = tmp_path / "predict.0.jsonl"
    notes.write_bytes(notes.read_bytes()[:-9] + b"\xff")
    job.note(Path("c"), [5, 6])
    other.note(Path("a"), [7, 8])  # the newest note counts, whichever process wrote it
    assert job.done_before() == {"a": [7, 8], "c": [5, 6]}
    (tmp_path / "predict.json").write_text("{")
    with pytest.raises(ValueError, match=r"predict\.json is damaged"):
        job.claim()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; choose a folder"):
        Job(tmp_path / "file", {}).claim()


def test_a_stopped_job_resumes(run: Path, photos: Path, tmp_path: Path) -> None:
    outputs = SegmentationOutputs(dnlnet.load(run).predictor)
    path, out = run / "best.safetensors", tmp_path / "out"
    results = write_predictions(outputs, path, [photos], out)
    assert next(results).path.name == "a.png"
    results.close()
    (out / "overlay" / "b.png").unlink(missing_ok=True)  # may have been written in the meantime
    assert [done.skipped for done in write_predictions(outputs, path, [photos], out)] == [True, False]


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (2, 3), (4, 4)])
def test_the_smallest_images_have_classes(run: Path, size: tuple[int, int]) -> None:
    prediction = dnlnet.load(run).predict(np.zeros((*size, 3), np.uint8))
    assert prediction.labels.shape == size
    assert prediction.scores is not None
    assert np.isfinite(prediction.scores).all()


def test_bad_images_are_listed_and_do_not_stop_the_others(run: Path, photos: Path, tmp_path: Path) -> None:
    write_image(photos / "thin.png", size=(30, 1))
    (photos / "bad\n\x1b[31m.png").write_text("no picture")
    os.mkfifo(photos / "pipe.png")
    done = command("predict", run, photos, "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert "3 done, 2 bad" in done.output
    last = done.output.splitlines()[-2:]
    assert last[0].endswith("pipe.png: is a pipe; expected a file")
    assert last[1].endswith(r"bad\n\x1b[31m.png: is not an image")
    assert not list((tmp_path / "out").rglob("pipe*"))
    only_bad = command("predict", run, photos / "bad\n\x1b[31m.png", "-o", tmp_path / "none")
    assert only_bad.exit_code == 2
    assert "0 done, 1 bad" in only_bad.output


def test_an_unwritable_result_does_not_stop_the_others(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dnlnet.load(run)
    write = SegmentationOutputs.write

    def refuse(code: int) -> list[FileResult]:
        def fail(self: SegmentationOutputs, prediction: object, targets: dict[str, Path]) -> None:
            write(self, prediction, targets)
            if targets["labels"].name == "a.png":
                targets["overlay"].unlink()
                raise OSError(code, os.strerror(code))

        monkeypatch.setattr(SegmentationOutputs, "write", fail)
        return predict(model, [photos], tmp_path / str(code))

    bad, good = refuse(errno.ENAMETOOLONG)
    assert bad.problem == f"{photos}/a.png: its results cannot be written: File name too long"
    assert good.problem is None
    assert not list((tmp_path / str(errno.ENAMETOOLONG)).rglob("a.png"))
    with pytest.raises(OSError, match=r"labels/a\.png: could not be written: the disk is full"):
        refuse(errno.ENOSPC)


def test_a_full_disk_stops_the_job_at_once(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        write_image(photos / f"{number}.png", size=(20, 24))
    model = dnlnet.load(run)
    look, seen = model.predictor.predict, []

    def predict_counted(*arguments: object, **options: object) -> object:
        seen.append(arguments)
        return look(*arguments, **options)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(model.predictor, "predict", predict_counted)
    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(OSError, match=r"labels/0\.png: could not be written: the disk is full; fix that"):
        predict(model, [photos], tmp_path / "out")
    assert len(seen) <= 2  # the second image is predicted while the first is written
    monkeypatch.undo()
    path = tmp_path / "full" / "predict.0.jsonl"
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"predict\.0\.jsonl: could not be written: the disk is full; fix that"):
        Job(path.parent, {}).note(Path("a"), [])


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_an_image_too_large_for_memory_does_not_stop_the_others(
    run: Path, photos: Path, tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dnlnet.load(run)
    look, calls = model.predictor.predict, iter([error, None])

    def fail(*arguments: object, **options: object) -> object:
        failure = next(calls)
        if failure is not None:
            raise failure
        return look(*arguments, **options)

    monkeypatch.setattr(model.predictor, "predict", fail)
    bad, good = predict(model, [photos], tmp_path / "out")
    assert bad.problem == f"{photos}/a.png: does not fit into memory; make it smaller"
    assert good.problem is None


def test_the_passes_over_a_large_image_are_tracked(run: Path, photos: Path, tmp_path: Path) -> None:
    write_image(photos / "b.png", size=(200, 600))
    observed = Recorder()
    results = predict(run, [photos], tmp_path / "out", max_pixels=65536, progress=observed)
    assert all(result.problem is None for result in results)
    assert observed.done("passes") == list(range(1, 11))  # tiles of at most 128 pixels
    assert {total for name, _, total, _ in observed.steps if name == "passes"} == {10}
    assert [(done, total, note) for name, done, total, note in observed.steps if name == "predicting"] == [
        (1, 2, "a.png"),
        (2, 2, "b.png"),
    ]


@pytest.fixture(scope="module")
def detector() -> DetectionModel:
    torch.manual_seed(0)
    classes = Classes(["cat/../x\n", "n" * 300], [(255, 0, 0), (0, 255, 0)], [3, 9])
    network = Detector(Backbone("resnet18", 32), 2, DetectorModel(variant=None, proposals=20))
    network.roi_heads.detections_per_img = 2
    return DetectionModel(network, classes, InstanceData(short_side=64, long_side=96))


def test_a_detector_accepts_images_of_any_name_and_size(detector: DetectionModel, tmp_path: Path) -> None:
    for name in ("²³", "9" * 30, "007"):
        write_image(tmp_path / "photos" / f"{name}.png", size=(40, 60))
    write_image(tmp_path / "photos" / "thin.png", size=(300, 1))
    write_image(tmp_path / "photos" / f"{'l' * 251}.png")  # no room for the suffix of its results
    (tmp_path / "model").write_text("")
    out = tmp_path / "out"
    results = list(write_predictions(DetectionOutputs(detector, 0.0), tmp_path / "model", [tmp_path / "photos"], out))
    (problem,) = (done.problem for done in results if done.problem)
    assert problem.endswith("lll.png: its results cannot be written: File name too long")
    assert len(results) == 5
    ids = {
        json.loads(path.read_text())[0]["image_id"]
        for path in (out / "detections").glob("*.json")
        if path.stem != "thin"
    }
    assert ids == {"²³", "9" * 30, 7}
    masks = list((out / "masks" / "007").iterdir())
    assert all(len(mask.name) < 60 for mask in masks)
    masks[0].unlink()
    again = write_predictions(DetectionOutputs(detector, 0.0), tmp_path / "model", [tmp_path / "photos"], out)
    assert [done.path.stem for done in again if done.again] == ["007"]
    assert masks[0].exists()


def test_a_truncated_video_reports_how_much_was_used(tmp_path: Path) -> None:
    class Mean(torch.nn.Module):
        def forward(self, clips: torch.Tensor) -> torch.Tensor:
            return clips.mean(dim=(2, 3, 4))

    model = VideoModel(
        Mean(), named_classes(["r", "g", "b"]), VideoData(frames=4, stride=2), Views(clips=1, crops=1, short_side=32)
    )
    video = write_video(tmp_path / "videos" / "cut.mkv", 90)
    truncate(video, 1 / 3)
    write_video(tmp_path / "videos" / "whole.avi", 10)
    (tmp_path / "model").write_text("")
    cut, whole = write_predictions(VideoOutputs(model), tmp_path / "model", [tmp_path / "videos"], tmp_path / "out")
    (note,) = cut.notes
    assert "is cut off" in note
    assert "of 3.0 seconds are there" in note
    assert json.loads((tmp_path / "out" / "cut.json").read_text())["notes"] == [note]
    assert not whole.notes


@pytest.mark.parametrize("there", [False, True])
def test_a_job_without_a_result_leaves_nothing(there: bool, run: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "bad.png").write_text("no picture")
    if there:
        (tmp_path / "out").mkdir()
    done = command("predict", run, tmp_path / "photos", "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert (tmp_path / "out").exists() == there
    assert not list(tmp_path.glob("out/*"))


def test_endlessly_nested_notes_are_damaged(tmp_path: Path) -> None:
    job = Job(tmp_path, {"model": "a"})
    job.claim()
    (tmp_path / "predict.0.jsonl").write_text("[" * 100_000)
    assert job.done_before() == {}
    (tmp_path / "predict.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"predict\.json is damaged"):
        job.claim()
