"""The notebooks run from top to bottom and are committed with their outputs."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
WEIGHTS = "weights/vit_small_patch14_imgfocus_fp16.safetensors"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from Jupyter's own packages
def test_notebooks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all notebooks in one kernel, because each kernel would import torch; each starts without names."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("ITERATIONS", "5")  # short, with a poor model
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    if not Path(os.environ.get("DNLNET_DATA", "."), WEIGHTS).is_file():
        monkeypatch.setenv("WEIGHTS", "none")
    together = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    for name in NOTEBOOKS:
        notebook = nbformat.read(FOLDER / name, as_version=4)  # type: ignore[no-untyped-call]
        together.cells += [*notebook.cells, nbformat.v4.new_code_cell("%reset -f")]  # type: ignore[no-untyped-call]
    NotebookClient(together, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_committed_with_outputs_and_without_local_paths(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    first = next(cell.source for cell in notebook.cells if cell["cell_type"] == "code")
    assert re.search(r'is None:\n    %pip install -q (dnlnet|"dnlnet\[\w+\]")$', first)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs)
    assert [cell["execution_count"] for cell in notebook.cells if cell["cell_type"] == "code"] == list(
        range(1, 1 + sum(cell["cell_type"] == "code" for cell in notebook.cells))
    )
    assert not re.search(r"(?<![\w.])/(home|root|tmp|usr|opt|Users|var)/", text)
