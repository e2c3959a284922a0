"""Segmentation recipes: the paper's rows, the authors' released configurations, and small recipes for a CPU.

Recipes of the paper's rows follow its text (Sec. 5.1). Where the text is silent they follow the authors' release:
gamma on the pairwise output, the head whose parameters Table 5 counts, and OHEM of 100,000 pixels per image of a
process's batch. Images of ADE20K and PASCAL-Context are resized to a shorter side of 520; for testing, the longer
side is at most 1,040 and both sides are padded to a multiple of 8.

The paper prints the learning rate as 1 - (i/n)^0.9; these recipes use the common policy (1 - i/n)^0.9. Recipes with
`_authors` in their names follow the release where it contradicts the text. `sources.py` gives the source
of every value.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dnlnet.attention import VARIANTS
from dnlnet.engine.settings import Optim, Phase, Schedule, Training
from dnlnet.recipes.recipe import METHODS, Measured, PaperRow
from dnlnet.segmentation.recipe import SegmentationRecipe
from dnlnet.segmentation.schema import FCN, Data, Evaluation, Frozen, Loss, Ohem, SegmentorModel, Tiny
from dnlnet.segmentation.sources import CLASS_WEIGHTS

# Eq. 12 has no gate, and the text does not mention one. The release has gamma on the pairwise output alone.
_GATE = {"gate": "scalar_pairwise"}
_R101 = FCN(backbone="resnet101s", ceil_pool=True, block=_GATE)
# Four branches with 720 channels in total: 360 in the block, 512 after the join, and no auxiliary head.
_HRNET = FCN(backbone="hrnet_w48", output_stride=None, width=360, fused_width=512, auxiliary=False, block=_GATE)
_BACKBONES: Mapping[str, FCN] = {"r101": _R101, "hrnet_w48": _HRNET}

TUNED = "tuned.safetensors"  # best model of a run of the `_tuned` recipe

_WINDOWS = Evaluation(window=(769, 769), stride=(512, 512))
_SCALES = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
_RESIZED = Evaluation(short_side=520, long_side=1040, scales=_SCALES, flip=True, divisor=8)

_CITYSCAPES = {
    "data": Data(name="cityscapes", crop=(769, 769)),
    "loss": Loss(ohem=Ohem()),
    "optim": Optim(lr=0.01, weight_decay=5e-4),
    "schedule": Schedule(iterations=60_000, batch=8),
    "evaluation": _WINDOWS,
}
_CITYSCAPES_TEST = {
    **_CITYSCAPES,
    "data": Data(name="cityscapes", train="trainval", test=None, crop=(769, 769)),
    "schedule": Schedule(
        iterations=100_000,
        batch=8,
        then=(
            Phase(train="coarse", iterations=50_000, lr=0.001),
            Phase(train="trainval", iterations=50_000, lr=0.001),
        ),
    ),
}
_ADE20K = {
    "data": Data(name="ade20k", crop=(520, 520), short_side=520),
    "loss": Loss(ohem=Ohem()),
    "optim": Optim(lr=0.02, weight_decay=1e-4),
    "schedule": Schedule(iterations=150_000, batch=16),
    "evaluation": _RESIZED,
}
_CONTEXT = {
    "data": Data(name="pascal_context_60", crop=(520, 520), short_side=520),
    "optim": Optim(lr=0.001, weight_decay=1e-4),
    "schedule": Schedule(iterations=30_000, batch=16),
    "evaluation": _RESIZED.model_copy(update={"scales": (*_SCALES, 2.0)}),
}

_ABLATION = {
    None: 75.8,
    "nl": 78.5,
    "nl_pairwise": 77.5,
    "nl_unary": 79.3,
    "dnl_star": 79.0,
    "dnl_dagger": 79.2,
    "dnl": 80.5,
}
# Millions of parameters, billions of multiply-accumulates, seconds per image.
_COMPLEXITY = {None: (70.960, 691.06, 0.177), "nl": (71.484, 765.07, 0.192), "dnl": (71.485, 765.16, 0.194)}
_TEST = {("r101", "nl"): 80.8, ("r101", "dnl"): 82.0, ("hrnet_w48", "nl"): 82.5, ("hrnet_w48", "dnl"): 83.0}
_ADE20K_SCORES = {
    ("r101", "nl"): (44.67, 55.58),
    ("r101", "dnl"): (45.97, 56.23),
    ("hrnet_w48", "nl"): (44.82, 55.60),
    ("hrnet_w48", "dnl"): (45.82, 55.98),
}
_CONTEXT_SCORES = {("r101", "nl"): 50.6, ("r101", "dnl"): 54.8, ("hrnet_w48", "nl"): 54.2, ("hrnet_w48", "dnl"): 55.3}
_CONTEXT_REMARK = {
    ("r101", "nl"): "the paper's text says 50.3 where its table says 50.6",
    ("r101", "dnl"): "the paper's text says 53.7 where its table says 54.8",
}

# Settings in which all of the authors' configurations differ from the paper's text.
_RELEASE = {"preset": "authors", "caffe_pixels": True, "auxiliary_bias": False}
_RELEASE_WEIGHTS = {"resnet101s": "3x3resnet101-imagenet.pth", "hrnet_w48": "hrnetv2_w48_imagenet_pretrained.pth"}
_NOWD = {"no_decay": ("block.query", "block.key")}
_NL = {"block": {"value_reduction": 2, "value_bias": True, "projection": True, "gate": "scalar_pairwise_norm"}}
_UNWHITENED = "whitening is off, for their class {} knows no {}, and centres nothing"


def _at(temperature: float, **options: Any) -> dict[str, Any]:
    return {"preset": "authors_temperature", "block": {"temperature": temperature, **options}}


# Model settings, optimiser settings, and the name of the authors' configuration.
_RELEASED: Mapping[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "cityscapes-r101_authors-dnl": ({}, _NOWD, "NLnowd_ln"),
    "cityscapes-r101_authors_nowd_in-dnl": (
        {"block": {"centring": "none"}},
        _NOWD,
        f"NLnowd_in; {_UNWHITENED.format('nonlocalnowd', 'channel')}",
    ),
    "cityscapes-r101_authors_temp_in-dnl": (_at(0.05), {}, "NLin"),
    "cityscapes-r101_authors-nl": (_NL, {}, "NL, with use_out and out_bn"),
    "cityscapes-r101_authors-dnl_dagger": (_at(0.06), {}, "NLunary"),
    "cityscapes-r101_authors-gc": ({}, {}, "Unary, whose logit is W_m x, not mu_q.k (Eq. 7)"),
    "ade20k-r101_authors-dnl": (
        _at(0.1),
        {},
        "NLbn; centred by channel, though one version of it says in_nostd, which does nothing",
    ),
    "ade20k-r101_authors-nl": (_NL, {}, "NL, with use_out and out_bn"),
    "ade20k-hrnet_w48_authors-dnl": (
        _at(0.1, centring="none"),
        {},
        f"NLbn_hrnet; {_UNWHITENED.format('nonlocalbn', 'in_nostd')}",
    ),
    "pascal_context-r101_authors-dnl": (
        {},
        {"lr": 0.01, **_NOWD},
        "NLnowd, with OHEM; the README's script also runs NLnowd59c: 59 classes, lr 0.001",
    ),
    "pascal_context-r101_authors-nl": (_NL, {"lr": 0.01}, "NL, with OHEM, use_out and out_bn"),
}

# One run each, with seed 0.
_MEASURED: Mapping[str, Measured] = {
    "camvid-mbv2-dnl": Measured(
        scores={"val": 58.2},
        command="dnlnet train camvid-mbv2-dnl --data camvid --out run "
        "--set model.weights=mobilenet_v2_imagenet_features_fp16.pth",
        machine="AMD EPYC, 2 threads, torch 2.15.0, 47 minutes beside other work",
    ),
}


def segmentation_recipes() -> Iterator[SegmentationRecipe]:
    """Yield every segmentation recipe, in the order of the paper's tables."""
    yield from _cityscapes()
    yield from _other_data_sets()
    yield from _released()
    yield from _small()
    yield from _frozen()


