"""Profile the fused block by operation, and compare its matrix multiplications with large ones.

Example: python benchmarks/operations.py dnl 97x97 --json benchmarks/results/operations.json
"""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch.profiler import ProfilerActivity, profile

from dnlnet.attention import VARIANTS
from dnlnet.bench.block import MULTIPLY, SIZES, describe_machine, make_calls
from dnlnet.files import write_json

SHOWN = 0.005  # smallest share of the time; the rest is "other"
COUNT = 8  # multiplications per round; a series compares better with a whole call than a single one


def main() -> None:
    """Profile calls between series of large matrix multiplications, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", choices=list(VARIANTS))
    parser.add_argument("size", choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    machine = describe_machine(given.threads)
    content = {"variant": given.variant, "size": given.size, "machine": machine}
    for name, training in (("forward", False), ("forward + backward", True)):
        rows = content[name] = _profile(given.variant, given.size, training, given.rounds)
        print(f"\n{name}: {given.variant} at {given.size}, {machine}")
        for row in rows:
            share = "" if row["share_of_limit"] is None else f"{row['share_of_limit']:.2f} of the limit"
            print(f"  {row['operation']:32s} {row['milliseconds']:8.1f} ms {row['part']:6.1%}  {share}")
    if given.json is not None:
        write_json(given.json, content)


def _profile(variant: str, size: str, training: bool, rounds: int) -> list[dict[str, object]]:
    """Return medians over rounds of a call and of a series of multiplications, the longest operation first."""
    call = make_calls(variant, 512, SIZES[size], ["fused"], training=training)["fused"]
    left, right, out = (torch.randn(MULTIPLY, MULTIPLY) for _ in range(3))
    call()
    seconds, shares, parts = (defaultdict[str, list[float]](list) for _ in range(3))
    for _ in range(rounds):
        start = perf_counter()
        for _ in range(COUNT):
            torch.mm(left, right, out=out)
        rate = COUNT * 2 * MULTIPLY**3 / (perf_counter() - start)
        with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiled:
            call()
        events = profiled.key_averages()
        total = sum(event.self_cpu_time_total for event in events)
        for event in events:
            spent = event.self_cpu_time_total
            seconds[event.key].append(spent / 1e6)
            parts[event.key].append(spent / total)
            if event.flops and "mm" in event.key:
                shares[event.key].append(event.flops / rate / (spent / 1e6))
    rows = [
        {
            "operation": name.removeprefix("aten::"),
            "milliseconds": median(spent) * 1e3,
            "part": median(parts[name]),
            "share_of_limit": median(shares[name]) if name in shares else None,
        }
        for name, spent in seconds.items()
    ]
    shown = sorted((row for row in rows if row["part"] >= SHOWN), key=lambda row: -row["milliseconds"])
    others = [row for row in rows if row["part"] < SHOWN]
    rest = {name: sum(row[name] for row in others) for name in ("milliseconds", "part")}
    return [*shown, {"operation": "other", **rest, "share_of_limit": None}]


if __name__ == "__main__":
    main()
