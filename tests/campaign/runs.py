"""Training runs that are killed, damaged or run out of disk space must equal an uninterrupted run to the bit."""

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from campaign.cases import settings
from campaign.process import Outcome
from campaign.process import run as run_command
from campaign.results import Results, Try

LOG_DIFFERS = "the log differs"
RUN_TIMEOUT = 600.0  # seconds


@dataclass(frozen=True)
class TrainingRun:
    """Small training run of one task."""

    name: str
    arguments: tuple[str, ...]
    kills: int


def training_runs(folder: Path) -> list[TrainingRun]:
    """Return one run each of segmentation, detection and video on generated data."""
    from coco_trees import shapes_tree
    from video_trees import moving_shapes

    shapes = shapes_tree(folder / "shapes")
    videos = moving_shapes(folder / "videos", videos=4)
    every = ("training.save_every=2", "training.evaluate_every=4")
    segmentation = settings("data.crop=[32, 32]", "schedule.batch=2", "schedule.iterations=24", *every)
    detection = settings(
        "model.backbone=resnet18",
        "model.weights=null",
        "model.boxes=16",
        "model.proposals=40",
        "data.short_side=64",
        "data.long_side=96",
        "training.frozen=[]",
        "schedule.batch=2",
        "schedule.iterations=6",
        "schedule.warmup=0",
        "schedule.milestones=[4]",
        "training.save_every=2",
        "training.evaluate_every=3",
        "training.keep=1",
    )
    video = settings(
        "model.backbone=slow_only_tiny",
        "model.weights=null",
        "data.name=video_folder",
        "data.train=train",
        "data.test=val",
        "data.stride=2",
        "data.short_sides=[32, 32]",
        "data.crop=32",
        "schedule.batch=4",
        "schedule.warmup=0",
        "schedule.iterations=16",
        "training.frozen=[]",
        "training.frozen_statistics=false",
        "evaluation.clips=1",
        "evaluation.crops=1",
        "evaluation.short_side=32",
        *every,
    )
    return [
        TrainingRun("segmentation", ("train", "scenes-tiny-dnl", *segmentation), 50),
        TrainingRun("detection", ("train", "coco-micro-dnl-c4", "--data", str(shapes), *detection), 15),
        TrainingRun("video", ("train", "ucf6-r50-dnl", "--data", str(videos), *video), 35),
    ]


def run(arguments: Sequence[object], folder: Path, kill_after: float | None = None) -> Outcome:
    """Run the command with a longer timeout."""
    return run_command(arguments, folder, kill_after=kill_after, timeout=RUN_TIMEOUT)


def uninterrupted(name: str, folder: Path) -> Path:
    """Return the folder of the uninterrupted run."""
    return folder / name / "uninterrupted"


def reference(training: TrainingRun, folder: Path) -> float:
    """Make the uninterrupted run, and return its duration in seconds."""
    out = uninterrupted(training.name, folder)
    out.parent.mkdir(parents=True)
    start = time.monotonic()
    done = run([*training.arguments, "--out", out], out.parent)
    if done.code != 0:
        raise RuntimeError(f"{training.name}: the uninterrupted run failed: {done.output[-500:]}")
    return time.monotonic() - start


def kills(training: TrainingRun, folder: Path, seconds: float, results: Results, seed: int) -> None:
    """Kill runs up to ten times at random moments, then finish them with the same command."""
    rng = random.Random(f"{seed} {training.name}")
    expected = uninterrupted(training.name, folder)
    done = 0
    while done < training.kills:
        out = expected.parent / f"killed {done}"
        chain, fault = 0, None
        for _ in range(min(10, training.kills - done)):
            outcome = run([*training.arguments, "--out", out], expected.parent, kill_after=rng.uniform(0, seconds))
            if outcome.code != -signal.SIGKILL:
                fault = failed(outcome)  # unless it had already ended
                break
            chain += 1
        last = run([*training.arguments, "--out", out], expected.parent)
        if chain or fault:
            fault = fault or failed(last) or difference(out, expected) or leftovers(out)
            results.add(Try("kills", f"SIGKILL, {training.name}", f"{chain} kills", fault, max(1, chain)))
        done += chain
        shutil.rmtree(out)


