"""Facts about a model of mmsegmentation that its weights do not show.

Sources, in this order: the configuration in the file, the name of the file, and what is most common there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dnlnet.backbones.pixels import Pixels
from dnlnet.conversion.family import Assumption
from dnlnet.conversion.mm_config import MMConfig, require_known
from dnlnet.conversion.resnets import Dilations, nondefault_dilations
from dnlnet.conversion.segmentation.mmseg_images import (
    Resizing,
    check_steps,
    find_divisor,
    find_pixels,
    find_resizing,
    test_steps,
)
from dnlnet.conversion.values import are_counts, is_count
from dnlnet.errors import shown

_WINDOWED = (769, 769)  # models for crops of this size align corners and are tested in windows
_STRIDE = (513, 513)
# Sizes of images in the published test configurations, by our name of the data set.
_RESIZED: Mapping[str, Resizing] = {
    "cityscapes": Resizing(1024, 2048),
    "pascal_context": Resizing(520, 520),
    "pascal_context_60": Resizing(520, 520),
}
_RESIZED_WINDOWED, _RESIZED_USUALLY = Resizing(1025, 2049), Resizing(512, 2048)
_STRIDES = {(1, 2, 1, 1): 8, (1, 2, 2, 1): 16, (1, 2, 2, 2): 32}  # strides of the stages and of the network

# Supported values by key.
_BACKBONE: Mapping[str, tuple[Any, ...]] = {
    "type": ("ResNet", "ResNetV1c"),
    "style": ("pytorch", "caffe"),
    "num_stages": (4,),
    "avg_down": (False,),
    "contract_dilation": (True, False),
    **dict.fromkeys(("conv_cfg", "dcn", "plugins"), (None,)),
}
_HEAD: Mapping[str, tuple[Any, ...]] = {
    "conv_cfg": (None,),
    "act_cfg": (None, {"type": "ReLU"}, {"type": "ReLU", "inplace": True}),
    "input_transform": (None,),
    "threshold": (None,),
}
_NORM: Mapping[str, tuple[Any, ...]] = {
    "type": ("BN", "SyncBN", "BN2d", "MMSyncBN", "BatchNorm2d", "SyncBatchNorm"),
    "eps": (1e-5,),
}
# Keys whose values show in the tensors, or matter only for training.
_SHOWN = {
    "backbone": "depth in_channels stem_channels base_channels strides dilations out_indices deep_stem frozen_stages "
    "norm_cfg norm_eval stage_with_dcn multi_grid with_cp zero_init_residual pretrained init_cfg",
    "head": "type in_channels channels num_classes out_channels dropout_ratio norm_cfg in_index loss_decode "
    "ignore_index sampler align_corners init_cfg num_convs kernel_size concat_input dilation reduction "
    "use_scale mode temperature",
}


@dataclass
class MmsegFacts:
    """Facts about a model besides its weights.

    Args:
        name: Name of the checkpoint's file.
        config: Configuration in the checkpoint.
        data: Our name of the data set.
        trained: Number of trained iterations in the checkpoint.
    """

    name: str
    config: MMConfig
    data: str
    trained: Any
    crop: tuple[int, int] | None = None
    align_corners: bool = False
    window: tuple[int, int] | None = None
    stride: tuple[int, int] | None = None
    iterations: int = 40_000
    output_stride: int = 8
    dilations: Dilations | None = None
    stride_in_1x1: bool = False
    pixels: Pixels = field(default_factory=Pixels)
    resizing: Resizing = field(default_factory=Resizing)
    divisor: int = 1
    head_dilation: int = 1
    auxiliary_dilation: int | None = None
    notes: list[str] = field(default_factory=list)
    assumed: list[Assumption] = field(default_factory=list)

    @property
    def windowed(self) -> bool:
        """Return whether it was trained on larger crops of Cityscapes, which imply other settings."""
        return self.crop == _WINDOWED

    def __post_init__(self) -> None:
        self._find_crop()
        self._find_corners()
        self._find_image()
        self._find_test()
        self._find_backbone()
        self._find_heads()
        self._find_length()

    def _find_crop(self) -> None:
        named = re.search(r"(?<!\d)(\d{3,4})x(\d{3,4})(?!\d)", self.name)
        crops = [
            self.config.names.get("crop_size"),
            self.config.part("model", "data_preprocessor").get("size"),
            *(part.get("crop_size") for part in self.config.dicts() if part.get("type") == "RandomCrop"),
            (int(named[1]), int(named[2])) if named else None,
        ]
        self.crop = next((crop for crop in map(_pair, crops) if crop is not None), None)

    def _find_corners(self) -> None:
        head = self.config.part("model", "decode_head")
        if head:
            self.align_corners = head.get("align_corners", False) is True  # False is the default there
            return
        self.align_corners = self.windowed
        why = f"as in their models for crops of {self.crop[0]} x {self.crop[1]}" if self.crop else _NO_CROP
        self._assume("model.align_corners", f"align_corners is {self.align_corners}, {why}")

    def _find_image(self) -> None:
        """Find how an image is normalised, resized and padded."""
        steps = test_steps(self.config)
        self.divisor = find_divisor(self.config)
        pixels = find_pixels(self.config, steps)
        if pixels is None:
            self._assume(
                "model.pixels",
                "pixels are assumed to be red first with ImageNet's mean and std, as in their configurations",
                "model.pixels.blue_first=true, model.pixels.mean=[...] and model.pixels.deviation=[...]",
            )
        self.pixels = pixels or Pixels()
        if steps is not None:
            self.notes += check_steps(steps)
            self.resizing = find_resizing(steps)
            return
        self.resizing = _RESIZED_WINDOWED if self.windowed else _RESIZED.get(self.data, _RESIZED_USUALLY)
        self._assume(
            "evaluation.short_side",
            f"images are resized to {self.resizing.short} pixels, at most {self.resizing.long} on the longer side, "
            "as in their test configurations",
            "evaluation.short_side=... --set evaluation.long_side=..., or null for both,",
        )

    def _find_test(self) -> None:
        tests = (self.config.part("model", "test_cfg"), self.config.part("test_cfg"))
        test = next((part for part in tests if "mode" in part), None)
        if test is None:
            self.window, self.stride = (_WINDOWED, _STRIDE) if self.windowed else (None, None)
            fed = f"in windows of {self.window}" if self.window else "whole"
            self._assume(
                "evaluation.window",
                f"images are fed to the network {fed}, as for most such models",
                "evaluation.window=[769,769] --set evaluation.stride=[513,513], or null for both,",
            )
        elif test["mode"] == "slide":
            self.window, self.stride = _pair(test.get("crop_size")), _pair(test.get("stride"))
            if self.window is None or self.stride is None:
                raise ValueError(f"its test_cfg is {shown(dict(test))}; expected crop_size and stride of two numbers")
            if any(step > side for step, side in zip(self.stride, self.window, strict=True)):
                raise ValueError(
                    f"its test_cfg.stride is {shown(self.stride)}, which leaves gaps between windows of "
                    f"{shown(self.window)}; expected a stride no larger than crop_size"
                )
        elif test["mode"] != "whole":
            raise ValueError(f"its test_cfg.mode is {shown(test['mode'])}; supported: whole and slide")

    def _find_backbone(self) -> None:
        part = self.config.part("model", "backbone")
        if not part:
            named = re.search(r"-d(8|16|32)(?!\d)", self.name)
            self.output_stride = int(named[1]) if named else 8
            if named is None:
                text = "--set model.output_stride=8 (or 16, 32) for the stride at which its backbone ends"
                self.assumed.append(Assumption(text, ("model.output_stride",), required=True))
            return
        require_known(part, "backbone", _BACKBONE)
        self._check_rest(part, "backbone", _BACKBONE, "backbone")
        strides, dilations = part.get("strides", (1, 2, 2, 2)), part.get("dilations", (1, 1, 1, 1))
        grid = part.get("multi_grid")
        if not are_counts(strides, 4) or strides not in _STRIDES:
            raise ValueError(f"its backbone.strides are {shown(strides)}; supported: {', '.join(map(str, _STRIDES))}")
        if not are_counts(dilations, 4) or not (grid is None or are_counts(grid)):
            raise ValueError(
                f"its backbone.dilations are {shown(dilations)} and multi_grid is {shown(grid)}; expected whole "
                "numbers"
            )
        contract = part.get("contract_dilation") is True
        stages: list[tuple[int, ...]] = [(rate // 2 if contract and rate > 1 else rate, rate) for rate in dilations]
        if grid is not None:
            stages[-1] = grid  # replaces the stage's own
        self.output_stride = _STRIDES[strides]
        self.dilations = nondefault_dilations(self.output_stride, stages)
        self.stride_in_1x1 = part.get("style") == "caffe"

    def _find_heads(self) -> None:
        head, auxiliary = self.config.part("model", "decode_head"), self.config.part("model", "auxiliary_head")
        if not head:
            named = re.search(r"[_-]d(\d+)_r\d", self.name)  # as in fcn_d6_r50-d16 and fcn-d6_r50-d16
            self.head_dilation = int(named[1]) if named else 1
            if named is None:
                self._assume("model.head_dilation", "the convolutions of its heads are assumed to have no dilation")
            return
        for where, part in (("decode_head", head), ("auxiliary_head", auxiliary)):
            require_known(part, where, _HEAD)
            self._check_rest(part, where, _HEAD, "head")
        if head.get("in_index", -1) not in (3, -1):
            raise ValueError(f"its decode_head.in_index is {shown(head['in_index'])}; supported: the last map, 3")
        dilations = (head.get("dilation", 1), auxiliary.get("dilation", 1))
        if not all(map(is_count, dilations)):
            raise ValueError(f"its heads have the dilations {shown(dilations)}; expected whole numbers")
        self.head_dilation, other = dilations
        self.auxiliary_dilation = None if other == self.head_dilation else other

    def _find_length(self) -> None:
        said = (rounds for key in ("max_iters", "total_iters") for rounds in self.config.everywhere(key))
        rounds = next((number for number in said if is_count(number)), None)
        thousands = re.search(r"(?<![\dx])(\d+)k(?![a-z])", self.name)
        if rounds is not None:
            self.iterations = rounds
        elif thousands is not None and int(thousands[1]) > 0:
            self.iterations = 1000 * int(thousands[1])
        elif is_count(self.trained):
            self.iterations = self.trained
        else:
            self._assume("schedule.iterations", f"{self.iterations} iterations of training are assumed")

    def _check_rest(self, part: Mapping[str, Any], where: str, known: Mapping[str, Any], kind: str) -> None:
        """Raise for unsupported norms, and note unknown keys."""
        norm = part.get("norm_cfg")
        if isinstance(norm, Mapping):
            require_known(norm, f"{where}.norm_cfg", _NORM)
        if strange := [key for key in part if key not in known and key not in _SHOWN[kind].split()]:
            self.notes.append(f"ignored unknown keys in the {where} of its configuration: {', '.join(strange)}")

    def _assume(self, key: str, text: str, how: str | None = None) -> None:
        self.assumed.append(Assumption(f"{text}; --set {how or f'{key}=...'} changes it", (key,)))


_NO_CROP = "because neither a configuration nor the file name gives the size of its training crops"


def _pair(value: Any) -> tuple[int, int] | None:
    """Return height and width, given as two numbers or one for both."""
    if is_count(value):
        return (value, value)
    return (value[0], value[1]) if are_counts(value, 2) else None
