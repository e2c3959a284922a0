"""Configurations of PySlowFast: YAML in its checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from dnlnet.conversion.family import Assumption
from dnlnet.conversion.values import nested
from dnlnet.conversion.video.networks import STAGES
from dnlnet.data.parsing import parse_yaml
from dnlnet.errors import shown
from dnlnet.recipes.recipe import Recipe

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)

_POOL = 2  # the preset's pooling of keys
_FIRST_OF_STAGES = {"SPATIAL_STRIDES": [1, 2, 2, 2], "SPATIAL_DILATIONS": [1, 1, 1, 1]}
# Values that our network requires.
_ONLY: Mapping[tuple[str, str], Any] = {
    ("MODEL", "ARCH"): "slow",  # others pool frames between stages
    ("MODEL", "HEAD_ACT"): "softmax",  # others allow several classes per video
    ("RESNET", "TRANS_FUNC"): "bottleneck_transform",
    ("RESNET", "NUM_GROUPS"): 1,
    ("DATA", "MULTI_LABEL"): False,
    ("DETECTION", "ENABLE"): False,
}
# Our part and field of a recipe by their part and key.
_TAKEN: Mapping[tuple[str, str], tuple[str, str]] = {
    ("DATA", "NUM_FRAMES"): ("data", "frames"),
    ("DATA", "SAMPLING_RATE"): ("data", "stride"),
    ("DATA", "TARGET_FPS"): ("data", "rate"),
    ("DATA", "MEAN"): ("data", "mean"),
    ("DATA", "STD"): ("data", "deviation"),
    ("DATA", "TRAIN_JITTER_SCALES"): ("data", "short_sides"),
    ("DATA", "TRAIN_CROP_SIZE"): ("data", "crop"),
    ("DATA", "TEST_CROP_SIZE"): ("evaluation", "short_side"),
    ("TEST", "NUM_ENSEMBLE_VIEWS"): ("evaluation", "clips"),
    ("TEST", "NUM_SPATIAL_CROPS"): ("evaluation", "crops"),
    ("MODEL", "DROPOUT_RATE"): ("model", "dropout"),
}
_NO_BLOCKS = Assumption(
    "--set model.block.attention=dot --set model.block.scaled=false for NONLOCAL.INSTANTIATION dot_product, "
    "PySlowFast's default, or --set model.block.attention=softmax; keys are assumed to be pooled by 2, which --set "
    "model.block.pool=... changes",
    ("model.block",),
    required=True,
)
_NO_CLIPS = Assumption(
    "clips are assumed to be those of PySlowFast's SLOW_8x8: 8 frames with a stride of 8, pixels with mean 0.45 and "
    "std 0.225, red first; --config FILE, or --set data.frames=... etc., changes it",
    ("data.frames", "data.stride", "data.mean", "data.deviation"),
)


@dataclass(frozen=True)
class SlowFastConfig:
    """Configuration in a checkpoint; `content` is None if it is missing."""

    content: Mapping[str, Any] | None

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> "SlowFastConfig":
        """Parse the YAML under `cfg`. Raises ValueError if this package has no such network."""
        text = meta.get("cfg")
        if not isinstance(text, str):
            return cls(None)
        try:
            content = parse_yaml(text) or {}
        except ValueError as error:
            raise ValueError(f"its cfg {error}, so its blocks are unknown") from None
        if not isinstance(content, Mapping):
            raise ValueError("its cfg is not YAML of keys and values, so its blocks are unknown")
        config = cls(content)
        for (part, key), usual in _ONLY.items():
            if (value := config.part(part).get(key, usual)) != usual:
                raise ValueError(f"its {part}.{key} is {shown(value)}; supported: {shown(usual)}")
        for key, firsts in _FIRST_OF_STAGES.items():
            value = config.part("RESNET").get(key)
            if value is not None and _firsts(value) != firsts:
                raise ValueError(f"its RESNET.{key} is {shown(value)}; supported: {firsts}")
        return config

    def part(self, name: str) -> Mapping[str, Any]:
        """Return one of its parts; empty if missing."""
        return nested(self.content, name)

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        """Return the assumptions without a configuration."""
        return (_NO_CLIPS,) if self.content is None else ()

    def head_note(self) -> str:
        """Describe how the head differs: it pools windows of TRAIN_CROP_SIZE // 32 positions, one pixel apart."""
        crop = self.part("DATA").get("TRAIN_CROP_SIZE", 224)
        window = crop // 32 if isinstance(crop, int) else 7
        own = "" if not isinstance(crop, int) or crop % 32 == 0 else f", such as its own {crop}"
        return (
            f"PySlowFast averages the probabilities of overlapping {window} x {window} windows of features; here the "
            f"features of the whole crop are averaged, which is the same for crops of {32 * window} pixels and "
            f"differs for others{own}"
        )

    def apply_to(self, recipe: AnyRecipe) -> AnyRecipe:
        """Return the recipe with the configuration's clips, crops and views."""
        content = recipe.model_dump()
        for (part, key), (ours, name) in _TAKEN.items():
            if key in self.part(part):
                content[ours][name] = self.part(part)[key]
        if self.part("DATA").get("RANDOM_FLIP") is False:
            content["data"]["flip"] = 0.0
        try:
            return type(recipe).model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = tuple(map(str, first["loc"][:2]))
            theirs = next((".".join(key) for key, ours in _TAKEN.items() if ours == where), ".".join(where))
            said = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"its {theirs} is {shown(first['input'])}: {said}") from None

    def block(self, stages: tuple[str, ...]) -> tuple[dict[str, Any], tuple[Assumption, ...]]:
        """Return the settings of the blocks in these stages that differ from the preset, and assumptions."""
        if not stages:
            return {}, ()
        if self.content is None:
            return {}, (_NO_BLOCKS,)
        blocks = self.part("NONLOCAL")
        kind = blocks.get("INSTANTIATION", "dot_product")
        if kind not in ("softmax", "dot_product"):
            raise ValueError(f"its NONLOCAL.INSTANTIATION is {shown(kind)}; supported: 'softmax' and 'dot_product'")
        groups = _of_stages(blocks, "GROUP", 1, stages)
        if any(group != 1 for group in groups):
            raise ValueError(
                f"its NONLOCAL.GROUP is {shown(blocks['GROUP'])}, attention within groups of frames; supported: 1"
            )
        windows = _of_stages(blocks, "POOL", [1, _POOL, _POOL], stages)
        first = windows[0]
        if not isinstance(first, list) or len(first) != 3 or any(window != first for window in windows):
            raise ValueError(f"its NONLOCAL.POOL is {shown(blocks['POOL'])}; supported: one factor for all")
        frames, rows, columns = first
        if frames != 1 or rows != columns or not isinstance(rows, int) or rows < 1:
            raise ValueError(f"its NONLOCAL.POOL is {shown(blocks['POOL'])}; supported: spatial pooling")
        dots = {"attention": "dot", "scaled": False} if kind == "dot_product" else {}
        return dots | ({} if rows == _POOL else {"pool": rows}), ()


def _of_stages(blocks: Mapping[str, Any], key: str, usual: Any, stages: tuple[str, ...]) -> list[Any]:
    """Return a key's values for the only pathway in each of these stages."""
    if key not in blocks:
        return [usual] * len(stages)
    firsts = _firsts(blocks[key])
    if firsts is None or len(firsts) != len(STAGES):
        raise ValueError(f"its NONLOCAL.{key} is {shown(blocks[key])}; expected one list per stage")
    return [firsts[STAGES.index(stage)] for stage in stages]


def _firsts(lists: Any) -> list[Any] | None:
    """Return the first item of each inner list, which belongs to the only pathway."""
    if not isinstance(lists, list) or not all(isinstance(inner, list) and inner for inner in lists):
        return None
    return [inner[0] for inner in lists]
