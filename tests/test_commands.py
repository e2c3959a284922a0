"""Commands of the documentation: each page's run in order, on small data, and all have the options they are given."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import timm
from PIL import Image
from safetensors.torch import save_file
from typer.main import get_command
from typer.testing import CliRunner

import dnlnet
from coco_trees import coco_folder_tree
from dnlnet.cli.main import app
from dnlnet.recipes.override import override
from dnlnet.registry import match_recipes
from trees import camvid_tree, folder_tree, oxford_pets_tree
from video_trees import numbered_frame, video_folder_tree, write_video

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]

# Options that make commands short. They follow a command's own and replace them.
SHORT = {
    r"train .*": "--iterations 1 --batch 2 --workers 0",
    r"train --data mine .*": "--set data.short_side=96 --set data.long_side=160",
    r"attend timm:.*": "--size 56",
    r"(profile|ablate) timm:.*": "--size 56 --layers 11",
}
# Commands that are not run, and why. Their options, recipes and settings are checked.
NOT_RUN = {
    r"dnlnet demo": "minutes; test_demo.py runs a short one",
    r"dnlnet study .*": "hours of training; test_study.py runs a short one",
    r".*torchrun .*": "several processes; test_distributed.py starts them",
    r"dnlnet train ucf6-.* --weights .*": "needs a file of weights",
    r"dnlnet train ucf6-.*of3 .*": "needs three groups of clips per class; test_ucf101.py opens folds",
    r"dnlnet (attend torchvision|explore transformers):.*": "downloads weights",
    r"dnlnet convert .*": "checkpoints of other code bases; tests/conversion has small ones",
    r"dnlnet predict dnl.safetensors .*": "the output of a conversion",
    r"dnlnet export .*|dnlnet .* --backend onnxruntime": "long; test_export.py and test_runtimes.py export",
    r"dnlnet verify --device cuda": "needs a GPU",
}


def commands(page: Path) -> list[str]:
    """Return the commands in the code blocks of a page, without comments and the list of commands in the README."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    code = "".join(lines for language, lines in blocks if language in ("", "bash")).replace("\\\n", "")
    lines = [re.sub(r" +# .*", "", line) for line in code.splitlines()]
    return [line for line in lines if re.search(r"\bdnlnet [a-z]", line) and not re.match(r"dnlnet \w+ {2,}", line)]


def mentions(page: Path) -> list[str]:
    """Return the commands in the text of a page, which may be incomplete."""
    found = re.findall(r"(?<!`)`dnlnet ([a-z][^`]*)`", page.read_text())
    return [mention.replace("\n", " ") for mention in found]


def reason(command: str) -> str | None:
    """Return why a command is not run."""
    return next((why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, command)), None)


def words(command: str) -> list[str]:
    """Return the arguments of a command as a shell expands them."""
    shown = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True)
    arguments = shown.stdout.split("\0")[:-1]
    return arguments[arguments.index("dnlnet") + 1 :]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with what a reader has, in miniature. It is the home and the current folder."""
    folder = tmp_path_factory.mktemp("home")
    with Image.open(dnlnet.PHOTOS[0]) as photo:
        for name in ("street.jpg", "photo.jpg", "cat.jpg", "chelsea.png", "photos/a.jpg", "images/a.jpg"):
            (folder / name).parent.mkdir(exist_ok=True)
            photo.resize((320, 240)).save(folder / name)
    write_video(folder / "holiday.mp4", [numbered_frame(number, (240, 320)) for number in range(12)])
    folder_tree(folder / "my_images")
    folder_tree(folder / "my_folder")
    camvid_tree(folder / "camvid")
    oxford_pets_tree(folder / "oxford_pets")
    coco_folder_tree(folder / "mine")
    video_folder_tree(folder / "my_videos")
    weights = timm.create_model("vit_small_patch14_dinov2").state_dict()
    save_file({name: tensor.half() for name, tensor in weights.items()}, folder / "vit_small_patch14.safetensors")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("HOME", str(folder))
        patched.setattr("dnlnet.backbones.bfloat16.has_bfloat16", lambda: True)
        yield folder


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> "Done":
    return Done(tmp_path_factory.mktemp("done"))


class Done:
    """Commands that pages share run once. Folders that they trained are kept for the other pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trained: dict[str, Path] = {}
        self.others: set[str] = set()

    def run(self, arguments: list[str], given: set[Path]) -> None:
        written = " ".join(arguments)
        extra = [word for pattern, short in SHORT.items() if re.fullmatch(pattern, written) for word in short.split()]
        out = Path(arguments[arguments.index("--out") + 1]) if arguments[0] == "train" else None
        key = " ".join(word for word in arguments if word != str(out))
        made = any(Path(word).exists() and Path(word).absolute() not in given for word in arguments)
        if out is not None and key in self.trained:
            shutil.copytree(self.trained[key], out)
        elif made or key not in self.others:
            result = CliRunner().invoke(app, [*arguments, *extra], catch_exceptions=False)
            assert result.exit_code == 0, f"dnlnet {shlex.join([*arguments, *extra])}\n{result.output}"
            self.others.add(key)
            if out is not None:
                self.trained[key] = shutil.copytree(out, self.folder / str(len(self.trained)))


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda p: p.name)
def test_the_commands_of_a_page_run_in_order(page: Path, home: Path, done: Done) -> None:
    given = {home, *home.iterdir()}
    try:
        for command in commands(page):
            if reason(command) is None:
                done.run(words(command), given)
    finally:
        for path in set(home.iterdir()) - given:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_commands_that_are_not_run_have_valid_options_recipes_and_settings() -> None:
    found = [command for page in PAGES for command in commands(page) if reason(command) is not None]
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, command) for command in found), f"{pattern} is not in the documentation"
    for command in found:
        name, *arguments = words(command)
        given = COMMANDS[name].make_context(name, arguments).params
        for recipe in [*(given.get("recipes") or []), *filter(None, [given.get("recipe")])]:
            for matched in match_recipes(recipe):
                override(matched, given["settings"] or [])


def test_commands_in_the_text_exist_with_their_options() -> None:
    found = [mention.split() for page in PAGES for mention in mentions(page)]
    assert len(found) > 50
    for name, *arguments in found:
        command = COMMANDS[name]
        while arguments and arguments[0] in getattr(command, "commands", {}):
            command = command.commands[arguments.pop(0)]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        options = {word.partition("=")[0] for word in arguments if re.match("--?[a-z]", word)}
        assert options <= known | {"-h", "--help"}, f"dnlnet {name} {' '.join(arguments)}"


def test_the_readme_lists_every_command() -> None:
    listed = re.findall(r"^dnlnet (\w+) {2,}\w", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(name for name, command in COMMANDS.items() if not command.hidden)
