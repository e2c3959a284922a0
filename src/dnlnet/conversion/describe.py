"""Description of any file that the package reads; nothing in it is executed."""

from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from dnlnet.artifacts.describe import describe_onnx, describe_program
from dnlnet.artifacts.model_file import ModelFile, described, find_model, read_header


def describe(model: str | Path, *, check: bool = False) -> dict[str, Any]:
    """Describe a model, an exported file, a checkpoint of another code base or a file of weights.

    Args:
        model: A file, the folder of a run, or a name on the Hugging Face hub.
        check: Build the network of a model file and compare its tensors with those of the file.
    """
    path = find_model(str(model))
    kinds: dict[str, Callable[[Path], dict[str, Any]]] = {
        ".onnx": describe_onnx,
        ".pt2": describe_program,
        ".safetensors": partial(_safetensors, check=check),
    }
    return {
        "file": str(path),
        "megabytes": round(path.stat().st_size / 1e6, 1),
        **kinds.get(path.suffix, _checkpoint)(path),
    }


def _safetensors(path: Path, check: bool) -> dict[str, Any]:
    metadata, tensors = read_header(path)
    if not {"recipe", "classes"} <= metadata.keys() or "prefix" in metadata:
        return _checkpoint(path)
    found = described(path, metadata)
    return {
        "kind": f"a {found.recipe.task} model of dnlnet",
        **(_weights(found) if check else {}),
        "values": sum(prod(shape) for shape, _ in tensors.values()),
        "iteration": found.iteration,
        "scores": found.scores,
        **({"converted": found.converted} if found.converted is not None else {}),
        "classes": list(found.classes.names),
        "recipe": found.recipe.stored(),
    }


def _weights(model: ModelFile) -> dict[str, Any]:
    from dnlnet.artifacts.weights import weights_problem

    problem = weights_problem(model)
    return {"weights": "are those of its recipe's network"} if problem is None else {"problem": problem}


def _checkpoint(path: Path) -> dict[str, Any]:
    if path.stem.isdigit() and path.with_suffix(".json").is_file():
        iterations = int(path.stem)
        return {"kind": f"the state of a run after {iterations} iterations; the run's models are in the folder above"}
    from dnlnet.backbones import find_backbones
    from dnlnet.conversion.converting import read, recognise

    checkpoint = read(path)
    content: dict[str, Any] = {
        "values": sum(tensor.numel() for tensor in checkpoint.state.values()),
        "tensors": len(checkpoint.state),
        "beside": sorted(checkpoint.meta),
    }
    family = recognise(checkpoint)
    if family is None:
        known = " or ".join(find_backbones(dict(checkpoint.state)))
        kind = f"weights of {known}, for model.weights" if known else "weights of an unknown network"
        return {"kind": kind, **content, "first": list(checkpoint.state)[:5]}
    try:
        converted = family.convert(checkpoint)
    except ValueError as error:
        return {"kind": f"a checkpoint of {family.name}", **content, "dnlnet convert": f"cannot convert it: {error}"}
    return {
        "kind": f"a checkpoint of {family.name}",
        **content,
        "dnlnet convert": f"converts it to a {converted.recipe.task} model",
        "notes": list(converted.messages()),
        "unused": list(converted.unused),
        "classes": list(converted.classes.names),
        "recipe": converted.recipe.stored(),
    }
