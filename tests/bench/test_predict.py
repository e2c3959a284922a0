import shutil
from importlib.util import find_spec

import pytest
import torch

from dnlnet.backbones import SlowOnly
from dnlnet.bench.predict import available_forms, bench_predict
from dnlnet.segmentation.tiny import TinySegmentor
from dnlnet.video.network import VideoClassifier
from dnlnet.video.schema import VideoClassifierModel

VIDEO = VideoClassifierModel(variant="dnl", preset="paper")
NETWORKS = {
    "image": (lambda: TinySegmentor(4, width=8), (32, 40)),
    "clip": (lambda: VideoClassifier(SlowOnly("slow_only_tiny"), 4, VIDEO), (2, 64, 64)),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_form_is_the_same_function(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)  # compiling takes a minute
    torch.manual_seed(0)
    build, size = NETWORKS[kind]
    forms = available_forms() if kind == "image" else [*available_forms()[:4], "onnxruntime"]  # exports take long
    rows = bench_predict(build(), torch.rand(1, 3, *size), forms, rounds=1, threads=1)
    assert [row.form for row in rows] == forms
    runtimes = ["onnxruntime", *(["openvino"] if find_spec("openvino") else [])]
    assert forms[:4] == ["eager", "channels_last", "folded", "folded, channels_last"]
    assert available_forms()[4:] == [*runtimes, *(f"{name}, free sizes" for name in runtimes)]
    assert all(row.seconds > 0 and row.difference < 1e-4 for row in rows)
    assert rows[0].ratio == 1
