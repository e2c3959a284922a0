"""A study of short runs."""

import json
import re
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
from typer.testing import CliRunner

import dnlnet
import warm
from dnlnet.cli.main import app
from dnlnet.engine.log import read_log
from dnlnet.engine.train import Outcome
from dnlnet.progress import SILENT
from dnlnet.recipes.recipe import Recipe
from dnlnet.registry import find_recipe
from dnlnet.runs import study as study_module
from dnlnet.runs.study import RESULTS, Study, StudyStoppedError, plan, read_results, run_job
from dnlnet.runs.study_report import report_study
from dnlnet.runs.study_summary import summarise
from dnlnet.signals import StopSignal
from video_trees import grouped_ucf101

SHORT = ["data.crop=[32, 32]", "schedule.iterations=2", "schedule.batch=2", "training.evaluate_every=2"]


def recipes(*names: str) -> list[Recipe]:
    return [find_recipe(name) for name in names]


@pytest.fixture(scope="module", autouse=True)
def fast_processes() -> Iterator[None]:
    """Fork the processes of a study from one that has imported the package."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(study_module, "PROCESSES", warm.PROCESSES)
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the command with two variants and two seeds."""
    out = tmp_path_factory.mktemp("study") / "out"
    settings = [part for setting in SHORT for part in ("--set", setting)]
    arguments = ["study", "scenes-tiny-nl", "scenes-tiny-dnl", "--seeds", "2", "--out", str(out), *settings]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "DNL" in result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("run ")]
    assert [line.split(":")[0] for line in lines] == [f"run {count} of 4" for count in range(1, 5)]
    assert re.fullmatch(r"run 4 of 4: scenes-tiny-(nl|dnl), seed [01]: 0\.\d{3}", lines[-1])
    return out


def test_every_run_has_a_result_and_a_row_in_the_table(study: Path) -> None:
    assert sorted(path.stem for path in (study / RESULTS).iterdir()) == [
        "scenes-tiny-dnl-0",
        "scenes-tiny-dnl-1",
        "scenes-tiny-nl-0",
        "scenes-tiny-nl-1",
    ]
    content = json.loads((study / "study.json").read_text())
    assert set(SHORT) < set(shlex.split(content["command"]))  # a setting with blanks is one word
    assert [row["method"] for row in content["rows"]] == ["NL", "DNL"]
    assert content["rows"][1]["paper: pair ∩ within-category"] == "0.759"
    assert content["rows"][0]["to NL (95 %)"] == "-"
    assert re.fullmatch(r"[+-]0\.\d{3} \[[+-]\d\.\d{3}, [+-]\d\.\d{3}\]", content["rows"][1]["to NL (95 %)"])
    for name in ("study.md", "study.html"):
        text = (study / name).read_text()
        assert "scenes-tiny-dnl" in text
        assert str(study) not in text
    assert (study / "study.png").stat().st_size > 5000


def test_a_result_equals_that_of_its_run(study: Path) -> None:
    result = json.loads((study / RESULTS / "scenes-tiny-dnl-1.json").read_text())
    log = [json.loads(line) for line in (study / "runs" / "scenes-tiny-dnl-1" / "log.jsonl").read_text().splitlines()]
    assert result["scores"]["miou"] == log[-1]["miou"]
    assert (result["seed"], result["variant"], result["iterations"]) == (1, "dnl", 2)
    assert 0 < next(iter(result["overlaps"].values()))["pair_within"] < 1
    assert result["random"]["pair_within"] == pytest.approx(0.25, abs=0.1)


def test_a_network_without_a_block_has_only_scores(tmp_path: Path) -> None:
    jobs = plan(recipes("scenes-tiny-baseline"), 1, SHORT)
    assert Study(tmp_path).run(jobs, processes=1) == []
    (result,) = read_results(tmp_path)
    assert 0 < result["scores"]["miou"] < 1
    assert (result["variant"], result["overlaps"], result["gamma"]) == (None, None, {})
    _, (row,) = summarise([result], "nl")
    assert (row.method, row.seeds) == ("Baseline", 1)


def test_finished_runs_are_not_repeated(study: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (study / RESULTS).iterdir()}
    jobs = plan(recipes("scenes-tiny-nl", "scenes-tiny-dnl"), 2, SHORT)
    progress = Mock(track=Mock(side_effect=lambda *_, **__: pytest.fail("run again")))
    assert Study(study).run(jobs, progress=progress) == []
    assert {path: path.stat().st_mtime_ns for path in (study / RESULTS).iterdir()} == before


