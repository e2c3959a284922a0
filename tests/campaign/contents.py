"""Valid but unusual files: incomplete configurations, every kind of image, and requests for endless work."""

import ast
import json
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from campaign.cases import QUICK, Case, Materials, Prepare, change_metadata, change_recipe, settings, write_image
from campaign.process import Outcome

# Keys of mmsegmentation's configurations and their defaults.
DEFAULTS = {
    "model.backbone.strides": "(1, 2, 2, 2)",
    "model.backbone.dilations": "(1, 1, 1, 1)",
    "model.backbone.style": "'pytorch'",
    "model.backbone.contract_dilation": "False",
    "model.backbone.multi_grid": "None",
    "model.decode_head.align_corners": "False",
    "model.decode_head.concat_input": "True",
    "model.decode_head.dilation": "1",
    "model.decode_head.temperature": "0.05",
    "model.decode_head.mode": "'embedded_gaussian'",
    "model.auxiliary_head.dilation": "1",
    "model.data_preprocessor.bgr_to_rgb": "False",
    "model.data_preprocessor.mean": "None",
    "model.test_cfg.mode": "'whole'",
}


def config_cases(rng: random.Random, count: int) -> Iterator[Case]:
    """Yield checkpoints of mmsegmentation whose configuration lacks one or more keys.

    They are converted, or refused with one sentence. A missing key means its default.
    """
    import pytest
    import torch

    from dnlnet.conversion.converting import convert
    from foreign import SMALL, filled, mmseg_shapes, use_small_backbones
    from mmseg_configs import config

    use_small_backbones(pytest.MonkeyPatch())
    heads = {kind: filled(mmseg_shapes(SMALL, kind)) for kind in ("dnl_block", "nl_block", None)}
    command = ("convert", "a.pth", "-o", "model.safetensors")

    def save(path: Path, text: str, kind: str | None) -> None:
        torch.save({"meta": {"cfg": text}, "state_dict": heads[kind]}, path)

    for number in range(count):
        text, kind = config(), rng.choice(list(heads))
        if number % 2:
            removed, text = _without(text, rng, rng.choice((1, 1, 2, 5)))
            prepare = lambda folder, text=text, kind=kind: save(folder / "a.pth", text, kind)  # noqa: E731
            yield Case("absent keys", f"{kind} without {', '.join(removed)}", command, prepare)
            continue
        key = list(DEFAULTS)[number // 2 % len(DEFAULTS)]

        def both(folder: Path, key: str = key, text: str = text, kind: str | None = kind) -> None:
            save(folder / "a.pth", _edited(text, key, None), kind)
            save(folder / "explicit.pth", _edited(text, key, DEFAULTS[key]), kind)

        def alike(folder: Path, done: Outcome, key: str = key) -> str | None:
            from dnlnet.artifacts.model_file import read_model_file

            refusal = ""
            try:
                convert(folder / "explicit.pth", folder / "explicit.safetensors")
            except ValueError as error:
                refusal = str(error)
            if (done.code == 0) == bool(refusal):
                return f"absent: exit code {done.code}; as {DEFAULTS[key]}: {refusal or 'accepted'}"
            files = (folder / "model.safetensors", folder / "explicit.safetensors")
            if done.code == 0 and read_model_file(files[0]).recipe != read_model_file(files[1]).recipe:
                return f"absent differs from {DEFAULTS[key]}"
            return None

        yield Case("absent keys", f"{kind}, default of {key}", command, both, check=alike)


def _without(text: str, rng: random.Random, count: int) -> tuple[list[str], str]:
    """Remove `count` random keys and assignments from a configuration."""
    tree = ast.parse(text)
    removed = []
    for _ in range(count):
        places: list[tuple[list[Any], Any]] = [(tree.body, one) for one in tree.body]
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                places += [(node.keywords, one) for one in node.keywords]
        owner, one = rng.choice(places)
        owner.remove(one)
        removed.append(one.arg if isinstance(one, ast.keyword) else ast.unparse(one.targets[0]))
    return removed, ast.unparse(tree)


def _edited(text: str, key: str, value: str | None) -> str:
    """Set a dotted key of a configuration, or remove it."""
    tree = ast.parse(text)
    first, *inner, last = key.split(".")
    part: Any = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == first)
    for name in inner:
        part = next(word.value for word in part.keywords if word.arg == name)
    part.keywords = [word for word in part.keywords if word.arg != last]
    if value is not None:
        part.keywords.append(ast.keyword(last, ast.parse(value, mode="eval").body))
    return ast.unparse(tree)


