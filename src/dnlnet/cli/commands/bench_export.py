"""`dnlnet bench export`: exported files against the network itself."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.terminal.options import MOST_THREADS, parse_size, within
from dnlnet.cli.terminal.outputs import writes


@writes("json")
def export(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Whose network to export.")] = "camvid-mbv2-dnl",
    size: Annotated[str | None, typer.Option(metavar="HxW", help="Height and width of the picture.")] = None,
    forms: Annotated[
        str, typer.Option(help="Of dnlnet; onnx, torch; each blocked or plain: separated by semicolons.")
    ] = "all",
    rounds: Annotated[
        int,
        typer.Option(metavar="N", callback=within(1, 10_000), help="Interleaved runs: best times, median ratios."),
    ] = 3,
    threads: Annotated[
        int, typer.Option(metavar="N", callback=within(1, MOST_THREADS), help="Threads of the network.")
    ] = 2,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table to this file.")] = None,
) -> None:
    """Compare exported files, with attention in blocks and plain, with the network itself: time and peak memory.

    Weights are random. Peak memory is measured in child processes (Linux only).

    Example: dnlnet bench export cityscapes-r101-dnl --size 769x769
    """
    from dataclasses import asdict

    from dnlnet.bench.block import describe_machine
    from dnlnet.bench.export import FORMS, bench_export
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.errors import unknown
    from dnlnet.files import write_json
    from dnlnet.registry import find_recipe, network_of

    chosen = list(FORMS) if forms == "all" else [form.strip() for form in forms.split(";")]
    for form in chosen:
        if form not in FORMS:
            raise unknown("form", form, FORMS)
    shape = network_of(find_recipe(recipe))[1]
    if len(shape) != 2:
        raise ValueError(f"{recipe} takes clips; choose a recipe for pictures")
    if size is not None:
        shape = parse_size(size, shape)
    what = f"{recipe} on {' x '.join(map(str, shape))} pixels"
    typer.echo(f"{what}; writing the files takes a minute")
    rows = bench_export(recipe, shape, chosen, rounds=rounds, threads=threads)
    machine = describe_machine(threads)
    print_table(
        what,
        [
            {
                "form": row.form,
                "ms": f"{1e3 * row.seconds:,.0f}",
                f"of {chosen[0]}": f"{row.ratio:.2f}",
                "peak MB": "-" if row.peak_bytes is None else f"{1e-6 * row.peak_bytes:,.0f}",
                "difference": f"{row.difference:.1e}",
            }
            for row in rows
        ],
        caption=f"peak: beyond weights and input; {machine}",
    )
    if json is not None:
        write_json(json, {"machine": machine, "recipe": recipe, "size": shape, "rows": [asdict(row) for row in rows]})
        typer.echo(f"written: {json}")
