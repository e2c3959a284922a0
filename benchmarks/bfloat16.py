"""Compare ways to compute attention in bfloat16: their errors against float64, and their times.

Each is used in a block under autocast. Gradients are those of the input. Times are of one forward pass of the
attention in blocks of rows, relative to rounded logits.

Example: python benchmarks/bfloat16.py --json benchmarks/results/bfloat16.json
"""

import argparse
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import dnlnet
from dnlnet import NonLocalBlock
from dnlnet.attention import half
from dnlnet.bench.block import describe_machine
from dnlnet.bench.timing import compare_times
from dnlnet.bundled import MODELS
from dnlnet.files import write_json

ROWS = 512
SIDE = 97  # of the map that is timed
Logits = Callable[[Tensor, Tensor], Tensor]


def main() -> None:
    """Print errors and times of all ways, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    errors = {case: _errors(block, x) for case, block, x in _cases()}
    times = _times(given.rounds)
    rows: list[dict[str, Any]] = [
        {"way": way, "time": times.get(way), "errors": {case: found[way] for case, found in errors.items()}}
        for way in (*WAYS, "operator")
    ]
    for row in rows:
        cells = (f"{case} {output:.4f}, {gradient:.4f}" for case, (output, gradient) in row["errors"].items())
        time = "-" if row["time"] is None else f"{row['time']:.2f}"
        print(f"{row['way']:28s} time {time}; error of output and gradient: {'; '.join(cells)}")
    if given.json is not None:
        write_json(given.json, {"machine": describe_machine(given.threads, "bfloat16"), "rows": rows})


def _rounded(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT


def _high_and_low(query: Tensor, key: Tensor) -> Tensor:
    """Return the sum of the rounded logits and their rounded rests, in float32."""
    high = query @ key.mT
    return high.float() + torch.baddbmm(high, query, key.mT, beta=-1).float()


def _in_float32(query: Tensor, key: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return query.float() @ key.float().mT


def _minus_key_mean(query: Tensor, key: Tensor) -> Tensor:
    return torch.baddbmm(query @ key.mean(dim=1, keepdim=True).mT, query, key.mT, beta=-1)


def _minus_largest(query: Tensor, key: Tensor) -> Tensor:
    return torch.baddbmm((query @ key.mT).amax(dim=-1, keepdim=True), query, key.mT, beta=-1)


def _minus_sampled_mean(query: Tensor, key: Tensor) -> Tensor:
    sampled = query @ half.sample_keys(key).mT
    mean = (sampled.softmax(dim=-1) * sampled).sum(dim=-1, keepdim=True)
    return torch.baddbmm(mean, query, key.mT, beta=-1)


WAYS: dict[str, Logits] = {
    "rounded logits": _rounded,
    "logits minus q.mean(k)": _minus_key_mean,
    "logits minus largest": _minus_largest,
    "logits minus sampled mean": _minus_sampled_mean,
    "high and low part": _high_and_low,
    "float32 logits": _in_float32,
}


def _cases() -> Iterator[tuple[str, NonLocalBlock, Tensor]]:
    """Yield a name, a block and its input: new weights at three temperatures, and a trained network on its image."""
    for temperature in (1.0, 0.1, 0.02):
        torch.manual_seed(0)
        yield f"T = {temperature:g}", NonLocalBlock(512, temperature=temperature), torch.randn(1, 512, 33, 33).relu()
    for name in ("street", "pets"):
        model = dnlnet.load(name)
        block = next(module for module in model.network.modules() if isinstance(module, NonLocalBlock))
        seen: list[Tensor] = []
        with block.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0].detach().clone())):
            model.predict(MODELS[name].photos[0])
        yield name, block, seen[0].contiguous()


def _errors(block: NonLocalBlock, x: Tensor) -> dict[str, tuple[float, float]]:
    """Return the relative errors of the block's contribution and of the gradient of its input."""
    upstream = torch.randn(x.shape, dtype=torch.float64)

    def results(block: NonLocalBlock, x: Tensor, forward: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        x = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=x.dtype == torch.float32):
            out = forward(x)
        (grad,) = torch.autograd.grad(out, x, upstream.to(out.dtype))
        return (out - x).detach().double(), grad.double() - upstream

    wide = deepcopy(block).double()
    exact = results(wide, x.double(), wide.forward_explicit)

    def error(forward: Callable[[Tensor], Tensor]) -> tuple[float, float]:
        output, gradient = (
            float((found - true).norm() / true.norm())
            for found, true in zip(results(block, x, forward), exact, strict=True)
        )
        return output, gradient

    def attending(logits: Logits) -> Callable[[Tensor], Tensor]:
        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return logits(query, key).softmax(dim=-1).to(value.dtype) @ value

        return lambda x: block.forward_with(x, attend)

    least, half.MIN_LOGITS = half.MIN_LOGITS, 1  # no definition for small maps
    try:
        return {way: error(attending(logits)) for way, logits in WAYS.items()} | {"operator": error(block)}
    finally:
        half.MIN_LOGITS = least


@torch.no_grad()
def _times(rounds: int) -> dict[str, float]:
    """Return the time of each way relative to the first."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, SIDE**2, width).bfloat16() for width in (256, 256, 512))

    def attend(logits: Logits) -> list[Tensor]:
        return [logits(rows, key).softmax(dim=-1).to(value.dtype) @ value for rows in query.split(ROWS, dim=1)]

    calls = {way: (lambda logits=logits: attend(logits)) for way, logits in WAYS.items()}
    calls["operator"] = lambda: torch.ops.dnlnet.attend(query, key, value)
    return {way: time.ratio for way, time in compare_times(calls, rounds).items()}


if __name__ == "__main__":
    main()
