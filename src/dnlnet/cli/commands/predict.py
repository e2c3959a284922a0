"""`dnlnet predict`: what is in one's own pictures and videos."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnlnet.cli.terminal.numbers import finite
from dnlnet.cli.terminal.options import Model

if TYPE_CHECKING:
    from dnlnet.runs.predict import Done


class Backend(StrEnum):
    """What computes a network."""

    torch = "torch"
    onnxruntime = "onnxruntime"
    openvino = "openvino"


def predict(
    model: Model,
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Pictures or videos, folders of them, or addresses.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="Folder for the results.")] = Path(
        "predicted"
    ),
    submission: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Also write what this benchmark's server takes, e.g. cityscapes."),
    ] = None,
    max_pixels: Annotated[
        int | None,
        typer.Option(
            min=65536,
            max=1_000_000_000,
            help="Segment images in tiles if the network would see more pixels. Default: 4 million.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, callback=finite, help="Leave out objects below this confidence. Default: 0.5."),
    ] = None,
    backend: Annotated[
        Backend,
        typer.Option(
            metavar="NAME",
            help="What computes the network: torch, or on the processor onnxruntime or openvino, for which it is "
            "exported first.",
        ),
    ] = Backend.torch,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Segment images, detect objects, or classify videos.

    A segmentation model writes index PNG, colour PNG, and the colours laid over the picture, with outlines and a
    legend; a detector the picture with boxes, masks, names and scores, a mask for each object, and COCO-format JSON;
    a video model JSON with the probability of each class. What is in each is printed: the main classes with their
    shares, objects with their confidence, the most confident classes.

    What is done is not done again unless the image or a result has changed: an interrupted job resumes. Results in
    the folders that are searched are left out. What cannot be read is listed at the end; the exit code is then 1, or
    2 if nothing could be read. Files at addresses (https://...) are downloaded first. Under torchrun the pictures are
    shared out.

    With ONNX Runtime or OpenVINO, segmentation and video models predict the same up to rounding, on some processors
    faster. They are extras: pip install "dnlnet[onnx]", or "dnlnet[onnx,bench]" for OpenVINO.

    Example: dnlnet predict runs/camvid photos/ street.jpg -o predicted
    """
    from dnlnet.cli.terminal.early import require_models
    from dnlnet.cli.terminal.inputs import open_inputs
    from dnlnet.cli.terminal.options import given
    from dnlnet.cli.terminal.problems import end_with, say
    from dnlnet.cli.terminal.progress import counting_progress
    from dnlnet.data.names import printable

    require_models([model])
    with open_inputs(inputs) as found:
        from dnlnet.artifacts.load import load
        from dnlnet.engine.distributed import is_main, process_group
        from dnlnet.runs.predict import predict as predict_files

        with process_group(), counting_progress() as progress:
            task = progress.add_task("predicting", total=None, visible=False)
            part = progress.add_task("", visible=False)

            def advance(picture: Path, done: int, total: int) -> None:
                name = printable(picture.name)[:40]
                progress.update(part, description=name, completed=done, total=total, visible=1 < total > done)

            def show(result: "Done") -> None:
                progress.advance(task)
                path = found.named(result.path)
                if result.said:
                    between = "\n" if "\n" in result.said else ": "
                    typer.echo(f"{printable(path)}{between}{result.said}")
                for note in result.notes:
                    say(f"{path}: {note}")

            if backend is not Backend.torch and is_main():
                say(f"exporting the network for {backend}, once, which takes some seconds")
            results = predict_files(
                load(model, backend.value),
                found.paths,
                out,
                options=given(submission=submission, max_pixels=max_pixels, threshold=threshold),
                force=force,
                start=lambda count: progress.update(task, total=count, visible=True),
                left_out=lambda text: say(f"left out: {text}"),
                progress=advance,
                done=show,
            )
            speaks = is_main()
    bad = [found.named(result.problem) for result in results if result.problem is not None]
    skipped, again = (sum(getattr(result, kind) for result in results) for kind in ("skipped", "again"))
    if speaks:
        counts = [
            f"{len(results) - skipped - len(bad)} done",
            f"{again} of them again, because the image or a result differs from the record" if again else "",
            f"{skipped} done before" if skipped else "",
            f"{len(bad)} bad" if bad else "",
        ]
        typer.echo(f"{', '.join(filter(None, counts))}; results: {printable(out)}")
    end_with(bad, len(results))
