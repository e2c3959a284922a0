"""Shared settings: one thread per worker, and the folder of real data."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from dnlnet import registry
from dnlnet.backbones import BACKBONES
from dnlnet.recipes.override import override
from dnlnet.registry import find_recipe
from dnlnet.runs.train import train

# Two pytest workers with two threads each would mostly wait for each other.
torch.set_num_threads(1)


# Files whose tests train, start processes or browsers, or try hundreds of cases; `make quick` skips them. The slowest
# files come first and start first, so that no worker of a parallel run is left alone with one at the end.
SLOW = (
    "detection/test_recipe.py",
    "engine/test_distributed.py",
    "engine/test_hosts.py",
    "runs/test_export.py",
    "deployment/test_runtimes.py",
    "video/test_recipe.py",
    "runs/test_train.py",
    "test_notebooks.py",
    "segmentation/test_recipe.py",
    "cli/commands/test_demo.py",
    "test_examples.py",
    "test_bundled.py",
    "test_commands.py",
    "test_docs.py",
    "segmentation/test_frozen.py",
    "runs/test_study.py",
    "runs/test_other_systems.py",
    "runs/test_demo.py",
    "lens/show/test_explorer.py",
    "lens/show/test_page_browser.py",
    "engine/test_train.py",
    "campaign/test_campaign.py",
    "fuzz/test_fuzz_settings.py",
    "fuzz/test_fuzz_data.py",
    "bench/test_equalities.py",
    "test_registry.py",
    "detection/test_network.py",
    "cli/test_main.py",
    "attention/test_contexts.py",
    "backbones/test_image.py",
    "bench/test_block.py",
    "attention/test_insert_elsewhere.py",
    "attention/test_cost.py",
    "deployment/test_portable_attention.py",
    "cli/commands/test_attend.py",
    "test_site.py",
    "benchmarks/test_train.py",
    "lens/show/test_figures.py",
    "bench/test_predict.py",
    "artifacts/test_load.py",
    "benchmarks/test_export.py",
    "runs/test_predict.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Handle Ctrl-C; use vector instructions where a processor reports matrix tiles (AMX) but stops their users."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs of scripts
    if hasattr(config, "workerinput"):  # a worker of a parallel run, which inherits the variables
        return
    processor = Path("/proc/cpuinfo")
    if not processor.exists() or "amx" not in processor.read_text():  # the check imports torch, which takes seconds
        return
    product = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    if subprocess.run([sys.executable, "-c", product], capture_output=True).returncode == -signal.SIGILL:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files, and run them first."""
    place = {str(Path(__file__).parent / name): number for number, name in enumerate(SLOW)}
    if lost := [path for path in place if not Path(path).exists()]:
        raise pytest.UsageError(f"tests/conftest.py: SLOW names files that do not exist: {', '.join(lost)}")
    for item in items:
        if str(item.path) in place:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: place.get(str(item.path), len(SLOW)))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder named by DNLNET_DATA. Without it, tests on real data are skipped."""
    folder = os.environ.get("DNLNET_DATA")
    if not folder:
        pytest.skip("real data not found: set DNLNET_DATA to its folder")
    return Path(folder)


def _train(folder: Path, recipe: str) -> Path:
    settings = ["data.crop=[32, 32]", "schedule.batch=4", "schedule.iterations=20", "training.evaluate_every=20"]
    train(override(find_recipe(recipe), settings), None, folder)
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of a tiny network with a DNL block."""
    return _train(tmp_path_factory.mktemp("models") / "dnl", "scenes-tiny-dnl")


@pytest.fixture(scope="session")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of a tiny network with the standard block."""
    return _train(tmp_path_factory.mktemp("models") / "nl", "scenes-tiny-nl")


@pytest.fixture
def registries() -> Iterator[None]:
    """Undo registrations after each test."""
    known = [registry.TASKS, registry.RECIPES, BACKBONES, *(one.data_sets for one in registry.TASKS.values())]
    before = [dict(rows) for rows in known]
    yield
    for rows, content in zip(known, before, strict=True):
        rows.clear()
        rows.update(content)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Return the address of a server for the files in the test's folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a real headless browser, or skip the test if there is none.

    It closes with its module, because forked processes such as data loading workers would keep it open.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="browser not found: install playwright")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("browser not found: install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
