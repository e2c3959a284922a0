"""Initial weights of a block's layers, as each code base draws them."""

from math import sqrt

from torch import nn

from dnlnet.attention.spec import Initial


def initialise(layer: nn.Linear, name: str, initial: Initial) -> None:
    """Draw the weights of a block's layer in place.

    mmsegmentation's head leaves mmcv's defaults: `NonLocal2d.init_weights` draws theta, phi and g from N(0, 0.01),
    `ConvModule` draws the projection by `kaiming_init` (fan_out), and the saliency is a plain `nn.Conv2d`.
    PySlowFast's `init_weights` draws every convolution by fvcore's `c2_msra_fill`. mmdetection's `NonLocal2D` starts
    with a projection of zeros.
    """
    if initial == "mmseg" and name == "saliency":
        layer.reset_parameters()  # the same as for a 1 x 1 convolution
        return
    wide = initial == "slowfast" or (initial == "mmseg" and name == "projection")
    nn.init.normal_(layer.weight, std=sqrt(2 / layer.out_features) if wide else 0.01)
    if initial == "mmdet" and name == "projection":
        nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
