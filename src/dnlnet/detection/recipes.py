"""Recipes of the paper's detection tables, and small ones that train on a CPU.

The paper's recipes follow its text (section 5.2, appendix A) and, where that is silent, the authors' code, whose
published scores equal the paper's table: 12 epochs of 7,330 batches, a linear warm-up, the learning rate divided by
10 after epochs 8 and 11, and clipped gradients. Stem and first stage are frozen ("stage1 and stage2" in the paper).
Section 5.2 does not mention the widths, the scale or the gate of a block.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dnlnet.detection.recipe import DetectionRecipe
from dnlnet.detection.schema import DetectorModel, InstanceData
from dnlnet.engine.settings import Optim, Schedule, Training
from dnlnet.recipes.recipe import METHODS, PaperRow

_EPOCH = 7330
# Training settings of heads and proposals in the authors' code.
_RELEASED: dict[str, Any] = {"box_beta": 1.0, "border_anchors": False, "min_overlap": 0.3}
_FROZEN = tuple(f"backbone.body.body.{part}" for part in ("conv1", "bn1", "layer1"))
# The standard block of the authors' code, `nlb`, differs from the preset. Whitened blocks are `nlgcb`.
RELEASED_BLOCKS: Mapping[str | None, Mapping[str, Any]] = {
    "nl": {
        "value_reduction": 4,
        "value_bias": True,
        "projection": True,
        "projection_bias": True,
        "gate": "none",
        "initial": "mmdet",
    }
}
_PLACES = {"c4": "c4_one", "c5": "c5_all", "c4c5": "c4c5_all"}
_SCORES = ("box AP", "box AP50", "box AP75", "mask AP", "mask AP50", "mask AP75")

# By variant and place: c4 in Table 6, the others in the appendix.
_PAPER: Mapping[tuple[str | None, str], tuple[float, ...]] = {
    (None, "c4"): (38.8, 59.3, 42.5, 35.1, 56.2, 37.9),
    ("nl", "c4"): (39.6, 60.3, 43.2, 35.8, 57.1, 38.5),
    ("nl_pairwise", "c4"): (39.8, 60.4, 43.7, 35.9, 57.3, 38.4),
    ("nl_unary", "c4"): (40.1, 60.9, 43.8, 36.1, 57.6, 38.7),
    ("dnl", "c4"): (40.3, 61.2, 44.1, 36.4, 58.0, 39.1),
    ("nl", "c5"): (40.0, 62.1, 43.5, 36.1, 58.6, 38.6),
    ("nl", "c4c5"): (40.1, 62.3, 43.5, 36.0, 58.9, 38.3),
    ("dnl", "c5"): (41.2, 62.7, 44.7, 37.0, 59.5, 39.5),
    ("dnl", "c4c5"): (41.4, 63.2, 45.3, 37.3, 59.8, 39.8),
}
# The global context block is not in the paper's tables.
_UNPRINTED = (("gc", "c4"), ("gc", "c5"), ("gc", "c4c5"))

_WHITENED = "block of the authors' code: query and key of C/4, temperature 0.05, gamma on the pairwise output only"
_REMARKS: Mapping[str, str] = {
    "nl": "block of the authors' code: query, key and value of C/4, zero-initialised projection, no gamma",
    "nl_pairwise": _WHITENED,
    "nl_unary": "block of Eq. 7 with query and key of C/4; the authors' code has softmax(W_m x), our variant gc",
    "dnl": _WHITENED,
}
_PLACE = (
    "placed as in the authors' code, between the addition and the last ReLU of a residual block; "
    "model.after_activation=true puts it between residual blocks, as in the paper's text"
)

_COCO: dict[str, Any] = {
    "data": InstanceData(),
    "optim": Optim(lr=0.02, weight_decay=1e-4, clip=35.0),
    "schedule": Schedule(
        iterations=12 * _EPOCH,
        batch=16,
        kind="step",
        milestones=(8 * _EPOCH, 11 * _EPOCH),
        warmup=500,
        warmup_start=1 / 3,
    ),
    "training": Training(frozen=_FROZEN, evaluate_every=_EPOCH, save_every=1000),
}
# For a few hundred images in COCO's layout, at a quarter of the size, with smaller anchors and fewer proposals.
# Trains in 1.5 hours on two cores.
_MICRO_MODEL: dict[str, Any] = {"boxes": 32, "proposals": 100, "anchor": 12}
_MICRO: dict[str, Any] = {
    "data": InstanceData(short_side=192, long_side=320),
    "optim": Optim(lr=0.02, weight_decay=1e-4, clip=35.0),
    "schedule": Schedule(iterations=1500, batch=4, kind="cosine", warmup=100, warmup_start=0.05),
    "training": Training(frozen=_FROZEN, evaluate_every=500, save_every=50, channels_last=True),
}
# Light heads on frozen features.
_LIGHT: dict[str, Any] = {
    "preset": "paper",
    "frozen": True,
    "width": 128,
    "box_convolutions": 1,
    "box_width": 128,
    "mask_convolutions": 2,
    "boxes": 64,
    "proposals": 200,
}


def detection_recipes() -> Iterator[DetectionRecipe]:
    """Yield every detection recipe, in the order of the paper's tables."""
    for (variant, place), scores in _PAPER.items():
        table = "Table 6, Mask R-CNN on COCO" if place == "c4" else "Appendix, more blocks on COCO"
        remark = f"{_REMARKS[variant]}; {_PLACE}" if variant else ""
        by_name = dict(zip(_SCORES, scores, strict=True))
        paper = PaperRow(table=table, method=METHODS[variant], scores=by_name, remark=remark)
        yield _recipe("coco-r50", variant, place, _RELEASED, _COCO, paper)
    for variant, place in _UNPRINTED:
        yield _recipe("coco-r50", variant, place, _RELEASED, _COCO)
    for variant, place in (*_PAPER, *_UNPRINTED):
        yield _recipe("coco-micro", variant, place, _MICRO_MODEL, _MICRO)
    yield from _frozen()


