"""Every program in `examples` runs on its own in an empty folder, as its README promises."""

import re
import runpy
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
        [r"Prediction\(451 x 300: pet", "written: prediction.png", r"pairwise \(1, 1, \d+, \d+\), unary"],
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


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("deploy.py", "onnx_inference.py")])
def test_an_example_runs_and_prints_what_it_promises(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")  # a process of its own would import torch again
    require_promised(name, capsys.readouterr().out, tmp_path)


def test_an_exported_model_runs_in_a_process_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "deploy.py"), run_name="__main__")
    require_promised("deploy.py", capsys.readouterr().out, tmp_path)
    hidden = "import sys, runpy; sys.modules.update(torch=None, dnlnet=None); runpy.run_path(sys.argv.pop(1))"
    command = [
        sys.executable,
        "-c",
        hidden,
        EXAMPLES / "onnx_inference.py",
        "scenes.onnx",
        "photo.png",
        "colours.png",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    require_promised("onnx_inference.py", done.stdout, tmp_path)


def require_promised(name: str, printed: str, folder: Path) -> None:
    """Check what a program printed, and that its images are not of one colour."""
    lines, images = EXPECTED[name]
    for line in lines:
        assert re.search(line, printed), f"{line!r} is not in:\n{printed}"
    for file in images:
        with Image.open(folder / file) as image:
            assert min(image.size) >= 64
            assert image.convert("L").getextrema()[0] < image.convert("L").getextrema()[1]


@pytest.mark.parametrize("name", FILES)
def test_an_example_needs_no_deep_import(name: str) -> None:
    assert not re.search(r"(from|import) dnlnet\.", (EXAMPLES / name).read_text())


def test_the_readme_lists_every_example() -> None:
    listed = re.findall(r"^\| \[(\w+\.py)\]", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == FILES
    assert sorted(EXPECTED) == FILES
