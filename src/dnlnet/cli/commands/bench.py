"""`dnlnet bench`: measure speed and memory on this machine."""

from dataclasses import asdict
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dnlnet.cli.terminal.complete import complete_recipe, complete_variant
from dnlnet.cli.terminal.options import MOST_THREADS, Json, choose, parse_counts, parse_size, within
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.cli.terminal.tables import number, print_table

if TYPE_CHECKING:
    from dnlnet.bench.block import BlockCost

bench = typer.Typer(name="bench", help="Measure speed and memory on this machine.", no_args_is_help=True)
Rounds = Annotated[int, within(1, 10_000, "Number of interleaved rounds, for the best times and median ratios.")]
Threads = Annotated[int, within(1, MOST_THREADS, "Number of threads.")]


@bench.command()
@writes("json")
def block(
    variants: Annotated[
        str, typer.Option(metavar="NAMES", help="Variants, comma-separated.", autocompletion=complete_variant)
    ] = "all",
    sizes: Annotated[str, typer.Option(metavar="HxW", help="Feature map sizes, comma-separated.")] = "all",
    batch: Annotated[str, typer.Option(metavar="1,8", help="Batch sizes, comma-separated.")] = "1",
    channels: Annotated[int, within(2, 65_536, "Channels of the feature map.")] = 512,
    rounds: Rounds = 5,
    threads: Threads = 2,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="Device: cpu, cuda, mps or xpu.")] = "cpu",
    peers: Annotated[bool, typer.Option(help="Also time PyTorch's attention inside the block.")] = False,
    temperature: Annotated[float, within(1e-6, 1e6, "Divisor of the logits; 0.02 makes attention sharp.")] = 1.0,
    precision: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option(help="Precision. bfloat16 is that of autocast, and is also compared with float32."),
    ] = "float32",
    memory: Annotated[bool, typer.Option(help="Also measure memory, which takes seconds per row.")] = True,
    json: Json = None,
) -> None:
    """Compare the fused block with the explicit one: time, memory, and share of the matrix-multiply limit.

    The largest size takes minutes per variant; choose fewer with --sizes and --variants. Memory is measured in a
    child process (Linux, CPU only). The peers are scaled_dot_product_attention and (forward only) compiled
    flex_attention.

    Example: dnlnet bench block --variants nl,dnl --sizes 65x65,97x97 --batch 1,8 --peers
    """
    from dnlnet.attention import VARIANTS
    from dnlnet.backbones.bfloat16 import choose_precision
    from dnlnet.bench.block import SIZES, describe_machine, measure_block
    from dnlnet.bench.timing import find_device
    from dnlnet.engine.memory import require_memory
    from dnlnet.files import write_json
    from dnlnet.progress import BARS

    chosen_variants = choose("variant", variants, VARIANTS)
    chosen_sizes = choose("size", sizes, SIZES)
    batches, chosen_device = parse_counts("--batch", batch), find_device(device)
    choose_precision(precision, chosen_device)
    for name in chosen_sizes:  # input, output, embeddings, weights, and their gradients
        values = 2 * (3 * max(batches) * channels * prod(SIZES[name]) + 2 * channels**2)
        require_memory(4 * values, f"a block of {channels} channels on {name}", "lower --channels or choose --sizes")
    machine = describe_machine(threads, precision)
    about: dict[str, object] = {"machine": machine, "device": device, "channels": channels}
    about |= {"rounds": rounds, "temperature": temperature}
    rows: list[BlockCost] = []
    cases = list(product(chosen_sizes, batches, chosen_variants, (False, True)))
    with BARS.track("measuring", len(cases)) as bar:
        for size, count, variant, training in cases:
            row = measure_block(
                variant,
                size,
                training=training,
                batch=count,
                channels=channels,
                rounds=rounds,
                threads=threads,
                device=chosen_device,
                peers=peers,
                memory=memory,
                temperature=temperature,
                precision=precision,
            )
            rows.append(row)
            if json is not None:  # after every row, because the whole table takes long
                costs = [asdict(row) | {"memory_ratio": row.memory_ratio} for row in rows]
                write_json(json, about | {"rows": costs})
            bar.advance(note=f"{size} {variant}")
    title = f"Milliseconds, C = {channels}; ratio: fused over explicit, median of rounds"
    print_table(title, [_times(row, peers=peers) for row in rows], caption=machine)
    controls = [row.control_ratio for row in rows if row.control_ratio is not None]
    if controls:
        typer.echo(
            f"noise: the explicit form against itself has ratios of {min(controls):.2f} to {max(controls):.2f}"
        )
    title = "Share of the matrix-multiply limit (sustained; best single multiply)"
    if memory:
        title += ", MB beyond input and weights"
    print_table(title, [_limit_and_memory(row, memory=memory) for row in rows], caption=machine)
    left_out = dict.fromkeys(_size(row) for row in rows if row.explicit_seconds is None)
    if left_out:
        typer.echo(f"without the explicit form, which does not fit in memory: {', '.join(left_out)}")
    if json is not None:
        typer.echo(f"written: {json}")


