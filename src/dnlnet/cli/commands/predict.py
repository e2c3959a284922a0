"""`dnlnet predict`: apply a model to images and videos."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dnlnet.cli.terminal.inputs import end_with, open_inputs, say
from dnlnet.cli.terminal.options import MOST, Inputs, Model, Precision, within


def predict(
    model: Model,
    inputs: Inputs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="Folder for the results.")] = Path(
        "predicted"
    ),
    submission: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Also write files for the server of a benchmark, such as cityscapes."),
    ] = None,
    max_pixels: Annotated[
        int | None,
        within(
            65_536, MOST, "Cut images into tiles if the network's input would have more pixels. Default: 4 million."
        ),
    ] = None,
    threshold: Annotated[
        float | None, within(0, 1, "Minimum confidence of detected objects. Default: 0.5.", "0..1")
    ] = None,
    backend: Annotated[
        Literal["torch", "onnxruntime", "openvino"],
        typer.Option(metavar="NAME", help="Runtime: torch, or onnxruntime or openvino (on the CPU)."),
    ] = "torch",
    precision: Precision = "auto",
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Segment images, detect objects, or classify videos.

    A segmentation model writes the class of each pixel as PNG (numbers with a palette, and colours) and an overlay
    with a legend. A detector writes the image with boxes and masks, a mask per object, and COCO-format JSON. A video
    model writes the probability of each class as JSON. A summary of each input is printed.

    Finished inputs are skipped unless the image or a result has changed, so the same command resumes an interrupted
    job. Inputs that cannot be read are listed at the end; the exit code is then 1, or 2 if none could be read. Under
    torchrun, the processes share the inputs.

    The other runtimes run segmentation and video models. They give the same predictions up to rounding, and are
    faster on some processors. Install them with pip install "dnlnet[onnx]", or "dnlnet[onnx,bench]" for OpenVINO.
    --precision bfloat16 changes the class of some pixels, and is refused on processors that it would slow down.

    Example: dnlnet predict pets photos/ cat.jpg -o predicted
    """
    from dnlnet.artifacts.model_file import open_model
    from dnlnet.names import printable

    file = open_model(model)
    with open_inputs(inputs) as found:
        from dnlnet.artifacts.load import load
        from dnlnet.engine.distributed import is_main, process_group
        from dnlnet.runs.predict import FileResult
        from dnlnet.runs.predict import predict as write_all

        def show(result: FileResult) -> None:
            path = found.named(result.path)
            if result.summary:
                between = "\n" if "\n" in result.summary else ": "
                typer.echo(f"{printable(path)}{between}{result.summary}")
            for note in result.notes:
                say(f"{path}: {note}")

        with process_group():
            if backend != "torch" and is_main():
                say(f"exporting the network for {backend}, which takes some seconds")
            trained = load(file, backend, precision)
            if trained.precision != "float32" and is_main():
                say(f"predicting in {trained.precision}")
            results = write_all(
                trained,
                found.paths,
                out,
                submission=submission,
                max_pixels=max_pixels,
                threshold=threshold,
                force=force,
                on_result=show,
                progress=found.bars(),
            )
            speaks = is_main()
    bad = [found.named(result.problem) for result in results if result.problem is not None]
    skipped, again = (sum(getattr(result, kind) for result in results) for kind in ("skipped", "again"))
    if speaks:
        counts = [
            f"{len(results) - skipped - len(bad)} done",
            f"{again} of them again, because the image or a result has changed" if again else "",
            f"{skipped} done before" if skipped else "",
            f"{len(bad)} bad" if bad else "",
        ]
        typer.echo(f"{', '.join(filter(None, counts))}; results: {printable(out)}")
    end_with(bad, len(results))
