"""Split of a backbone at a residual block: the layers below it can be frozen, and their features cached."""

# B batch, C channels, h, w size of a map

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from dnlnet.backbones.image import Backbone, renormalised
from dnlnet.backbones.mobilenet import MAPS, MobileNetV2


class Layer(NamedTuple):
    """Layer or residual block of a backbone.

    Args:
        name: Name of the module in the backbone.
        level: Number of the map that the layer contributes to, from 0.
        last: True if its output is the map.
    """

    name: str
    level: int
    last: bool


def find_layers(backbone: Backbone) -> list[Layer]:
    """Return the layers that run one after another. Raises if the backbone is not a sequence of layers.

    >>> [layer.name for layer in find_layers(Backbone("resnet18", 32)) if layer.level == 2]
    ['body.layer3.0', 'body.layer3.1']
    """
    body = backbone.body
    if isinstance(body, MobileNetV2):
        parts = ["conv_stem", "bn1", "act1", *(f"blocks.{number}" for number in range(len(body.blocks)))]
        ends = [f"blocks.{number}" for number in MAPS]
    elif hasattr(body, "return_layers"):  # timm's network of modules that run in order
        parts, ends = [name for name, _ in body.named_children()], list(body.return_layers)
    else:
        raise ValueError(f"{backbone.name} is not a sequence of layers; use a ResNet or mobilenetv2")
    layers: list[Layer] = []
    level = 0
    for part in parts:
        module = body.get_submodule(part)
        inside = [f".{name}" for name, _ in module.named_children()] if isinstance(module, nn.Sequential) else [""]
        layers += [Layer(f"body.{part}{name}", level, part in ends and name == inside[-1]) for name in inside]
        level += part in ends
    return layers


class Lower(nn.Module):
    """Layers of a backbone below a residual block, which share its modules.

    Args:
        backbone: Backbone.
        place: Name of the residual block.

    Attributes:
        count: Number of maps that it returns.

    >>> import torch
    >>> lower = Lower(Backbone("resnet18", 32), "body.layer3.1")
    >>> [tuple(x.shape[1:]) for x in lower(torch.rand(1, 3, 64, 96))]
    [(64, 16, 24), (128, 8, 12), (256, 4, 6)]
    """

    renormalise: Tensor | None

    def __init__(self, backbone: Backbone, place: str) -> None:
        super().__init__()
        self.layers, _ = _cut(backbone, place)
        for layer in self.layers:
            self.add_module(_key(layer), backbone.get_submodule(layer.name))
        self.register_buffer("renormalise", backbone.renormalise, persistent=False)
        self.blue_first = backbone.blue_first
        self.count = sum(layer.last for layer in self.layers) + (not self.layers[-1].last)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the maps (B, C, h, w) from fine to coarse, and last the input of the residual block."""
        x = renormalised(images, self.renormalise, self.blue_first)
        maps = []
        for layer in self.layers:
            x = self.get_submodule(_key(layer))(x)
            if layer.last:
                maps.append(x)
        return maps if self.layers[-1].last else [*maps, x]


def upper_maps(backbone: Backbone, place: str, maps: Sequence[Tensor]) -> list[Tensor]:
    """Return all maps of a backbone, from those of its `Lower` layers.

    >>> import torch
    >>> backbone, images = Backbone("resnet18", 32).eval(), torch.rand(1, 3, 64, 96)
    >>> found = upper_maps(backbone, "body.layer3.1", Lower(backbone, "body.layer3.1")(images))
    >>> all(torch.equal(x, y) for x, y in zip(found, backbone(images), strict=True))
    True
    """
    lower, upper = _cut(backbone, place)
    x, found = maps[-1], list(maps[: sum(layer.last for layer in lower)])
    for layer in upper:
        x = backbone.get_submodule(layer.name)(x)
        if layer.last:
            found.append(x)
    return found


def lower_names(backbone: Backbone, place: str) -> list[str]:
    """Return the names of the layers below a residual block."""
    return [layer.name for layer in _cut(backbone, place)[0]]


def _cut(backbone: Backbone, place: str) -> tuple[list[Layer], list[Layer]]:
    layers = find_layers(backbone)
    number = [layer.name for layer in layers].index(place)
    return layers[:number], layers[number:]


def _key(layer: Layer) -> str:
    return layer.name.replace(".", "_")
