import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

import dnlnet
from dnlnet.backbones import Backbone
from dnlnet.cli.main import app
from dnlnet.engine.log import read_log
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.override import override
from dnlnet.recipes.recipe import Measured, PaperRow
from dnlnet.registry import find_recipe
from dnlnet.runs.report import write_report
from dnlnet.runs.run_folder import read_run
from dnlnet.runs.train import train
from observer import Recorder
from trees import camvid_tree, cityscapes_tree, colour_folder_tree

QUICK = ["data.crop=[32, 32]", "schedule.batch=2", "schedule.iterations=3", "training.evaluate_every=2"]
FROZEN = ["training.frozen=[features, block, classifier]"]
RECIPE = override(find_recipe("scenes-tiny-dnl"), QUICK)


@pytest.mark.parametrize("variant", ["baseline", "nl", "dnl"])
def test_training_on_scenes_scores_far_above_the_untrained_network(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnlnet.data.scenes.HELD_OUT_COUNT", 16)
    settings = ["schedule.iterations=100", "training.evaluate_every=100", "data.crop=[64, 64]"]
    recipe = override(find_recipe(f"scenes-tiny-{variant}"), settings)
    untrained = train(override(recipe, ["schedule.iterations=1", "optim.lr=1.0e-9"]), None, tmp_path / "0")
    outcome = train(recipe, None, tmp_path / "1")
    assert untrained.best is not None
    assert outcome.best is not None
    assert untrained.best < 0.2
    assert outcome.best > 0.5


def test_a_run_records_everything_needed_to_reproduce_it(tmp_path: Path) -> None:
    train(RECIPE, None, tmp_path / "run", seed=5)
    run = yaml.safe_load((tmp_path / "run" / "run.yaml").read_text())
    assert run["recipe"] == json.loads(RECIPE.model_dump_json(exclude={"paper", "measured"}))
    assert run["seed"] == 5
    assert run["versions"]["torch"] == torch.__version__
    with safe_open(tmp_path / "run" / "last.safetensors", "pt") as file:
        metadata = file.metadata()
    assert type(RECIPE).model_validate_json(metadata["recipe"]) == RECIPE
    assert json.loads(metadata["classes"])["names"][0] == "sky"
    assert json.loads(metadata["iteration"]) == 3


@pytest.mark.parametrize("fast", [True, False])
def test_a_run_says_where_bfloat16_is_slow(fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: fast)
    recorder = Recorder()
    train(override(RECIPE, ["training.precision=bfloat16"]), None, tmp_path / "run", device="cpu", progress=recorder)
    assert any("no bfloat16 instructions" in text for text in recorder.said) != fast


def test_a_trained_model_does_not_inherit_the_score_of_its_recipe(tmp_path: Path) -> None:
    measured = Measured(scores={"val": 58.2}, command="dnlnet train another", machine="a machine")
    paper = PaperRow(table="Table 2", method="DNL", scores={"val": 80.5})
    run, shared = tmp_path / "run", tmp_path / "shared"
    train(RECIPE.model_copy(update={"measured": measured, "paper": paper}), None, run)
    write_report(run)
    dnlnet.load(run).save_pretrained(shared)
    info = CliRunner().invoke(app, ["info", str(run)]).output
    texts = [path.read_bytes() for path in (*run.glob("*.*"), *shared.iterdir()) if path.suffix != ".png"]
    for content in (info.encode(), *texts):
        for foreign in (b"58.2", b"dnlnet train another", b"80.5", b"Table 2", b"a machine"):
            assert foreign not in content


def test_a_seed_determines_the_run_whatever_was_drawn_before(tmp_path: Path) -> None:
    """The seed sets initial weights, scenes and order; other users of the global generators change nothing."""
    runs = []
    for number, seed in enumerate((0, 0, 1)):
        random.seed(number)
        np.random.seed(number)
        torch.manual_seed(number)
        out = tmp_path / str(number)
        train(RECIPE, None, out, seed=seed)
        runs.append((list(read_log(out)), load_file(out / "last.safetensors")))
    (log, first), (same_log, again), (other_log, other) = runs
    assert log == same_log
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert log[0]["main"] != other_log[0]["main"]
    assert not torch.equal(first["classifier.weight"], other["classifier.weight"])


@pytest.mark.parametrize("seed", [0, 1])
def test_no_run_trains_on_the_evaluation_scenes(seed: int) -> None:
    training, held_out = RECIPE.training_samples(RunContext(seed=seed), "train"), RECIPE.test_samples(None, "val")
    assert len(held_out) == 64
    assert held_out[3].name == "scene 3 of seed 0"
    assert {training[index].name for index in range(6)} == {f"scene {index} of seed {seed + 1}" for index in range(6)}


def test_the_command_trains_and_writes_a_report(tmp_path: Path) -> None:
    arguments = ["train", "scenes-tiny-dnl", "--out", str(tmp_path / "run"), "--workers", "0"]
    arguments += [part for setting in QUICK for part in ("--set", setting)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert f"report: {tmp_path / 'run' / 'report.md'}" in done.output
    report = (tmp_path / "run" / "report.md").read_text()
    assert "# scenes-tiny-dnl" in report
    assert "| sky |" in report
    for figure in ("loss.png", "scores.png"):
        assert f"({figure})" in report
        assert (tmp_path / "run" / figure).stat().st_size > 5000
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert again.exit_code == 0


def test_a_signal_to_all_processes_saves_and_the_command_resumes(tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to the data loading processes as well."""
    out = tmp_path / "run"
    code = "import torch; torch.set_num_threads(1); from dnlnet.cli.main import main; main()"
    command = [sys.executable, "-c", code, "train", "scenes-tiny-dnl", "--out", str(out), "--workers", "1"]
    command += [part for setting in (*QUICK, "schedule.iterations=100000") for part in ("--set", setting)]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while len(list(read_log(out))) < 5:
        time.sleep(0.1)
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, output
    assert "stopped after iteration 4" in output
    assert "Traceback" not in output
    assert len(list((out / "checkpoints").glob("*.json"))) == 1


def test_the_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    train(RECIPE, None, tmp_path / "run")
    before = (tmp_path / "run" / "log.jsonl").read_text()
    with pytest.raises(
        ValueError, match=r"holds another run: its recipe.optim.lr is 0.004, not 0.1; choose another --out"
    ):
        train(override(RECIPE, ["optim.lr=0.1"]), None, tmp_path / "run")
    with pytest.raises(ValueError, match="holds another run: its seed is 0, not 1"):
        train(RECIPE, None, tmp_path / "run", seed=1)
    assert (tmp_path / "run" / "log.jsonl").read_text() == before


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not touch")
    with pytest.raises(ValueError, match="exists and is not the folder of a run"):
        train(RECIPE, None, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_start_without_data_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    recipe = override(find_recipe("camvid-mbv2-dnl"), ["model.weights=null"])
    out = tmp_path / "run"
    with pytest.raises(ValueError, match="needs the folder of its data set"):
        train(recipe, None, out)
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        train(recipe, tmp_path / "nowhere", out)
    broken = camvid_tree(tmp_path / "camvid")
    next((broken / "valannot").iterdir()).unlink()
    with pytest.raises(ValueError, match="has no label file"):
        train(recipe, broken, out)
    with pytest.raises(FileNotFoundError, match="no such file"):
        train(
            override(recipe, [f"model.weights={tmp_path / 'w.pth'}"]),
            camvid_tree(tmp_path / "whole"),
            out,
        )
    assert not out.exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_file_stops_training_with_one_sentence(workers: int, tmp_path: Path) -> None:
    root = camvid_tree(tmp_path / "camvid")
    for path in (root / "trainannot").iterdir():
        Image.fromarray(np.full((24, 32), 77, dtype=np.uint8)).save(path)
    recipe = override(find_recipe("camvid-mbv2-dnl"), ["model.weights=null", "model.width=16", *QUICK])
    with pytest.raises(ValueError, match=r"0001TP_\d+\.png: label 77 at row 0, column 0; expected") as raised:
        train(recipe, root, tmp_path / "run", workers=workers)
    assert "\n" not in str(raised.value)


def test_the_outcome_of_loading_pretrained_weights_is_reported(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pth"
    torch.save({**Backbone("mobilenetv2").body.state_dict(), "classifier.weight": torch.zeros(1)}, weights)
    settings = [f"model.weights={weights}", "model.width=16", "loss.ohem=null", *QUICK]
    observed = Recorder()
    recipe = override(find_recipe("camvid-mbv2-dnl"), settings)
    train(recipe, camvid_tree(tmp_path / "camvid"), tmp_path / "run", progress=observed)
    assert observed.said[0] == f"opening camvid in {tmp_path / 'camvid'}"
    assert observed.said[1] == "camvid train: 2 images to train on"
    assert observed.said[2] == f"{weights}: 306 tensors loaded; 1 of a classifier left out (classifier.weight)"


def test_a_run_without_an_intact_checkpoint_loads_the_pretrained_weights_again(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pth"
    torch.save(Backbone("mobilenetv2").body.state_dict(), weights)
    settings = [f"model.weights={weights}", "model.width=16", "loss.ohem=null", *QUICK, "training.save_every=2"]
    recipe = override(find_recipe("camvid-mbv2-dnl"), settings)
    data, out = camvid_tree(tmp_path / "a"), tmp_path / "b"
    train(recipe, data, out)
    expected, log = load_file(out / "last.safetensors"), list(read_log(out))
    for damage in ("no json", "all damaged", "no folder"):
        for path in (out / "checkpoints").glob("*.json"):
            if damage == "all damaged":
                path.write_text("{}")
            else:  # as left by a run killed while writing its first checkpoint
                path.unlink()
        if damage == "no folder":
            shutil.rmtree(out / "checkpoints")
        observed = Recorder()
        train(recipe, data, out, progress=observed)
        assert f"{weights}: 306 tensors loaded" in "\n".join(observed.said), damage
        assert f"{out}: no intact checkpoint to resume from; starting from the beginning" in observed.said, damage
        assert list(read_log(out)) == log, damage
        final = load_file(out / "last.safetensors")
        assert all(torch.equal(value, expected[name]) for name, value in final.items()), damage


def test_the_corrected_command_works_after_a_failed_start(tmp_path: Path) -> None:
    def crash(_: object) -> None:
        raise ValueError("in the first iteration")

    for wrong, message in ((FROZEN, "every parameter is frozen"), (["optim.lr=0.1"], "first iter")):
        with pytest.raises(ValueError, match=message):
            train(override(RECIPE, wrong), None, tmp_path / "run", progress=Recorder(crash))
    assert train(RECIPE, None, tmp_path / "run").finished
    assert yaml.safe_load((tmp_path / "run" / "run.yaml").read_text())["recipe"]["optim"]["lr"] == RECIPE.optim.lr
    assert [line["iteration"] for line in read_log(tmp_path / "run") if line["event"] == "train"] == [1, 2, 3]


def test_a_failed_start_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"no weights")
    recipe = override(find_recipe("camvid-mbv2-dnl"), [f"model.weights={tmp_path / 'weights.pth'}", *QUICK])
    with pytest.raises((ValueError, OSError)):
        train(recipe, camvid_tree(tmp_path / "camvid"), tmp_path / "runs" / "a")
    assert not (tmp_path / "runs").exists()


def test_a_run_does_not_resume_with_other_data(tmp_path: Path) -> None:
    recipe = override(find_recipe("camvid-mbv2-dnl"), ["model.weights=null", "model.width=16", *QUICK])
    out = tmp_path / "run"
    data = camvid_tree(tmp_path / "camvid")
    train(recipe, data, out)
    run = (out / "run.yaml").read_text()
    assert yaml.safe_load(run)["data"]["train"]["files"] == 4  # two images and their labels
    assert yaml.safe_load(run)["folder"] == str(data)
    shutil.copytree(data, tmp_path / "moved")
    assert train(recipe, tmp_path / "moved", out).finished
    lines = (data / "train.txt").read_text().splitlines()
    for change in (lines[:1], lines[::-1]):
        (data / "train.txt").write_text("\n".join(change))
        with pytest.raises(ValueError, match=r"holds a run on other data: its data.train\.\w+ is \w+, not \w+; give"):
            train(recipe, data, out)
    image = next((tmp_path / "moved" / "val").iterdir())
    image.write_bytes(image.read_bytes() + b"x")
    with pytest.raises(ValueError, match=r"holds a run on other data: its data.test.sha256"):
        train(recipe, tmp_path / "moved", out)
    assert yaml.safe_load((out / "run.yaml").read_text()) == {
        **yaml.safe_load(run),
        "folder": str(tmp_path / "moved"),
    }


def swap_names(data: Path) -> None:
    listed = data / "classes.yaml"
    listed.write_text(listed.read_text().replace("[a, b]", "[b, a]"))


def swap_colours(data: Path) -> None:
    listed = data / "classes.yaml"
    listed.write_text(listed.read_text().replace("[255, 0, 0], [0, 255, 0]", "[0, 255, 0], [255, 0, 0]"))


def turn_mask(data: Path) -> None:
    mask = data / "masks" / "train" / "a.png"
    before = mask.stat().st_size
    Image.open(mask).transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(mask, compress_level=0)
    assert mask.stat().st_size == before


def test_a_run_does_not_resume_when_its_labels_change(tmp_path: Path) -> None:
    folder = ["data.name=folder", "data.train=train", "data.test=train"]
    recipe = override(find_recipe("camvid-mbv2-dnl"), ["model.weights=null", "model.width=16", *QUICK, *folder])
    data = colour_folder_tree(tmp_path / "mine")
    mask = data / "masks" / "train" / "a.png"
    Image.open(mask).save(mask, compress_level=0)
    train(recipe, data, tmp_path / "run")
    for change, said in ((swap_names, "classes"), (swap_colours, "labels"), (turn_mask, "labels")):
        copy = Path(shutil.copytree(data, tmp_path / change.__name__))
        change(copy)
        with pytest.raises(ValueError, match=f"holds a run on other data: its data.train.{said} is"):
            train(recipe, copy, tmp_path / "run")


def test_a_run_of_the_first_versions_resumes_without_a_data_check(tmp_path: Path) -> None:
    recipe = override(find_recipe("camvid-mbv2-dnl"), ["model.weights=null", "model.width=16", *QUICK])
    out, data = tmp_path / "run", camvid_tree(tmp_path / "camvid")
    train(recipe, data, out)
    run = yaml.safe_load((out / "run.yaml").read_text())
    older = {name: {"files": part["files"], "sha256": part["sha256"]} for name, part in run["data"].items()}
    for noted in (str(data), older):
        (out / "run.yaml").write_text(yaml.safe_dump({**run, "data": noted}))
        observed = Recorder()
        assert train(recipe, data, out, progress=observed).finished
        assert any(
            "a version that did not note its labels; whether the data are the same is not" in line
            for line in observed.said
        )


@pytest.mark.parametrize("content", ["[", "null", "seed: 1", "recipe: [", "\x00"])
def test_a_damaged_description_of_a_run_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "000001.json").write_text("{}")
    (tmp_path / "run" / "run.yaml").write_text(content)
    with pytest.raises(ValueError, match=r"^[^\n]*run\.yaml: [^\n]*; choose another --out$"):
        train(RECIPE, None, tmp_path / "run")


def test_a_folder_in_use_by_another_run_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    tried: list[str] = []

    def second(_: object) -> None:
        log = (out / "log.jsonl").read_text()
        with pytest.raises(OSError, match=f"in use by process {os.getpid()} on "):
            train(RECIPE, None, out)
        assert (out / "log.jsonl").read_text() == log
        tried.append(log)

    assert train(RECIPE, None, out, progress=Recorder(second)).finished
    assert len(tried) == 3
    assert not (out / "run.lock").exists()


def test_the_test_protocol_runs_through_its_phases_without_validation(tmp_path: Path) -> None:
    """Train on fine, coarse and fine labels in turn, in the Cityscapes layout."""
    phases = ", ".join(f"{{train: {split}, iterations: 2, lr: 0.001}}" for split in ("coarse", "trainval"))
    settings = ["model.weights=null", "model.backbone=resnet18", "model.width=16", "model.auxiliary=false", *QUICK]
    settings += ["model.output_stride=16", f"schedule.then=[{phases}]"]
    recipe = override(find_recipe("cityscapes_test-r101-dnl"), settings)
    outcome = train(recipe, cityscapes_tree(tmp_path / "cityscapes"), tmp_path / "run")
    assert (outcome.iteration, outcome.best) == (7, None)
    assert sorted(path.name for path in (tmp_path / "run").glob("*.safetensors")) == ["last.safetensors"]
    assert write_report(tmp_path / "run").exists()


def test_a_start_without_disk_space_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(OSError, match=r"0\.0 MB free, but checkpoints and models may take"):
        train(RECIPE, None, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_start_reserves_space_for_both_moments_of_adamw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three checkpoints of weights, moments and an average, and three models: 12 or 15 times the weights."""
    usage = shutil.disk_usage(tmp_path)
    recipe = override(RECIPE, ["training.keep=2", "optim.lr=0.001"])
    train(recipe, None, tmp_path / "run")
    model = load_file(tmp_path / "run" / "last.safetensors")
    weights = sum(value.numel() * value.element_size() for value in model.values())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=13 * weights))
    train(override(recipe, ["optim.kind=sgd"]), None, tmp_path / "sgd")
    with pytest.raises(OSError, match="MB free, but checkpoints and models may take"):
        train(override(recipe, ["optim.kind=adamw"]), None, tmp_path / "adamw")


def test_a_stopped_run_resumes_on_a_disk_it_has_nearly_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run started with space for 12 times the weights, as above, and now uses part of it."""
    recipe = override(RECIPE, ["training.keep=2", "training.save_every=1", "optim.kind=sgd", "optim.lr=0.001"])
    out, usage = tmp_path / "run", shutil.disk_usage(tmp_path)

    def stop(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, None, out, progress=Recorder(stop))
    weights = sum(value.numel() * value.element_size() for value in load_file(out / "best.safetensors").values())
    held = sum(path.stat().st_size for path in [*(out / "checkpoints").iterdir(), out / "best.safetensors"])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=11 * weights - held))
    with pytest.raises(OSError, match=r"MB free, but checkpoints and models may take .* MB more"):
        train(recipe, None, out)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=12 * weights - held))
    assert train(recipe, None, out).finished


def test_camvid_files_train_with_unpacked_images(tmp_path: Path) -> None:
    settings = ["model.weights=null", "model.width=16", "loss.ohem=null", *QUICK]
    recipe = override(find_recipe("camvid-mbv2-dnl"), settings)
    root = camvid_tree(tmp_path / "camvid")
    runs = [tmp_path / "packed", tmp_path / "unpacked"]
    train(recipe, root, runs[0])
    train(recipe, root, runs[1], unpacked=tmp_path / "pictures")
    assert list(read_log(runs[0])) == list(read_log(runs[1]))


def test_a_run_started_before_a_setting_existed_resumes(tmp_path: Path) -> None:
    begun = override(RECIPE, ["optim.kind=sgd"])
    train(begun, None, tmp_path / "run")
    path = tmp_path / "run" / "run.yaml"
    description = yaml.safe_load(path.read_text())
    recipe = description["recipe"]
    del recipe["model"]["align_corners"], recipe["training"]["channels_last"], recipe["optim"]["kind"]
    path.write_text(yaml.safe_dump(description))
    assert train(begun, None, tmp_path / "run").finished


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("[" * 5000, "nested too deeply"),
        ("recipe: {}\nseed: 1\nseed: 2", "not YAML: the key 'seed' is given again in line 3"),
        ("recipe: 2020-13-01", "not YAML: month must be in 1..12"),
    ],
)
def test_an_unreadable_description_is_refused_with_one_sentence(content: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(content)
    with pytest.raises(ValueError, match=rf"run\.yaml: cannot be read: it is {what}; choose another --out"):
        read_run(tmp_path / "run.yaml")


def test_a_stopped_run_predicts_with_its_last_checkpoint(tmp_path: Path) -> None:
    settings = ["schedule.iterations=9", "training.evaluate_every=9", "training.save_every=2"]
    recipe, out = override(RECIPE, settings), tmp_path / "run"

    def stop(done: int) -> None:
        if done == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    assert train(recipe, None, out, progress=Recorder(stop)).iteration == 6
    with pytest.warns(UserWarning, match=r"run: .*checkpoint of iteration 6 of 9"):
        model = dnlnet.load(out)
    weights = load_file(out / "checkpoints" / "000006.safetensors")
    network = recipe.build(6)
    network.load_state_dict({key[6:]: value for key, value in weights.items() if key.startswith("model.")})
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    expected = recipe.predictor(network.eval(), model.classes).predict(image).scores
    np.testing.assert_allclose(model.predict(image).scores, expected, atol=1e-5)
    model.save_pretrained(tmp_path / "shared")
    assert dnlnet.load(tmp_path / "shared").file.iteration == 6
    train(recipe, None, out)
    assert dnlnet.load(out).file.path.name == "best.safetensors"


def test_the_command_ends_with_the_best_score_and_the_next_commands(tmp_path: Path) -> None:
    out = tmp_path / "my run"
    arguments = ["train", "scenes-tiny-dnl", "--out", str(out), "--workers", "0"]
    arguments += [part for setting in QUICK for part in ("--set", setting)]
    lines = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout.splitlines()
    evaluations = [event for event in read_log(out) if event["event"] == "evaluation"]
    best = max(evaluations, key=lambda event: event["miou"])
    assert f"best: miou {best['miou']:.4f}, after iteration {best['iteration']} of 3" in lines
    assert lines[-2].split("dnlnet ")[1] == f"predict '{out}' image.jpg"
    assert lines[-1].split("dnlnet ")[1] == f"attend '{out}' image.jpg"
