"""`dnlnet info`: what a file is."""

from pathlib import Path
from typing import Annotated, Any

import typer


def info(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model file, a run folder, a name on the hub, a file of weights.")
    ],
    json: Annotated[Path | None, typer.Option(help="Also write it to this file.")] = None,
) -> None:
    """Print what a file is.

    A model: its recipe, classes, size and score. An ONNX file or a PyTorch program: its inputs and outputs. A
    checkpoint of another code base: which, and what dnlnet convert would make of it. Weights: of which backbone.

    Example: dnlnet info runs/camvid
    """
    import yaml

    from dnlnet.cli.tables import write_json
    from dnlnet.recipes.model_file import find_model

    path = find_model(model)
    describe = {".onnx": _onnx, ".pt2": _program, ".safetensors": _safetensors}.get(path.suffix, _checkpoint)
    content = {"file": str(path), "megabytes": round(path.stat().st_size / 1e6, 1), **describe(path)}
    typer.echo(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None), nl=False)
    if json is not None:
        write_json(json, content)
        typer.echo(f"written: {json}")


def _safetensors(path: Path) -> dict[str, Any]:
    from math import prod

    from safetensors import SafetensorError, safe_open

    from dnlnet.recipes.model_file import read_model_file

    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            values = sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: is not a safetensors file, or is damaged ({error})") from None
    if "recipe" not in metadata:
        return _checkpoint(path)
    found = read_model_file(path)
    return {
        "kind": f"a {found.recipe.task} model of dnlnet",
        "values": values,
        "iteration": found.iteration,
        "scores": found.scores,
        **({"converted": found.converted} if found.converted is not None else {}),
        "classes": list(found.classes.names),
        "recipe": found.recipe.model_dump(mode="json"),
    }


def _onnx(path: Path) -> dict[str, Any]:
    from dnlnet.errors import load_extra

    runtime = load_extra("onnxruntime", "onnx")
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has classes of its own for what is wrong with a file
        raise ValueError(f"{path}: is not an ONNX file, or is damaged ({str(error).splitlines()[0][:160]})") from None
    return {
        "kind": "an ONNX file",
        "inputs": {one.name: [one.type, *one.shape] for one in session.get_inputs()},
        "outputs": {one.name: [one.type, *one.shape] for one in session.get_outputs()},
        **_about(session.get_modelmeta().custom_metadata_map),
    }


def _program(path: Path) -> dict[str, Any]:
    from zipfile import is_zipfile

    import torch

    if not is_zipfile(path):
        raise ValueError(f"{path}: is not a PyTorch program, or is damaged")
    extra: dict[str, Any] = dict.fromkeys(("recipe", "classes", "outputs", "pixels", "scores"), "")
    try:
        program = torch.export.load(path, extra_files=extra)
    except Exception as error:  # torch raises whatever its readers of zip, JSON and pickle do
        reason = str(error).strip().splitlines()[:1]
        raise ValueError(f"{path}: is not a PyTorch program, or is damaged ({''.join(reason)[:160]})") from None
    inputs = [node.meta["val"] for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    return {
        "kind": "a PyTorch program, for torch.export.load",
        "inputs": [[str(one.dtype), *map(str, one.shape)] for one in inputs],
        **_about({name: text for name, text in extra.items() if text}),
    }


def _about(metadata: dict[str, str]) -> dict[str, Any]:
    """What an exported file says about the model that it is of."""
    import json

    if "recipe" not in metadata:
        return {"written by": "another program than dnlnet export"}
    known: dict[str, Any] = {name: json.loads(metadata[name]) for name in ("outputs", "scores") if name in metadata}
    return {
        **known,
        **({"pixels": metadata["pixels"]} if "pixels" in metadata else {}),
        "classes": json.loads(metadata["classes"])["names"],
        "recipe": json.loads(metadata["recipe"]),
    }


def _checkpoint(path: Path) -> dict[str, Any]:
    from dnlnet.backbones import find_backbones
    from dnlnet.convert import read, recognise

    if path.stem.isdigit() and path.with_suffix(".json").is_file():
        return {"kind": f"the state of a run after {int(path.stem)} iterations; its models lie a folder above"}
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
        return {"kind": f"a checkpoint of {family.name}", **content, "dnlnet convert": f"does not take it: {error}"}
    return {
        "kind": f"a checkpoint of {family.name}",
        **content,
        "dnlnet convert": f"makes a {converted.recipe.task} model of it",
        "notes": list(converted.said()),
        "unused": list(converted.unused),
        "classes": list(converted.classes.names),
        "recipe": converted.recipe.model_dump(mode="json"),
    }
