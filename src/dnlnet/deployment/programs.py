"""Exported files (ONNX and PyTorch programs), and functions that run them."""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dnlnet.deployment.network import Exportable
from dnlnet.errors import load_extra
from dnlnet.signals import hold_stop_signals

Arrays = dict[str, NDArray[Any]]
TOLERANCE = 1e-4  # relative to an output's largest value, for rounding in float32
_TRACED_OPSET = 17  # the newest opset of PyTorch's tracing exporter


def write_onnx(
    exportable: Exportable, path: Path, example: Tensor, free: Sequence[str], about: Mapping[str, str]
) -> None:
    """Write a network as an ONNX file.

    Args:
        exportable: Network to export.
        path: File to write.
        example: Example input.
        free: Names of axes whose length may differ from the example: batch, height, width, time.
        about: Metadata of the file, by name.
    """
    onnx = load_extra("onnx", "onnx")
    operators = load_extra("onnxscript", "onnx").opset18
    with _exporting():
        axes = exportable.takes.free(free)
        if exportable.traced:
            _trace(exportable, path, example, axes)
        else:
            program = torch.onnx.export(
                exportable,
                (example,),
                dynamo=True,
                input_names=[exportable.takes.name],
                output_names=list(exportable.outputs),
                dynamic_shapes=(dict(axes),) if axes else None,
                custom_translation_table={torch.ops.aten.hardshrink.default: partial(_shrink, operators)},
                verbose=False,
            )
            assert program is not None
            program.save(path)
    model = onnx.load(path)
    _loop_instead_of_scanning(model.graph)
    _forget_sources(model.graph)
    onnx.helper.set_model_props(model, dict(about))
    onnx.save(model, path)


@contextmanager
def _exporting() -> Iterator[None]:
    """Silence PyTorch's exporters and readers, which warn about their own code, and hold stop signals until they end.

    An exception that a signal raises inside an exporter can crash the process.
    """
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), torch.no_grad(), hold_stop_signals():
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(disabled)


def _shrink(operators: Any, weights: Any, lambd: float) -> Any:
    """Set subnormal attention weights to zero with one operator; PyTorch's exporter would use three.

    Runtimes have this operator only in single precision. Double precision does not need it.
    """
    single = weights.dtype == load_extra("onnx", "onnx").TensorProto.FLOAT
    return operators.ThresholdedRelu(weights, alpha=lambd) if single else operators.Identity(weights)


def _forget_sources(graph: Any) -> None:
    """Remove local source files and lines from every node, including nodes in loops."""
    for node in graph.node:
        del node.metadata_props[:]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _forget_sources(attribute.g)


def _loop_instead_of_scanning(graph: Any) -> None:
    """Replace every Scan with an equivalent Loop, which more runtimes support (OpenVINO lacks this Scan)."""
    helper = load_extra("onnx", "onnx").helper
    integer, boolean = (load_extra("onnx", "onnx").TensorProto.DataType.Value(name) for name in ("INT64", "BOOL"))
    nodes = []
    for node in graph.node:
        if node.op_type != "Scan":
            nodes.append(node)
            continue
        values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        body, states = values["body"], len(node.input) - values["num_scan_inputs"]
        step, going, on, count = (f"{node.name}_{name}" for name in ("step", "going", "on", "count"))
        taken = [
            helper.make_node("Gather", [whole, step], [part.name], axis=0)
            for whole, part in zip(node.input[states:], body.input[states:], strict=True)
        ]
        inside = helper.make_graph(
            [*taken, *body.node, helper.make_node("Identity", [going], [on])],
            body.name,
            [
                helper.make_tensor_value_info(step, integer, []),
                helper.make_tensor_value_info(going, boolean, []),
                *body.input[:states],
            ],
            [helper.make_tensor_value_info(on, boolean, []), *body.output],
            body.initializer,
        )
        nodes.append(helper.make_node("Shape", [node.input[states]], [count], start=0, end=1))
        nodes.append(helper.make_node("Loop", [count, "", *node.input[:states]], node.output, node.name, body=inside))
    del graph.node[:]
    graph.node.extend(nodes)