def _frozen() -> Iterator[DetectionRecipe]:
    """Yield recipes for light heads on frozen features, which train in minutes on a CPU.

    Everything below the first block is frozen, or below its place in the baseline. The blocks have no gate, as in
    segmentation's recipes for frozen features.
    """
    pets = InstanceData(name="oxford_pets_objects", train="trainval", test="test", short_side=320, long_side=480)
    data_sets = {"pets": (pets, 66 * 10), "coco-micro": (InstanceData(short_side=320, long_side=480), 300)}
    optim = Optim(kind="adamw", lr=3e-4, weight_decay=1e-2, decay_norms=False, clip=35.0)
    for name, (data, iterations) in data_sets.items():
        schedule = Schedule(iterations=iterations, batch=8, kind="cosine", warmup=30, warmup_start=0.1)
        training = Training(cache=True, evaluate_every=iterations // 3, save_every=50, channels_last=True)
        for stem, backbone in {"mbv2": "mobilenetv2", "r50": "resnet50"}.items():
            for place, placement in _PLACES.items():
                for variant in (None, "nl", "nl_pairwise", "nl_unary", "dnl", "gc"):
                    light = {**_LIGHT, "backbone": backbone, "variant": variant, "placement": placement}
                    yield DetectionRecipe(
                        name=f"{name}-{stem}_frozen-{variant or 'baseline'}-{place}",
                        model=DetectorModel(**light),
                        data=data,
                        optim=optim,
                        schedule=schedule,
                        training=training,
                    )


def _recipe(
    stem: str,
    variant: str | None,
    place: str,
    model: dict[str, Any],
    rest: dict[str, Any],
    paper: PaperRow | None = None,
) -> DetectionRecipe:
    name = f"{stem}-baseline" if variant is None else f"{stem}-{variant}-{place}"
    block = RELEASED_BLOCKS.get(variant, {})
    network = DetectorModel(variant=variant, placement=_PLACES[place], block=block, **model)  # type: ignore[arg-type]
    return DetectionRecipe(name=name, model=network, paper=paper, **rest)
