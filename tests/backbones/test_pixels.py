import torch

from dnlnet.backbones.pixels import CAFFE_MEAN, MEAN, STD, UNIT_MEAN, UNIT_STD, normalised
from dnlnet.data.augmentation import PADDING


def test_the_statistics_equal_mmsegmentation_and_torchvision() -> None:
    assert (UNIT_MEAN, UNIT_STD) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (MEAN, STD) == ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
    assert CAFFE_MEAN[::-1] == (102.9801, 115.9465, 122.7717)


def test_padding_is_the_mean_rounded_to_integers() -> None:
    assert tuple(round(value) for value in MEAN) == PADDING


def test_padding_is_nearly_zero_after_normalisation() -> None:
    padding = torch.tensor(PADDING, dtype=torch.uint8).view(1, 3, 1, 1)
    assert normalised(padding).abs().max() < 0.01


def test_normalised_follows_the_formula() -> None:
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    for colour in range(3):
        expected = (images[:, colour].double() - MEAN[colour]) / STD[colour]
        torch.testing.assert_close(normalised(images)[:, colour].double(), expected, atol=1e-6, rtol=1e-5)
