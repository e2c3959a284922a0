"""`dnlnet bench block`: the fused block against the explicit one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.complete import complete_variant
from dnlnet.cli.terminal.options import MOST_THREADS, choose, parse_counts, within
from dnlnet.cli.terminal.outputs import writes

if TYPE_CHECKING:
    from dnlnet.bench.block import Row


@writes("json")
def block(
    variants: Annotated[
        str, typer.Option(help="Variants, separated by commas.", autocompletion=complete_variant)
    ] = "all",
    sizes: Annotated[str, typer.Option(help="Feature map sizes, separated by commas.")] = "all",
    batch: Annotated[str, typer.Option(help="Images at a time, separated by commas.")] = "1",
    channels: Annotated[
        int, typer.Option(metavar="N", callback=within(2, 65_536), help="Channels of the feature map.")
    ] = 512,
    rounds: Annotated[
        int,
        typer.Option(metavar="N", callback=within(1, 10_000), help="Interleaved runs: best times, median ratios."),
    ] = 5,
    threads: Annotated[
        int, typer.Option(metavar="N", callback=within(1, MOST_THREADS), help="Threads of the matrix multiply.")
    ] = 2,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, mps, xpu.")] = "cpu",
    peers: Annotated[bool, typer.Option(help="Also time PyTorch's own attention inside the block.")] = False,
    temperature: Annotated[
        float,
        typer.Option(
            metavar="N", callback=within(1e-6, 1e6), help="Divide the logits by this; 0.02 makes sharp attention."
        ),
    ] = 1.0,
    memory: Annotated[bool, typer.Option(help="Also measure memory, which takes seconds a row.")] = True,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table to this file.")] = None,
) -> None:
    """Compare the fused block with the explicit one: time, share of the matrix-multiply limit, memory.

    The largest size takes minutes per variant; choose with --sizes and --variants. Memory is measured in a child
    process (Linux, CPU only). The peers are scaled_dot_product_attention and, forward only, compiled flex_attention.

    Example: dnlnet bench block --variants nl,dnl --sizes 65x65,97x97 --batch 1,8 --peers
    """
    from math import prod

    from dnlnet.attention import VARIANTS
    from dnlnet.bench.block import SIZES, bench_block, describe_machine
    from dnlnet.bench.timing import find_device
    from dnlnet.cli.terminal.progress import measuring_progress
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.engine.memory import require_memory
    from dnlnet.files import write_json

    chosen_variants = choose("variant", variants, VARIANTS)
    chosen_sizes = choose("size", sizes, SIZES)
    batches, chosen_device = parse_counts("--batch", batch), find_device(device)
    for name in chosen_sizes:  # input, output and embeddings, the weights, and as much again for gradients
        values = 2 * (3 * max(batches) * channels * prod(SIZES[name]) + 2 * channels**2)
        require_memory(4 * values, f"a block of {channels} channels on {name}", "lower --channels or choose --sizes")
    machine = describe_machine(threads)
    rows: list[Row] = []

    def save() -> None:
        if json is not None:
            about = {
                "machine": machine,
                "device": device,
                "channels": channels,
                "rounds": rounds,
                "temperature": temperature,
            }
            write_json(json, {**about, "rows": [_numbers(row) for row in rows]})

    with measuring_progress() as progress:
        total = 2 * len(chosen_sizes) * len(batches) * len(chosen_variants)
        task = progress.add_task("measuring", total=total)
        for row in bench_block(
            chosen_variants,
            chosen_sizes,
            batches=batches,
            channels=channels,
            rounds=rounds,
            threads=threads,
            device=chosen_device,
            peers=peers,
            memory=memory,
            temperature=temperature,
        ):
            rows.append(row)
            save()  # after every row: the whole table takes long
            progress.update(task, advance=1, description=f"measured {row.size} {row.variant}")
    title = f"Milliseconds, C = {channels}; ratio: fused over explicit, median of rounds"
    print_table(title, [_times(row, peers=peers) for row in rows], caption=machine)
    controls = [row.control_ratio for row in rows if row.control_ratio is not None]
    if controls:
        typer.echo(
            f"noise: the explicit form against itself has ratios of {min(controls):.2f} to {max(controls):.2f}"
        )
    title = "Share of the matrix-multiply limit (in one stretch; best single multiply)"
    if memory:
        title += ", MB beyond input and weights"
    print_table(title, [_limit_and_memory(row, memory=memory) for row in rows], caption=machine)
    left_out = dict.fromkeys(_name(row) for row in rows if row.explicit_seconds is None)
    if left_out:
        typer.echo(f"without the explicit form, which does not fit in memory: {', '.join(left_out)}")
    if json is not None:
        typer.echo(f"written: {json}")


def _number(value: float | None, form: str, scale: float = 1) -> str:
    return "-" if value is None else format(value * scale, form)


def _milliseconds(seconds: float | None) -> str:
    """Three digits or more, and no longer than 6 characters up to a minute.

    >>> [_milliseconds(seconds) for seconds in (0.000423, 0.0118, 48.395, None)]
    ['0.42', '11.8', '48,395', '-']
    """
    decimals = 0 if seconds is None or seconds >= 0.1 else 1 if seconds >= 0.01 else 2
    return _number(seconds, f",.{decimals}f", 1e3)


def _name(row: "Row") -> str:
    return row.size if row.batch == 1 else f"{row.batch} x {row.size}"


def _about(row: "Row") -> dict[str, str]:
    """What a row is of; short, so that a table fits into 80 columns."""
    return {"size": _name(row), "variant": row.variant, "pass": "fwd + bwd" if row.training else "fwd"}


def _times(row: "Row", *, peers: bool) -> dict[str, str]:
    others = {"sdpa": row.sdpa_seconds, "flex": row.flex_seconds} if peers else {}
    seconds = {"fused": row.fused_seconds, "explicit": row.explicit_seconds, **others}
    return {
        **_about(row),
        **{name: _milliseconds(value) for name, value in seconds.items()},
        "ratio": _number(row.time_ratio, ".2f"),
    }


def _limit_and_memory(row: "Row", *, memory: bool) -> dict[str, str]:
    shares = {"limit": row.share_of_limit, "single": row.share_of_single_limit}
    megabytes = {"fused": row.fused_bytes, "explicit": row.explicit_bytes} if memory else {}
    return {
        **_about(row),
        **{name: _number(value, ".2f") for name, value in shares.items()},
        **{name: _number(value, ",.0f", 1e-6) for name, value in megabytes.items()},
        **({"ratio": _number(row.memory_ratio, ".3f")} if memory else {}),
    }


def _numbers(row: "Row") -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(row), "memory_ratio": row.memory_ratio}