def _cityscapes() -> Iterator[SegmentationRecipe]:
    for variant, miou in _ABLATION.items():
        parameters, macs, latency = _COMPLEXITY.get(variant, (None, None, None))
        paper = PaperRow(
            table="Table 2, ablation on Cityscapes",
            method=METHODS[variant],
            scores={"val": miou},
            parameters=parameters,
            macs=macs,
            latency=latency,
        )
        yield _recipe("cityscapes-r101", variant, _R101, _CITYSCAPES, paper)
    for (backbone, variant), miou in _TEST.items():
        paper = PaperRow(table="Table 3, Cityscapes test", method=METHODS[variant], scores={"test": miou})
        yield _recipe(f"cityscapes_test-{backbone}", variant, _BACKBONES[backbone], _CITYSCAPES_TEST, paper)


def _other_data_sets() -> Iterator[SegmentationRecipe]:
    table = "Table 4, ADE20K and PASCAL-Context"
    for (backbone, variant), (val, test) in _ADE20K_SCORES.items():
        paper = PaperRow(table=table, method=METHODS[variant], scores={"val": val, "test": test})
        yield _recipe(f"ade20k-{backbone}", variant, _BACKBONES[backbone], _ADE20K, paper)
    for (backbone, variant), miou in _CONTEXT_SCORES.items():
        remark = _CONTEXT_REMARK.get((backbone, variant), "")
        paper = PaperRow(table=table, method=METHODS[variant], scores={"val": miou}, remark=remark)
        yield _recipe(f"pascal_context-{backbone}", variant, _BACKBONES[backbone], _CONTEXT, paper)


