"""Sources of the values in the paper's segmentation recipes. The first row that covers a field counts."""

from dnlnet.attention import VARIANTS
from dnlnet.recipes.sources import ANY, Source

_HRNET = "*-hrnet_w48-* *-hrnet_w48_*"
_AUTHORS = "*_authors*"
_CITY, _ADE, _CONTEXT = "cityscapes*", "ade20k*", "pascal_context*"
_RELEASED_HEAD = "3 x 3 convolution to 512, block, 3 x 3 convolution, joined with the input, 3 x 3 convolution to 512"
_MULTI = "we resize the image resolution to be the same as in training and a multi-scale test is adopted."

_FILE = "the file that the configurations name; give its place with --set model.weights"
_STRIDES = (
    "The strides and dilations of $3\\times 3$ convolutions are set to 1 and 2 for stage4, and 1 and 4 for stage5."
)
_WINDOWS = "we sample $769\\times 769$ windows for inference and their results are fused to generate the prediction of an entire image"
_CITY_RATES = "The initial learning rate is 0.01, the weight decay is 0.0005."
_WITH_OUT = "use_out: values of C/2 and an output convolution"
_HARD = "online hard example mining (OHEM)"
_MEANS = "\\boldsymbol{\\mu}_q"
_INSERTED = (
    "For experiments with a non-local or a disentangled non-local block, the block is inserted right before the final "
    "classifier."
)

CLASS_WEIGHTS = (
    *(0.8373, 0.9180, 0.8660, 1.0345, 1.0166, 0.9969, 0.9754, 1.0489, 0.8786, 1.0023),
    *(0.9539, 0.9843, 1.1116, 0.9037, 1.0865, 1.0955, 1.0865, 1.1529, 1.0507),
)

