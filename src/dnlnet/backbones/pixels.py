"""Mean and standard deviation of the pixels that networks are trained on, by colour, red first."""

from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

Colours = tuple[float, float, float]


def _in_bytes(values: Colours) -> Colours:
    red, green, blue = (round(255 * value, 3) for value in values)  # as they are usually written: 57.12
    return red, green, blue


# Of pixels in 0..1.
UNIT_MEAN: Colours = IMAGENET_DEFAULT_MEAN
UNIT_DEVIATION: Colours = IMAGENET_DEFAULT_STD

# Of pixels in 0..255.
MEAN = _in_bytes(UNIT_MEAN)
DEVIATION = _in_bytes(UNIT_DEVIATION)
CAFFE_MEAN: Colours = (122.7717, 115.9465, 102.9801)  # Caffe divides by nothing, and takes blue first