def _released() -> Iterator[SegmentationRecipe]:
    """Yield the authors' configurations with the test settings and scores of their rows in the paper."""
    rows = {recipe.name: recipe for recipe in (*_cityscapes(), *_other_data_sets())}
    for name, (model, optim, remark) in _RELEASED.items():
        stem, variant = name.rsplit("-", 1)
        row = rows[f"{stem.split('_authors')[0]}-{'nl_unary' if variant == 'gc' else variant}"]
        assert row.paper is not None
        assert isinstance(row.model, FCN)
        changed = {"block": {}, "weights": _RELEASE_WEIGHTS[row.model.backbone], **_RELEASE, **model}
        weights = CLASS_WEIGHTS if row.data.name == "cityscapes" else None
        rest = {
            "data": row.data.model_copy(update={"aspects": (0.9, 1.1)}),
            "loss": Loss(ohem=Ohem(), class_weights=weights, auxiliary_weight=0.4),
            "optim": row.optim.model_copy(update=optim),
            "schedule": row.schedule,
            "evaluation": row.evaluation,
        }
        paper = PaperRow(
            table=row.paper.table,
            method=row.paper.method,
            scores=row.paper.scores,
            remark=f"the authors' configuration {remark}",
        )
        yield _recipe(stem, variant, FCN(**dict(row.model) | changed), rest, paper)


def _small() -> Iterator[SegmentationRecipe]:
    """Yield recipes for two CPU cores: CamVid in an hour or less, and generated scenes in a minute.

    CamVid's blocks keep the scalar gate over their whole output, because the measured score was reached with it.
    The stride is 16, because the dilated depthwise convolutions of stride 8 are several times slower on a CPU.
    """
    camvid = {"data": Data(name="camvid", crop=(321, 449)), "loss": Loss(ohem=Ohem(kept=20_000))}
    resnet50 = FCN(backbone="resnet50", output_stride=16, width=256)
    slowly = {
        "optim": Optim(lr=0.01),
        "schedule": Schedule(iterations=600, batch=4),
        "training": Training(evaluate_every=100, save_every=50),
    }
    mobilenet = FCN(backbone="mobilenetv2", output_stride=16, width=128)
    quickly = {
        "optim": Optim(lr=0.02),
        "schedule": Schedule(iterations=800, batch=8),
        "training": Training(evaluate_every=200, save_every=100, channels_last=True),
    }
    scenes = {
        "data": Data(name="scenes", crop=(96, 96), scales=(1.0, 1.0), brightness=0),
        "optim": Optim(kind="adamw", lr=0.004, weight_decay=1e-4),
        "schedule": Schedule(iterations=400, batch=8, kind="cosine"),
        "training": Training(evaluate_every=100, save_every=100),
    }
    for stem, model, rest, variants in (
        ("camvid-r50", resnet50, {**camvid, **slowly}, METHODS),
        ("camvid-mbv2", mobilenet, {**camvid, **quickly}, METHODS),
        ("scenes-tiny", Tiny(), scenes, [None, *VARIANTS]),
    ):
        for variant in variants:
            yield _recipe(stem, variant, model, rest)


