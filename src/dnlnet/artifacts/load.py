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
    file_metadata,
    find_model,
    open_model,
    read_header,
    read_model_file,
    shareable,
    write_model_file,
)
from dnlnet.data.classes import Classes
from dnlnet.data.downloads import is_url
from dnlnet.data.outputs import Outputs
from dnlnet.data.problems import BadFileError
from dnlnet.export.runtimes import InRuntime, require_backend
from dnlnet.files import atomic_write
from dnlnet.layout import convert_to_channels_last
from dnlnet.lens.show.attend_request import AttendRequest, AttendResult, Query
from dnlnet.names import in_html, printable
from dnlnet.recipes.predictor import Predictor

_FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors names them


def load_network(model: ModelFile) -> nn.Module:
    """Load the network of a model file as it was trained.

    Weights that do not match the network exactly are an error; values that are not finite, a warning.
    """
    network = _build(model)
    problem = _mismatch(model, network)
    if problem is not None:
        raise ValueError(f"{model.path}: {problem}")
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
    return convert_to_channels_last(model.recipe.fold(load_network(model).eval()))


def weights_problem(model: ModelFile) -> str | None:
    """Say why the weights of a model file do not fit the network of its recipe; None if they do.

    Only the file's header is read, and the network takes no memory.
    """
    try:
        with torch.device("meta"):
            network = _build(model)
    except ValueError as error:
        return str(error).removeprefix(f"{model.path}: ")
    return _mismatch(model, network)


def _build(model: ModelFile) -> nn.Module:
    try:
        return model.recipe.build(len(model.classes), pretrained=False)
    except ValueError as error:
        raise ValueError(f"{model.path}: its recipe describes no network: {error}") from None


