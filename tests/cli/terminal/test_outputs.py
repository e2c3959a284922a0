"""Commands never overwrite inputs, devices or links, and foreign files only with --force."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from dnlnet.bundled import MODELS
from dnlnet.cli.main import app
from dnlnet.cli.terminal.outputs import KINDS

STREET = MODELS["street"].file
FOLDERS = {"demo", "train", "predict", "attend", "study"}  # commands whose --out is a folder


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    error = done.exception if done.exception is not None and not isinstance(done.exception, SystemExit) else ""
    return done.exit_code, f"{done.output}{error}"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 64, 3)).astype(np.uint8)).save(path)
    return path


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Folder of a run with the files that `dnlnet train` writes."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("best.safetensors", "last.safetensors"):
        (folder / name).write_bytes(STREET.read_bytes())
    (folder / "run.yaml").write_text("{recipe: {}, seed: 0}\n")
    (folder / "log.jsonl").write_text('{"event": "train", "iteration": 1}\n')
    return folder


def commands() -> dict[str, Any]:
    group = typer.main.get_command(app)
    found: dict[str, Any] = {}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        parts = getattr(command, "commands", None)
        found.update({name: command} if parts is None else {f"{name} {part}": parts[part] for part in parts})
    return found


def test_every_command_that_writes_a_file_checks_it() -> None:
    inputs = {"data", "weights", "config", "file", "pictures", "directory", "images", "cache", "unpack"}
    for name, command in commands().items():
        options = {option.name: option for option in command.params}
        paths = {key for key, option in options.items() if getattr(option, "metavar", "") in ("FILE", "PNG", "HTML")}
        files = {key for key in options if key in KINDS and not (key == "out" and name in FOLDERS)}
        assert paths <= files | inputs, f"{name}: {paths - files - inputs} is neither an input nor checked"
        assert not files or "force" in options, f"{name} writes {files} unchecked"


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors"])
def test_export_never_overwrites_the_model_of_a_run(trained: Path, name: str) -> None:
    before = (trained / name).read_bytes()
    for force in ([], ["--force"]):
        code, said = run("export", trained, "--format", "safetensors", "--half", "-o", trained / name, *force)
        assert code != 0
        assert f"--out {trained / name}" in said
    code, said = run("export", trained / "best.safetensors", "--format", "safetensors", "-o", trained / name)
    assert code != 0
    assert (trained / name).read_bytes() == before


@pytest.mark.parametrize("name", ["run.yaml", "log.jsonl", "best.safetensors"])
def test_scores_never_overwrite_a_file_of_the_run(trained: Path, name: str) -> None:
    before = (trained / name).read_bytes()
    code, said = run("eval", trained, "--json", trained / name, "--force")
    assert code != 0
    assert f"--json {trained / name}" in said
    assert (trained / name).read_bytes() == before


def test_a_page_never_overwrites_its_image(image: Path) -> None:
    before = image.read_bytes()
    code, said = run("attend", "street", image, "--page", image, "--force")
    assert code != 0
    assert f"--page {image}: " in said
    assert image.read_bytes() == before


def test_figures_never_overwrite_their_images(image: Path) -> None:
    before = image.read_bytes()
    code, said = run("attend", "street", image, "-o", image.parent, "--force")
    assert code != 0
    assert f"{image}: " in said
    assert image.read_bytes() == before


def test_figures_overwrite_only_figures(image: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.pdf").write_bytes(b"%PDF-1.4 my thesis")
    code, said = run("attend", "street", image, "-o", out)
    assert code != 0
    assert f"{out / 'a.pdf'}: " in said
    assert (out / "a.pdf").read_bytes() == b"%PDF-1.4 my thesis"
    assert run("attend", "street", image, "-o", out, "--page", out / "a.html", "--force")[0] == 0
    assert run("attend", "street", image, "-o", out, "--page", out / "a.html")[0] == 0


@pytest.mark.parametrize("content", ['{"name": "mine"}', '{\n  "name": "mine"\n}\n', "mine", ""])
def test_a_foreign_file_is_overwritten_only_with_force(tmp_path: Path, content: str) -> None:
    path = tmp_path / "package.json"
    path.write_text(content)
    code, said = run("info", "street", "--json", path)
    assert code != 0
    assert f"--json {path}" in said
    assert "--force" in said
    assert path.read_text() == content
    for force in (["--force"], []):  # the file is then a result
        assert run("info", "street", "--json", path, *force)[0] == 0
    assert json.loads(path.read_text())["recipe"]


def test_an_invalid_output_path_is_refused_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnlnet.artifacts.model_file.find_model", pytest.fail)
    (tmp_path / "file").touch()
    for place, obstacle in ((tmp_path, tmp_path), (tmp_path / "file" / "a.json", tmp_path / "file")):
        code, said = run("eval", "street", "--json", place)
        assert code != 0
        assert f"--json {place}: " in said
        assert str(obstacle) in said
    code, said = run("eval", "street", "--json", tmp_path / "a", "--picture", tmp_path / "a")
    assert code != 0
    assert "--json" in said


def test_links_are_followed(tmp_path: Path) -> None:
    link, target = tmp_path / "link.json", tmp_path / "folder" / "target.json"
    target.parent.mkdir()
    link.symlink_to(target)
    for _ in range(2):
        assert run("info", "street", "--json", link)[0] == 0
        assert link.is_symlink()
        assert json.loads(target.read_text())["recipe"]


def test_a_link_to_an_input_counts_as_that_input(trained: Path, tmp_path: Path) -> None:
    link = tmp_path / "model.safetensors"
    link.symlink_to(trained / "best.safetensors")
    before = (trained / "best.safetensors").read_bytes()
    code, said = run("export", trained / "best.safetensors", "--format", "safetensors", "-o", link, "--force")
    assert code != 0
    assert f"--out {link}: " in said
    assert (trained / "best.safetensors").read_bytes() == before


def standard_output(path: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "dnlnet", "info", "street", "--json", path]
    return subprocess.run(command, text=True, stderr=subprocess.PIPE, **options)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="devices of Unix")
def test_devices_and_pipes_are_written_to_and_kept(tmp_path: Path) -> None:
    before = {name: os.lstat(name) for name in ("/dev/stdout", "/dev/null")}
    for path in ("-", "/dev/stdout", "/dev/fd/1"):
        done = standard_output(path, stdout=subprocess.PIPE)
        assert json.loads(done.stdout)["recipe"], path
        assert "written" in done.stderr
    assert standard_output("/dev/null", stdout=subprocess.DEVNULL).returncode == 0
    with (tmp_path / "shell.txt").open("w") as shell:  # dnlnet ... --json /dev/stdout >> shell.txt
        print("before", file=shell, flush=True)
        standard_output("/dev/stdout", stdout=shell)
    assert (tmp_path / "shell.txt").read_text().startswith("before\n{")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    assert standard_output(str(pipe), stdout=subprocess.DEVNULL).returncode == 0
    assert json.loads(reader.communicate()[0])["recipe"]
    assert pipe.is_fifo()
    for name, status in before.items():
        assert (os.lstat(name).st_ino, os.lstat(name).st_mode) == (status.st_ino, status.st_mode), name
