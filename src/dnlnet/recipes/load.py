"""Trained models from files, ready to be used."""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any, Self

import torch
from huggingface_hub import ModelCard, ModelHubMixin
from safetensors.torch import load_file
from torch import Tensor, nn

from dnlnet.backbones.fold import fold_batch_norms
from dnlnet.detection.network import PYRAMID_CHANNELS, Detector
from dnlnet.detection.predictor import DetectionModel
from dnlnet.files import atomic_write
from dnlnet.layout import convert_to_channels_last
from dnlnet.recipes.build import builder_of
from dnlnet.recipes.build_video import clip_of, pixels_of
from dnlnet.recipes.card import model_card
from dnlnet.recipes.model_file import HUB_FILE, ModelFile, find_model, read_header, read_model_file
from dnlnet.recipes.schema import DetectionRecipe, Evaluation, SegmentationRecipe, VideoRecipe
from dnlnet.segmentation.inference import Inference
from dnlnet.segmentation.predictor import SegmentationModel
from dnlnet.video.predictor import VideoModel

# Those with batch norms, and the shape of an example of what each takes.
_DETECTOR_PARTS = {
    "backbone": (3, 64, 64),
    "roi_heads.box_head": (PYRAMID_CHANNELS, 7, 7),
    "roi_heads.mask_head": (PYRAMID_CHANNELS, 14, 14),
}

_FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors names them


def inference_of(evaluation: Evaluation, align_corners: bool = True) -> Inference:
    """How a recipe says that images are looked at; `align_corners` is its network's."""
    return Inference(
        evaluation.window,
        evaluation.stride,
        evaluation.short_side,
        evaluation.scales,
        evaluation.flip,
        align_corners=align_corners,
    )


def load_network(model: ModelFile) -> nn.Module:
    """The network of a model file, with its weights, as it was trained.

    Weights that are not exactly those of the network are an error; values that are not finite, a warning.
    """
    problem = weights_problem(model)
    if problem is not None:
        raise ValueError(f"{model.path}: {problem}")
    network: nn.Module = builder_of(model.recipe).build_model(model.recipe.model, len(model.classes), weights=False)
    state = load_file(model.path)
    strange = [name for name, tensor in state.items() if not tensor.isfinite().all()]
    if strange:
        warnings.warn(
            f"{model.path}: {len(strange)} of its {len(state)} tensors hold values that are not finite "
            f"({_few(strange)}); what it predicts means nothing",
            stacklevel=2,
        )
    network.load_state_dict(state)
    return network