SOURCES = (
    # The network
    Source(
        {"model.backbone": "resnet101s"},
        "*-r101*",
        "a ResNet101~\\cite{he2016deep} backbone",
        "deep stem of three 3 x 3 convolutions",
        "the stem with which the parameters of Table 5 come out exactly",
    ),
    Source({"model.backbone": "hrnet_w48"}, _HRNET, release="HRNetV2-W48, four branches joined at stride 4"),
    Source({"model.ceil_pool": True}, "*-r101*", release="ceil_mode in the stem's max pooling"),
    Source({"model.ceil_pool": False}, _HRNET, release="HRNet has no max pooling"),
    Source({"model.stride_in_1x1": False}, release="the stride is in the 3 x 3 convolution"),
    Source(
        {"model.caffe_pixels": True, "model.pixels": None},
        _AUTHORS,
        release="images in blue, green, red, minus Caffe's mean, for the weights it starts from",
    ),
    Source(
        {"model.caffe_pixels": False, "model.pixels": None},
        release="Caffe's pixels",
        reason="pixels suit the ImageNet weights that the recipe starts from, which here are timm's",
    ),
    Source({"model.weights": "3x3resnet101-imagenet.pth"}, "*-r101_authors*", release=_FILE),
    Source({"model.weights": "hrnetv2_w48_imagenet_pretrained.pth"}, "*-hrnet_w48_authors*", release=_FILE),
    Source(
        {"model.weights": "imagenet"},
        release="a file of its own",
        reason="timm's ImageNet weights of the same backbone can be downloaded by everybody",
    ),
    Source({"model.output_stride": 8}, "*-r101*", _STRIDES),
    Source({"model.output_stride": None}, _HRNET, release="HRNet keeps stride 4"),
    Source({"model.dilations": None}, "*", _STRIDES),
    Source(
        {"model.head": "release"},
        "*",
        "The baseline model uses a segmentation head consisting of a $3\\times3$ convolution layer to reduce the channels to 512 and a subsequent classifier to predict the final segmentation results.",
        _RELEASED_HEAD,
        "the released head, with the block after its first convolution, is the one whose parameters Table 5 counts; --set model.head=text builds that of the text",
    ),
    Source({"model.join_input": True, "model.head_dilation": 1}, release=_RELEASED_HEAD, reason="as model.head"),
    Source(
        {"model.width": 512},
        "*-r101*",
        "a $3\\times3$ convolution layer to reduce the channels to 512",
        _RELEASED_HEAD,
    ),
    Source({"model.width": 360}, _HRNET, release="half of the 720 joined channels"),
    Source({"model.fused_width": 512}, _HRNET, release="the last 3 x 3 convolution maps 1,080 to 512 channels"),
    Source({"model.fused_width": None}, "*-r101*", release="as many channels as the rest of the head: 512"),
    Source(
        {"model.auxiliary": False}, _HRNET, "an auxiliary loss on the output of conv4", "none", "HRNet has no conv4"
    ),
    Source({"model.auxiliary": True}, "*-r101*", "an auxiliary loss on the output of conv4"),
    Source({"model.auxiliary_bias": False}, _AUTHORS, release="the auxiliary convolution has no bias"),
    Source(
        {"model.auxiliary_bias": True},
        release="none",
        reason="512 parameters without which Table 5 does not come out",
    ),
    Source(
        {"model.auxiliary_width": None, "model.auxiliary_dilation": None},
        release="as the head's: 512 channels, dilation 1",
    ),
    Source({"model.align_corners": True}, release="bilinear upsampling with align_corners"),
    Source({"model.network": "segmentor"}, "*", "dilated FCN~\\cite{long2015fcn}"),
    *(Source({"model.variant": name}, f"*-{name or 'baseline'}", _INSERTED) for name in (None, *VARIANTS)),
    Source(
        {"model.stages": ANY, "model.reduce": ANY, "model.subpixels": ANY, "model.detail": ANY, "model.whole": ANY},
        reason="settings of networks on frozen features, which the paper has none of",
    ),
    # The block
    Source({"block.preset": ANY}, reason="names the options below"),
    Source({"block.embed_reduction": 2}, "*", "using $C/2$ dimensional \\emph{key} and \\emph{query} vectors"),
    Source({"block.value_reduction": 2}, "*_authors-nl", release=_WITH_OUT),
    Source({"block.projection": True}, "*_authors-nl", release=_WITH_OUT),
    Source({"block.value_bias": True}, "*_authors-nl", release="g has a bias with use_out"),
    Source(
        {
            "block.value_reduction": 1,
            "block.projection": False,
            "block.projection_bias": False,
            "block.value_bias": False,
        },
        release="values of C channels without bias, and no output convolution",
        reason="the only choice with which the parameters of Table 5 come out",
    ),
    Source(
        {"block.gate": "scalar_pairwise_norm"},
        "*_authors-nl",
        release="gamma on the pairwise output, then batch norm (out_bn)",
    ),
    Source(
        {"block.gate": "scalar_pairwise"},
        release="gamma, zero at first, on the pairwise output alone; NL has one output, which it gates; the unary output is added as it is",
        reason="the text is silent: Eq. 12 has no gate",
    ),
    Source(
        {"block.scaled": True},
        "cityscapes-r101_authors_temp_in-dnl cityscapes-r101_authors-dnl_dagger ade20k-*_authors-dnl",
        release="q.k divided by sqrt(C/2) and by the temperature",
    ),
    Source({"block.scaled": True}, "*_authors-nl", release="q.k divided by sqrt(C/2)"),
    Source({"block.scaled": False}, _AUTHORS, release="no scale in the configurations of the README's recipe"),
    Source(
        {"block.scaled": False},
        "*",
        "\\sigma\\left(\\mathbf{q}_i^T\\mathbf{k}_j\\right)",
        release="NL divides by sqrt(C/2), and so do the configurations with a temperature",
        reason="the equations have no scale",
    ),
    Source({"block.temperature": 0.05}, "cityscapes-r101_authors_temp_in-dnl", release="0.05"),
    Source({"block.temperature": 0.06}, "cityscapes-r101_authors-dnl_dagger", release="0.06 on the pairwise term"),
    Source({"block.temperature": 0.1}, "ade20k-*_authors-dnl", release="0.1"),
    Source({"block.temperature": 1.0}, reason="the equations have no temperature"),
    Source(
        {"block.unary_scaled": False}, _AUTHORS, release="mu_q.k is neither scaled nor divided by the temperature"
    ),
    Source({"block.unary_scaled": True}, reason="without scale and temperature there is nothing to choose"),
    Source(
        {"block.centring": "none"},
        "cityscapes-r101_authors_nowd_in-dnl ade20k-hrnet_w48_authors-dnl",
        release="the option is not recognised, so nothing is centred",
    ),
    Source(
        {"block.centring": "channel"},
        "cityscapes-r101_authors_temp_in-dnl cityscapes-r101_authors-dnl_dagger ade20k-r101_authors-dnl",
        _MEANS,
        "by channel in the configurations with a temperature",
    ),
    Source({"block.centring": "sample"}, "*_authors-dnl", release="one mean over channels and positions"),
    Source(
        {"block.centring": "sample"},
        "*_authors-nl *_authors-gc",
        release="NL and W_m x are not centred",
        reason="of the preset; softmax(q.k) is the same with and without centring, and W_m x is not centred",
    ),
    Source({"block.centring": "channel"}, "*", _MEANS),
    Source({"block.pool": 1, "block.pool_projected": False}, release="pooling of keys and values is off"),
    Source({"block.attention": "softmax"}, "*", "\\sigma(\\cdot)$ denotes the softmax function"),
    Source({"block.initial": "normal"}, release="N(0, 0.01), biases 0"),
    Source({"block.values": "shared"}, "*", "a single \\emph{value} transform"),
    # Data and loss
    Source({"data.name": "cityscapes"}, _CITY, "of which 19 classes are used in evaluation"),
    Source({"data.name": "ade20k"}, _ADE, "It includes 150 semantic categories for evaluation."),
    Source(
        {"data.name": "pascal_context_60"},
        _CONTEXT,
        "59 semantic classes and 1 background class are used in training and validation",
    ),
    Source(
        {"data.train": "trainval", "data.test": None},
        "cityscapes_test-*",
        release="the test set's protocol: train and val, then coarse, then train and val again",
    ),
    Source({"data.train": "train", "data.test": "val"}, "*", "images for training, validation and testing"),
    Source({"data.crop": [769, 769]}, _CITY, "Input images are cropped to $769\\times769$."),
    Source({"data.crop": [520, 520]}, "*", "Input images are cropped to $520\\times520$."),
    Source({"data.short_side": None}, _CITY, release="Cityscapes' images are not resized first"),
    Source({"data.short_side": 520}, "*", release="the shorter side is brought to 520 first"),
    Source({"data.scales": [0.5, 2.0]}, "*", "random scaling within $[0.5, 2.0]$"),
    Source({"data.aspects": [0.9, 1.1]}, _AUTHORS, release="random aspect within [0.9, 1.1]"),
    Source(
        {"data.aspects": [1.0, 1.0]},
        "*",
        "the data is augmented with random horizontal flipping, random scaling within $[0.5, 2.0]$, and random brightness jittering of $[-10, 10]$",
        "random aspect within [0.9, 1.1]",
        "the text lists all augmentations, and this is not among them",
    ),
    Source({"data.flip": 0.5}, "*", "random horizontal flipping", "probability 0.5"),
    Source({"data.brightness": 10}, "*", "random brightness jittering of $[-10, 10]$"),
    Source({"data.views": []}, reason="for networks on frozen features"),
    Source({"data.holdout": None}, reason="for folders without splits, which no data set of the paper is"),
    Source(
        {"loss.ohem": None},
        _CONTEXT,
        "only auxiliary loss is employed for PASCAL-Context",
        "OHEM in every configuration",
    ),
    Source({"loss.ohem.threshold": 0.7}, "*", _HARD, "0.7"),
    Source({"loss.ohem.kept": 100_000}, "*", _HARD, "100,000 pixels for each image of a process's batch"),
    Source({"loss.class_weights": list(CLASS_WEIGHTS)}, "cityscapes*_authors*", release="weights of the 19 classes"),
    Source({"loss.class_weights": None}, _AUTHORS, release="none"),
    Source({"loss.class_weights": None}, release="weights of Cityscapes' classes", reason="the text mentions none"),
    Source({"loss.auxiliary_weight": 0.4}, _AUTHORS, release="0.4"),
    Source(
        {"loss.auxiliary_weight": 0.5},
        "*",
        "an auxiliary loss on the output of conv4 with a weight of 0.5",
        "0.4",
        "the text decides",
    ),
    # Training
    Source({"optim.kind": "sgd", "optim.nesterov": False}, "*", "The SGD optimizer with poly learning rate policy"),
    Source({"optim.lr": 0.01}, _CITY, _CITY_RATES),
    Source({"optim.lr": 0.02}, _ADE, "The initial learning rate is 0.02, and the weight decay is 0.0001."),
    Source({"optim.lr": 0.01}, "pascal_context*_authors*", release="0.01"),
    Source(
        {"optim.lr": 0.001},
        _CONTEXT,
        "The initial learning rate is 0.001, and the weight decay is 0.0001.",
        "0.01",
        "the text decides",
    ),
    Source({"optim.weight_decay": 5e-4}, _CITY, "the weight decay is 0.0005"),
    Source({"optim.weight_decay": 1e-4}, "*", "the weight decay is 0.0001"),
    Source({"optim.momentum": 0.9}, release="0.9, without Nesterov's form"),
    Source(
        {"optim.no_decay": ["block.query", "block.key"]},
        "cityscapes-r101_authors-dnl cityscapes-r101_authors_nowd_in-dnl pascal_context*_authors-dnl",
        release="no weight decay on query and key (nowd)",
    ),
    Source({"optim.no_decay": []}, _AUTHORS, release="weight decay on everything"),
    Source(
        {"optim.no_decay": []},
        "*",
        _CITY_RATES,
        "none on query and key in the configurations of the README",
        "the text makes no exception",
    ),
    Source({"optim.decay_norms": True}, "*", _CITY_RATES, reason="the text makes no exception"),
    Source({"optim.clip": None, "optim.average": None}, release="neither"),
    Source({"schedule.iterations": 60_000}, "cityscapes-*", "for 60K iterations"),
    Source(
        {
            "schedule.iterations": 100_000,
            "schedule.then": [
                {"train": "coarse", "iterations": 50_000, "lr": 0.001, "unfrozen": []},
                {"train": "trainval", "iterations": 50_000, "lr": 0.001, "unfrozen": []},
            ],
        },
        "cityscapes_test-*",
        release="100,000 iterations, 50,000 on coarse labels, 50,000 on fine ones",
    ),
    Source({"schedule.iterations": 150_000}, _ADE, "for 150K iterations"),
    Source({"schedule.iterations": 30_000}, _CONTEXT, "for 30K iterations"),
    Source({"schedule.then": []}, reason="one phase: nothing says otherwise"),
    Source({"schedule.batch": 8}, _CITY, "trained on 4 GPUs with 2 images per GPU"),
    Source({"schedule.batch": 16}, _ADE, "trained on 8 GPUs with 2 images per GPU"),
    Source({"schedule.batch": 16}, _CONTEXT, "trained on 4 GPUs with 4 images per GPU"),
    Source(
        {"schedule.kind": "poly", "schedule.power": 0.9},
        "*",
        "poly learning rate policy ($1-(\\frac{iter}{iter_{max}})^{0.9}$)",
        "(1 - iter / iter_max)^0.9",
        "read as the policy of CCNet, which the paper follows and the release runs",
    ),
    Source(
        {"schedule.accumulate": 1, "schedule.milestones": [], "schedule.warmup": 0, "schedule.warmup_start": 0.0},
        release="no warm-up and no steps",
    ),
    Source(
        {"training.frozen": [], "training.frozen_statistics": False, "training.cache": False},
        release="all layers are trained, with synchronised batch norm",
    ),
    Source({"training.precision": "float32"}, release="32 bits"),
    Source({"training.*": ANY}, reason="how it is computed and how often it is saved; --set changes it"),
    # Testing
    Source({"evaluation.window": [769, 769]}, _CITY, _WINDOWS),
    Source({"evaluation.stride": [512, 512]}, _CITY, _WINDOWS, "two thirds of the window: 512"),
    Source({"evaluation.window": None, "evaluation.stride": None}, "*", _MULTI, "whole images"),
    Source({"evaluation.short_side": None, "evaluation.long_side": None}, _CITY, release="images keep their size"),
    Source({"evaluation.short_side": 520}, "*", _MULTI, "520"),
    Source({"evaluation.long_side": 1040}, "*", _MULTI, "at most 1,040"),
    Source({"evaluation.scales": [1.0]}, _CITY, "we sample $769\\times 769$ windows for inference"),
    Source({"evaluation.scales": [0.5, 0.75, 1.0, 1.25, 1.5, 1.75]}, _ADE, _MULTI, "0.5 to 1.75"),
    Source({"evaluation.scales": [0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]}, _CONTEXT, _MULTI, "0.5 to 2"),
    Source({"evaluation.flip": False}, _CITY, release="not mirrored"),
    Source({"evaluation.flip": True}, "*", _MULTI, "mirrored too"),
    Source({"evaluation.divisor": 1}, _CITY, release="images are not padded"),
    Source({"evaluation.divisor": 8}, "*", release="images are padded to a multiple of 8"),
    Source({"evaluation.image_corners": None}, release="images are resized as logits are"),
)
