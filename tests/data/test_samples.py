from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from dnlnet.data.augmentation import Augmentation
from dnlnet.data.problems import BadFileError
from dnlnet.data.samples import Draw, TrainingCrops, WholeImages
from dnlnet.segmentation.data.camvid import camvid
from dnlnet.segmentation.data.unpacked import unpack_into
from trees import camvid_tree, write_image, write_labels

AUGMENTATION = Augmentation(crop=(20, 28))


@pytest.fixture
def crops(tmp_path: Path) -> TrainingCrops:
    return TrainingCrops(camvid(camvid_tree(tmp_path), "train"), AUGMENTATION, seed=3)


def test_a_sample_has_an_image_labels_and_a_name(crops: TrainingCrops) -> None:
    sample = crops[Draw(0, epoch=0)]
    assert sample.image.shape == (3, 20, 28)
    assert sample.image.dtype == sample.labels.dtype == torch.uint8
    assert sample.labels.shape == (20, 28)
    assert sample.name == str(crops.images.pairs[0].image)
    assert set(sample.labels.unique().tolist()) <= {*range(11), 255}


def test_the_same_draw_gives_the_same_sample_and_another_does_not(crops: TrainingCrops) -> None:
    first, again, later = crops[Draw(1, 0)], crops[Draw(1, 0)], crops[Draw(1, 1)]
    assert torch.equal(first.image, again.image)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.image, later.image)
    other_seed = TrainingCrops(crops.images, AUGMENTATION, seed=4)
    assert not torch.equal(first.image, other_seed[Draw(1, 0)].image)


def test_samples_do_not_depend_on_the_number_of_workers(crops: TrainingCrops) -> None:
    draws = [Draw(index, epoch) for epoch in range(2) for index in range(len(crops))]

    def batches(workers: int) -> list[torch.Tensor]:
        loader = DataLoader(crops, batch_size=2, sampler=draws, num_workers=workers)
        return [part for batch in loader for part in (batch.image, batch.labels)]

    for alone, shared in zip(batches(0), batches(2), strict=True):
        assert torch.equal(alone, shared)


def test_unpacked_images_give_the_same_samples(crops: TrainingCrops, tmp_path: Path) -> None:
    unpacked = TrainingCrops(unpack_into(crops.images, tmp_path / "unpacked"), AUGMENTATION, seed=3)
    for _ in range(2):  # first unpacks, then reads the unpacked files
        for draw in [Draw(index, epoch) for epoch in range(3) for index in range(len(crops))]:
            assert torch.equal(unpacked[draw].image, crops[draw].image)
            assert torch.equal(unpacked[draw].labels, crops[draw].labels)
    assert len(list((tmp_path / "unpacked").iterdir())) == 2 * len(crops)


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 1), (2, 3)])
@pytest.mark.parametrize("short_side", [None, 64])
def test_one_pixel_images_can_be_trained_on(size: tuple[int, int], short_side: int | None, tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    for path in (root / "val").iterdir():
        write_image(path, size=size)
        write_labels(root / "valannot" / f"{path.stem}.png", [3], size=size)
    images = camvid(root, "val")
    crops = TrainingCrops(
        images, Augmentation(crop=(20, 28), scales=(0.1, 3.0), aspects=(0.5, 2.0), short_side=short_side)
    )
    for epoch in range(8):
        sample = crops[Draw(0, epoch)]
        assert sample.image.shape == (3, 20, 28)
        assert set(sample.labels.unique().tolist()) <= {3, 255}
        assert 3 in sample.labels
    assert WholeImages(images)[0].image.shape == (3, *size)


def test_names_may_have_the_maximum_length_of_the_system(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    name = "ä" * 125  # 250 bytes
    write_image(root / "val" / f"{name}.jpg")
    write_labels(root / "valannot" / f"{name}.png", [3])
    crops = TrainingCrops(unpack_into(camvid(root, "val"), tmp_path / "unpacked"), AUGMENTATION)
    assert crops[Draw(1, 0)].name.endswith(f"{name}.jpg")


def test_a_damaged_or_outdated_unpacked_image_is_replaced(crops: TrainingCrops, tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    unpacked = TrainingCrops(unpack_into(crops.images, folder), AUGMENTATION, seed=3)
    expected = unpacked[Draw(0, 0)].image
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:200])
    assert torch.equal(unpacked[Draw(0, 0)].image, expected)
    pair = crops.images.pairs[0]
    Image.new("RGB", (32, 24), (9, 9, 9)).save(pair.image)
    assert unpacked[Draw(0, 0)].image.max() <= 124


def test_a_bad_label_stops_training_with_its_position_in_the_whole_file(crops: TrainingCrops) -> None:
    pair = crops.images.pairs[0]
    labels = np.array(Image.open(pair.labels))
    labels[5, 7] = 77
    Image.fromarray(labels).save(pair.labels)
    with pytest.raises(BadFileError, match=rf"{pair.labels.name}: label 77 at row 5, column 7; expected"):
        _ = [crops[Draw(0, epoch)] for epoch in range(100)]


def test_a_missing_pair_stops_training_before_it_starts(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    next((root / "trainannot").iterdir()).unlink()
    with pytest.raises(ValueError, match="has no label file"):
        TrainingCrops(camvid(root, "train"), AUGMENTATION)


def test_wrong_requests_are_refused(crops: TrainingCrops) -> None:
    with pytest.raises(IndexError, match=r"image 99 is outside 0\.\."):
        crops[Draw(99, 0)]
    with pytest.raises(ValueError, match="seed must be at least 0"):
        TrainingCrops(crops.images, AUGMENTATION, seed=-1)


def test_whole_images_equal_the_files(crops: TrainingCrops) -> None:
    whole = WholeImages(crops.images)
    sample = whole[1]
    image, raw = crops.images.open(1)
    np.testing.assert_array_equal(sample.image.permute(1, 2, 0).numpy(), np.asarray(image))
    np.testing.assert_array_equal(sample.labels.numpy(), crops.images.decoded(1, raw))
    assert len(whole) == len(crops)
