"""Bad input to every command. Each succeeds or refuses with one sentence: no traceback, hang or stray file."""

import json
import os
import random
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from campaign.cases import QUICK, Case, Materials, Prepare, change_metadata, settings, write_image
from campaign.contents import config_cases, mode_cases, work_cases
from campaign.nasty import DEEP, NUMBERS, SETTINGS, mutated_bytes, mutated_json
from campaign.outputs import output_cases
from campaign.process import Outcome, run
from campaign.results import Results, Try


def all_cases(materials: Materials, seed: int) -> list[Case]:
    """Return every case, in the same order for the same seed."""
    rng = random.Random(seed)
    parts: Sequence[Iterator[Case]] = (
        setting_cases(rng, 230),
        option_cases(materials, rng, 150),
        coco_cases(materials, rng, 150),
        model_cases(materials, rng, 120),
        image_cases(materials, rng, 70),
        list_cases(materials, rng, 40),
        video_cases(materials, rng, 20),
        checkpoint_cases(materials, rng, 30),
        place_cases(materials),
        output_cases(materials, rng, 90),
        config_cases(rng, 40),
        mode_cases(materials, rng, 60),
        work_cases(materials, rng, 40),
    )
    return [case for part in parts for case in part]


def setting_cases(rng: random.Random, count: int) -> Iterator[Case]:
    """Yield nonsense values for single fields of a recipe."""
    from dnlnet.registry import find_recipe

    base = ("train", "scenes-tiny-dnl", "--workers", 0, "--out", "run")
    quick = settings(*QUICK)
    content = find_recipe("scenes-tiny-dnl").model_dump(mode="json")
    keys = [
        key
        for key in _leaves(content)
        if not key.startswith(("name", "task", "paper", "measured", "training.compile"))
    ]
    keys += ["model.block.gate", "model.block.temperature", "model.block.pool", "model.block.nonsense", "nonsense"]
    cases = [(key, value) for key in keys for value in SETTINGS]
    for key, value in rng.sample(cases, min(count, len(cases))):
        refused = value in (".inf", "-.inf", ".nan", "1.0e300", DEEP) or key.endswith("nonsense")
        shown = value if len(value) < 40 else f"{value[:20]}..."
        yield Case("settings", f"{key}={shown}", (*base, *quick, "--set", f"{key}={value}"), refused=refused)


def _leaves(content: dict[str, Any], prefix: str = "") -> list[str]:
    keys = []
    for key, value in content.items():
        keys += _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) and value else [f"{prefix}{key}"]
    return keys


def option_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield nonsense values for the numeric options of every command."""
    from dnlnet.cli.main import app

    model = materials.segmentation
    arguments: dict[tuple[str, ...], tuple[object, ...]] = {
        ("train",): ("scenes-tiny-dnl", "--out", "run", *settings(*QUICK)),
        ("eval",): (model, "--workers", 0),
        ("predict",): (model, "a.png"),
        ("attend",): (model, "a.png", "-o", "figures"),
        ("consistency",): (model, "--images", 2),
        ("explore",): (model, "--no-browser", "--against", "nowhere.safetensors"),
        ("export",): (model, "--format", "safetensors"),
        ("bench", "predict"): ("scenes-tiny-dnl", "--rounds", 1),
        ("bench", "block"): ("--variants", "gc", "--sizes", "32x32", "--channels", 8, "--rounds", 1),
        ("demo",): ("--steps", 1, "--out", "demo"),
        ("complexity",): ("scenes-tiny-dnl",),
    }
    cases = []
    group = typer.main.get_command(app)
    for command, base in arguments.items():
        found: Any = group
        for name in command:
            found = found.commands[name]
        types = get_type_hints(found.callback)
        for option in found.params:
            number = {int, float} & {types[option.name], *get_args(types[option.name])}
            if option.opts[0].startswith("-") and (number or "size" in option.name):
                cases += [(command, base, option.opts[-1], value) for value in NUMBERS]
    for command, base, option, value in rng.sample(cases, min(count, len(cases))):
        yield Case(
            "options",
            f"{' '.join(command)} {option} {value}",
            (*command, *base, f"{option}={value}"),
            write_image,
            refused=value in ("nan", "inf", "-inf", "1e400", "abc", ""),
        )


def coco_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield annotation files with one changed node, or with damaged bytes."""
    name = "instances_train2017.json"
    good = json.loads((materials.coco / "annotations" / name).read_text())
    for number in range(count):
        kept = rng.getrandbits(32)

        def damage(folder: Path, kept: int = kept, number: int = number) -> None:
            shutil.copytree(materials.coco, folder / "coco")
            path = folder / "coco" / "annotations" / name
            if number % 10 == 9:
                path.write_bytes(mutated_bytes(path.read_bytes(), random.Random(kept)))
            else:
                path.write_text(mutated_json(good, random.Random(kept)))

        if number % 15 == 0:
            small = ("model.backbone=resnet18", "model.weights=null", "training.frozen=[]", "data.short_side=32")
            small += ("data.long_side=48", "schedule.iterations=1", "schedule.batch=1", "schedule.milestones=[]")
            command: tuple[object, ...] = ("train", "coco-micro-dnl-c4", "--data", "coco", "--out", "run")
            command += ("--workers", 0, *settings(*small, "schedule.warmup=0"))
        else:
            command = ("data", "check", "coco", "coco", "--json", "report.json")
        yield Case("COCO files", f"{command[0]} with damage {kept}", command, damage)


