import numpy as np
import pytest
import torch

from dnlnet.data.samples import Draw
from dnlnet.data.scenes import CLASSES, SceneSamples, scene


def test_image_and_labels_have_the_documented_form() -> None:
    image, labels = scene(seed=3, size=(40, 56))
    assert image.shape == (3, 40, 56)
    assert image.dtype == np.float32
    assert image.min() >= 0
    assert image.max() <= 1
    assert labels.shape == (40, 56)
    assert labels.dtype == np.int64


def test_a_seed_determines_the_scene() -> None:
    first, again, other = scene(5, 32), scene(5, 32), scene(6, 32)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


def test_every_pixel_has_a_class_and_every_class_occurs() -> None:
    labels = np.stack([scene(seed, 48)[1] for seed in range(30)])
    assert set(np.unique(labels)) == set(range(len(CLASSES)))


def test_every_class_has_its_own_drawing_colour() -> None:
    assert len(set(CLASSES.palette)) == len(CLASSES)


def test_two_classes_of_a_palette_overlap_in_colour() -> None:
    """Over many scenes, sky and water differ in mean colour by less than either varies."""
    colours: dict[int, list[np.ndarray]] = {0: [], 1: []}
    for seed in range(60):
        image, labels = scene(seed, 48)
        for label, found in colours.items():
            if (labels == label).any():
                found.append(image[:, labels == label].mean(axis=1))
    sky, water = (np.stack(found) for found in colours.values())
    assert np.all(np.abs(sky.mean(axis=0) - water.mean(axis=0)) < np.minimum(sky.std(axis=0), water.std(axis=0)))


def test_a_sample_is_a_scene_in_bytes_for_an_index_and_every_epoch() -> None:
    samples = SceneSamples(4, (32, 32), seed=5)
    for index in range(4):
        image, labels = scene((5, index), 32)
        for sample in (samples[index], samples[Draw(index, epoch=1)]):
            assert (sample.image / 255 - torch.from_numpy(image)).abs().max() <= 1 / 255
            assert torch.equal(sample.labels.long(), torch.from_numpy(labels))


def test_an_item_does_not_depend_on_the_count() -> None:
    few, many = SceneSamples(3, 32, seed=4), SceneSamples(30, 32, seed=4)
    assert torch.equal(few[2].image, many[2].image)
    assert len(many) == 30


def test_two_seeds_share_no_scene() -> None:
    assert not torch.equal(SceneSamples(3, 32, seed=0)[1].image, SceneSamples(3, 32, seed=1)[0].image)


def test_an_index_past_the_end_is_refused() -> None:
    with pytest.raises(IndexError, match=r"scene 3 is outside 0\.\.2"):
        SceneSamples(3, 16)[3]


@pytest.mark.parametrize("size", [0, 15, (64, 8), (65536, 65536)])
def test_invalid_sizes_are_refused_immediately(size: int | tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 16 x 16 pixels"):
        scene(0, size)
    with pytest.raises(ValueError, match="at least 16 x 16 pixels"):
        SceneSamples(1, size)


def test_bad_count_and_seed_are_refused() -> None:
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        SceneSamples(0, 32)
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        SceneSamples(1, 32, seed=-1)