# Modes of Pillow and the formats that can store them.
MODES = {
    "1": (".png", ".tif", ".bmp"),
    "L": (".png", ".jpg", ".tif", ".bmp", ".webp"),
    "LA": (".png", ".tif"),
    "P": (".png", ".tif", ".bmp"),
    "PA": (".tif", ".png"),
    "RGB": (".png", ".jpg", ".tif", ".bmp", ".webp"),
    "RGBA": (".png", ".tif", ".webp", ".bmp"),
    "RGBX": (".tif",),
    "CMYK": (".jpg", ".tif"),
    "YCbCr": (".jpg", ".tif"),
    "LAB": (".tif",),
    "I": (".tif", ".png"),
    "I;16": (".png", ".tif"),
    "F": (".tif",),
}
WITH_EXIF = (".png", ".jpg", ".tif", ".webp")


def mode_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield images of every mode, bit depth and orientation for all commands.

    All commands must read them alike and refuse the same ones; `eval` scores the labels that `predict` writes.
    """
    kinds = [(mode, suffix) for mode, suffixes in MODES.items() for suffix in suffixes]
    model, data = "model.safetensors", ("--data", "data")
    small = settings(*QUICK, "data.name=folder", "data.train=val", "data.test=val")
    commands: dict[str, tuple[object, ...]] = {
        "predict": ("predict", model, "data/images/val", "-o", "out"),
        "eval": ("eval", model, *data, "--workers", 0, "--json", "scores.json"),
        "data check": ("data", "check", "folder", "data"),
        "attend": ("attend", model, "data/images/val", "-o", "out"),
        "train": ("train", "scenes-tiny-dnl", *data, "--out", "out", "--workers", 0, *small),
    }
    for number in range(count):
        mode, suffix = rng.choice(kinds)
        turn = rng.randrange(1, 9) if suffix in WITH_EXIF else 1
        seed, name = rng.getrandbits(32), list(commands)[number % len(commands)]
        if (name, mode) == ("train", "LAB"):
            name = "data check"  # a run that has started keeps its folder if an image cannot be read

        def prepare(folder: Path, mode: str = mode, suffix: str = suffix, turn: int = turn, seed: int = seed) -> None:
            _write_pair(materials, folder, mode, suffix, turn, seed)

        def check(folder: Path, done: Outcome, name: str = name) -> str | None:
            return _disagreement(folder, name, done)

        yield Case("image modes", f"{name}, {mode}{suffix}, turned {turn}", commands[name], prepare, check=check)


def _write_pair(materials: Materials, folder: Path, mode: str, suffix: str, turn: int, seed: int) -> None:
    """Write an image with a mask, and a model trained on that data set."""
    import numpy as np
    from PIL import Image

    from dnlnet.artifacts.model_file import read_model_file

    rng = np.random.default_rng(seed)
    height, width = rng.integers(20, 60, 2)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    grey = pixels[..., 0]
    image = {
        "I": lambda: Image.fromarray(grey.astype(np.int32) * 257),
        "I;16": lambda: Image.fromarray(grey.astype(np.uint16) * 257),
        "F": lambda: Image.fromarray(grey.astype(np.float32) / 255),
        "LAB": lambda: Image.frombytes("LAB", (int(width), int(height)), pixels.tobytes()),
        "PA": lambda: Image.fromarray(pixels).convert("P").convert("PA"),
    }.get(mode, lambda: Image.fromarray(pixels).convert(mode))()
    exif = Image.Exif()
    exif[0x0112] = turn
    names = read_model_file(materials.segmentation).classes.names
    for part in ("images", "masks"):
        (folder / "data" / part / "val").mkdir(parents=True)
    path = folder / "data" / "images" / "val" / f"a{suffix}"
    try:
        image.save(path, **({"exif": exif} if turn > 1 else {}))
        Image.open(path).load()
    except (OSError, ValueError):  # Pillow cannot write the mode in this format, or cannot read its own file
        Image.fromarray(pixels).save(path)
    upright = (width, height) if turn > 4 and Image.open(path).getexif().get(0x0112) == turn else (height, width)
    labels = rng.integers(0, len(names), upright, dtype=np.uint8)
    Image.fromarray(labels).save(folder / "data" / "masks" / "val" / "a.png")
    (folder / "data" / "classes.yaml").write_text(json.dumps({"names": list(names)}))
    change_recipe(
        materials.segmentation, folder / "model.safetensors", data={"name": "folder", "train": "val", "test": "val"}
    )


def _disagreement(folder: Path, command: str, done: Outcome) -> str | None:
    """Return how a command reads the image differently from the others, or None."""
    import numpy as np
    from PIL import Image

    from dnlnet.artifacts.load import load
    from dnlnet.data.problems import BadFileError
    from dnlnet.data.samples import WholeImages
    from dnlnet.segmentation.data.folder import folder as open_folder

    images = open_folder(folder / "data", "val")
    try:
        sample = WholeImages(images)[0]
    except BadFileError as error:
        return None if done.code else f"accepted, but read elsewhere: {error}"
    if done.code:
        return f"refused, but read elsewhere: {done.output.strip().splitlines()[-1][:200]}"
    model = load(folder / "model.safetensors")
    labels = model.predictor.logits(sample.image).argmax(dim=1)[0].numpy()
    if command == "predict":
        (written,) = (folder / "out" / "labels").iterdir()
        same = np.array_equal(np.asarray(Image.open(written)), labels)
        return None if same else "predict writes other labels than eval scores"
    if command == "eval":
        found = model.predict(images.pairs[0].image).labels
        right = float((found == sample.labels.numpy()).mean())
        scored = json.loads((folder / "scores.json").read_text())["accuracy"]
        return (
            None if abs(right - scored) < 1e-6 else f"eval reports an accuracy of {scored}, but predict has {right}"
        )
    return None


def work_cases(materials: Materials, rng: random.Random, count: int) -> Iterator[Case]:
    """Yield small files that ask for terabytes or years: archives, pickles, tensors and model settings."""
    evaluations: tuple[dict[str, Any], ...] = (
        {"window": [8, 8], "stride": [1, 1]},
        {"scales": [20] * 50},
        {"short_side": 65_536},
        {"divisor": 65_536},
        {"window": [65_536, 65_536], "stride": [1, 1], "scales": [20] * 100, "flip": True, "short_side": 65_536},
    )
    others: tuple[tuple[str, dict[str, Any]], ...] = (
        ("coco-micro-dnl-c4", {"data": {"short_side": 65_536, "long_side": 65_536}}),
        ("ucf6-r50-dnl", {"evaluation": {"clips": 65_536, "crops": 1000}}),
        ("ucf6-r50-dnl", {"data": {"frames": 65_536}, "evaluation": {"short_side": 4096}}),
        ("ucf6-r50-dnl", {"evaluation": {"short_side": 65_536}}),
    )
    bombs = ("deflated", "overlapping", "expanded", "hashed", "deep", "bytearray", "shared")
    for number in range(count):
        seed = rng.getrandbits(32)
        if number % 2:
            bomb, command = bombs[number // 2 % len(bombs)], rng.choice(("info", "convert"))
            more = ("-o", "model.safetensors") if command == "convert" else ()

            def drop(folder: Path, bomb: str = bomb, seed: int = seed) -> None:
                _write_bomb(folder / "a.pth", bomb, random.Random(seed))

            yield Case("endless work", f"{command} {bomb} {seed}", (command, "a.pth", *more), drop, refused=True)
        elif number % 4:
            recipe, parts = rng.choice(others)
            prepare, arguments = (
                _of_recipe(materials.segmentation, recipe, parts),
                ("predict", "model.safetensors", "."),
            )
            yield Case("endless work", f"predict {parts}", arguments, prepare, refused=True)
        else:
            eval_too = rng.random() < 0.5
            evaluation = rng.choice(evaluations[eval_too:])  # eval uses small images

            def large(folder: Path, evaluation: dict[str, Any] = evaluation) -> None:
                write_image(folder, (600, 500))
                change_recipe(materials.segmentation, folder / "model.safetensors", evaluation=evaluation)

            command = "eval" if eval_too else "predict"
            more = ("--workers", "0") if eval_too else (".",)
            arguments = (command, "model.safetensors", *more)
            yield Case("endless work", f"{command} {str(evaluation)[:60]}", arguments, large, refused=True)


def _of_recipe(model: Path, name: str, parts: dict[str, dict[str, Any]]) -> Prepare:
    """Return a function that writes a model file of this recipe with changed values."""
    from dnlnet.registry import find_recipe

    def change(metadata: dict[str, str]) -> None:
        recipe = find_recipe(name).stored()
        metadata["recipe"] = json.dumps(
            {key: {**value, **parts[key]} if key in parts else value for key, value in recipe.items()}
        )

    def prepare(folder: Path) -> None:
        write_image(folder)
        change_metadata(model, folder / "model.safetensors", change)

    return prepare


def _write_bomb(path: Path, kind: str, rng: random.Random) -> None:
    """Write a checkpoint of a few kilobytes that expands to far more."""
    import torch

    zipped = rng.random() < 0.5 or kind in ("deflated", "overlapping")
    size = rng.choice((10**9, 10**10, 10**12))
    content: dict[str, Any] = {"a.weight": torch.zeros(4)}
    if kind == "expanded":
        content["a.weight"] = torch.zeros(1).expand(size)
    elif kind == "shared":
        content = dict.fromkeys(map(str, range(2000)), torch.zeros(10_000))
    elif kind == "bytearray":
        content["beside"] = _Made(bytearray, size // 10)
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    if kind in ("hashed", "deep"):
        step = b"q\x00h\x00\x86" * 60 if kind == "hashed" else b"\x85" * 1_000_000
        _replace_pickle(path, b"\x80\x02})" + step + b"K\x01s.", zipped)
    elif kind == "deflated":
        _replace_pickle(path, b"\x80\x02" + b"N0" * 50_000_000 + b"}.", zipped, zipfile.ZIP_DEFLATED)
    elif kind == "overlapping":
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("archive/data/large", bytes(1_000_000))
            for number in range(5000):
                entry = zipfile.ZipInfo(f"archive/data/{number + 1}")
                for name in ("header_offset", "file_size", "compress_size", "CRC"):
                    setattr(entry, name, getattr(archive.getinfo("archive/data/large"), name))
                archive.filelist.append(entry)


class _Made:
    """Object that unpickles to the result of a call."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def _replace_pickle(path: Path, content: bytes, zipped: bool, compression: int = zipfile.ZIP_STORED) -> None:
    """Replace the pickle inside a checkpoint."""
    if not zipped:
        first = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {})]
        path.write_bytes(b"".join([*first, content]))
        return
    whole = path.with_suffix(".whole")
    shutil.move(path, whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, content if name.endswith("data.pkl") else old.read(name))
    whole.unlink()
