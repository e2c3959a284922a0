"""`dnlnet bench`: measure speed and memory on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.commands.bench_block import block
from dnlnet.cli.commands.bench_export import export
from dnlnet.cli.terminal.complete import complete_recipe, complete_setting
from dnlnet.cli.terminal.options import MOST_THREADS, parse_size, within
from dnlnet.cli.terminal.outputs import writes

bench = typer.Typer(help="Measure speed and memory on this machine.", no_args_is_help=True)
bench.command()(block)
bench.command()(export)


@bench.command()
@writes("json")
def data(
    pictures: Annotated[
        int, typer.Option(metavar="N", callback=within(1, 200), help="Pictures to make and read.")
    ] = 6,
    rounds: Annotated[
        int, typer.Option(metavar="N", callback=within(1, 10_000), help="Interleaved runs; the best of each counts.")
    ] = 5,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table to this file.")] = None,
) -> None:
    """Compare training samples made from the needed window alone with resizing whole pictures, on one core.

    Pictures of 2048 x 1024 pixels are generated; each sample is read, augmented, cropped to 769 x 769 and normalised.

    Example: dnlnet bench data --json data.json
    """
    from dataclasses import asdict

    from dnlnet.bench.block import describe_machine
    from dnlnet.bench.data import SOURCES, bench_data
    from dnlnet.cli.terminal.progress import measuring_progress
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.files import write_json

    rows = []
    with measuring_progress() as progress:
        task = progress.add_task("measuring", total=len(SOURCES))
        for row in bench_data(pictures, rounds):
            rows.append(row)
            progress.update(task, advance=1, description=f"measured {row.source}")
    machine = describe_machine(threads=1)
    print_table(
        "Training samples per second and core, from 2048 x 1024 pictures",
        [
            {
                "files": row.source,
                "MB each": f"{row.file_megabytes:.2f}",
                "resize, then crop": f"{row.plain_per_second:.1f}",
                "window alone": f"{row.ours_per_second:.1f}",
                "faster": f"{row.speedup:.1f}x",
            }
            for row in rows
        ],
        caption=machine,
    )
    if json is not None:
        content = [{**asdict(row), "speedup": row.speedup} for row in rows]
        write_json(json, {"machine": machine, "pictures": pictures, "rounds": rounds, "rows": content})
        typer.echo(f"written: {json}")


@bench.command()
@writes("json")
def predict(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="Whose network to time.", autocompletion=complete_recipe)
    ] = "camvid-mbv2-dnl",
    size: Annotated[
        str | None, typer.Option(help="Height x width of the image, frames x height x width of a clip.")
    ] = None,
    batch: Annotated[
        int, typer.Option(metavar="N", callback=within(1, 65_536), help="Images or clips at a time.")
    ] = 1,
    forms: Annotated[
        str, typer.Option(help="Names of rows, separated by semicolons. Default: all whose programs are installed.")
    ] = "",
    rounds: Annotated[
        int,
        typer.Option(metavar="N", callback=within(1, 10_000), help="Interleaved runs: best times, median ratios."),
    ] = 10,
    threads: Annotated[
        int, typer.Option(metavar="N", callback=within(1, MOST_THREADS), help="Threads of the network.")
    ] = 2,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table to this file.")] = None,
) -> None:
    """Compare forms of the same network: memory order, folded batch norms, compiled, and other runtimes.

    ONNX Runtime and OpenVINO are compared if they are installed: pip install "dnlnet[onnx,bench]". With free sizes
    they compute what dnlnet predict --backend uses; without, a graph for this size alone.

    Example: dnlnet bench predict camvid-mbv2-dnl --size 360x480
    """
    from dataclasses import asdict
    from math import prod

    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.errors import unknown
    from dnlnet.files import write_json
    from dnlnet.registry import find_recipe, network_of

    build, shape = network_of(find_recipe(recipe))
    if size is not None:
        shape = parse_size(size, shape)

    import torch

    from dnlnet.bench.block import describe_machine
    from dnlnet.bench.predict import FORMS, available_forms, bench_predict, require_form
    from dnlnet.engine.memory import require_memory

    what = (
        f"{batch} {'image' if len(shape) == 2 else 'clip'}{'s' if batch > 1 else ''} of {' x '.join(map(str, shape))}"
    )
    require_memory(4 * batch * 3 * prod(shape), what, "lower --size or --batch")
    chosen = [form.strip() for form in forms.split(";")] if forms else available_forms()
    for form in chosen:
        if form not in FORMS:
            raise unknown("form", form, FORMS)
        require_form(form)
    torch.manual_seed(0)
    typer.echo(f"{recipe} on {what}; compiling and exporting some of the forms takes minutes")
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
    if json is not None:
        write_json(
            json,
            {
                "machine": machine,
                "recipe": recipe,
                "batch": batch,
                "size": shape,
                "rows": [asdict(row) for row in rows],
            },
        )
        typer.echo(f"written: {json}")


@bench.command()
@writes("json")
def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="Whose training step to time.", autocompletion=complete_recipe)
    ] = "scenes-tiny-dnl",
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the data set.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace a value of the recipe; may be repeated.",
            autocompletion=complete_setting,
        ),
    ] = None,
    cache: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of features.")] = None,
    rounds: Annotated[
        int,
        typer.Option(metavar="N", callback=within(1, 10_000), help="Interleaved runs: best times, median ratios."),
    ] = 5,
    threads: Annotated[
        int, typer.Option(metavar="N", callback=within(1, MOST_THREADS), help="Threads of the network.")
    ] = 2,
    compiled: Annotated[bool, typer.Option(help="Also measure torch.compile, which takes a minute.")] = True,
    processes: Annotated[
        int,
        typer.Option(
            metavar="N",
            callback=within(1, MOST_THREADS),
            help="Also measure N processes, which share batch and threads.",
        ),
    ] = 1,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table to this file.")] = None,
) -> None:
    """Compare the engine's training step with a plain loop of the same network, and show where the time goes.

    Example: dnlnet bench train camvid-mbv2_frozen-dnl --data ~/camvid --cache features
    """
    from dataclasses import asdict

    from dnlnet.bench.block import describe_machine
    from dnlnet.bench.train import PARTS, Row, bench_train
    from dnlnet.bench.train_processes import seconds_per_step
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.files import write_json
    from dnlnet.recipes.override import override
    from dnlnet.registry import find_recipe

    chosen = override(find_recipe(recipe), settings or [])
    typer.echo(f"{recipe}, {chosen.schedule.batch} at a time; this takes a minute or more")
    rows = list(
        bench_train(chosen, data, cache=cache, rounds=rounds, threads=threads, compiled=None if compiled else False)
    )
    for count in (1, processes) if processes > 1 else ():
        seconds = seconds_per_step(chosen, data, cache=cache, processes=count, threads=threads, rounds=rounds)
        form = f"engine, {count} process{'es' if count > 1 else ''}"
        rows.append(Row(form, chosen.schedule.batch / seconds))
    machine = describe_machine(threads)
    print_table(
        f"Training step of {recipe}, {chosen.schedule.batch} images",
        [
            {
                "form": row.form,
                "images/s": f"{row.images_per_second:.1f}",
                "time": "-" if row.ratio is None else f"{row.ratio:.2f}",
                **{f"{part} ms": "-" if row.parts is None else f"{1e3 * row.parts[part]:.1f}" for part in PARTS},
            }
            for row in rows
        ],
        caption=f"time: of the plain loop's, median of rounds; {machine}",
    )
    if json is not None:
        write_json(json, {"machine": machine, "recipe": recipe, "rows": [asdict(row) for row in rows]})
        typer.echo(f"written: {json}")


@bench.command()
@writes("json")
def capture(
    size: Annotated[
        int, typer.Option(metavar="N", callback=within(28, 10_000), help="Side of the picture, a multiple of 14.")
    ] = 518,
    rounds: Annotated[
        int,
        typer.Option(metavar="N", callback=within(1, 10_000), help="Interleaved runs: best times, median ratios."),
    ] = 10,
    threads: Annotated[
        int, typer.Option(metavar="N", callback=within(1, MOST_THREADS), help="Threads of the network.")
    ] = 2,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table to this file.")] = None,
) -> None:
    """Compare a pass of ViT-S/14 in which attention is recorded, or changed, with a plain one: time and memory.

    Weights are random. Peak memory is measured in child processes (Linux only).

    Example: dnlnet bench capture --json capture.json
    """
    from dataclasses import asdict

    from dnlnet.bench.block import describe_machine
    from dnlnet.bench.capture import bench_capture
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.files import write_json

    rows = bench_capture(size, rounds=rounds, threads=threads)
    machine = describe_machine(threads)
    print_table(
        f"ViT-S/14 on {size} x {size} pixels",
        [
            {
                "pass": row.form,
                "ms": f"{1e3 * row.seconds:.1f}",
                "of plain": f"{row.ratio:.2f}",
                "q and k MB": f"{1e-6 * row.asked_bytes:.1f}",
                "kept MB": f"{1e-6 * row.kept_bytes:.1f}",
                "peak MB": "-" if row.peak_bytes is None else f"{1e-6 * row.peak_bytes:.1f}",
            }
            for row in rows
        ],
        caption=f"peak: beyond that of a plain pass; {machine}",
    )
    if json is not None:
        write_json(json, {"machine": machine, "size": size, "rounds": rounds, "rows": [asdict(row) for row in rows]})
        typer.echo(f"written: {json}")
