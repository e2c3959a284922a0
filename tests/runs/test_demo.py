import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from dnlnet.backbones.pixels import normalised
from dnlnet.bundled import MODELS
from dnlnet.data.scenes import SceneSamples
from dnlnet.engine.log import read_log
from dnlnet.engine.settings import RunSettings
from dnlnet.engine.train import Outcome
from dnlnet.lens.measure.confusion import ConfusionMatrix
from dnlnet.runs.demo import Demo, StoppedError, run_demo
from observer import Recorder

SCENES = 6


@pytest.fixture(scope="module", autouse=True)
def one_small_photo_and_few_scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = tmp_path_factory.mktemp("photos") / "street.png"
    Image.open(MODELS["street"].photos[0]).resize((128, 96)).save(path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("dnlnet.runs.demo.MODELS", {"street": replace(MODELS["street"], photos=(path,))})
        patched.setattr("dnlnet.data.scenes.HELD_OUT_COUNT", SCENES)
        yield


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def first(out: Path) -> Demo:
    observed = Recorder()
    found = run_demo(out, ["dnl"], steps=2, progress=observed)
    assert observed.done("dnl training") == [1, 2]
    return found


def test_the_scores_come_from_the_last_weights_of_the_run(first: Demo, out: Path) -> None:
    net = first.nets["dnl"]
    evaluation = [line for line in read_log(out / "runs" / "dnl-2-0") if line["event"] == "evaluation"][-1]
    assert evaluation["iteration"] == 2
    assert evaluation["miou"] == net.after.miou()
    assert net.seconds is not None
    weights = load_file(out / "runs" / "dnl-2-0" / "last.safetensors")
    learnt = [name for name in weights if "running" not in name and "num_batches" not in name]
    assert net.parameters == sum(weights[name].numel() for name in learnt)


def test_the_page_opens_on_the_photo_and_shows_the_trained_networks_second(first: Demo) -> None:
    stored = re.search(r'<script id="content" type="application/json">(.*)</script>', first.page.read_text())
    assert stored is not None
    content = json.loads(stored[1])
    assert [(image["name"], [view["title"] for view in image["views"]]) for image in content["images"][:2]] == [
        ("street.png", ["street"]),
        ("scene 1", ["dnl"]),
    ]


def test_the_first_figure_and_page_are_written_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: object, **__: object) -> Outcome:
        assert {path.name for path in tmp_path.iterdir()} >= {"street.png", "explore.html"}
        return Outcome(1, False, None, 2)

    monkeypatch.setattr("dnlnet.engine.train.train", train)
    with pytest.raises(StoppedError):
        run_demo(tmp_path, ["dnl"], steps=2)


def test_the_untrained_network_is_the_starting_point_of_the_run(
    first: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[nn.Module] = []

    def train(
        task: object, model: nn.Module, data: object, settings: RunSettings, *_: object, **__: object
    ) -> Outcome:
        started.append(model.eval())
        assert (settings.schedule.iterations, settings.schedule.warmup) == (10, 3)
        return Outcome(1, False, None, 2)

    monkeypatch.setattr("dnlnet.engine.train.train", train)
    with pytest.raises(StoppedError, match="stopped after iteration 1"):
        run_demo(tmp_path, ["dnl"], steps=10)
    expected = ConfusionMatrix(6)
    for sample in SceneSamples(SCENES, (96, 96), seed=0):
        with torch.no_grad():
            logits = started[0](normalised(sample.image[None])).logits
        expected.update(logits.argmax(dim=1)[0], sample.labels)
    assert torch.equal(first.nets["dnl"].before.counts, expected.counts)
    assert first.nets["dnl"].before.miou() != first.nets["dnl"].after.miou()


def test_a_finished_run_is_not_trained_again(first: Demo, out: Path) -> None:
    path = out / "runs" / "dnl-2-0" / "last.safetensors"
    before = load_file(path)
    observed = Recorder()
    again = run_demo(out, ["dnl"], steps=2, progress=observed)
    assert observed.done("dnl training") == []
    assert all(torch.equal(value, before[name]) for name, value in load_file(path).items())
    assert again.nets["dnl"].seconds is None
    assert torch.equal(again.nets["dnl"].after.counts, first.nets["dnl"].after.counts)


def test_other_settings_in_the_same_folder_start_another_run(first: Demo, out: Path) -> None:
    found = run_demo(out, ["dnl", "dnl"], steps=1, seed=1)
    assert {path.name for path in (out / "runs").iterdir()} == {"dnl-2-0", "dnl-1-1"}
    assert json.loads(found.scores.read_text())["steps"] == 1
    assert torch.equal(found.nets["dnl"].after.counts.sum(dim=1), first.nets["dnl"].after.counts.sum(dim=1))


def test_impossible_settings_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for variants, steps, message in (
        (["dnl", "dnll"], 1, "unknown variant 'dnll'"),
        (["dnl"], 0, "at least 1"),
        ([], 1, "at least one variant"),
    ):
        with pytest.raises(ValueError, match=message):
            run_demo(tmp_path / "demo", variants, steps=steps)
    assert not list(tmp_path.iterdir())
