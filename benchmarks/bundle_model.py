"""Bundle a trained model: store it in half precision, measure it, and store the measurements with it.

Example: python benchmarks/bundle_model.py pets runs/pets --data oxford_pets --void-edges
"""

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import load_file

import dnlnet
from dnlnet.artifacts.model_file import read_model_file, write_model_file
from dnlnet.bundled import MODELS
from dnlnet.files import write_json
from dnlnet.lens.measure.consistency import average_overlaps, overlaps_json
from dnlnet.runs.consistency import consistency

WIDTH = 2  # distance to a contour in pixels for images of 320 to 480 pixels; the paper uses 5 for 1024 x 2048

SOME = 8  # first images, whose overlaps are stored separately: a test measures them again


def main() -> None:
    """Convert to half precision, measure, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(MODELS))
    parser.add_argument("run", help="a run folder or a model file")
    parser.add_argument("--data", type=Path, required=True, help="folder of its data set")
    parser.add_argument("--void-edges", action="store_true", help="count contours to unlabelled pixels as boundaries")
    given = parser.parse_args()
    bundled = MODELS[given.name]
    with TemporaryDirectory() as folder:
        halved = Path(folder) / "halved.safetensors"
        dnlnet.export(given.run, halved, "safetensors", half=True)
        scores = dnlnet.evaluate(halved, given.data)
        file = replace(read_model_file(halved), scores=dict(scores.values), by_class=scores.content["by_class"])
        write_model_file(bundled.file, load_file(halved), file)
    found = consistency([bundled.file], given.data, width=WIDTH, void_edges=given.void_edges)
    some = {row: average_overlaps(values[:SOME]) for row, values in found.rows.items()}
    measured = {
        "width": WIDTH,
        "void_edges": given.void_edges,
        "rows": overlaps_json(found.table()),
        "some": overlaps_json(some),
    }
    write_json(bundled.measured, measured)
    for path in (bundled.file, bundled.measured):
        print(f"written: {path.name} ({path.stat().st_size / 1e6:.2f} MB)")
    print(", ".join(f"{key} {value:.4f}" for key, value in scores.values.items()))


if __name__ == "__main__":
    main()
