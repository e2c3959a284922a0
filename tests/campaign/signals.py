"""SIGHUP and SIGTERM to commands that do not train. Expected: exit code 128 + n and no stray file."""

import os
import random
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.process import Outcome, run
from campaign.results import Results, Try
from campaign.runs import failed, leftovers

NUMBERS = (signal.SIGHUP, signal.SIGTERM)
IMAGES = 2
LIBRARIES = ("torchinductor_", ".ses")  # temporary files that PyTorch and ONNX Runtime keep
STARTED = 15.0  # latest signal to the explorer, which never ends


@dataclass(frozen=True)
class Moment:
    """Signal to a command after a fraction of its duration."""

    command: str
    number: signal.Signals
    share: float


def moments(seed: int, count: int) -> list[Moment]:
    """Draw `count` moments, cycling through the commands."""
    rng = random.Random(seed)
    names = list(_commands(Path()))
    return [Moment(names[n % len(names)], rng.choice(NUMBERS), rng.uniform(0, 1)) for n in range(count)]


def durations(model: Path, names: Sequence[str]) -> dict[str, float]:
    """Return the duration of each command without a signal, in seconds."""
    found = {"explore": STARTED}
    for name in set(names) - set(found):
        start = time.monotonic()
        done, left = _run(model, name)
        if fault := failed(done) or left:
            raise RuntimeError(f"{name} failed without a signal: {fault}")
        found[name] = time.monotonic() - start
    return found


def attempt(moment: Moment, model: Path, seconds: Mapping[str, float], results: Results) -> None:
    """Signal a command, and record the result."""
    after = 0.1 + moment.share * seconds[moment.command]
    done, left = _run(model, moment.command, after, moment.number)
    what = f"{moment.number.name} after {after:.2f} s"
    kind = f"SIGHUP and SIGTERM, {moment.command}"
    results.add(Try("signals", kind, what, fault(done, moment.number, left)))


def fault(done: Outcome, number: int, left: str | None) -> str | None:
    """Return how an outcome deviates from the expected one, or None.

    >>> fault(Outcome(143, "stopped"), 15, None), fault(Outcome(0, "done"), 15, None)
    (None, None)
    >>> fault(Outcome(-15, ""), 15, None), fault(Outcome(143, ""), 15, "left behind: .writing-0")
    ('exit code -15: ', 'left behind: .writing-0')
    """
    stopped = Outcome(0, done.output, done.hung) if done.code == 128 + number else done
    return failed(stopped) or left


def _run(
    model: Path, name: str, after: float | None = None, number: signal.Signals = signal.SIGTERM
) -> tuple[Outcome, str | None]:
    """Run a command in its own folder, and return its outcome and leftovers."""
    with tempfile.TemporaryDirectory() as place:
        here, scratch = Path(place) / "here", Path(place) / "temporary"
        here.mkdir()
        scratch.mkdir()
        _write_images(here / "images")
        os.environ["TMPDIR"] = str(scratch)
        done = run(_commands(model)[name], here, kill_after=after, number=number)
        left = [path.name for path in scratch.iterdir() if not path.name.startswith(LIBRARIES)]
        return done, leftovers(here) or (f"temporary files left behind: {', '.join(left)}" if left else None)


def _commands(model: Path) -> dict[str, tuple[object, ...]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "attend": ("attend", model, "images", "-o", "figures", "--page", "page.html"),
        "predict": ("predict", model, "images", "-o", "predicted"),
        "eval": ("eval", model, "--workers", 1, "--json", "scores.json", "--picture", "confusion.png"),
        "export": ("export", model, "--format", "onnx", "-o", "model.onnx"),
        "explore": ("explore", model, "--no-browser", "--port", port),
    }


def _write_images(folder: Path) -> None:
    from trees import write_image

    for number in range(IMAGES):
        write_image(folder / f"{number}.png", seed=number, size=(48, 64))
