"""Attention in standard operators, blocked and plain, equals the fused operator in float64."""

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from cost import Multiplied
from dnlnet import NonLocalBlock
from dnlnet.attention import VARIANTS
from dnlnet.deployment import Attention, Axes, Exportable, portable, portable_attention
from dnlnet.deployment.programs import Arrays, computed, read_onnx, write_onnx, write_program
from dnlnet.signals import StopSignal, exit_on_stop_signals
from equations import randomise, sharp_operands

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's exporters warn about themselves
ROWS = 16
Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
# 2 x 7 x 9 is exported. At the other sizes, blocks are full or the last one is nearly empty.
SHAPES = ((2, 7, 9), (1, 4, 5), (1, 13, 5), (3, 8, 8), (1, 16, 16), (1, 11, 23), (2, 19, 17))


NAMES = (*VARIANTS, "pooled")


class Parallel(Exportable):
    """Blocks applied in parallel to the same features."""

    takes = Axes("features", ("batch", 6, "height", "width"))

    def __init__(self, blocks: nn.Module, outputs: Sequence[str] = NAMES) -> None:
        super().__init__((8, 8))
        self.blocks, self.outputs = blocks.eval(), tuple(outputs)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the output of each block."""
        return tuple(block(x) for block in self.blocks)


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> nn.ModuleList:
    """Return one block of each variant, and one with fewer keys than queries."""
    monkeypatch.setattr(portable_attention, "ROWS", ROWS)
    made = [*(NonLocalBlock(6, variant) for variant in VARIANTS), NonLocalBlock(6, "dnl", pool=2)]
    return nn.ModuleList(randomise(block, seed) for seed, block in enumerate(made))


def features(shape: tuple[int, int, int]) -> Tensor:
    batch, height, width = shape
    generator = torch.Generator().manual_seed(height)
    return torch.randn(batch, 6, height, width, generator=generator, dtype=torch.float64)


def assert_equal(found: Arrays, expected: Arrays) -> None:
    assert tuple(found) == NAMES
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-11, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("attention", ["blocked", "plain"])
def test_onnx_files_are_exact_at_every_size_and_loop_only_if_blocked(
    attention: Attention, blocks: nn.ModuleList, tmp_path: Path
) -> None:
    path = tmp_path / "blocks.onnx"
    write_onnx(Parallel(portable(blocks, attention)), path, features(SHAPES[0]), ("batch", "height", "width"), {})
    run, expect = read_onnx(path), computed(Parallel(blocks))
    for shape in SHAPES:
        assert_equal(run(features(shape)), expect(features(shape)))
    nodes = [node.op_type for node in onnx.load(path).graph.node]
    assert nodes.count("Loop") == (6 if attention == "blocked" else 0)  # a unary term needs none


@pytest.mark.parametrize(("write", "exporter"), [(write_onnx, torch.onnx), (write_program, torch.export)])
def test_signals_wait_for_pytorchs_exporters(
    write: Callable[..., None], exporter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception inside an exporter used to end the process with SIGSEGV."""
    ended = []

    def export(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        ended.append(True)
        raise KeyError("enough")

    monkeypatch.setattr(exporter, "export", export)
    network = Parallel(nn.ModuleList([nn.Identity()]), ("x",))
    with pytest.raises(StopSignal), exit_on_stop_signals():
        write(network, tmp_path / "a", features(SHAPES[0]), (), {})
    assert ended


def test_a_program_is_exact_at_every_size_and_needs_no_dnlnet(blocks: nn.ModuleList, tmp_path: Path) -> None:
    path, shapes = tmp_path / "blocks.pt2", tmp_path / "shapes"
    names = ("dnl", "pooled")
    chosen = nn.ModuleList(blocks[NAMES.index(name)] for name in names)
    exportable = Parallel(portable(chosen), names)
    write_program(exportable, path, features(SHAPES[0]), ("batch", "height", "width"), {})
    expect = computed(Parallel(chosen, names))
    torch.save(
        [(features(shape), [y.tolist() for y in expect(features(shape)).values()]) for shape in SHAPES], shapes
    )
    script = f"""
import sys
sys.modules["dnlnet"] = None  # importing it is an error
import torch
program = torch.export.load({str(path)!r}).module()
for x, expected in torch.load({str(shapes)!r}):
    for found, values in zip(program(x), expected, strict=True):
        torch.testing.assert_close(found, torch.tensor(values, dtype=torch.float64), rtol=1e-11, atol=1e-11)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_small_maps_of_fixed_size_need_no_loop(blocks: nn.ModuleList, tmp_path: Path) -> None:
    write_onnx(Parallel(portable(blocks[:1]), NAMES[:1]), tmp_path / "a", features((1, 4, 4)), (), {})
    assert not any(node.op_type in ("Scan", "Loop") for node in onnx.load(tmp_path / "a").graph.node)


def test_no_step_of_a_program_exceeds_one_block_of_the_map(blocks: nn.ModuleList) -> None:
    most = {}
    for attention in ("blocked", "plain"):
        network = portable(blocks[list(VARIANTS).index("dnl")], attention)
        program = torch.export.export(network, (features((1, 24, 24)),)).graph_module
        steps = [node.meta.get("val") for graph in program.modules() for node in graph.graph.nodes]
        most[attention] = max(value.numel() for value in steps if isinstance(value, Tensor))
    assert most == {"blocked": ROWS * 24**2, "plain": 24**4}


def test_the_loop_of_the_older_exporter_is_exact(blocks: nn.ModuleList, tmp_path: Path) -> None:
    class Traced(Parallel):
        traced = True

    write_onnx(Traced(portable(blocks, traced=True)), tmp_path / "a", features(SHAPES[0]), ("height", "width"), {})
    run, expect = read_onnx(tmp_path / "a"), computed(Parallel(blocks))
    for shape in ((2, 7, 9), (2, 3, 2), (2, 16, 16), (2, 19, 17)):
        assert_equal(run(features(shape)), expect(features(shape)))


def in_a_plain_loop(step: Step, carried: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Implement `scan` as a plain loop."""
    found = []
    for item in items:
        carried, one = step(carried, item)
        found.append(one)
    return carried, torch.stack(found)


@pytest.mark.parametrize("traced", [False, True])
def test_no_subnormal_number_is_multiplied(traced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits that span hundreds of units give subnormal weights; the result is exact without them."""
    monkeypatch.setattr(import_module("torch._higher_order_ops.scan"), "scan", in_a_plain_loop)
    monkeypatch.setattr(portable_attention, "ROWS", ROWS)
    query, key, value = (operand.detach() for operand in sharp_operands())
    with Multiplied() as seen:
        if traced:
            found = portable_attention._attend_in_traced_blocks(query, key, value, ROWS, portable_attention.TINY)
        else:
            found = portable_attention.attend_in_blocks(query, key, value)
    assert seen.multiplies >= 4  # two per block
    assert seen.subnormal == 0
    # Eq. 2 in float64
    logits = torch.einsum("bnd,bmd->bnm", query.double(), key.double())
    expected = torch.einsum("bnm,bmc->bnc", logits.softmax(dim=-1), value.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_an_onnx_file_sets_subnormal_numbers_to_zero_with_one_operator(tmp_path: Path) -> None:
    block = randomise(NonLocalBlock(6, "nl"), std=2.0).float().eval()
    x = features((1, 24, 24)).float()
    write_onnx(Parallel(nn.ModuleList([portable(block)]), ["y"]), tmp_path / "a", x, (), {})
    (loop,) = (node for node in onnx.load(tmp_path / "a").graph.node if node.op_type == "Loop")
    (body,) = (attribute.g for attribute in loop.attribute if attribute.name == "body")
    names = [node.op_type for node in body.node]
    softmax = names.index("Softmax")
    assert names[softmax : softmax + 3] == ["Softmax", "ThresholdedRelu", "MatMul"]
    found = read_onnx(tmp_path / "a")(x)["y"]
    np.testing.assert_allclose(found, block.double()(x.double()).detach(), rtol=1e-4, atol=1e-4)


def test_without_pytorchs_scan_the_attention_is_plain_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scan` is a private name of PyTorch."""
    monkeypatch.setitem(sys.modules, "torch._higher_order_ops.scan", None)
    query, key, value = (torch.randn(1, 3 * portable_attention.ROWS, 4, dtype=torch.float64) for _ in range(3))
    with pytest.warns(UserWarning, match="scan"):
        found = portable_attention.attend_in_blocks(query, key, value)
    torch.testing.assert_close(found, (query @ key.mT).softmax(dim=-1) @ value)
