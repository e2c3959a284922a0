"""Measure how long the first result takes: each stage is a fresh process, in rounds with `import torch`.

Cold: the files of the interpreter's packages were dropped from the page cache before, as after a restart.

Example: python benchmarks/startup.py --json startup.json
"""

import argparse
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import dnlnet
from dnlnet.bench.block import describe_machine
from dnlnet.bundled import MODELS, PHOTOS
from dnlnet.cli.terminal.tables import print_table
from dnlnet.files import write_json

BASELINE = "import torch"


@dataclass(frozen=True)
class Times:
    """Seconds of one process, by the clock and of the processor."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class StageTimes:
    """Best times of a stage, and their ratios to those of `import torch`."""

    stage: str
    seconds: float
    ratio: float
    cpu_seconds: float
    cpu_ratio: float
    cold_seconds: float | None
    cold_ratio: float | None


def main() -> None:
    """Measure every stage, print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=next(iter(MODELS)), help="model file or name")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes per stage; the best counts")
    parser.add_argument("--cold", type=int, default=0, help="rounds with a cold page cache; the best counts")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        rows = list(bench_startup(stages(given.model, Path(folder)), given.rounds, given.cold))
    machine = describe_machine(threads=int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    print_table(
        f"Start-up with the model {given.model}",
        [
            {
                "stage": row.stage,
                "seconds": f"{row.seconds:.2f}",
                "of import torch": f"{row.ratio:.2f}",
                "CPU seconds": f"{row.cpu_seconds:.2f}",
                "of its CPU": f"{row.cpu_ratio:.2f}",
                "cold": "-" if row.cold_seconds is None else f"{row.cold_seconds:.2f}",
            }
            for row in rows
        ],
        caption=machine,
    )
    if given.json is not None:
        about = {"machine": machine, "model": given.model, "rounds": given.rounds, "cold_rounds": given.cold}
        write_json(given.json, {**about, "rows": [asdict(row) for row in rows]})
        print(f"written: {given.json}")


def stages(model: str, folder: Path) -> Mapping[str, Sequence[str]]:
    """Return the arguments of Python for each stage; commands write into the folder."""
    photo = str(PHOTOS[0])
    return {
        BASELINE: ["-c", "import torch"],
        "import dnlnet": ["-c", "import dnlnet"],
        "load": ["-c", f"import dnlnet; dnlnet.load({model!r})"],
        "predict": ["-m", "dnlnet", "predict", model, photo, "-o", str(folder / "predicted")],
        "attend --page": ["-m", "dnlnet", "attend", model, photo, "--page", str(folder / "page.html")],
        "attend -o": ["-m", "dnlnet", "attend", model, photo, "-o", str(folder / "maps")],
    }


def bench_startup(commands: Mapping[str, Sequence[str]], rounds: int, cold_rounds: int = 0) -> Iterator[StageTimes]:
    """Yield the best times of each stage; every round runs each of them once."""
    for arguments in commands.values():
        run(arguments)  # compiles bytecode and fills the page cache
    warm = [{stage: run(arguments) for stage, arguments in commands.items()} for _ in range(rounds)]
    cold = []
    for _ in range(cold_rounds):
        times = {}
        for stage, arguments in commands.items():
            drop_from_page_cache()
            times[stage] = run(arguments)
        cold.append(times)
    wall, cpu, first = (
        {stage: min((getattr(times[stage], kind) for times in found), default=None) for stage in commands}
        for found, kind in ((warm, "wall"), (warm, "cpu"), (cold, "wall"))
    )
    for stage in commands:
        cold_ratio = None if first[stage] is None else first[stage] / first[BASELINE]
        yield StageTimes(
            stage,
            wall[stage],
            wall[stage] / wall[BASELINE],
            cpu[stage],
            cpu[stage] / cpu[BASELINE],
            first[stage],
            cold_ratio,
        )


def run(arguments: Sequence[str]) -> Times:
    """Run a fresh interpreter and return its times."""
    start = perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    wall = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    with process.stderr:
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)} failed: {process.stderr.read().decode()[-500:]}")
    return Times(wall, usage.ru_utime + usage.ru_stime)


def drop_from_page_cache() -> None:
    """Drop the files of the installed packages and of this one from the page cache, except those in use."""
    for root in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(dnlnet.__file__).parent)}:
        for path in Path(root).rglob("*"):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)


if __name__ == "__main__":
    main()
