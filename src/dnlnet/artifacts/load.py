"""Trained models from files, ready to be used."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any, Self

import torch
from huggingface_hub import ModelCard, ModelHubMixin
from safetensors.torch import load_file
from torch import Tensor, nn

from dnlnet.artifacts.card import model_card
from dnlnet.artifacts.model_file import (
    HUB_FILE,
    ModelFile,
    find_model,
    read_header,
    read_model_file,
    shareable,
    write_model_file,
)
from dnlnet.data.classes import Classes
from dnlnet.files import atomic_write
from dnlnet.layout import convert_to_channels_last
from dnlnet.systems import System, system_of

_FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors names them


def load_network(model: ModelFile) -> nn.Module:
    """The network of a model file, with its weights, as it was trained.

    Weights that are not exactly those of the network are an error; values that are not finite, a warning.
    """
    problem = weights_problem(model)
    if problem is not None:
        raise ValueError(f"{model.path}: {problem}")
    network = system_of(model.recipe).build_model(model.recipe.model, len(model.classes), weights=False)
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


def load_for_inference(model: ModelFile) -> nn.Module:
    """The network of a model file in evaluation mode, its batch norms folded, channels last in memory.

    It is the same function up to rounding, in the form that `dnlnet bench predict` finds fastest without compiling.
    """
    return convert_to_channels_last(system_of(model.recipe).fold(load_network(model).eval()))


def weights_problem(model: ModelFile) -> str | None:
    """What keeps the tensors of a model file from being those of its recipe's network, or None.

    Only the file's header is read, and no memory is taken for the network.
    """
    build = system_of(model.recipe).build_model
    try:
        with torch.device("meta"):
            network = build(model.recipe.model, len(model.classes), weights=False)
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
    """A trained model from a model file, ready to predict, and to be shared.

    ``model.save_pretrained(folder)`` and ``model.push_to_hub("name/of-it")`` write the file, its recipe and a card
    that says what it is and what it scored; ``TrainedModel.from_pretrained`` reads them.

    Args:
        file: what the model file says.
        device: where the network runs; default: a GPU if there is one.

    Attributes:
        predictor: what predicts, as the model's system has it: `SegmentationModel`, `DetectionModel`, `VideoModel`.
    """

    _hub_mixin_config = {}  # noqa: RUF012  # the mixin's own guess, from the arguments of __init__, is not wanted

    def __init__(self, file: ModelFile, device: torch.device | str | None = None) -> None:
        self.file = file
        network = load_for_inference(file)
        self.predictor = self.system.predictor(file.recipe, network, file.classes, device or default_device())

    @property
    def system(self) -> System[Any]:
        """What it is a model of."""
        return system_of(self.file.recipe)

    @property
    def network(self) -> nn.Module:
        """The network in evaluation mode, its batch norms folded."""
        network: nn.Module = self.predictor.network
        return network

    @property
    def classes(self) -> Classes:
        """What its outputs mean."""
        return self.file.classes

    def predict(self, source: Any, **options: Any) -> Any:
        """What the model finds in a picture or video: see the `predict` of `predictor`."""
        return self.predictor.predict(source, **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        recipe = shareable(self.file.recipe)
        if recipe == self.file.recipe:
            with atomic_write(save_directory / HUB_FILE) as temporary:
                copyfile(self.file.path, temporary)
        else:
            write_model_file(save_directory / HUB_FILE, load_file(self.file.path), self.file)
        with atomic_write(save_directory / "config.json") as temporary:
            config = {"recipe": recipe.model_dump(mode="json"), "names": list(self.file.classes.names)}
            temporary.write_text(json.dumps(config, indent=2))

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> Self:
        return cls(read_model_file(find_model(model_id, **options)))

    def generate_model_card(self, name: str = "you/model", **_: Any) -> ModelCard:
        """What the model is, what it scored, and how to load it by its name."""
        return model_card(self.file, name)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model under this name; `options` are those of `huggingface_hub.ModelHubMixin.push_to_hub`."""
        return super().push_to_hub(repo_id, **{"model_card_kwargs": {"name": repo_id}, **options})


def load(model: str | Path) -> TrainedModel:
    """A trained model, ready for ``model.predict(picture)``, or of a video.

    The batch norms are folded into the convolutions and channels lie last in memory: the same function up to
    rounding, in the form that `dnlnet bench predict` finds fastest without compiling.

    Args:
        model: a model file, the folder of a run, or a name in the box (`dnlnet models`) or on the Hugging Face hub.

    >>> load("street").classes.names[:3]
    ('Sky', 'Building', 'Pole')
    """
    return TrainedModel(read_model_file(find_model(str(model))))


def default_device() -> str:
    """Where a model runs if nothing is said."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_together(models: Sequence[str | Path]) -> dict[str, TrainedModel]:
    """Models to be compared, by what to call them: recipes, with their files where those are equal."""
    return {title: TrainedModel(file) for title, file in read_together(models).items()}


def read_together(models: Sequence[str | Path]) -> dict[str, ModelFile]:
    """Model files to be compared, by what to call them; they must be of one system and know the same classes."""
    files = [read_model_file(find_model(str(model))) for model in models]
    first = files[0]
    for file in files[1:]:
        if file.recipe.task != first.recipe.task:
            raise ValueError(
                f"{file.path}: is a {file.recipe.task} model, and {first.path} a {first.recipe.task} model; compare "
                "models of one task"
            )
        if tuple(file.classes.names) != tuple(first.classes.names):
            raise ValueError(f"{file.path} and {first.path} know different classes; compare models of one data set")
    names = [file.recipe.name for file in files]
    return {
        f"{name} ({file.path})" if names.count(name) > 1 else name: file
        for name, file in zip(names, files, strict=True)
    }