def _trace(exportable: Exportable, path: Path, example: Tensor, axes: Mapping[int, str]) -> None:
    """Export by tracing, because the newer exporter cannot handle a number of objects that depends on the image."""

    def transpose(graph: Any, tensor: Any) -> Any:
        order = list(range(tensor.type().dim()))
        return graph.op("Transpose", tensor, perm_i=[*order[:-2], order[-1], order[-2]])

    torch.onnx.register_custom_op_symbolic("aten::mT", transpose, _TRACED_OPSET)  # type: ignore[attr-defined]
    try:
        torch.onnx.export(
            exportable,
            (example,),
            str(path),
            dynamo=False,
            opset_version=_TRACED_OPSET,
            input_names=[exportable.takes.name],
            output_names=list(exportable.outputs),
            dynamic_axes={exportable.takes.name: dict(axes)} if axes else None,
        )
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::mT", _TRACED_OPSET)  # type: ignore[attr-defined]


def read_onnx(path: Path, threads: int = 0) -> Callable[[Tensor], Arrays]:
    """Return a function that runs an ONNX file in ONNX Runtime on the CPU; 0 threads means one per core."""
    runtime = load_extra("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    names = [output.name for output in session.get_outputs()]
    return lambda x: dict(zip(names, session.run(names, {name: x.numpy()}), strict=True))


def write_program(
    exportable: Exportable, path: Path, example: Tensor, free: Sequence[str], about: Mapping[str, str]
) -> None:
    """Write a network as a program for `torch.export.load`, which needs only PyTorch. See `write_onnx`."""
    if exportable.traced:
        raise ValueError(
            "a whole detector cannot become a PyTorch program, because the number of objects depends on the image; "
            "use the format onnx, or export only its backbone and pyramid with --part pyramid"
        )
    axes = dict.fromkeys(exportable.takes.free(free), torch.export.Dim.DYNAMIC)
    about = {**about, "outputs": json.dumps(exportable.outputs)}
    with _exporting():
        program = torch.export.export(exportable, (example,), dynamic_shapes=(axes,) if axes else None)
        for part in program.graph_module.modules():  # including loops
            for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
                node.meta.pop("stack_trace", None)  # names local files
        torch.export.save(program, path, extra_files=dict(about))


def read_program(path: Path) -> Callable[[Tensor], Arrays]:
    """Return a function that runs a PyTorch program."""
    extra: dict[str, Any] = {"outputs": ""}
    with _exporting():
        program = torch.export.load(path, extra_files=extra).module()
    names = json.loads(extra["outputs"])
    return lambda x: _named(names, program(x))


def computed(exportable: Exportable) -> Callable[[Tensor], Arrays]:
    """Return a function that runs the network in PyTorch."""

    def compute(x: Tensor) -> Arrays:
        with torch.no_grad():
            return _named(exportable.outputs, exportable(x))

    return compute


def _named(names: Sequence[str], outputs: Sequence[Tensor]) -> Arrays:
    return {name: output.detach().numpy() for name, output in zip(names, outputs, strict=True)}


def largest_difference(expected: Arrays, found: Arrays) -> dict[str, float]:
    """Return the largest difference of each output relative to its largest value; infinite if shapes differ.

    >>> largest_difference({"a": np.array([1.0, 4.0])}, {"a": np.array([1.0, 5.0])})
    {'a': 0.25}
    """
    return {name: _difference(value, found[name]) for name, value in expected.items()}


def _difference(expected: NDArray[Any], found: NDArray[Any]) -> float:
    if expected.shape != found.shape:
        return float("inf")
    if not expected.size:
        return 0.0
    difference = float(np.abs(expected.astype(np.float64) - found).max())
    return difference if difference == 0 else difference / max(float(np.abs(expected).max()), 1e-12)
