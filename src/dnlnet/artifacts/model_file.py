"""Model files: weights, with the recipe, classes and scores in the same file."""

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field
from safetensors import SafetensorError, safe_open

import dnlnet
from dnlnet.bundled import MODELS, SEPARATE, find_bundled
from dnlnet.data.classes import Classes
from dnlnet.data.parsing import parse_json, validated
from dnlnet.errors import require_printable, suggestion
from dnlnet.files import json_text
from dnlnet.names import printable
from dnlnet.recipes.recipe import Recipe
from dnlnet.registry import parse_recipe

if TYPE_CHECKING:
    from torch import Tensor

HUB_FILE = "model.safetensors"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # owner/model; the model's name may contain dots
_FILE_SUFFIXES = (".safetensors", ".pth", ".pt", ".pt2", ".onnx", ".ckpt")
TensorKind = tuple[tuple[int, ...], str]  # shape, and name of the type in safetensors


@dataclass(frozen=True)
class ModelFile:
    """Description of a model file."""

    path: Path
    recipe: Recipe
    classes: Classes
    iteration: int
    scores: dict[str, float] | None
    converted: str | None = None  # code base and file of a converted model
    by_class: dict[str, float | None] | None = None  # None for a class absent from the data
    prefix: str = ""  # of the names of the weights in a checkpoint

    @property
    def title(self) -> str:
        """Name of the bundled model, or of the recipe if it is not bundled.

        >>> read_model_file(find_model("pets")).title
        'pets'
        """
        return next((name for name, bundled in MODELS.items() if bundled.file == self.path), self.recipe.name)


class _Texts(BaseModel):
    """Metadata of a model file, without the recipe."""

    classes: Classes
    iteration: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = 0
    # None is a score without a value, such as the average precision of sizes that do not occur.
    scores: dict[str, Annotated[float, Field(strict=True)] | None] | None = None
    by_class: dict[str, Annotated[float, Field(strict=True)] | None] | None = None


def find_model(model: str, **options: Any) -> Path:
    """Find a model file.

    Args:
        model: Model file, run folder, or name of a bundled model (`dnlnet models`) or of one on the Hugging Face hub,
            in this order of precedence.
        options: Options of `huggingface_hub.hf_hub_download`, such as revision, token and cache_dir.

    >>> find_model("pets").name
    'pets.safetensors'
    >>> find_model("petz")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: petz: no such model file or run folder; did you mean 'pets'? bundled models: ...
    """
    path = Path(model)
    if path.is_file():
        return path
    if path.is_dir():
        for name in ("best.safetensors", "last.safetensors", HUB_FILE):
            if (path / name).is_file():
                return path / name
        if checkpoints := sorted(path.glob("checkpoints/*.json"), key=lambda file: (len(file.name), file.name)):
            return checkpoints[-1].with_suffix(".safetensors")
    if (bundled := find_bundled(model)) is not None:
        return bundled.file
    if path.is_dir():
        hint = _library_hint(path) or "; has the run saved a checkpoint yet?"
        raise FileNotFoundError(f"{path}: no best.safetensors, last.safetensors or checkpoint in it{hint}")
    if _HUB_NAME.fullmatch(model) and path.suffix not in _FILE_SUFFIXES:
        return _from_hub(model, options)
    near = suggestion(model, {**MODELS, **SEPARATE}) or f"{_library_hint(path)};"
    known = ", ".join(MODELS)
    raise FileNotFoundError(f"{model}: no such model file or run folder{near} bundled models: {known}")


def open_model(model: "str | Path | ModelFile") -> ModelFile:
    """Return the description of a model, given as a file, run folder or name; return an opened one unchanged."""
    if isinstance(model, ModelFile):
        return model
    file = read_model_file(find_model(str(model)))
    if file.prefix:
        warnings.warn(
            f"{model}: not finished and never scored; using its checkpoint of iteration {file.iteration} of "
            f"{file.recipe.schedule.total}",
            stacklevel=2,
        )
    return file


def read_model_file(path: Path) -> ModelFile:
    """Read the description of a model, without its weights."""
    metadata, _ = read_header(path)
    if "recipe" not in metadata or "classes" not in metadata:
        hint = _library_hint(path.parent)
        raise ValueError(f"{path}: has weights but no recipe; expected a file written by dnlnet train{hint}")
    return described(path, metadata)


