"""Building of the backbone of a recipe's model, and loading of its weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from dnlnet.backbones import Backbone, load_weights
from dnlnet.backbones.weights import LoadReport, match_tensors, read_state_dict
from dnlnet.bundled import WEIGHTS, find_bundled
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.model import IMAGENET, BackboneModel, Model


def build_backbone(
    model: BackboneModel,
    output_stride: int | None,
    pretrained: bool,
    progress: Progress = SILENT,
    dilations: Sequence[Sequence[int]] | None = None,
) -> Backbone:
    """Build the backbone of a recipe's model; `pretrained` loads the weights named by the model."""
    source = model.weights if pretrained else None
    bundled = WEIGHTS.get(model.backbone) if source == IMAGENET else None
    backbone = Backbone(
        model.backbone,
        output_stride,
        stride_in_1x1=model.stride_in_1x1,
        dilations=dilations,
        ceil_pool=model.ceil_pool,
        pixels=model.network_pixels(),
        pretrained=source == IMAGENET and bundled is None,
    )
    if bundled is not None:
        progress.say(f"{model.backbone}: ImageNet weights bundled with dnlnet: {load_weights(backbone, bundled)}")
    elif source is not None and source != IMAGENET:
        progress.say(f"{source}: {load_weights(backbone, _weights_file(source))}")
    return backbone


_NOT_OPTIONS = {*BackboneModel.model_fields, "network", "output_stride", "dilations"}  # of the backbone, or shared


def network_options(model: Model) -> dict[str, Any]:
    """Return the keyword arguments of a network: the fields that only this kind has, and those of its block.

    >>> from dnlnet.registry import find_recipe
    >>> network_options(find_recipe("camvid-mbv2_frozen-dnl").model)["stages"]
    (1, 2, 3)
    """
    own = {name: value for name, value in model if name not in _NOT_OPTIONS}
    return {**own, "variant": model.variant, "preset": model.preset, **model.block}


def load_whole(network: nn.Module, model: Model) -> LoadReport:
    """Load every fitting tensor of the trained model named by `weights`, in place, and report the rest."""
    assert model.weights is not None
    path = _weights_file(model.weights)
    fitting, report = match_tensors(network.state_dict(), read_state_dict(path), lambda name: False)
    if all(name.startswith("backbone.") for name in fitting):
        raise ValueError(f"{path}: only its backbone fits this network ({report}); set model.whole=false")
    network.load_state_dict(fitting, strict=False)
    return report


def _weights_file(source: str) -> Path:
    """Return the weights file for a path or the name of a bundled model."""
    path = Path(source)
    bundled = None if path.exists() else find_bundled(source)
    return path if bundled is None else bundled.file
