"""Descriptions of exported files, which are read as data and never loaded or run."""

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from dnlnet.artifacts.model_file import described, require_readable
from dnlnet.backbones.pickles import find_excess
from dnlnet.data.parsing import parse_json
from dnlnet.errors import load_extra

# Values of torch._export.serde.schema.ScalarType.
_TYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
    13: "bfloat16",
}


def describe_program(path: Path) -> dict[str, Any]:
    """Describe the inputs of a PyTorch program and its model.

    Reads only its JSON, because `torch.export.load` would unpickle parts of the file and evaluate expressions.
    """
    require_readable(path)
    try:
        with ZipFile(path) as archive:
            if excess := find_excess(archive.infolist(), path.stat().st_size):
                raise ValueError(excess)
            parts = {member.filename.partition("/")[2]: member for member in archive.infolist()}
            programs = sorted(name for name in parts if re.fullmatch(r"models/[^/]+\.json", name))
            if not programs:
                raise ValueError("it has no program")
            program = parse_json(archive.read(parts[programs[0]]).decode())
            texts = {
                name.removeprefix("extra/"): archive.read(member).decode()
                for name, member in parts.items()
                if name.startswith("extra/")
            }
        inputs = _inputs(program)
    # Raised for damaged, encrypted or unsupported archives, and for JSON of another structure.
    except (
        BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        OSError,
        KeyError,
        TypeError,
    ) as error:
        raise ValueError(f"{path}: is not a PyTorch program, or is damaged ({_one_line(error)})") from None
    return {"kind": "a PyTorch program, for torch.export.load", "inputs": inputs, **_describe_model(path, texts)}


def _inputs(program: Any) -> list[list[str]]:
    """Return the type and lengths of each input tensor of a program."""
    module = program["graph_module"]
    specs = [spec["user_input"]["arg"] for spec in module["signature"]["input_specs"] if "user_input" in spec]
    tensors = [module["graph"]["tensor_values"][arg["as_tensor"]["name"]] for arg in specs if "as_tensor" in arg]
    return [
        [f"torch.{_TYPES.get(tensor['dtype'], 'another type')}", *map(_length, tensor["sizes"])] for tensor in tensors
    ]


def _length(size: Mapping[str, Any]) -> str:
    if "as_int" in size:
        return str(int(size["as_int"]))
    symbol = re.match(r"Symbol\('(\w{1,20})'", size["as_expr"]["expr_str"])
    return symbol[1] if symbol else "free"


def describe_onnx(path: Path) -> dict[str, Any]:
    """Describe the inputs and outputs of an ONNX file and its model.

    Does not open external files of weights.
    """
    onnx = load_extra("onnx", "onnx")
    damaged = load_extra("google.protobuf.message", "onnx").DecodeError
    require_readable(path)
    try:
        model = onnx.load(path, load_external_data=False)
    except (damaged, ValueError) as error:
        raise ValueError(f"{path}: is not an ONNX file, or is damaged ({_one_line(error)})") from None
    weights = {tensor.name for tensor in model.graph.initializer}
    outputs = {value.name: _onnx_value(onnx, value) for value in model.graph.output}
    if not outputs:
        raise ValueError(f"{path}: is not an ONNX file, or is damaged (it has no outputs)")
    return {
        "kind": "an ONNX file",
        "inputs": {value.name: _onnx_value(onnx, value) for value in model.graph.input if value.name not in weights},
        "outputs": outputs,
        **_describe_model(path, {entry.key: entry.value for entry in model.metadata_props}),
    }


def _onnx_value(onnx: Any, value: Any) -> list[str | int]:
    tensor = value.type.tensor_type
    kind = onnx.TensorProto.DataType.Name(tensor.elem_type) if tensor.elem_type else "unknown"
    return [f"tensor({kind.lower()})", *(one.dim_param or one.dim_value for one in tensor.shape.dim)]


def _describe_model(path: Path, texts: Mapping[str, str]) -> dict[str, Any]:
    """Describe the model of an exported file."""
    if "recipe" not in texts or "classes" not in texts:
        return {"written by": "another program than dnlnet export"}
    model = described(path, texts)
    outputs = parse_json(texts["outputs"]) if "outputs" in texts else None
    return {
        **({"outputs": [str(name) for name in outputs]} if isinstance(outputs, list) else {}),
        **({"scores": model.scores} if model.scores is not None else {}),
        **({"pixels": texts["pixels"]} if "pixels" in texts else {}),
        "classes": list(model.classes.names),
        "recipe": model.recipe.stored(),
    }


def _one_line(error: Exception) -> str:
    """Return the beginning of an error message on one line."""
    return " ".join(str(error).split())[:160] or type(error).__name__
