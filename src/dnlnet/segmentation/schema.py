"""Parts of a segmentation recipe: network, data, loss and evaluation."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from PIL import Image
from pydantic import Discriminator, Field, Tag, model_validator

from dnlnet.backbones.pixels import Pixels
from dnlnet.data.augmentation import Augmentation
from dnlnet.errors import unknown
from dnlnet.fields import (
    Dilation,
    Flag,
    HeightWidth,
    ImageScale,
    Index,
    LossWeight,
    OpenFraction,
    OutputStride,
    Part,
    PositiveFloat,
    PositiveInt,
    SmallInt,
)
from dnlnet.progress import Progress
from dnlnet.recipes.model import BackboneModel, Model
from dnlnet.recipes.recipe import DataPart

if TYPE_CHECKING:
    from torch import nn

    from dnlnet.backbones import Backbone
    from dnlnet.segmentation.frozen import FrozenSegmentor
    from dnlnet.segmentation.inference import Inference


class _Dilated(BackboneModel):
    """A network on a backbone whose last stages may be dilated."""

    backbone: str = "resnet101s"
    output_stride: OutputStride | None = 8
    dilations: tuple[tuple[Dilation, ...], ...] | None = None  # None: given by the output stride

    def build_backbone(self, pretrained: bool, progress: Progress) -> "Backbone":
        """Build the backbone. `pretrained` loads the weights named in the recipe."""
        from dnlnet.recipes.backbone import build_backbone

        return build_backbone(self, self.output_stride, pretrained, progress, self.dilations)


class FCN(_Dilated):
    """The paper's network: a dilated backbone, a head with the block, and an auxiliary head."""

    unused = frozenset({"stages", "reduce", "subpixels", "detail"})

    network: Literal["segmentor"] = "segmentor"
    head_dilation: Dilation = 1
    auxiliary_dilation: Dilation | None = None  # None: as the head
    join_input: Flag = True  # the released head concatenates its input and its output
    head: Literal["release", "text"] = "release"  # the authors' code, or the paper's text
    block: Mapping[str, Any] = {"gate": "scalar"}
    width: SmallInt = 512
    fused_width: SmallInt | None = None  # channels of the head after the join; None: `width`
    auxiliary: Flag = True
    auxiliary_width: SmallInt | None = None  # None: `width`
    auxiliary_bias: Flag = True
    align_corners: Flag = True

    @model_validator(mode="after")
    def _a_fused_width_needs_a_join(self) -> Self:
        if self.fused_width is not None and not (self.head == "release" and self.join_input):
            raise ValueError(
                f"fused_width={self.fused_width} is for a head that joins its input: set head=release and "
                "join_input=true, or leave it out"
            )
        return self

    def build(self, classes: int, pretrained: bool, progress: Progress) -> "nn.Module":
        """Build the network."""
        from dnlnet.recipes.backbone import network_options
        from dnlnet.segmentation.network import Segmentor

        return Segmentor(self.build_backbone(pretrained, progress), classes, **network_options(self))


_OF_ALL = {"network", "width", "align_corners"}
_HEADS = {"head_dilation", "auxiliary_dilation", "join_input", "head", "fused_width"}
_AUXILIARY = {"auxiliary", "auxiliary_width", "auxiliary_bias"}


