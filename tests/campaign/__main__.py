"""Run the campaign: ``python -m campaign [PARTS] [--seed N] [--sample N] [--json FILE]``."""

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from campaign import inputs, runs, signals
from campaign.process import import_everything, side_by_side
from campaign.results import Results

PARTS = ("kills", "flips", "disk", "inputs", "signals")
SIGNALS = 50  # tries


def main() -> int:
    """Run the selected parts. Return 1 if any try failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts to run: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", help="kind of bad inputs to run (default: all)")
    parser.add_argument("--sample", type=int, help="number of bad inputs and signals to draw (default: all)")
    parser.add_argument("--json", type=Path, help="also write the table and all failures to this file")
    options = parser.parse_args()
    parts = options.parts or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    start = time.monotonic()
    import_everything()
    with tempfile.TemporaryDirectory(prefix="campaign-") as name:
        folder = Path(name)
        results = Results(folder / "results.jsonl")
        found = runs.training_runs(folder)
        materials = _materials(folder)
        cases = inputs.all_cases(materials, options.seed) if "inputs" in parts else []
        if options.kind is not None:
            cases = [case for case in cases if case.kind == options.kind]
        if options.sample is not None:
            cases = random.Random(options.seed).sample(cases, min(options.sample, len(cases)))
        used = {argument for case in cases for argument in case.arguments}
        needed = [
            training
            for training in found
            if training.name == "segmentation" or "kills" in parts or getattr(materials, training.name) in used
        ]
        seconds = {training.name: runs.reference(training, folder) for training in needed}
        if "kills" in parts:
            side_by_side(
                lambda training: runs.kills(training, folder, seconds[training.name], results, options.seed), found, 3
            )
        if "flips" in parts:
            runs.flips(found[0], folder, seconds["segmentation"], results, options.seed, tries=60)
        if "disk" in parts and runs.mounting_allowed(folder / "disk"):
            runs.full_disks(found[0], folder, results)
        elif "disk" in parts:
            print("full disks are skipped, because this user may not mount a tmpfs")
        side_by_side(lambda case: inputs.attempt(case, results), cases)
        if "signals" in parts:
            model = materials.segmentation
            moments = signals.moments(options.seed, SIGNALS if options.sample is None else options.sample)
            taken = signals.durations(model, [moment.command for moment in moments])
            side_by_side(lambda moment: signals.attempt(moment, model, taken, results), moments)
        return _report(results, options.json, time.monotonic() - start)


def _materials(folder: Path) -> inputs.Materials:
    from coco_trees import coco_tree
    from trees import folder_tree

    return inputs.Materials(
        *(runs.uninterrupted(name, folder) / "best.safetensors" for name in ("segmentation", "detection", "video")),
        folder=folder_tree(folder / "folder"),
        coco=coco_tree(folder / "coco"),
        videos=folder / "videos",
    )


def _report(results: Results, path: Path | None, seconds: float) -> int:
    rows = results.table()
    total = {key: sum(int(str(row[key])) for row in rows) for key in ("tries", "passed", "failed")}
    print(f"\n| {'part':10} | {'kind':30} | tries | passed | failed |\n|---|---|---|---|---|")
    for row in [*rows, {"part": "all", "kind": "", **total}]:
        print(f"| {row['part']:10} | {row['kind']:30} | {row['tries']} | {row['passed']} | {row['failed']} |")
    print(f"\n{date.today()}, {seconds / 60:.0f} minutes, Python {platform.python_version()}")
    if path is not None:
        failures = [vars(tried) for tried in results if tried.fault is not None]
        path.write_text(json.dumps({"date": str(date.today()), "rows": rows, "failures": failures}, indent=2))
    return int(total["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
