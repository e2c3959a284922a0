import shutil
from importlib.util import find_spec

import pytest
import torch

from dnlnet.backbones import SlowOnly
from dnlnet.bench.predict import BFLOAT16, available_forms, bench_predict
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
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: True)
    torch.manual_seed(0)
    build, size = NETWORKS[kind]
    forms = available_forms() if kind == "image" else [*available_forms()[:5], "onnxruntime"]  # exports take long
    rows = bench_predict(build(), torch.rand(1, 3, *size), forms, rounds=1, threads=1)
    assert [row.form for row in rows] == forms
    runtimes = ["onnxruntime", *(["openvino"] if find_spec("openvino") else [])]
    assert forms[:5] == ["eager", "channels_last", "folded", "folded, channels_last", BFLOAT16]
    assert available_forms()[5:] == [*runtimes, *(f"{name}, free sizes" for name in runtimes)]
    assert all(row.seconds > 0 and row.difference < (0.1 if row.form == BFLOAT16 else 1e-4) for row in rows)
    assert rows[0].ratio == 1
    monkeypatch.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: False)
    assert BFLOAT16 not in available_forms()
