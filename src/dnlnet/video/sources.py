"""Sources of the values in the paper's video recipes. The first row that covers a field counts."""

from dnlnet.recipes.sources import ANY, Source

_FOLLOWS = "All the experiment settings follow the slow-only baseline in \\cite{feichtenhofer2018slowfast}"
_ROWS = "Results based on Slow-only baseline using R50 as backbone on {Kinetics} validation set"
_BLOCK = "PySlowFast's non-local block"
_EVERY = "Following~\\cite{wang2018non}, we insert (disentangled) non-local blocks after every two residual blocks."

SOURCES = (
    # The network
    Source(
        {"model.backbone": "slow_only_r50"},
        "*",
        "We adopt the slow-only baseline in \\cite{feichtenhofer2018slowfast}",
    ),
    Source(
        {"model.weights": "imagenet"},
        "*",
        "weights inflated \\cite{carreira2017i3d} from the ImageNet pretrained model",
    ),
    Source(
        {"model.stride_in_1x1": False, "model.ceil_pool": False, "model.caffe_pixels": False, "model.pixels": None},
        "*",
        _FOLLOWS,
        "PySlowFast's ResNet-50",
    ),
    Source(
        {"model.network": "slow_only"}, "*", "We adopt the slow-only baseline in \\cite{feichtenhofer2018slowfast}"
    ),
    Source({"model.whole": ANY}, reason="for networks that start from a trained model"),
    *(
        Source({"model.variant": name}, f"*-{name or 'baseline'}", _ROWS)
        for name in (None, "nl", "nl_pairwise", "nl_unary", "dnl")
    ),
    Source(
        {"model.placement": None},
        "*",
        _EVERY,
        "two in res3, after blocks 1 and 3, and three in res4, after 1, 3 and 5",
    ),
    Source({"model.dropout": 0.5}, "*", _FOLLOWS, "0.5"),
    # The block
    Source({"block.preset": ANY}, reason="names the options below"),
    Source({"block.embed_reduction": 2}, "*", "using $C/2$ dimensional \\emph{key} and \\emph{query} vectors"),
    Source(
        {
            "block.value_reduction": 2,
            "block.value_bias": True,
            "block.projection": True,
            "block.projection_bias": True,
        },
        release=f"{_BLOCK}: g of C/2 and an output convolution, both with bias",
        reason="the authors released no code for video",
    ),
    Source(
        {"block.gate": "norm", "block.initial": "slowfast"},
        release=f"{_BLOCK}: batch norm that starts at zero, c2_msra_fill",
        reason="the authors released no code for video",
    ),
    Source(
        {"block.scaled": True, "block.temperature": 1.0},
        release=f"{_BLOCK}: q.k divided by sqrt(C/2)",
        reason="the authors released no code for video",
    ),
    Source(
        {"block.pool": 2, "block.pool_projected": False},
        release=f"{_BLOCK}: keys and values are max-pooled by 2 in space",
        reason="the authors released no code for video",
    ),
    Source(
        {"block.attention": "softmax"},
        "*",
        "\\sigma(\\cdot)$ denotes the softmax function",
        "dot products in its SLOW configurations",
        "the paper's equations have the softmax",
    ),
    Source(
        {"block.unary_scaled": True},
        release="has no separate unary term",
        reason="the pairwise term's scale, for both are q.k",
    ),
    Source({"block.centring": "channel"}, "*", "\\boldsymbol{\\mu}_q"),
    Source({"block.values": "shared"}, "*", "a single \\emph{value} transform"),
    # Data
    Source(
        {"data.name": "kinetics", "data.train": "train", "data.test": "val"},
        "*",
        "All models are trained on the training set, and we report the top-1 (\\%) and top-5 (\\%) accuracy on the validation set.",
    ),
    Source({"data.holdout": None}, reason="for folders without splits, which no data set of the paper is"),
    Source({"data.aligned": False}, reason="for features that clips share, which no recipe of the paper has"),
    Source({"data.frames": 8, "data.stride": 8}, "*", "8 frames ($8\\times8$) are used as input"),
    Source(
        {"data.rate": 30.0, "data.short_sides": [256, 320], "data.crop": 224, "data.flip": 0.5},
        "*",
        _FOLLOWS,
        "30 frames a second, shorter side of 256 to 320, crops of 224, flipped",
    ),
    Source(
        {"data.mean": [0.45, 0.45, 0.45], "data.deviation": [0.225, 0.225, 0.225]}, "*", _FOLLOWS, "0.45 and 0.225"
    ),
    # Training
    Source(
        {
            "optim.kind": "sgd",
            "optim.lr": 0.1,
            "optim.momentum": 0.9,
            "optim.nesterov": True,
            "optim.weight_decay": 1e-4,
        },
        "*",
        _FOLLOWS,
        "SGD with Nesterov's momentum 0.9, 0.1 for 64 clips, weight decay 0.0001",
    ),
    Source({"optim.no_decay": [], "optim.decay_norms": False}, "*", _FOLLOWS, "no weight decay on norms"),
    Source({"optim.clip": None, "optim.average": None}, release="neither"),
    Source(
        {"schedule.iterations": 735_000, "schedule.batch": 64, "schedule.accumulate": 1, "schedule.kind": "cosine"},
        "*",
        _FOLLOWS,
        "196 epochs of 240,000 videos, half a period of a cosine",
    ),
    Source(
        {"schedule.warmup": 127_500, "schedule.warmup_start": 0.1}, "*", _FOLLOWS, "34 epochs, linearly from 0.01"
    ),
    Source({"schedule.power": ANY, "schedule.milestones": [], "schedule.then": []}, reason="of other schedules"),
    Source(
        {
            "training.frozen": [],
            "training.frozen_statistics": False,
            "training.cache": False,
            "training.precision": "float32",
        },
        "*",
        _FOLLOWS,
        "everything is trained, in 32 bits",
    ),
    Source({"training.*": ANY}, reason="how it is computed and how often it is saved; --set changes it"),
    # Testing
    Source(
        {"evaluation.clips": 10, "evaluation.crops": 3}, "*", "30-clip validation is adopted", "10 clips of 3 crops"
    ),
    Source({"evaluation.short_side": 256}, "*", _FOLLOWS, "256"),
    Source({"evaluation.views_per_batch": ANY}, reason="how much is computed at once"),
)