class Tiny(Model):
    """Four convolutions, the block and a classifier."""

    unused = frozenset((FCN.model_fields.keys() | FCN.unused) - Model.model_fields.keys() - _OF_ALL)

    network: Literal["tiny"] = "tiny"
    weights: None = None
    width: SmallInt = 64
    align_corners: Flag = True

    @property
    def layers(self) -> str:
        """Description of the layers before the head."""
        return "four convolutions"

    def network_pixels(self) -> Pixels:
        """Return the pixel normalisation of the network."""
        return Pixels()

    def build(self, classes: int, pretrained: bool, progress: Progress) -> "nn.Module":
        """Build the network."""
        from dnlnet.segmentation.tiny import TinySegmentor

        return TinySegmentor(classes, self.width // 2, self.variant, preset=self.preset, **self.block)


class Frozen(_Dilated):
    """A light head on the features of a frozen backbone, which can be computed once and cached."""

    unused = frozenset(_HEADS | _AUXILIARY)

    network: Literal["frozen"] = "frozen"
    output_stride: OutputStride | None = 32
    width: SmallInt = 128
    align_corners: Flag = False
    stages: tuple[Index, ...] = (1, 2, 3)  # backbone stages that the head uses
    reduce: SmallInt | None = None  # channels that each stage is reduced to first
    subpixels: Annotated[int, Field(strict=True, ge=1, le=32)] = 1  # logits per side of a grid position
    detail: SmallInt | None = None  # channels of a convolution on the first stage's grid, after the block

    @property
    def layers(self) -> str:
        """Description of the layers before the head."""
        return f"features of {self.backbone}"

    def build(self, classes: int, pretrained: bool, progress: Progress) -> "FrozenSegmentor":
        """Build the network."""
        from dnlnet.recipes.backbone import network_options
        from dnlnet.segmentation.frozen import FrozenSegmentor

        options = network_options(self)
        del options["align_corners"]  # for the resizing of images
        return FrozenSegmentor(self.build_backbone(pretrained, progress), classes, **options)


_KINDS = {"segmentor": FCN, "tiny": Tiny, "frozen": Frozen}


def _network(model: Any) -> str:
    """Return the tag of the network. Models saved by early versions do not name their network."""
    name = model.get("network", "segmentor") if isinstance(model, Mapping) else getattr(model, "network", "segmentor")
    if not isinstance(name, str) or name not in _KINDS:
        raise unknown("model.network", name, _KINDS)
    return f"network={name}"


SegmentorModel = FCN | Tiny | Frozen
AnySegmentorModel = Annotated[  # error messages leave the tags out (see `validated`)
    Annotated[FCN, Tag("network=segmentor")]
    | Annotated[Tiny, Tag("network=tiny")]
    | Annotated[Frozen, Tag("network=frozen")],
    Discriminator(_network),
]


class View(NamedTuple):
    """View of an image in which features are computed: a scale and an optional left-to-right flip."""

    scale: float
    flipped: bool = False

    @property
    def relative_size(self) -> float:
        """Size of the view, relative to the image."""
        return self.scale**2

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the height and width of the view, from those of the image.

        >>> View(0.5).size((9, 12))
        (4, 6)
        """
        return max(1, round(size[0] * self.scale)), max(1, round(size[1] * self.scale))

    def image(self, image: Image.Image, resampling: Image.Resampling) -> Image.Image:
        """Return the scaled and flipped image."""
        height, width = self.size((image.height, image.width))
        resized = image if image.size == (width, height) else image.resize((width, height), resampling)
        return resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if self.flipped else resized

    def __str__(self) -> str:
        return f"{self.scale:g}{'-flipped' if self.flipped else ''}"


class Data(Augmentation, DataPart):
    """A data set, its splits, and the augmentation of training crops."""

    # Scales at which a frozen backbone computes features; `flip` adds flipped views.
    views: Annotated[tuple[ImageScale, ...], Field(max_length=20)] = ()

    def feature_views(self) -> list[View]:
        """Return the views in which the features of each image are computed."""
        flips = (False, True) if self.flip else (False,)
        return [View(scale, flipped) for scale in self.views for flipped in flips]


class Ohem(Part):
    """Hard pixels: p(true class) below `threshold`, and at least `kept` per image of a process's batch."""

    threshold: OpenFraction = 0.7
    kept: PositiveInt = 100_000


class Loss(Part):
    """Cross-entropy with its options."""

    ohem: Ohem | None = None
    class_weights: Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=65_536)] | None = None
    auxiliary_weight: LossWeight = 0.5


class Evaluation(Part):
    """Inference settings for testing.

    Args:
        window, stride: Height and width of sliding windows and of their steps. None: the whole image.
        short_side: Length of the shorter side after resizing, or less if the longer side would exceed `long_side`.
        long_side: Limit of the longer side after resizing. None: eight times `short_side`.
        scales: Factors of the resized image; each one is predicted.
        flip: True to predict each scale flipped left to right as well.
        divisor: Divisor of the padded height and width. Padding is below and on the right; its logits are dropped.
        image_corners: Alignment of images when resized. None: as the network's `align_corners`.
    """

    window: HeightWidth | None = None
    stride: HeightWidth | None = None
    short_side: SmallInt | None = None
    long_side: SmallInt | None = None
    scales: Annotated[tuple[ImageScale, ...], Field(min_length=1, max_length=100)] = (1.0,)
    flip: Flag = False
    divisor: SmallInt = 1
    image_corners: Flag | None = None

    @model_validator(mode="after")
    def _a_limit_needs_a_size(self) -> Self:
        if self.long_side is not None and self.short_side is None:
            raise ValueError(f"long_side={self.long_side} limits images that are resized; give short_side too")
        return self

    @model_validator(mode="after")
    def _windows_leave_no_gaps(self) -> Self:
        if (self.window is None) != (self.stride is None):
            raise ValueError("windows need a size and a stride: give both window and stride, or none")
        if self.window is not None and self.stride is not None:
            for step, length in zip(self.stride, self.window, strict=True):
                if step > length:
                    raise ValueError(f"a stride of {step} leaves gaps between windows of {length}")
        return self

    def single_pass(self) -> Self:
        """Return the settings for one pass over the whole image: no windows, one scale, no flip."""
        return self.model_copy(update={"window": None, "stride": None, "scales": (1.0,), "flip": False})

    def inference(self, model: SegmentorModel) -> "Inference":
        """Return the inference settings for the network of this model."""
        from dnlnet.segmentation.inference import Inference

        fill = model.network_pixels().zero()
        return Inference(**dict(self), align_corners=model.align_corners, fill=fill)