def flips(training: TrainingRun, folder: Path, seconds: float, results: Results, seed: int, tries: int) -> None:
    """Flip one bit in a file of a stopped run, which must then finish correctly or refuse with one sentence."""
    rng = random.Random(seed)
    expected = uninterrupted(training.name, folder)
    stopped = expected.parent / "stopped"
    for share in (0.6, 0.5, 0.7, 0.4, 0.8, 0.3):
        shutil.rmtree(stopped, ignore_errors=True)
        run([*training.arguments, "--out", stopped], expected.parent, kill_after=share * seconds)
        if list(stopped.glob("checkpoints/*.json")) and not (stopped / "last.safetensors").exists():
            break
    else:
        raise RuntimeError("no run could be stopped between its first checkpoint and its end")
    files = [*sorted(stopped.glob("checkpoints/[0-9]*.*")), stopped / "log.jsonl", stopped / "run.yaml"]
    for number in range(tries):
        out = expected.parent / "flipped"
        shutil.copytree(stopped, out)
        path = out / files[number % len(files)].relative_to(stopped)
        content = bytearray(path.read_bytes())
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        done = run([*training.arguments, "--out", out], expected.parent)
        fault = failed(done, refusal=True) or (difference(out, expected) if done.code == 0 else None)
        if fault == LOG_DIFFERS and "log.jsonl" in done.output:
            fault = None  # a line was lost and reported
        results.add(Try("flips", f"flipped bit, {path.suffix.removeprefix('.')}", f"{path.name} bit {bit}", fault))
        shutil.rmtree(out)


def full_disks(training: TrainingRun, folder: Path, results: Results) -> None:
    """Run on disks that fill up, enlarge them, and finish with the same command."""
    expected = uninterrupted(training.name, folder)
    needed = sum(path.stat().st_size for path in expected.rglob("*") if path.is_file())
    disk = expected.parent / "disk"
    disk.mkdir(exist_ok=True)
    for share in (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        with small_disk(disk, int(needed * share) + 4096) as enlarge:
            full = run([*training.arguments, "--out", disk / "run"], disk.parent)
            fault = failed(full, refusal=True)
            enlarge()
            last = run([*training.arguments, "--out", disk / "run"], disk.parent)
            fault = fault or failed(last) or difference(disk / "run", expected) or leftovers(disk / "run")
        results.add(Try("full disk", f"full disk, {training.name}", f"{share:.0%} of the required space", fault))


def mounting_allowed(folder: Path) -> bool:
    """Return whether this user may mount a tmpfs."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _succeeds("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder):
        return False
    _require("umount", folder)
    return True


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[], None]]:
    """Mount a tmpfs of `size` bytes, and yield a function that enlarges it."""
    _require("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield lambda: _require("mount", "-o", f"remount,size={2**31}", folder)
    finally:
        _require("umount", folder)


def _succeeds(*command: object) -> bool:
    return subprocess.run(list(map(str, command)), capture_output=True).returncode == 0


def _require(*command: object) -> None:
    if not _succeeds(*command):
        raise OSError(f"{' '.join(map(str, command))}: failed")


def difference(out: Path, expected: Path) -> str | None:
    """Return the difference between two finished runs (bits of weights, lines of the log), or None."""
    import torch
    from safetensors.torch import load_file

    from dnlnet.engine.log import read_log

    for name in ("best.safetensors", "last.safetensors"):
        if (out / name).exists() != (expected / name).exists():
            return f"only one of two runs has {name}"
        if not (expected / name).exists():
            continue
        ours, theirs = load_file(out / name), load_file(expected / name)
        if ours.keys() != theirs.keys() or not all(torch.equal(ours[key], theirs[key]) for key in ours):
            return f"{name} differs"
    return None if list(read_log(out)) == list(read_log(expected)) else LOG_DIFFERS


def failed(done: Outcome, *, refusal: bool = False) -> str | None:
    """Return why an outcome is neither a success nor (if allowed) a refusal with one sentence, or None."""
    last = done.output.strip().splitlines()[-1:] or [""]
    if done.hung:
        return "hung"
    if "Traceback" in done.output:
        return f"a traceback: {last[0]}"
    if done.code == 0 or (refusal and done.code == 2 and "error: " in done.output):
        return None
    return f"exit code {done.code}: {last[0]}"


def leftovers(out: Path) -> str | None:
    """Return a message that names the hidden files in a folder, or None."""
    hidden = [str(path.relative_to(out)) for path in out.rglob(".*")]
    return f"left behind: {', '.join(hidden)}" if hidden else None