def read_header(path: Path) -> tuple[dict[str, str], dict[str, TensorKind]]:
    """Read the metadata of a safetensors file, and the shapes and types of its tensors by name."""
    require_readable(path)
    try:
        with safe_open(path, "np") as file:  # the header needs no torch
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            kinds = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
            metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        what = f"not a safetensors file ({printable(error)})"
        raise ValueError(f"{path}: is not a model file, or is damaged: {what}") from None
    require_printable(path, kinds)
    return metadata, kinds


def require_readable(path: Path) -> None:
    """Raise an error with the path and the reason if the file is not readable."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise type(error)(f"{path}: cannot be read ({error.strerror})") from None


def described(path: Path, metadata: Mapping[str, str]) -> ModelFile:
    """Parse the metadata of a model file, or of a file exported from it."""
    content: dict[str, Any] = {}
    for name in ("recipe", *_Texts.model_fields):
        try:
            if name in metadata:
                content[name] = parse_recipe(metadata[name]) if name == "recipe" else parse_json(metadata[name])
        except ValueError as error:
            raise ValueError(f"{path}: its {name} cannot be read by this version of dnlnet: {error}") from None
    recipe = content.pop("recipe")
    texts = validated(_Texts, content, f"{path}: cannot be read by this version of dnlnet: ")
    known = {name: score for name, score in (texts.scores or {}).items() if score is not None}
    scores = None if texts.scores is None else known
    converted, prefix = metadata.get("converted"), metadata.get("prefix", "")
    return ModelFile(path, recipe, texts.classes, texts.iteration, scores, converted, texts.by_class, prefix)


def write_model_file(path: Path, state: Mapping[str, "Tensor"], model: ModelFile) -> None:
    """Write weights and their description atomically."""
    from dnlnet.engine.checkpoint import save_tensors

    metadata = file_metadata(model.recipe, model.classes) | {"iteration": json.dumps(model.iteration)}
    if model.scores is not None:
        metadata["scores"] = json_text(model.scores)
    if model.by_class is not None:
        metadata["by_class"] = json_text(model.by_class)
    if model.converted is not None:
        metadata["converted"] = model.converted
    save_tensors(path, state, metadata)


def file_metadata(recipe: Recipe, classes: Classes) -> dict[str, str]:
    """Return the metadata that makes a file of weights a model file."""
    return {
        "recipe": json.dumps(shareable(recipe).stored()),
        "classes": json.dumps(asdict(classes)),
        "dnlnet": dnlnet.__version__,
    }


def shareable(recipe: Recipe) -> Recipe:
    """Return the recipe without local folders in the path of its initial weights."""
    weights = recipe.model.weights
    if weights is None:
        return recipe
    model = recipe.model.model_copy(update={"weights": without_folders(weights)})
    return recipe.model_copy(update={"model": model})


def without_folders(path: str) -> str:
    """Return the file name of a path of any operating system.

    >>> without_folders("/home/me/a.pth"), without_folders("C:\\\\me\\\\a.pth"), without_folders("imagenet")
    ('a.pth', 'a.pth', 'imagenet')
    """
    return PureWindowsPath(path).name


def _library_hint(path: Path) -> str:
    """Return a hint for a transformer of another library, or "".

    >>> _library_hint(Path("vit_small_patch14_dinov2"))
    '; did you mean timm:vit_small_patch14_dinov2? attend, explore, profile, consistency and ablate take it'
    """
    name, config = None, path / "config.json"
    if config.is_file() and "model_type" in config.read_text(errors="replace"):
        name = f"transformers:{path}"
    elif re.fullmatch(r"[a-z]\w+(\.\w+)?", str(path)):
        definition = f"def {path.name.partition('.')[0]}("
        libraries = (library for library in ("timm", "torchvision") if _defines(library, definition))
        name = next((f"{library}:{path}" for library in libraries), None)
    users = "attend, explore, profile, consistency and ablate take it"
    return "" if name is None else f"; did you mean {name}? {users}"


def _defines(library: str, definition: str) -> bool:
    """Return whether the models of a library have this line. Importing the library would take seconds."""
    spec = find_spec(library)
    folders = [] if spec is None else spec.submodule_search_locations or []
    files = (file for folder in folders for file in Path(folder, "models").glob("*.py"))
    return any(definition in file.read_text(encoding="utf-8", errors="replace") for file in files)


def _from_hub(name: str, options: Mapping[str, Any]) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    from dnlnet.backbones.hub import hub_or_cache

    try:
        with hub_or_cache():
            return Path(hf_hub_download(name, HUB_FILE, **options))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError):
        raise FileNotFoundError(
            f"{name}: no such file or folder here, and the hub has no such model or cannot be reached"
        ) from None