def _frozen() -> Iterator[SegmentationRecipe]:
    """Yield recipes for a light head on frozen features, which train in minutes on a CPU.

    Features are computed once. The batch size is 8, and an epoch draws one crop per image. The block has no gate:
    behind a scalar that starts at 0, attention learns several times more slowly.
    """
    backbones: Mapping[str, tuple[Frozen, tuple[int, int]]] = {
        "mbv2": (Frozen(backbone="mobilenetv2"), (192, 256)),
        "r50": (Frozen(backbone="resnet50", reduce=128), (192, 256)),
        "vit_s": (Frozen(backbone="vit_s", output_stride=None, reduce=128), (224, 336)),
    }
    # Data set, training split, test split, iterations per epoch, largest side of a crop.
    data_sets = {
        "camvid": ("camvid", "train", "val", 46, 336),
        "pets": ("oxford_pets", "trainval", "test", 66, 224),
        "folder": ("folder", "train", "val", 13, 336),
    }
    for name, (data_set, train, test, epoch, largest) in data_sets.items():
        for stem, (model, (height, width)) in backbones.items():
            crop = (min(height, largest), min(width, largest))
            data = Data(name=data_set, train=train, test=test, crop=crop, views=(1.0,), scales=(0.5, 1.5))
            optim = Optim(kind="adamw", lr=2e-3, weight_decay=1e-2, decay_norms=False)
            schedule = Schedule(iterations=40 * epoch, batch=8, kind="cosine", warmup=epoch)
            training = Training(
                frozen=("backbone.",),
                cache=True,
                evaluate_every=5 * epoch,
                save_every=5 * epoch,
                channels_last=True,
            )
            rest = {"data": data, "optim": optim, "schedule": schedule, "training": training}
            for variant in (None, *VARIANTS):
                yield _recipe(f"{name}-{stem}_frozen", variant, model, rest)
            if stem == "mbv2":  # the head on frozen features first, then the whole network on images
                all_of_it = Phase(train=train, iterations=60 * epoch, lr=5e-4, unfrozen=("backbone.",))
                phases = {"iterations": 20 * epoch, "then": (all_of_it,)}
                tuned = {**rest, "schedule": schedule.model_copy(update=phases)}
                # Train only the finer grid of a trained network, whose file is given with --weights.
                grid = {"stages": (0, 1, 2, 3), "detail": 64, "subpixels": 2, "whole": True, "weights": TUNED}
                fine = model.model_copy(update=grid)
                shorter = schedule.model_copy(update={"iterations": 20 * epoch})
                for variant in (None, *VARIANTS):
                    yield _recipe(f"{name}-{stem}_tuned", variant, model, tuned)
                for variant in (None, *VARIANTS):
                    done = ("backbone.", "mix.") if variant is None else ("backbone.", "mix.", "block.")
                    kept = training.model_copy(update={"frozen": done})
                    yield _recipe(
                        f"{name}-{stem}_fine", variant, fine, {**rest, "training": kept, "schedule": shorter}
                    )


def _recipe(
    stem: str, variant: str | None, model: SegmentorModel, rest: dict[str, Any], paper: PaperRow | None = None
) -> SegmentationRecipe:
    name = f"{stem}-{variant or 'baseline'}"
    chosen = type(model)(**dict(model) | {"variant": variant})
    return SegmentationRecipe(name=name, model=chosen, paper=paper, measured=_MEASURED.get(name), **rest)