@bench.command()
@writes("json")
def predict(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="Recipe of the network (see `dnlnet recipes list`).",
            autocompletion=complete_recipe,
        ),
    ] = "camvid-mbv2-dnl",
    size: Annotated[
        str | None,
        typer.Option(metavar="HxW", help="Height x width of an image, or frames x height x width of a clip."),
    ] = None,
    batch: Annotated[int, within(1, 65_536, "Images or clips per batch.")] = 1,
    forms: Annotated[
        str,
        typer.Option(
            metavar="FORMS", help="Forms to measure, separated by semicolons. Default: all that can run here."
        ),
    ] = "",
    rounds: Rounds = 10,
    threads: Threads = 2,
    json: Json = None,
) -> None:
    """Compare forms of one network: memory order, folded batch norms, torch.compile, bfloat16, and other runtimes.

    ONNX Runtime and OpenVINO are compared if they are installed: pip install "dnlnet[onnx,bench]". dnlnet predict
    --backend uses the forms with free sizes; the other graphs are for this size only.

    Example: dnlnet bench predict camvid-mbv2-dnl --size 360x480
    """
    from dnlnet.registry import find_recipe, network_of

    build, shape = network_of(find_recipe(recipe))
    if size is not None:
        shape = parse_size(size, shape)

    import torch

    from dnlnet.bench.block import describe_machine
    from dnlnet.bench.predict import FORMS, available_forms, bench_predict, require_form
    from dnlnet.engine.memory import require_memory

    kind = "image" if len(shape) == 2 else "clip"
    what = f"{batch} {kind}{'s' * (batch > 1)} of {' x '.join(map(str, shape))}"
    require_memory(4 * batch * 3 * prod(shape), what, "lower --size or --batch")
    chosen = choose("form", forms, dict.fromkeys(FORMS), ";") if forms else available_forms()
    for form in chosen:
        require_form(form)
    torch.manual_seed(0)
    typer.echo(f"{recipe} on {what}; compiling and exporting take minutes")
    rows = bench_predict(build(), torch.randn(batch, 3, *shape), chosen, rounds=rounds, threads=threads)
    machine = describe_machine(threads)
    print_table(
        f"{recipe} on {what}",
        [
            {
                "form": row.form,
                "ms": f"{1e3 * row.seconds:.1f}",
                f"of {chosen[0]}": f"{row.ratio:.2f}",
                "largest difference": f"{row.difference:.1e}",
            }
            for row in rows
        ],
        caption=machine,
    )
    content = {"machine": machine, "recipe": recipe, "batch": batch, "size": shape}
    write_result(json, {**content, "rows": [asdict(row) for row in rows]})


def _milliseconds(seconds: float | None) -> str:
    """Format a time with three digits or more, in at most 6 characters up to a minute.

    >>> [_milliseconds(seconds) for seconds in (0.000423, 0.0118, 48.395, None)]
    ['0.42', '11.8', '48,395', '-']
    """
    if seconds is None:
        return "-"
    return f"{1e3 * seconds:,.{0 if seconds >= 0.1 else 1 if seconds >= 0.01 else 2}f}"


def _size(row: "BlockCost") -> str:
    return row.size if row.batch == 1 else f"{row.batch} x {row.size}"


def _about(row: "BlockCost") -> dict[str, str]:
    """Return the first columns, short enough for a table of 80 columns."""
    return {"size": _size(row), "variant": row.variant, "pass": "fwd + bwd" if row.training else "fwd"}


def _times(row: "BlockCost", *, peers: bool) -> dict[str, str]:
    seconds = {"fused": row.fused_seconds, "explicit": row.explicit_seconds}
    if peers:
        seconds |= {"sdpa": row.sdpa_seconds, "flex": row.flex_seconds}
    times = {name: _milliseconds(value) for name, value in seconds.items()}
    ratios = {"ratio": number(row.time_ratio, ".2f")}
    if row.float32_ratio is not None:
        ratios["of float32"] = number(row.float32_ratio, ".2f")
    return _about(row) | times | ratios


def _limit_and_memory(row: "BlockCost", *, memory: bool) -> dict[str, str]:
    shares = {"limit": number(row.share_of_limit, ".2f"), "single": number(row.share_of_single_limit, ".2f")}
    if not memory:
        return _about(row) | shares
    sizes = {"fused": row.fused_bytes, "explicit": row.explicit_bytes}
    megabytes = {name: number(size and size / 1e6, ",.0f") for name, size in sizes.items()}
    return _about(row) | shares | megabytes | {"ratio": number(row.memory_ratio, ".3f")}
