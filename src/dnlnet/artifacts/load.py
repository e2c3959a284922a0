"""Trained models, ready for use."""

import json
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any, Self

import torch
from huggingface_hub import ModelCard, ModelHubMixin
from torch import nn

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
from dnlnet.artifacts.weights import load_for_inference, load_weights
from dnlnet.backbones.bfloat16 import choose_precision
from dnlnet.data.classes import Classes
from dnlnet.data.downloads import is_url
from dnlnet.data.outputs import Outputs
from dnlnet.data.problems import BadFileError
from dnlnet.deployment.runtimes import InRuntime, require_backend
from dnlnet.files import atomic_write
from dnlnet.lens.show.attend import AttendRequest, AttendResult, Query
from dnlnet.names import in_html, printable
from dnlnet.recipes.predictor import Predictor


class TrainedModel(ModelHubMixin, library_name="dnlnet"):
    """Trained model that predicts, shows its attention, and can be shared.

    ``model(image)`` predicts and ``model.attend(image)`` shows attention; notebooks display both results.

    ``model.save_pretrained(folder)`` and ``model.push_to_hub("owner/name")`` write the model file, its recipe and a
    model card with its scores; ``TrainedModel.from_pretrained`` reads them.

    Args:
        file: Model file.
        device: Device of the network. Default: a GPU if there is one.
        backend: Runtime of predictions: `torch`, or on the CPU `onnxruntime` or `openvino`, for which the network is
            exported once.
        precision: Precision of predictions: `float32` or `bfloat16`; `auto` is float32.

    Attributes:
        predictor: Predictor of the task in PyTorch, in float32: `SegmentationModel`, `DetectionModel` or
            `VideoModel`.
        runtime_predictor: Predictor that uses the backend and the precision. It cannot show attention.
    """

    _hub_mixin_config = {}  # noqa: RUF012  # replaces the mixin's guess from the arguments of __init__

    def __init__(
        self,
        file: ModelFile,
        device: torch.device | str | None = None,
        backend: str = "torch",
        precision: str = "auto",
    ) -> None:
        self.file = file
        device = device or default_device()
        require_backend(backend)
        self.precision = precision = choose_precision(precision, device)
        if backend != "torch" and precision != "float32":
            raise ValueError(f"{backend} computes in float32; leave out precision {precision}, or use torch")
        network, recipe = load_for_inference(file), file.recipe
        self.predictor: Any = recipe.predictor(network, file.classes, device)
        self.runtime_predictor = self.predictor
        if backend != "torch":
            self.runtime_predictor = self._in_runtime(backend, network)
        elif precision == "bfloat16":
            self.runtime_predictor = recipe.predictor(recipe.in_bfloat16(network), file.classes, device)

    def _in_runtime(self, runtime: str, network: nn.Module) -> Predictor:
        recipe = self.file.recipe
        exportable = recipe.exportable(network)
        if exportable.traced:
            raise ValueError(
                f"a {recipe.task} model predicts only with torch, because its computation depends on the image; "
                f"{runtime} is for segmentation and video models"
            )
        frames = (exportable.frames,) if "time" in exportable.takes.axes else ()
        return recipe.predictor(InRuntime(network, runtime, frames), self.classes, "cpu")

    @property
    def network(self) -> nn.Module:
        """Network in evaluation mode, with folded batch norms."""
        network: nn.Module = self.predictor.network
        return network

    @property
    def classes(self) -> Classes:
        """Classes of the outputs."""
        return self.file.classes

    def predict(self, source: Any, **options: Any) -> Any:
        """Predict an image or a video. Calling the model does the same.

        Results have ``show()``, ``save(path)`` and ``plot()``, and notebooks display them.

        Args:
            source: Image: a file, a URL, a Pillow image, an array (H, W, 3) or a tensor (3, H, W). Video: a file, a
                URL, a folder of frames, an array or tensor (T, H, W, 3), or a list of images. A list, a batch or a
                folder of files gives a list of results. `dnlnet.predict` writes them to files instead.
            options: Options of the predictor's `predict`, such as `threshold` of a detector.
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
        """Show the attention in an image or a video. The result has ``show()``, ``save(path)`` and ``plot()``.

        ``save("maps.png")`` writes the figure, and ``save("explore.html")`` an interactive page.

        Args:
            source: Image or video, as for `predict`.
            queries: Points in pixels, (x, y), or (x, y, frame) in a clip. Default: points well inside regions.
            options: Options of `AttendRequest`, such as the folder of output files.
        """
        request = self.request(source, queries, **options)
        attended: AttendResult = self.predictor.attend({self.file.title: self.predictor}, request)
        return attended

    def request(self, source: Any, queries: Sequence[Query] = (), **options: Any) -> AttendRequest:
        """Return the request of `attend` with these arguments."""
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
        if before.get("recipe") == now["recipe"] and not self.file.prefix:
            with atomic_write(save_directory / HUB_FILE) as temporary:
                copyfile(self.file.path, temporary)
        else:  # files of earlier versions may contain local folders or scores of another model
            write_model_file(save_directory / HUB_FILE, load_weights(self.file), self.file)
        with atomic_write(save_directory / "config.json") as temporary:
            config = {"recipe": shareable(self.file.recipe).stored(), "names": list(self.file.classes.names)}
            temporary.write_text(json.dumps(config, indent=2))

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> Self:
        return cls(read_model_file(find_model(model_id, **options)))

    def generate_model_card(self, name: str = "you/model", **_: Any) -> ModelCard:
        """Return the model card."""
        return model_card(self.file, name)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model under this name, with options of `huggingface_hub.ModelHubMixin.push_to_hub`."""
        return super().push_to_hub(repo_id, **{"model_card_kwargs": {"name": repo_id}, **options})


