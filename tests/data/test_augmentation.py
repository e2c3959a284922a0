import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.augmentation import PADDING, Augmentation, Crop

RNG = np.random.default_rng(0)
COARSE = Image.fromarray(RNG.integers(0, 256, (9, 13, 3), dtype=np.uint8))
IMAGE = COARSE.resize((131, 87), Image.Resampling.BICUBIC)
LABELS = Image.fromarray(RNG.integers(0, 5, (87, 131), dtype=np.uint8))


def plain(crop: Crop, image: Image.Image, resampling: Image.Resampling, padding: object) -> NDArray[np.uint8]:
    """Resize and pad the whole image, then cut out the crop."""
    whole = np.asarray(image.resize(crop.resized[::-1], resampling)).astype(int)
    if whole.ndim == 3:
        whole = (whole + crop.brightness).clip(0, 255)
    (height, width), (top, left) = crop.size, (crop.top, crop.left)
    canvas = np.empty((max(whole.shape[0], top + height), max(whole.shape[1], left + width), *whole.shape[2:]))
    canvas[...] = padding
    canvas[: whole.shape[0], : whole.shape[1]] = whole
    cut = canvas[top : top + height, left : left + width]
    return cut[:, ::-1] if crop.flipped else cut


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    crop=st.tuples(st.integers(1, 120), st.integers(1, 160)),
    low=st.floats(0.2, 1.0),
    aspect=st.floats(0.5, 1.0),
    short_side=st.none() | st.integers(20, 200),
)
def test_a_window_equals_resizing_the_whole_and_cropping(
    seed: int, crop: tuple[int, int], low: float, aspect: float, short_side: int | None
) -> None:
    augmentation = Augmentation(
        crop=crop, scales=(low, 2 * low), aspects=(aspect, 2 * aspect), short_side=short_side, brightness=30
    )
    drawn = augmentation.draw(np.random.default_rng(seed), (87, 131))
    expected = plain(drawn, IMAGE, Image.Resampling.BILINEAR, PADDING)
    assert np.abs(drawn.image(IMAGE).astype(int) - expected).max() <= 1
    labels = drawn.padded_labels(np.asarray(drawn.labels(LABELS)))
    wrong = labels != plain(drawn, LABELS, Image.Resampling.NEAREST, 255)
    # A position exactly between two labels may round to either.
    assert wrong.mean() <= 0.02


def test_image_and_labels_stay_aligned() -> None:
    classes = np.zeros((40, 60), dtype=np.uint8)
    classes[10:30, 20:50] = 1
    image = Image.fromarray(np.repeat(classes[..., None] * 200, 3, axis=2))
    rng = np.random.default_rng(1)
    for _ in range(50):
        crop = Augmentation(crop=(32, 32), brightness=0).draw(rng, (40, 60))
        pixels = crop.image(image)[..., 0]
        labels = crop.padded_labels(np.asarray(crop.labels(Image.fromarray(classes))))
        certain = (pixels < 5) | (pixels > 195)
        assert certain.mean() > 0.5
        np.testing.assert_array_equal(
            (pixels > 100)[certain & (labels != 255)], (labels == 1)[certain & (labels != 255)]
        )
        assert (crop.image(image)[labels == 255] == PADDING).all()


def test_the_same_generator_state_gives_the_same_crop() -> None:
    augmentation = Augmentation(crop=(32, 48))
    draws = [augmentation.draw(np.random.default_rng((3, 5)), (87, 131)) for _ in range(2)]
    assert draws[0] == draws[1]
    assert draws[0] != augmentation.draw(np.random.default_rng((3, 6)), (87, 131))


def test_draws_cover_their_ranges() -> None:
    rng = np.random.default_rng(0)
    augmentation = Augmentation(crop=(20, 20), scales=(0.5, 2.0), flip=0.25, brightness=10)
    crops = [augmentation.draw(rng, (100, 100)) for _ in range(2000)]
    scales = np.array([crop.resized[0] / 100 for crop in crops])
    assert 0.5 <= scales.min() < 0.52
    assert 1.98 < scales.max() <= 2.0
    assert abs(scales.mean() - 1.25) < 0.03
    assert {crop.brightness for crop in crops} == set(range(-10, 11))
    assert abs(np.mean([crop.flipped for crop in crops]) - 0.25) < 0.04
    assert all(0 <= crop.top <= crop.resized[0] - 20 for crop in crops)
    assert min(crop.top for crop in crops) == 0


def test_the_short_side_is_applied_first() -> None:
    crop = Augmentation(crop=(520, 520), scales=(1.0, 1.0), short_side=520).draw(np.random.default_rng(0), (300, 600))
    assert crop.resized == (520, 1040)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"crop": (0, 5)}, r"crop\.0\n.*greater than or equal to 1"),
        ({"scales": (2.0, 0.5)}, r"scales\n.*low to high"),
        ({"aspects": (0.0, 1.0)}, r"aspects\.0\n.*greater than or equal to 0\.05"),
        ({"flip": 1.5}, r"flip\n.*less than or equal to 1"),
        ({"short_side": 0}, r"short_side\n.*greater than or equal to 1"),
        ({"brightness": -1}, r"brightness\n.*greater than or equal to 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augmentation(**{"crop": (8, 8), **settings})
