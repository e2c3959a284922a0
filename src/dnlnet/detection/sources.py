"""Sources of the values in the paper's detection recipes. The first row that covers a field counts."""

from dnlnet.recipes.sources import ANY, Source

_NL = "*-nl-*"
_STANDARD = "We use the standard configuration of Mask R-CNN \\cite{he2017mask} with FPN and ResNet-50 as the backbone architecture"
_ROWS = "Results based on Mask R-CNN, using R50 as backbone with FPN"
_SILENT = "section 5.2 says nothing about a block's width, scale or gate"
_SCHEDULE = "decayed by a factor of 10 at the 8$^\\text{th}$ and 11$^\\text{th}$ epoch"
_NLB = "nlb: query, key and g of C/4 with bias, an output convolution that starts at zero, no gamma"
_NLGCB = "nlgcb: value of C without bias, no output convolution"
_BEFORE = "inserted right before the last residual block of c4"
_C5 = "when every residual block of stage c5 is followed by 1 attention block (denoted as ``c4 all'')"
_C4C5 = (
    "when additionally every residual block of stage c4 is followed by 1 attention block (denoted as ``c4 c5 all'')"
)

SOURCES = (
    # The network
    Source({"model.backbone": "resnet50"}, "*", _STANDARD),
    Source(
        {"model.weights": "imagenet"},
        "*",
        "The backbones of all models are pretrained on ImageNet classification",
        "torchvision's ResNet-50",
    ),
    Source(
        {"model.stride_in_1x1": False, "model.ceil_pool": False, "model.caffe_pixels": False, "model.pixels": None},
        release="torchvision's ResNet-50, with its pixels",
    ),
    Source({"model.width": 256}, "*", _STANDARD, "256 channels in the pyramid and the heads"),
    Source(
        {"model.box_convolutions": 4, "model.box_width": 1024},
        release="four convolutions and a linear layer of 1,024 channels",
        reason="the text does not describe the box head",
    ),
    Source({"model.mask_convolutions": 4}, "*", _STANDARD, "four convolutions"),
    Source({"model.frozen": False}, reason="for recipes that train on features"),
    Source({"model.whole": ANY}, reason="for networks that start from a trained model"),
    *(
        Source({"model.variant": name}, f"*-{name}-*" if name else "*-baseline", _ROWS)
        for name in (None, "nl", "nl_pairwise", "nl_unary", "dnl")
    ),
    Source({"model.placement": "c4_one"}, "*-baseline *-c4", _BEFORE, "on the last but one residual block of layer3"),
    Source(
        {"model.placement": "c5_all"},
        "*-c5",
        _C5,
        reason="no such configuration is released; the text calls the row c4 all, its table c5 all",
    ),
    Source({"model.placement": "c4c5_all"}, "*-c4c5", _C4C5, reason="no such configuration is released"),
    Source(
        {"model.after_activation": False},
        "*",
        _BEFORE,
        "after the addition and before the last ReLU of the residual block before it",
        "the scores are those of the release; --set model.after_activation=true places the block between residual blocks",
    ),
    Source({"model.boxes": 512}, "*", _STANDARD, "512 boxes, a quarter of them positive"),
    Source({"model.proposals": 1000}, "*", _STANDARD, "2,000 proposals in training, 1,000 in testing"),
    Source({"model.anchor": 32}, "*", _STANDARD, "anchors of 32 to 512 pixels"),
    Source({"model.box_beta": 1.0}, "*", _STANDARD, "smooth L1 with beta 1", "torchvision has 1/9"),
    Source(
        {"model.border_anchors": False},
        "*",
        _STANDARD,
        "anchors that cross the image's border are ignored",
        "torchvision keeps them",
    ),
    Source(
        {"model.min_overlap": 0.3},
        "*",
        _STANDARD,
        "an object's best anchor is positive from an overlap of 0.3 on",
        "torchvision takes any",
    ),
    # The block
    Source({"block.preset": ANY}, reason="names the options below"),
    Source(
        {"block.embed_reduction": 4},
        "*",
        "using $C/2$ dimensional \\emph{key} and \\emph{query} vectors",
        "C/4",
        "the sentence is about the block's complexity, and the scores are those of the release",
    ),
    Source(
        {
            "block.value_reduction": 4,
            "block.value_bias": True,
            "block.projection": True,
            "block.projection_bias": True,
        },
        _NL,
        release=_NLB,
        reason=_SILENT,
    ),
    Source(
        {
            "block.value_reduction": 1,
            "block.value_bias": False,
            "block.projection": False,
            "block.projection_bias": False,
        },
        release=_NLGCB,
        reason=_SILENT,
    ),
    Source({"block.gate": "none", "block.initial": "mmdet"}, _NL, release=_NLB, reason=_SILENT),
    Source(
        {"block.gate": "scalar_pairwise"},
        release="gamma, zero at first, on the pairwise output alone",
        reason=_SILENT,
    ),
    Source({"block.initial": "normal"}, release="N(0, 0.01), biases 0"),
    Source({"block.scaled": True}, release="q.k divided by sqrt(C/4)", reason=_SILENT),
    Source({"block.temperature": 1.0}, _NL, release="none"),
    Source({"block.temperature": 0.05}, release="0.05", reason=_SILENT),
    Source(
        {"block.unary_scaled": False},
        release="the unary logit is W_m x, which is not scaled",
        reason="mu_q.k of the row NL_u is not scaled either",
    ),
    Source({"block.centring": "channel"}, "*", "\\boldsymbol{\\mu}_q"),
    Source({"block.pool": 1, "block.pool_projected": False}, release="pooling of keys and values is off"),
    Source({"block.attention": "softmax"}, "*", "\\sigma(\\cdot)$ denotes the softmax function"),
    Source({"block.values": "shared"}, "*", "a single \\emph{value} transform"),
    # Data
    Source(
        {"data.name": "coco", "data.train": "train2017", "data.test": "val2017"},
        "*",
        "on the COCO2017 validation set",
    ),
    Source(
        {"data.short_side": 800, "data.long_side": 1333},
        "*",
        "their shorter side is 800 pixels",
        "the longer one at most 1,333",
    ),
    Source({"data.flip": 0.5}, release="0.5"),
    Source({"data.holdout": None}, reason="for folders without splits, which no data set of the paper is"),
    # Training
    Source({"optim.kind": "sgd", "optim.nesterov": False}, release="SGD"),
    Source({"optim.lr": 0.02}, "*", "the initial learning rate is 0.02"),
    Source(
        {"optim.weight_decay": 1e-4, "optim.momentum": 0.9}, "*", "The weight decay is 0.0001 and momentum is 0.9."
    ),
    Source(
        {"optim.no_decay": [], "optim.decay_norms": True},
        "*",
        "The weight decay is 0.0001",
        reason="the text makes no exception",
    ),
    Source({"optim.clip": 35.0, "optim.average": None}, release="gradients clipped to a norm of 35"),
    Source(
        {"schedule.iterations": 87_960},
        "*",
        "the $1\\times$ settings of 12 epochs",
        reason="12 epochs of 7,330 batches of 16",
    ),
    Source({"schedule.batch": 16, "schedule.accumulate": 1}, "*", "effective mini batch size of 16"),
    Source({"schedule.kind": "step", "schedule.milestones": [58_640, 80_630]}, "*", _SCHEDULE),
    Source({"schedule.warmup": 500, "schedule.warmup_start": 1 / 3}, release="500 iterations, linearly from a third"),
    Source({"schedule.power": ANY, "schedule.then": []}, reason="of other schedules"),
    Source(
        {"training.frozen": ["backbone.body.body.conv1", "backbone.body.body.bn1", "backbone.body.body.layer1"]},
        "*",
        "then all layers except for stage1 and stage2 are jointly fine-tuned",
        "stem and layer1",
    ),
    Source({"training.frozen_statistics": False}, "*", "In training, synchronized BatchNorm is adopted"),
    Source({"training.precision": "float32", "training.cache": False}, release="32 bits, from pixels"),
    Source({"training.*": ANY}, reason="how it is computed and how often it is saved; --set changes it"),
)