def load(model: str | Path | ModelFile, backend: str = "torch", precision: str = "auto") -> TrainedModel:
    """Load a trained model, ready for ``model(image)``.

    Batch norms are folded into the convolutions, and memory is channels-last. The network computes the same function
    up to rounding, in the fastest form that needs no compiling (`dnlnet bench predict`).

    Args:
        model: Model file, run folder, or name of a bundled model (`dnlnet models`) or of one on the Hugging Face hub.
        backend: Runtime of predictions: `torch`, or on the CPU `onnxruntime` or `openvino`. Attention always uses
            PyTorch: `model.attend`, or `dnlnet.capture` around `model.predictor.predict`.
        precision: Precision of predictions: `float32`, or `bfloat16` on processors with instructions for it; `auto`
            is float32. Attention is always computed in float32.

    >>> load("pets").classes.names
    ('background', 'pet')
    """
    return TrainedModel(open_model(model), backend=backend, precision=precision)


def default_device() -> str:
    """Return the default device: a GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_together(models: Sequence[str | Path | ModelFile | TrainedModel]) -> dict[str, TrainedModel]:
    """Load models to compare, by title (see `read_together`)."""
    files = read_together(models)
    return {
        title: model if isinstance(model, TrainedModel) else TrainedModel(file)
        for (title, file), model in zip(files.items(), models, strict=True)
    }


def read_together(models: Sequence[str | Path | ModelFile | TrainedModel]) -> dict[str, ModelFile]:
    """Read model files to compare, by title: the name of the model, followed by the file if names are equal.

    Raises unless all have the same task and classes.
    """
    files = [model.file if isinstance(model, TrainedModel) else open_model(model) for model in models]
    first = files[0]
    for file in files[1:]:
        if file.recipe.task != first.recipe.task:
            raise ValueError(
                f"{file.path} is a {file.recipe.task} model and {first.path} a {first.recipe.task} model; compare "
                "models of one task"
            )
        if tuple(file.classes.names) != tuple(first.classes.names):
            raise ValueError(f"{file.path} and {first.path} have different classes; compare models of one data set")
    names = [file.title for file in files]
    return {
        f"{name} ({file.path})" if names.count(name) > 1 else name: file
        for name, file in zip(names, files, strict=True)
    }
