"""Every program in `examples` runs on its own in an empty folder, as its README promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = sorted(path.name for path in EXAMPLES.glob("*.py"))

# Patterns that each program prints, and the images it writes.
EXPECTED: dict[str, tuple[list[str], list[str]]] = {
    "attention_figure.py": (
        [r"Prediction\(640 x 425: Building", "written: prediction.png", r"pairwise \(1, 1, \d+, \d+\), unary"],
        ["prediction.png", "attention.png", "maps.png"],
    ),
    "block.py": (
        [r"dnl +Eq\. 12 +8,321 parameters  output \(2, 64, 24, 32\)", "the output is the input: True"],
        [],
    ),
    "deploy.py": (
        [
            "shared: README.md, config.json, model.safetensors",
            "the same labels: True",
            r"image \(batch, 3, height, width\) -> logits, pairwise, unary; differs by at most \de-0[4-9]",
        ],
        ["photo.png"],
    ),
    "insert_smp.py": (["Unet: 2 blocks, 0 unexpected tensors", r"step 4: loss \d"], []),
    "insert_timm.py": (
        [
            r"resnet18: 256 channels after layer3\.0, 8 new tensors, 0 unexpected",
            r"convnext_atto: 160 channels after stages\.2, 8 new tensors, 0 unexpected",
            r"efficientnet_b0: 112 channels after blocks\.4, 8 new tensors, 0 unexpected",
            r"step 3: loss \d",
        ],
        [],
    ),
    "insert_torchvision.py": (
        ["DeepLabV3: 2 blocks, 0 unexpected", "Faster R-CNN: 1 block, 0 unexpected", r"step 2: loss \d"],
        [],
    ),
    "onnx_inference.py": ([r"\w+ \d+%"], ["colours.png"]),
    "own_folder.py": (
        [r"mIoU on val: 0\.\d\d", "shares: {'", "written: prediction.png"],
        ["prediction.png"],
    ),
}


# Arguments, and a program to run first in the same folder.
AFTER = {"onnx_inference.py": ("deploy.py", ["scenes.onnx", "photo.png", "colours.png"])}


@pytest.mark.parametrize("name", [name for name in FILES if name not in [first for first, _ in AFTER.values()]])
def test_an_example_runs_and_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    first, arguments = AFTER.get(name, (None, []))
    if first is not None:
        run(first, [], tmp_path)
    run(name, arguments, tmp_path)


def run(name: str, arguments: list[str], tmp_path: Path) -> None:
    assert name in EXPECTED, f"add what {name} prints to EXPECTED"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines, images = EXPECTED[name]
    for line in lines:
        assert re.search(line, done.stdout), f"{line!r} is not in:\n{done.stdout}"
    for file in images:
        with Image.open(tmp_path / file) as image:
            assert min(image.size) >= 64
            assert image.convert("L").getextrema()[0] < image.convert("L").getextrema()[1]


@pytest.mark.parametrize("name", FILES)
def test_an_example_needs_no_deep_import(name: str) -> None:
    assert not re.search(r"(from|import) dnlnet\.", (EXAMPLES / name).read_text())


def test_the_readme_lists_every_example() -> None:
    listed = re.findall(r"^\| \[(\w+\.py)\]", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == FILES
    assert sorted(EXPECTED) == FILES