def model_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield model files with damaged metadata or bytes."""
    for number in range(count):
        kept = rng.getrandbits(32)

        def damage(folder: Path, kept: int = kept, number: int = number) -> None:
            write_image(folder)
            rng = random.Random(kept)
            content = materials.segmentation.read_bytes()
            if number % 6 == 5:
                (folder / "model.safetensors").write_bytes(mutated_bytes(content[:4000], rng) + content[4000:])
                return

            def change(metadata: dict[str, str]) -> None:
                key = rng.choice(sorted(metadata))
                metadata[key] = mutated_json(json.loads(metadata[key]), rng) if key != "dnlnet" else "0"
                if rng.random() < 0.1:
                    del metadata[key]

            change_metadata(materials.segmentation, folder / "model.safetensors", change)

        command = (("info",), ("predict",), ("eval",))[number % 3]
        more = {"predict": ("a.png",), "eval": ("--workers", "0")}.get(command[0], ())
        yield Case("model files", f"{command[0]} with damage {kept}", (*command, "model.safetensors", *more), damage)


def image_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield damaged, tiny and fake images, alone and next to a valid one."""
    from PIL import Image

    def tiny(size: tuple[int, int]) -> Prepare:
        return lambda folder: Image.new("RGB", size).save(folder / "bad.png")

    def long_name(folder: Path) -> None:
        Image.new("RGB", (20, 20)).save(folder / "short.png")
        (folder / "short.png").rename(folder / f"{'n' * 246}.png")

    def damaged(suffix: str, kept: int) -> Prepare:
        def write(folder: Path) -> None:
            Image.new("RGB", (40, 30), "red").save(folder / f"bad{suffix}")
            path = folder / f"bad{suffix}"
            path.write_bytes(mutated_bytes(path.read_bytes(), random.Random(kept)))

        return write

    fixed: dict[str, Prepare] = {
        "1 x 1": tiny((1, 1)),
        "1 wide": tiny((1, 200)),
        "1 high": tiny((200, 1)),
        "2 x 3": tiny((2, 3)),
        "a name of 250 characters": long_name,
        "superscripts": lambda folder: Image.new("RGB", (20, 20)).save(folder / "²³.png"),
        "a dollar sign": lambda folder: Image.new("RGB", (20, 20)).save(folder / "$\\frac$.png"),
        "empty": lambda folder: (folder / "bad.png").touch(),
        "a folder": lambda folder: (folder / "bad.png").mkdir(),
        "a FIFO": lambda folder: os.mkfifo(folder / "bad.png"),
        "a link to nothing": lambda folder: (folder / "bad.png").symlink_to("nowhere"),
        "a link to itself": lambda folder: (folder / "bad.png").symlink_to("bad.png"),
        "text": lambda folder: (folder / "bad.png").write_text("no image"),
    }
    for what, prepare in fixed.items():

        def both(folder: Path, prepare: Prepare = prepare) -> None:
            prepare(folder)
            write_image(folder)

        yield Case("images", f"predict {what}", ("predict", materials.segmentation, "."), both)
        yield Case("images", f"attend {what}", ("attend", materials.segmentation, ".", "-o", "figures"), both)
        if what in ("1 x 1", "1 wide", "a name of 250 characters", "superscripts"):
            yield Case("images", f"predict {what}, detector", ("predict", materials.detection, "."), both)
    for number in range(count - 2 * len(fixed)):
        suffix = (".png", ".jpg", ".webp", ".gif", ".tif", ".bmp")[number % 6]
        kept = rng.getrandbits(32)
        yield Case(
            "images",
            f"predict damaged {suffix} {kept}",
            ("predict", materials.segmentation, "."),
            damaged(suffix, kept),
        )