def test_other_boundaries_are_measured_again_without_training(study: Path, tmp_path: Path) -> None:
    shutil.copytree(study, tmp_path / "copy")
    jobs = plan(recipes("scenes-tiny-dnl"), 1, SHORT)
    assert Study(tmp_path / "copy", width=7, void_edges=True).run(jobs, processes=1) == []
    before, after = (
        json.loads((folder / RESULTS / "scenes-tiny-dnl-0.json").read_text()) for folder in (study, tmp_path / "copy")
    )
    assert (after["width"], after["void_edges"]) == (7, True)
    assert (after["scores"], after["seconds"]) == (before["scores"], before["seconds"])
    assert after["random"]["pair_boundary"] > before["random"]["pair_boundary"]


def test_a_study_resumes_with_the_boundaries_of_its_results(tmp_path: Path) -> None:
    assert Study(tmp_path).boundary_width() == 5  # as in the paper
    (tmp_path / RESULTS).mkdir()
    for seed, width in enumerate((2, 2, 3)):
        assert Study(tmp_path).boundary_width() == (2 if seed else 5)
        content = {"recipe": "scenes-tiny-nl", "seed": seed, "width": width}
        (tmp_path / RESULTS / f"{seed}.json").write_text(json.dumps(content))
    assert Study(tmp_path, width=4).boundary_width() == 4
    with pytest.raises(ValueError, match=r"2 and 3 pixels.*--width"):
        Study(tmp_path).run([])


def test_a_failed_run_does_not_stop_the_others(study: Path, tmp_path: Path) -> None:
    jobs = plan(recipes("scenes-tiny-nl", "scenes-tiny-dnl"), 1, SHORT)
    (tmp_path / "runs" / "scenes-tiny-nl-0").mkdir(parents=True)
    (tmp_path / "runs" / "scenes-tiny-nl-0" / "diary.txt").write_text("mine")
    (problem,) = Study(tmp_path).run(jobs, processes=1)
    assert problem.startswith("scenes-tiny-nl-0: ")
    assert "is not the folder of a run" in problem
    assert [result["variant"] for result in read_results(tmp_path)] == ["dnl"]


def test_a_run_stopped_by_a_signal_ends_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = plan(recipes("scenes-tiny-nl"), 1, SHORT)
    arguments = (job, Study(tmp_path))
    for train, said in (
        (lambda *_, **__: Outcome(1, False, None, 15), "stopped after iteration 1; the same command resumes it"),
        (lambda *_, **__: signal.raise_signal(signal.SIGTERM), "stopped; the same command resumes it"),  # no steps
    ):
        monkeypatch.setattr(study_module, "_stopped", False)
        monkeypatch.setattr(study_module, "train", train)
        with pytest.raises(StudyStoppedError, match=said):
            run_job(*arguments)
        monkeypatch.setattr(study_module, "train", lambda *_, **__: pytest.fail("began another run"))
        with pytest.raises(StudyStoppedError, match="not started"):
            run_job(*arguments)


def test_a_signal_to_the_study_alone_is_passed_on_to_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Mock()
    monkeypatch.setattr(study_module, "ProcessPoolExecutor", MagicMock())
    monkeypatch.setattr(study_module, "as_completed", Mock(side_effect=StopSignal(143)))
    monkeypatch.setattr(study_module.multiprocessing, "active_children", lambda: [process])
    with pytest.raises(StopSignal):
        Study(tmp_path).run(plan(recipes("scenes-tiny-nl"), 1, SHORT))
    process.terminate.assert_called_once_with()


@pytest.mark.slow
def test_a_killed_study_leaves_no_process(tmp_path: Path) -> None:
    """After SIGKILL to the study alone, its two processes save their runs and exit."""
    arguments = ["study", "scenes-tiny-*", "--seeds", "9", "--processes", "2", "--out", str(tmp_path)]
    arguments += ["--set", "schedule.iterations=100000"]
    code = "from dnlnet.cli.main import main; main()"
    study = warm.begin(warm.execute, code, arguments, tmp_path / "log", {})
    begun = time.monotonic()
    while sum(bool(list(read_log(run))) for run in tmp_path.glob("runs/*")) < 2 and time.monotonic() - begun < 120:
        time.sleep(0.5)
    children = _children(study.pid)
    study.kill()
    study.join()
    assert len(children) >= 2
    while (left := [pid for pid in children if Path(f"/proc/{pid}").exists()]) and time.monotonic() - begun < 180:
        time.sleep(0.5)
    assert left == []
    assert len(list(tmp_path.glob("runs/*/checkpoints/*.safetensors"))) == 2


