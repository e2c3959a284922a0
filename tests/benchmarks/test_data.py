from pathlib import Path

import pytest
import torch

from benchmark_scripts import load_script
from dnlnet.data.augmentation import Augmentation
from dnlnet.data.samples import TrainingCrops

bench = load_script("data")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SIZE", (128, 256))
    monkeypatch.setattr(bench, "CROP", (97, 97))


def test_both_methods_make_the_same_samples(tmp_path: Path) -> None:
    augmentation = Augmentation(crop=(97, 97))
    files = bench.make_files(tmp_path / "files", 4, "png")
    crops = TrainingCrops(files, augmentation)
    for index in range(4):
        plain_image, plain_labels = bench.plain_sample(files, index, augmentation)
        image, labels = bench.window_sample(crops, index)
        assert (image - plain_image).abs().max() < 0.03  # one step of 255, or of the padding's colour
        # A row exactly between two rows of the file may round to either.
        assert (labels != plain_labels).float().mean() < 0.03


def test_every_file_type_is_measured() -> None:
    rows = list(bench.bench_data(images=2, rounds=1))
    assert [row.source for row in rows] == list(bench.SOURCES)
    for row in rows:
        assert row.file_megabytes > 0
        assert row.speedup == row.ours_per_second / row.plain_per_second
    torch.set_num_threads(1)