def list_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield damaged classes.yaml files, images and labels of a folder."""
    contents = {
        "empty": "",
        "a list": "[1, 2]",
        "names a number": "names: 3",
        "names twice": "names: [sky, sky, road]",
        "no names": "palette: [[0, 0, 0]]",
        "colour of two": "names: [a, b, c]\npalette: [[0, 0], [1, 1], [2, 2]]",
        "colour beyond 255": "names: [a, b, c]\npalette: [[0, 0, 999], [1, 1, 1], [2, 2, 2]]",
        "nested": "names: " + DEEP,
        "tabs": "names:\t[a",
        "an alias bomb": "a: &a [x, x]\nb: &b [*a, *a]\nnames: [*b, *b]",
        "an object": "names: !!python/object/apply:os.system ['true']",
        "NUL": "names: [a\0]",
        "null": "names: null",
        "a name that is null": "names: [null, b, c]",
        "ignore beyond 255": "names: [a, b, c]\nignore: 999",
    }
    for what, content in contents.items():

        def write(folder: Path, content: str = content) -> None:
            shutil.copytree(materials.folder, folder / "data")
            (folder / "data" / "classes.yaml").write_text(content)

        yield Case("lists", f"classes.yaml, {what}", ("data", "check", "folder", "data"), write, refused=True)
    for number in range(count - len(contents)):
        kept = rng.getrandbits(32)

        def damage(folder: Path, kept: int = kept) -> None:
            shutil.copytree(materials.folder, folder / "data")
            rng = random.Random(kept)
            path = rng.choice(sorted(path for path in (folder / "data").rglob("*") if path.is_file()))
            path.write_bytes(mutated_bytes(path.read_bytes(), rng))

        command: tuple[object, ...] = ("data", "check", "folder", "data")
        if number % 2:
            small = ("model.backbone=mobilenetv2_100", "model.weights=null", *QUICK, "data.name=folder")
            command = ("train", "camvid-mbv2-dnl", "--data", "data", "--out", "run", "--workers", 0)
            command += settings(*small)
        yield Case("lists", f"{command[0]}, a damaged file {kept}", command, damage)


def video_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield damaged and fake videos."""
    found = sorted(path for path in materials.videos.rglob("*") if path.is_file())
    for _ in range(count):
        kept = rng.getrandbits(32)

        def damage(folder: Path, kept: int = kept) -> None:
            rng = random.Random(kept)
            path = rng.choice(found)
            (folder / f"bad{path.suffix}").write_bytes(mutated_bytes(path.read_bytes(), rng))

        yield Case("videos", f"predict damage {kept}", ("predict", materials.video, "."), damage)


