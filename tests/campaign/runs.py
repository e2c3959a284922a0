"""Training runs that are killed, damaged or run out of disk, against the same run left in peace: to the bit."""

import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from campaign.cases import settings
from campaign.process import Outcome
from campaign.process import run as run_command
from campaign.results import Results, Try

Mount = Callable[[Path, int], AbstractContextManager[Callable[[], None]]]
LOG_DIFFERS = "the log differs"
PATIENCE = 600.0  # seconds for a whole run, beside whatever else the machine does


@dataclass(frozen=True)
class System:
    """A small training run of one of the three systems."""

    name: str
    arguments: tuple[str, ...]
    kills: int


def systems(folder: Path) -> list[System]:
    """One run each of segmentation, detection and video, on generated data."""
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
        System("segmentation", ("train", "scenes-tiny-dnl", *segmentation), 50),
        System("detection", ("train", "coco-micro-dnl-c4", "--data", str(shapes), *detection), 15),
        System("video", ("train", "ucf6-r50-dnl", "--data", str(videos), *video), 35),
    ]


def run(arguments: Sequence[object], folder: Path, kill_after: float | None = None) -> Outcome:
    """The command, with patience."""
    return run_command(arguments, folder, kill_after=kill_after, timeout=PATIENCE)


def uninterrupted(name: str, folder: Path) -> Path:
    """Where the run left in peace is."""
    return folder / name / "uninterrupted"


def reference(system: System, folder: Path) -> float:
    """Make the run left in peace; how many seconds it took."""
    out = uninterrupted(system.name, folder)
    out.parent.mkdir(parents=True)
    start = time.monotonic()
    done = run([*system.arguments, "--out", out], out.parent)
    if done.code != 0:
        raise RuntimeError(f"{system.name}: the uninterrupted run failed: {done.output[-500:]}")
    return time.monotonic() - start


def kills(system: System, folder: Path, seconds: float, results: Results, seed: int) -> None:
    """Chains of up to ten kills at random moments, each chain ended by the same command left in peace."""
    rng = random.Random(f"{seed} {system.name}")
    expected = uninterrupted(system.name, folder)
    done = 0
    while done < system.kills:
        out = expected.parent / f"killed {done}"
        chain, fault = 0, None
        for _ in range(min(10, system.kills - done)):
            outcome = run([*system.arguments, "--out", out], expected.parent, kill_after=rng.uniform(0, seconds))
            if outcome.code != -signal.SIGKILL:
                fault = _failed(outcome)  # or it had ended before
                break
            chain += 1
        last = run([*system.arguments, "--out", out], expected.parent)
        if chain or fault:
            fault = fault or _failed(last) or difference(out, expected) or _leftovers(out)
            results.add(Try("kills", f"SIGKILL, {system.name}", f"{chain} kills", fault, max(1, chain)))
        done += chain
        shutil.rmtree(out)


def flips(system: System, folder: Path, seconds: float, results: Results, seed: int, tries: int) -> None:
    """One flipped bit in a file of a stopped run: the run ends as it should, or refuses in a sentence."""
    rng = random.Random(seed)
    expected = uninterrupted(system.name, folder)
    stopped = expected.parent / "stopped"
    for share in (0.6, 0.5, 0.7, 0.4, 0.8, 0.3):
        shutil.rmtree(stopped, ignore_errors=True)
        run([*system.arguments, "--out", stopped], expected.parent, kill_after=share * seconds)
        if list(stopped.glob("checkpoints/*.json")) and not (stopped / "last.safetensors").exists():
            break
    else:
        raise RuntimeError("the run to be damaged was stopped before its first checkpoint, or had ended, each time")
    files = [*sorted(stopped.glob("checkpoints/[0-9]*.*")), stopped / "log.jsonl", stopped / "run.yaml"]
    for number in range(tries):
        out = expected.parent / "flipped"
        shutil.copytree(stopped, out)
        path = out / files[number % len(files)].relative_to(stopped)
        content = bytearray(path.read_bytes())
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        done = run([*system.arguments, "--out", out], expected.parent)
        fault = _failed(done, refusal=True) or (difference(out, expected) if done.code == 0 else None)
        if fault == LOG_DIFFERS and "log.jsonl" in done.output:
            fault = None  # a line is lost, which was said
        results.add(Try("flips", f"flipped bit, {path.suffix.removeprefix('.')}", f"{path.name} bit {bit}", fault))
        shutil.rmtree(out)


def full_disks(system: System, folder: Path, results: Results, mount: Mount) -> None:
    """The run on disks that are full sooner or later; with room made, the same command ends it."""
    expected = uninterrupted(system.name, folder)
    needed = sum(path.stat().st_size for path in expected.rglob("*") if path.is_file())
    disk = expected.parent / "disk"
    disk.mkdir(exist_ok=True)
    for share in (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        with mount(disk, int(needed * share) + 4096) as enlarge:
            full = run([*system.arguments, "--out", disk / "run"], disk.parent)
            fault = _failed(full, refusal=True)
            enlarge()
            last = run([*system.arguments, "--out", disk / "run"], disk.parent)
            fault = fault or _failed(last) or difference(disk / "run", expected) or _leftovers(disk / "run")
        results.add(Try("full disk", f"full disk, {system.name}", f"{share:.0%} of what it needs", fault))


def difference(out: Path, expected: Path) -> str | None:
    """What differs between two finished runs: weights to the bit, or the lines of the log."""
    import torch
    from safetensors.torch import load_file

    from dnlnet.engine.log import read_log

    for name in ("best.safetensors", "last.safetensors"):
        if (out / name).exists() != (expected / name).exists():
            return f"{name} is in one of two runs only"
        if not (expected / name).exists():
            continue
        ours, theirs = load_file(out / name), load_file(expected / name)
        if ours.keys() != theirs.keys() or not all(torch.equal(ours[key], theirs[key]) for key in ours):
            return f"{name} differs"
    return None if list(read_log(out)) == list(read_log(expected)) else LOG_DIFFERS


def _failed(done: Outcome, *, refusal: bool = False) -> str | None:
    """Why an outcome is none of those allowed: success, or, where it may refuse, a sentence and exit code 2."""
    last = done.output.strip().splitlines()[-1:] or [""]
    if done.hung:
        return "hung"
    if "Traceback" in done.output:
        return f"a traceback: {last[0]}"
    if done.code == 0 or (refusal and done.code == 2 and "error: " in done.output):
        return None
    return f"exit code {done.code}: {last[0]}"


def _leftovers(out: Path) -> str | None:
    hidden = [str(path.relative_to(out)) for path in out.rglob(".*")]
    return f"left behind: {', '.join(hidden)}" if hidden else None