def _mismatch(model: ModelFile, network: nn.Module) -> str | None:
    """Compare the header of a model file with a network."""
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

    ``model(picture)`` is what it finds, ``model.attend(picture)`` what it attends to; a notebook shows both.

    ``model.save_pretrained(folder)`` and ``model.push_to_hub("name/of-it")`` write the file, its recipe and a card
    that says what it is and what it scored; ``TrainedModel.from_pretrained`` reads them.

    Args:
        file: what the model file says.
        device: where the network runs; default: a GPU if there is one.
        backend: what predictions are computed with: `torch`, or on the processor `onnxruntime` or `openvino`, for
            which the network is exported once.

    Attributes:
        predictor: The task's object that predicts and attends with PyTorch: `SegmentationModel`, `DetectionModel` or
            `VideoModel`.
        runtime_predictor: The same for predictions alone, computed by the backend.
    """

    _hub_mixin_config = {}  # noqa: RUF012  # the mixin's own guess, from the arguments of __init__, is not wanted

    def __init__(self, file: ModelFile, device: torch.device | str | None = None, backend: str = "torch") -> None:
        self.file = file
        require_backend(backend)
        network = load_for_inference(file)
        self.predictor: Any = file.recipe.predictor(network, file.classes, device or default_device())
        self.runtime_predictor = self.predictor if backend == "torch" else self._in_runtime(backend, network)

    def _in_runtime(self, runtime: str, network: nn.Module) -> Predictor:
        recipe = self.file.recipe
        exportable = recipe.exportable(network)
        if exportable.traced:
            raise ValueError(
                f"a {recipe.task} model predicts with torch alone: how much it computes depends on the picture; "
                f"{runtime} is for other models, such as those of segmentation and video"
            )
        frames = (exportable.frames,) if "time" in exportable.takes.axes else ()
        return recipe.predictor(InRuntime(network, runtime, frames), self.classes, "cpu")

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
        """What the model finds in a picture or video; the model called with it does the same.

        Results have ``show()``, ``save(path)`` and ``plot()``, and a notebook shows them by itself.

        Args:
            source: a file, a URL, a Pillow image, an array (H, W, 3) or a tensor (3, H, W); or for a video model a
                file, a URL, a folder of frames, an array or tensor of frames (T, H, W, 3) or a list of pictures. A
                list or a batch of such, or a folder of files, gives a list. For more than fits into memory,
                `dnlnet.predict` writes files.
            options: of the `predict` of `predictor`, such as `threshold` of a detector.
        """
        parts = self._outputs.several(source)
        if parts is not None:
            return [self.predict(one, **options) for one in parts]
        if isinstance(source, Path | str) and not is_url(source) and Path(source).is_dir():
            found = self._outputs.find([Path(source)])
            if found.problems:
                raise BadFileError(found.problems[0])
            if list(found.paths.values()) != [Path(source)]:  # a folder of frames is one video
                return [self.runtime_predictor.predict(path, **options) for path in found.paths.values()]
        return self.runtime_predictor.predict(source, **options)

    __call__ = predict

    @property
    def _outputs(self) -> Outputs:
        outputs: Outputs = self.predictor.outputs()
        return outputs

    def attend(self, source: Any, queries: Sequence[Query] = (), **options: Any) -> AttendResult:
        """What the model attends to in a picture or video; the result has ``show()``, ``save(path)`` and ``plot()``.

        ``save("maps.png")`` writes the figure, ``save("explore.html")`` the page to explore it with.

        Args:
            source: as `predict` takes it.
            queries: points in pixels, (x, y), or (x, y, frame) in a clip; default: points well inside the regions.
            options: of `AttendRequest`: where files go, if any are to be written.
        """
        request = self.request(source, queries, **options)
        attended: AttendResult = self.predictor.attend({self.file.title: self.predictor}, request)
        return attended

    def request(self, source: Any, queries: Sequence[Query] = (), **options: Any) -> AttendRequest:
        """A request to look at what `predict` takes."""
        return AttendRequest.of(source, queries, self._outputs.several, **options)

    def __repr__(self) -> str:
        return printable(f"TrainedModel({', '.join(f'{name} {value}' for name, value in self._facts().items())})")

    def _repr_html_(self) -> str:
        rows = {"model": self.file.title, **self._facts(), "class names": ", ".join(self.classes.names)}
        left = 'style="text-align: left"'
        cells = "".join(
            f"<tr><th {left}>{in_html(name)}</th><td {left}>{in_html(value)}</td></tr>"
            for name, value in rows.items()
        )
        return f"<table>{cells}</table>"

    def _facts(self) -> dict[str, str]:
        recipe, count = self.file.recipe, sum(tensor.numel() for tensor in self.network.parameters())
        scores = self.file.scores or {}
        return {
            "task": recipe.task,
            "block": recipe.model.variant or "none",
            "classes": str(len(self.classes)),
            "size": f"{count / 1e6:.2f} million parameters",
            "score": ", ".join(f"{name} {value:.3f}" for name, value in list(scores.items())[:2]) or "not measured",
        }

    def _save_pretrained(self, save_directory: Path) -> None:
        before, now = read_header(self.file.path)[0], file_metadata(self.file.recipe, self.file.classes)
        if before.get("recipe") == now["recipe"]:
            with atomic_write(save_directory / HUB_FILE) as temporary:
                copyfile(self.file.path, temporary)
        else:  # of an older version, which may name folders of the machine, or hold another model's scores
            write_model_file(save_directory / HUB_FILE, load_file(self.file.path), self.file)
        with atomic_write(save_directory / "config.json") as temporary:
            config = {"recipe": shareable(self.file.recipe).stored(), "names": list(self.file.classes.names)}
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


def load(model: str | Path | ModelFile, backend: str = "torch") -> TrainedModel:
    """A trained model, ready for ``model(picture)``, or of a video.

    The batch norms are folded into the convolutions and channels lie last in memory: the same function up to
    rounding, in the form that `dnlnet bench predict` finds fastest without compiling.

    Args:
        model: a model file, the folder of a run, a bundled model (`dnlnet models`) or a name on the Hugging Face hub.
        backend: what predictions are computed with: `torch`, or on the processor `onnxruntime` or `openvino`.
            Attention is looked into with PyTorch in any case: `model.attend`, or `dnlnet.capture` around
            `model.predictor.predict`.

    >>> load("street").classes.names[:3]
    ('Sky', 'Building', 'Pole')
    """
    return TrainedModel(open_model(model), backend=backend)


def default_device() -> str:
    """Where a model runs if nothing is said."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_together(models: Sequence[str | Path | ModelFile | TrainedModel]) -> dict[str, TrainedModel]:
    """Models to be compared, by what to call them: names, with their files where those are equal."""
    files = read_together(models)
    return {
        title: model if isinstance(model, TrainedModel) else TrainedModel(file)
        for (title, file), model in zip(files.items(), models, strict=True)
    }


def read_together(models: Sequence[str | Path | ModelFile | TrainedModel]) -> dict[str, ModelFile]:
    """Model files to be compared, by what to call them; they must be of one system and know the same classes."""
    files = [model.file if isinstance(model, TrainedModel) else open_model(model) for model in models]
    first = files[0]
    for file in files[1:]:
        if file.recipe.task != first.recipe.task:
            raise ValueError(
                f"{file.path}: is a {file.recipe.task} model, and {first.path} a {first.recipe.task} model; compare "
                "models of one task"
            )
        if tuple(file.classes.names) != tuple(first.classes.names):
            raise ValueError(f"{file.path} and {first.path} know different classes; compare models of one data set")
    names = [file.title for file in files]
    return {
        f"{name} ({file.path})" if names.count(name) > 1 else name: file
        for name, file in zip(names, files, strict=True)
    }
