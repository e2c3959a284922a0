"""Model files: the weights, and in the same file what they are weights of."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

import dnlnet
from dnlnet.data.classes import Classes
from dnlnet.engine.checkpoint import save_tensors
from dnlnet.errors import shown
from dnlnet.files import json_text, parse_json
from dnlnet.recipes.schema import Recipe
from dnlnet.systems import parse_recipe

HUB_FILE = "model.safetensors"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # of an owner and a model; either may have dots in it
_FILE_SUFFIXES = (".safetensors", ".pth", ".pt", ".pt2", ".onnx", ".ckpt")
Kind = tuple[tuple[int, ...], str]  # of a tensor: its shape, and its type as safetensors names it


@dataclass(frozen=True)
class ModelFile:
    """What a model file says about itself."""

    path: Path
    recipe: Recipe
    classes: Classes
    iteration: int
    scores: dict[str, float] | None
    converted: str | None = None  # the code base and the file that it comes from, if it was converted


def find_model(model: str, **options: Any) -> Path:
    """The file of a model given as a file, as the folder of a run, or as a name on the Hugging Face hub.

    `options` are of `huggingface_hub.hf_hub_download`, for a name: revision, token, cache_dir and others.

    >>> find_model("nowhere.safetensors")
    Traceback (most recent call last):
    FileNotFoundError: nowhere.safetensors: no such model file or run folder
    """
    path = Path(model)
    if path.is_file():
        return path
    if path.is_dir():
        for name in ("best.safetensors", "last.safetensors", HUB_FILE):
            if (path / name).is_file():
                return path / name
        raise FileNotFoundError(
            f"{path}: no best.safetensors or last.safetensors in it; has the run been evaluated yet?"
        )
    if _HUB_NAME.fullmatch(model) and path.suffix not in _FILE_SUFFIXES:
        return _from_hub(model, options)
    raise FileNotFoundError(f"{model}: no such model file or run folder")


def read_model_file(path: Path) -> ModelFile:
    """What is known about a model, without reading its weights."""
    metadata, _ = read_header(path)
    if "recipe" not in metadata or "classes" not in metadata:
        raise ValueError(f"{path}: has weights but no recipe; expected a file that dnlnet train has written")
    return described(path, metadata)


def read_header(path: Path) -> tuple[dict[str, str], dict[str, Kind]]:
    """The texts that a safetensors file holds beside its tensors, and the tensors' shapes and types by name."""
    require_readable(path)
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            kinds = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
            return dict(file.metadata() or {}), kinds
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: is not a model file, or is damaged: not a safetensors file ({error})") from None


def require_readable(path: Path) -> None:
    """An error that names the file and the reason if it may not be read."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise type(error)(f"{path}: cannot be read ({error.strerror})") from None


def described(path: Path, metadata: Mapping[str, str]) -> ModelFile:
    """What the texts in a model file, or in one exported from it, say about the model."""
    readers: dict[str, Callable[[str], Any]] = {
        "recipe": parse_recipe,
        "classes": _parse_classes,
        "iteration": _parse_iteration,
        "scores": _parse_scores,
    }
    known: dict[str, Any] = {"iteration": 0, "scores": None}
    for name, read in readers.items():
        if name in metadata:
            try:
                known[name] = read(metadata[name])
            except ValueError as error:
                raise ValueError(f"{path}: its {name} cannot be read by this version of dnlnet: {error}") from None
    return ModelFile(path, converted=metadata.get("converted"), **known)


def _parse_classes(text: str) -> Classes:
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError(f"expected a mapping with names and palette, got {shown(content)}")
    names, palette, numbers = content.get("names"), content.get("palette"), content.get("numbers", [])
    if not _is_list(names, str) or not names:
        raise ValueError(f"expected a list of their names, got {shown(names)}")
    if not isinstance(palette, list) or not all(_is_colour(colour) for colour in palette):
        raise ValueError(f"expected a palette of three numbers within 0..255 for each, got {shown(palette)}")
    if not _is_list(numbers, int) or len(numbers) not in (0, len(names)):
        raise ValueError(f"expected a number for each of {len(names)}, or none, got {shown(numbers)}")
    return Classes(tuple(names), tuple(tuple(colour) for colour in palette), tuple(numbers))


def _is_list(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(type(one) is kind for one in value)


def _is_colour(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(one) is int and 0 <= one <= 255 for one in value)


def _parse_iteration(text: str) -> int:
    content = parse_json(text)
    if type(content) is not int or not 0 <= content < 2**63:
        raise ValueError(f"expected a whole number, got {shown(content)}")
    return content


def _parse_scores(text: str) -> dict[str, float]:
    content = parse_json(text)
    # null is a score that has no value, as average precision has none where there is no object of a size
    known = (
        {name: value for name, value in content.items() if value is not None} if isinstance(content, dict) else None
    )
    if known is None or not all(type(value) in (int, float) for value in known.values()):
        raise ValueError(f"expected numbers by name, got {shown(content)}")
    return known


def write_model_file(path: Path, state: Mapping[str, Tensor], model: ModelFile) -> None:
    """Write weights with what a model file says about itself; whole, or not at all."""
    metadata = file_metadata(model.recipe, model.classes) | {"iteration": json.dumps(model.iteration)}
    if model.scores is not None:
        metadata["scores"] = json_text(model.scores)
    if model.converted is not None:
        metadata["converted"] = model.converted
    save_tensors(path, state, metadata)


def file_metadata(recipe: Recipe, classes: Classes) -> dict[str, str]:
    """What a file of weights must say to be a model file."""
    return {
        "recipe": recipe.model_dump_json(),
        "classes": json.dumps(asdict(classes)),
        "dnlnet": dnlnet.__version__,
    }


def _from_hub(name: str, options: Mapping[str, Any]) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, HUB_FILE, **options))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise FileNotFoundError(
            f"{name}: no such file or folder here, and the hub has no such model or cannot be reached "
            f"({type(error).__name__})"
        ) from None
