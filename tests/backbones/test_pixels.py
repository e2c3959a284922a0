from dnlnet.backbones.pixels import CAFFE_MEAN, DEVIATION, MEAN, UNIT_DEVIATION, UNIT_MEAN
from dnlnet.data.transforms import PADDING


def test_the_numbers_are_those_of_mmsegmentation_and_torchvision() -> None:
    assert (UNIT_MEAN, UNIT_DEVIATION) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (MEAN, DEVIATION) == ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
    assert CAFFE_MEAN[::-1] == (102.9801, 115.9465, 122.7717)


def test_padding_is_the_mean_in_whole_numbers() -> None:
    assert tuple(round(value) for value in MEAN) == PADDING