def _children(parent: int | None) -> list[str]:
    tasks = Path(f"/proc/{parent}/task/{parent}/children")
    if not tasks.exists():
        pytest.skip("this system does not list a process's children")
    return tasks.read_text().split()


def test_a_result_of_other_settings_is_not_reused(study: Path) -> None:
    jobs = plan(recipes("scenes-tiny-nl"), 1, [*SHORT, "optim.lr=0.001"])
    with pytest.raises(ValueError, match=r"scenes-tiny-nl-0\.json: this run has other settings"):
        Study(study).run(jobs)


def test_recipes_of_two_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="compares recipes of one task"):
        plan(recipes("scenes-tiny-nl", "ucf6-r50-nl"), 1)


TINY_CLIPS = [
    "model.backbone=slow_only_tiny",
    "model.weights=null",
    "data.short_sides=[32, 32]",
    "data.crop=32",
    "data.frames=2",
    "schedule.iterations=2",
    "schedule.warmup=0",
    "training.evaluate_every=2",
    "training.frozen=[]",
    "evaluation.clips=1",
    "evaluation.short_side=32",
]


def test_a_study_over_folds_scores_every_video_once_per_seed(tmp_path: Path) -> None:
    data, out = (
        grouped_ucf101(tmp_path / "data", {"Surfing": (1, 2, 1), "YoYo": (1, 1, 1)}, frames=6),
        tmp_path / "out",
    )
    settings = [part for setting in TINY_CLIPS for part in ("--set", setting)]
    arguments = ["study", "ucf6-r50-nl", "--seeds", "1", "--folds", "3", "--data", str(data), "--out", str(out)]
    result = CliRunner().invoke(app, [*arguments, "--processes", "1", *settings], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    parts = read_results(out)
    assert [(part["fold"], part["folds"], part["samples"]) for part in parts] == [(1, 3, 3), (2, 3, 2), (3, 3, 2)]
    content = json.loads((out / "study.json").read_text())
    correct = sum(round(part["scores"]["top1"] * part["samples"]) for part in parts)
    assert [row["top1"] for row in content["rows"]] == [f"{correct / 7:.3f}"]
    assert " --folds 3 " in content["command"]
    assert "3 folds per seed" in (out / "study.md").read_text()
    (out / RESULTS / "ucf6-r50-nl-0-2of3.json").unlink()
    with pytest.raises(ValueError, match="no seed has finished all folds"):
        report_study(out, plan(recipes("ucf6-r50-nl"), 1, TINY_CLIPS, folds=3), "dnlnet study")


@pytest.mark.parametrize("name", ["kinetics-r50-nl", "camvid-mbv2-nl"])
def test_folds_of_data_without_groups_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"--folds: (kinetics|camvid) does not say .*: ucf101"):
        plan(recipes(name), 1, folds=3)


def test_results_are_read_from_the_folder_and_from_study_json(study: Path) -> None:
    results = read_results(study)
    assert [f"{result['variant']} {result['seed']}" for result in results] == ["dnl 0", "dnl 1", "nl 0", "nl 1"]
    assert read_results(study / "study.json") == results


def test_an_empty_study_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run has finished"):
        report_study(tmp_path, plan([find_recipe("scenes-tiny-nl")], 1), "dnlnet study")


def test_the_function_reports_the_same_as_the_command(study: Path) -> None:
    report = dnlnet.study(["scenes-tiny-nl", "scenes-tiny-dnl"], study, seeds=2, settings=SHORT, progress=SILENT)
    assert report.problems == []
    assert [(row.method, row.seeds) for row in report.summaries] == [("NL", 2), ("DNL", 2)]
    assert report.files == [study / f"study.{suffix}" for suffix in ("md", "json", "png", "html")]
    content = json.loads((study / "study.json").read_text())
    assert content["rows"] == report.table
    assert set(SHORT) < set(shlex.split(content["command"]))


def test_a_result_of_an_earlier_version_is_recognised_by_its_run(study: Path, tmp_path: Path) -> None:
    """Earlier versions computed the hash of the settings differently."""
    copy = Path(shutil.copytree(study, tmp_path / "study"))
    (path, *_) = sorted((copy / "results").glob("*.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"settings": "0" * 16}))
    jobs = plan(recipes("scenes-tiny-nl", "scenes-tiny-dnl"), 2, SHORT)
    job = next(job for job in jobs if job.name == path.stem)
    assert Study(copy).run([job]) == []
    shutil.rmtree(copy / "runs" / job.name)
    with pytest.raises(ValueError, match="this run has other settings"):
        Study(copy).run([job])
