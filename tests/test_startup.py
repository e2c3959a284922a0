"""Fast start-up: loading and predicting import no package, and compute nothing, that they do not need."""

import subprocess
import sys
from pathlib import Path

import pytest

from dnlnet.bundled import MODELS, PHOTOS

# Each takes a large part of the time that torch takes to import.
SLOW = ("torchvision", "timm", "matplotlib", "scipy", "IPython", "sympy", "torch._dynamo", "torch._inductor")


def imported(code: str, *arguments: object) -> set[str]:
    """Run code in a fresh interpreter and return the slow packages that it imported."""
    ending = f"import sys; print(*sorted(set({SLOW}) & set(sys.modules)), sep='\\n', file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{ending}", *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split()) & set(SLOW)


@pytest.mark.parametrize("model", MODELS)
def test_load_and_predict_import_no_slow_packages(model: str) -> None:
    code = "import sys, dnlnet; dnlnet.load(sys.argv[1]).predict(sys.argv[2]).overlay()"
    assert imported(code, model, PHOTOS[0]) == set()


def test_commands_import_no_slow_packages(tmp_path: Path) -> None:
    code = "import sys; from dnlnet.cli.main import app; app(standalone_mode=False)"
    model = next(iter(MODELS))
    assert imported(code, "predict", model, PHOTOS[0], "-o", tmp_path / "predicted") == set()
    page = tmp_path / "page.html"
    assert imported(code, "attend", model, PHOTOS[0], "--page", page) == set()
    assert page.exists()