def checkpoint_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield checkpoints that are damaged, of another kind, or contain code."""
    import pickle

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("touch executed",)

    def trap(name: str) -> Prepare:
        return lambda folder: (folder / name).write_bytes(pickle.dumps({"state_dict": Trap()})) and None

    def zipped(name: str, member: str) -> Prepare:
        def write(folder: Path) -> None:
            import zipfile

            with zipfile.ZipFile(folder / name, "w") as archive:
                archive.writestr(f"a/{member}", pickle.dumps(Trap()))
                archive.writestr("a/version", "3")
                archive.writestr("a/byteorder", "little")

        return write

    for suffix in (".pth", ".pt", ".pt2", ".onnx", ".safetensors"):
        for what, prepare in {
            "a pickle with code": trap(f"bad{suffix}"),
            "an archive with code": zipped(f"bad{suffix}", "data.pkl"),
            "a program with code": zipped(f"bad{suffix}", "models/model.json"),
        }.items():
            yield Case("checkpoints", f"info {what} as {suffix}", ("info", f"bad{suffix}"), prepare, refused=True)
        convert = ("convert", f"bad{suffix}", "-o", "model.safetensors")
        yield Case("checkpoints", f"convert code as {suffix}", convert, trap(f"bad{suffix}"), refused=True)
    for number in range(count - 20):
        kept = rng.getrandbits(32)
        suffix = (".pth", ".pt2", ".onnx", ".safetensors")[number % 4]

        def noise(folder: Path, kept: int = kept, suffix: str = suffix) -> None:
            (folder / f"bad{suffix}").write_bytes(random.Random(kept).randbytes(3000))

        yield Case("checkpoints", f"info noise as {suffix} {kept}", ("info", f"bad{suffix}"), noise, refused=True)


def place_cases(materials: Materials) -> Iterator[Case]:
    """Yield wrong names and paths."""

    def file(folder: Path) -> None:
        (folder / "out").write_text("a file")
        write_image(folder)

    model = materials.segmentation
    commands: dict[str, tuple[object, ...]] = {
        "a recipe that is not there": ("train", "camvid-dln", "--out", "run"),
        "out is a file, train": ("train", "scenes-tiny-dnl", "--out", "out"),
        "out is a file, predict": ("predict", model, "a.png", "-o", "out"),
        "out is a file, attend": ("attend", model, "a.png", "-o", "out"),
        "out below a file": ("train", "scenes-tiny-dnl", "--out", "out/run"),
        "no data": ("train", "camvid-mbv2-dnl", "--out", "run", "--set", "model.weights=null"),
        "data is a file": ("train", "camvid-mbv2-dnl", "--data", "out", "--out", "run"),
        "weights are not there": ("train", "scenes-tiny-dnl", "--out", "run", "--set", "model.weights=nowhere.pth"),
        "a split that is not there": ("eval", model, "--split", "nowhere"),
        "a split that is not there, train": (
            *("train", "camvid-mbv2-dnl", "--data", materials.folder, "--out", "run", "--set", "model.weights=null"),
            *("--set", "data.name=folder", "--set", "data.train=nowhere"),
        ),
        "no image": ("predict", model, "nowhere.png"),
        "a model that is not there": ("predict", "nowhere.safetensors", "a.png"),
        "an image as a model": ("predict", "a.png", "a.png"),
        "a query outside": ("attend", model, "a.png", "--query", "1000,1000", "-o", "figures"),
        "a query that is none": ("attend", model, "a.png", "--query", "here", "-o", "figures"),
        "an unknown format": ("export", model, "--format", "tflite"),
        "an unknown data set": ("data", "check", "camvidd", "."),
        "an empty folder": ("data", "check", "camvid", "."),
        "json into a file's folder": ("eval", model, "--workers", 0, "--json", "out/scores.json"),
        "an unknown command": ("segment",),
        "an unknown option": ("predict", model, "a.png", "--sharp"),
        "a recipe to show": ("recipes", "show", "nothing"),
    }
    for what, command in commands.items():
        yield Case("names and places", what, command, file, refused=True)


def attempt(case: Case, results: Results) -> None:
    """Run a case in its own folder, and record the result."""
    with tempfile.TemporaryDirectory() as name:
        folder, scratch = Path(name) / "here", Path(name) / "temporary"
        folder.mkdir()
        scratch.mkdir()
        os.environ["TMPDIR"] = str(scratch)
        case.prepare(folder)
        before = _contents(folder)
        done = run(case.arguments, folder)
        after = _contents(folder)
        new = sorted(after.keys() - before.keys())
        new += [f"a changed {path}" for path, content in before.items() if after.get(path) != content]
        new += [] if stat.S_ISCHR(os.stat(os.devnull).st_mode) else [f"a changed {os.devnull}"]
        new += [f"a temporary {path.name}" for path in scratch.iterdir() if not path.name.startswith("dnlnet-error-")]
        found = fault(case, done, new) or case.check(folder, done)
        results.add(Try("bad input", case.kind, case.what, found))


def fault(case: Case, done: Outcome, new: Sequence[str]) -> str | None:
    """Return how an outcome deviates from the expected one, or None.

    >>> fault(Case("settings", "lr=inf", (), refused=True), Outcome(0, "done"), [])
    'accepted without an error'
    """
    last = (done.output.strip().splitlines() or [""])[-1][:300]
    if done.hung:
        return "hung"
    if done.code < 0:
        return f"died of {signal.Signals(-done.code).name}"
    if "Traceback" in done.output or done.code not in (0, 1, 2):
        return f"exit code {done.code}: {last}"
    if "executed" in new:
        return "code in the file was executed"
    if changed := [what for what in new if what.startswith("a changed")]:
        return f"left behind {', '.join(changed)}"
    if done.code == 2 and new:
        return f"left behind {', '.join(new)}"
    if done.code != 0 and not done.output.strip():
        return f"exit code {done.code} without a message"
    return "accepted without an error" if case.refused and done.code == 0 else None


def _contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the type and content of everything below a folder, keyed by name."""
    found = {}
    for path in folder.rglob("*"):
        kind = path.lstat().st_mode
        found[str(path.relative_to(folder))] = kind, path.read_bytes() if stat.S_ISREG(kind) else b""
    return found