def weights_problem(model: ModelFile) -> str | None:
    """What keeps the tensors of a model file from being those of its recipe's network, or None.

    Only the file's header is read, and no memory is taken for the network.
    """
    build = builder_of(model.recipe).build_model
    try:
        with torch.device("meta"):
            network: nn.Module = build(model.recipe.model, len(model.classes), weights=False)
    except ValueError as error:
        return f"its recipe describes no network: {error}"
    own: dict[str, Tensor] = network.state_dict()
    _, kinds = read_header(model.path)
    missing = [name for name in own if name not in kinds]
    unknown = [name for name in kinds if name not in own]
    other = [
        f"{name} is {shape} of {dtype}, expected {tuple(own[name].shape)}"
        for name, (shape, dtype) in kinds.items()
        if name in own and (shape != tuple(own[name].shape) or (dtype in _FLOATS) != own[name].is_floating_point())
    ]
    parts = [
        f"{what} {_few(names)}"
        for what, names in (("missing", missing), ("of no use", unknown), ("another shape or type:", other))
        if names
    ]
    if not parts:
        return None
    kind = f"{model.recipe.model.variant or 'baseline'} network of its recipe for {len(model.classes)} classes"
    return f"its tensors are not those of the {kind}: {'; '.join(parts)}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class TrainedModel(ModelHubMixin, library_name="dnlnet"):
    """A trained model that came from a model file, and can be shared as one.

    ``model.save_pretrained(folder)`` and ``model.push_to_hub("name/of-it")`` write the file, its recipe and a card
    that says what it is and what it scored; ``TrainedModel.from_pretrained`` reads them.
    """

    file: ModelFile
    _hub_mixin_config = {}  # noqa: RUF012  # the mixin's own guess, from the arguments of __init__, is not wanted

    def _save_pretrained(self, save_directory: Path) -> None:
        with atomic_write(save_directory / HUB_FILE) as temporary:
            copyfile(self.file.path, temporary)
        with atomic_write(save_directory / "config.json") as temporary:
            config = {"recipe": self.file.recipe.model_dump(mode="json"), "names": list(self.file.classes.names)}
            temporary.write_text(json.dumps(config, indent=2))

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> Self:
        path = find_model(model_id, **options)
        model = open_model(read_model_file(path))
        if not isinstance(model, cls):
            raise ValueError(f"{path}: is a {model.file.recipe.task} model; TrainedModel.from_pretrained takes any")
        return model

    def generate_model_card(self, name: str = "you/model", **_: Any) -> ModelCard:
        """What the model is, what it scored, and how to load it by its name."""
        return model_card(self.file, name)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model under this name; `options` are those of `huggingface_hub.ModelHubMixin.push_to_hub`."""
        return super().push_to_hub(repo_id, **{"model_card_kwargs": {"name": repo_id}, **options})


class TrainedSegmentation(TrainedModel, SegmentationModel):
    """`SegmentationModel` from a model file."""

    def __init__(self, file: ModelFile, recipe: SegmentationRecipe) -> None:
        trained = load_network(file).eval()
        network = convert_to_channels_last(fold_batch_norms(trained, torch.zeros(1, 3, 64, 64)))
        inference = inference_of(recipe.evaluation, recipe.model.align_corners)
        super().__init__(network, file.classes, inference, default_device())
        self.file = file


class TrainedDetection(TrainedModel, DetectionModel):
    """`DetectionModel` from a model file."""

    def __init__(self, file: ModelFile, recipe: DetectionRecipe) -> None:
        network, data = load_network(file).eval(), recipe.data
        assert isinstance(network, Detector)
        for part, shape in _DETECTOR_PARTS.items():
            network.set_submodule(part, fold_batch_norms(network.get_submodule(part), torch.zeros(1, *shape)))
        convert_to_channels_last(network)
        super().__init__(network, file.classes, data.short_side, data.long_side, default_device())
        self.file = file


class TrainedVideo(TrainedModel, VideoModel):
    """`VideoModel` from a model file."""

    def __init__(self, file: ModelFile, recipe: VideoRecipe) -> None:
        views = recipe.evaluation
        trained = load_network(file).eval()
        super().__init__(
            convert_to_channels_last(fold_batch_norms(trained, torch.zeros(1, 3, 2, 64, 64))),
            file.classes,
            clip_of(recipe.data),
            pixels_of(recipe.data),
            clips=views.clips,
            crops=views.crops,
            short_side=views.short_side,
            at_once=views.at_once,
            device=default_device(),
        )
        self.file = file


AnyTrained = TrainedSegmentation | TrainedDetection | TrainedVideo


def load(model: str | Path) -> AnyTrained:
    """A trained model, ready for ``model.predict(picture)``, or of a video.

    The batch norms are folded into the convolutions and channels lie last in memory: the same function up to
    rounding, in the form that `dnlnet bench predict` finds fastest without compiling.

    Args:
        model: a model file, the folder of a run, or a name on the Hugging Face hub.
    """
    return open_model(read_model_file(find_model(str(model))))


def open_model(file: ModelFile) -> AnyTrained:
    """The trained model of a model file, of the kind of its task."""
    if isinstance(file.recipe, VideoRecipe):
        return TrainedVideo(file, file.recipe)
    if isinstance(file.recipe, DetectionRecipe):
        return TrainedDetection(file, file.recipe)
    assert isinstance(file.recipe, SegmentationRecipe)
    return TrainedSegmentation(file, file.recipe)


def default_device() -> str:
    """Where a model runs if nothing is said."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_segmentation(model: str | Path) -> TrainedSegmentation:
    """A trained segmentation model; an error if the file is of another task."""
    file = read_model_file(find_model(str(model)))
    if not isinstance(file.recipe, SegmentationRecipe):
        raise ValueError(f"{model}: is a {file.recipe.task} model; this is for segmentation models")
    return TrainedSegmentation(file, file.recipe)


def load_together(models: Sequence[str]) -> dict[str, TrainedSegmentation | TrainedDetection]:
    """Models of pictures to be compared, by what to call them: recipes, with their files where those are equal."""
    return open_together(read_together(models))


def open_together(files: Mapping[str, ModelFile]) -> dict[str, TrainedSegmentation | TrainedDetection]:
    """The models of pictures that these files are of."""
    loaded = {}
    for title, file in files.items():
        model = open_model(file)
        if isinstance(model, TrainedVideo):
            raise ValueError(f"{file.path}: is a video model, and this is for pictures; see dnlnet attend")
        loaded[title] = model
    return loaded


def read_together(models: Sequence[str]) -> dict[str, ModelFile]:
    """Model files to be compared, by what to call them; they must know the same classes."""
    files = [read_model_file(find_model(model)) for model in models]
    for file in files[1:]:
        if tuple(file.classes.names) != tuple(files[0].classes.names):
            raise ValueError(
                f"{file.path} and {files[0].path} know different classes; compare models of one data set"
            )
    names = [file.recipe.name for file in files]
    return {
        f"{name} ({file.path})" if names.count(name) > 1 else name: file
        for name, file in zip(names, files, strict=True)
    }
