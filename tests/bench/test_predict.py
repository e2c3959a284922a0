import shutil

import pytest
import torch

from dnlnet.bench.predict import bench_predict
from dnlnet.models.tiny import TinySegmentor


def test_every_form_is_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)  # compiling takes a minute
    torch.manual_seed(0)
    rows = bench_predict(TinySegmentor(4, width=8), torch.rand(1, 3, 32, 40), rounds=1, threads=1)
    assert [row.form for row in rows] == ["eager", "channels_last", "folded", "folded, channels_last"]
    assert all(row.seconds > 0 and row.difference < 1e-4 for row in rows)
