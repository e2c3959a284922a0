"""Checks of the files that commands write. They run first, so that no input or foreign file is lost."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, redirect_stdout
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from dnlnet.files import ResultKind, is_result, is_stream, stream_descriptor

KINDS: Mapping[str, ResultKind] = {  # by option
    "json": "json",
    "results": "json",
    "page": "page",
    "picture": "figure",
    "out": "model",
}
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that dnlnet did not write.")]


def writes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: add --force, and check the files that these options name before it runs.

    For the file `-`, the result goes to standard output, and everything else that is printed to standard error.
    """

    def checked(command: Callable[..., None]) -> Callable[..., None]:
        parameters = dict(signature(command).parameters)
        own_force = "force" in parameters

        @wraps(command)
        def run(**values: Any) -> None:
            force = values["force"] if own_force else values.pop("force")
            files = {name: values[name] for name in names if values[name] is not None}
            _require_writable(files, [values[name] for name in values if name not in names], force)
            aside = any(stream_descriptor(path) == 1 for path in files.values())
            with redirect_stdout(sys.stderr) if aside else nullcontext():
                command(**values)

        if not own_force:
            parameters["force"] = Parameter("force", Parameter.KEYWORD_ONLY, default=False, annotation=Force)
            run.__annotations__ = {**command.__annotations__, "force": Force}
        run.__signature__ = signature(command).replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
        return run

    return checked


def written(path: Path) -> str:
    """Return a message that names a written file and its size."""
    return f"written: {path}" if is_stream(path) else f"written: {path} ({path.stat().st_size / 1e6:.1f} MB)"


def write_result(path: Path | None, content: object) -> None:
    """Write the result of a command to its JSON file, if there is one."""
    from dnlnet.files import write_json

    if path is not None:
        write_json(path, content)
        typer.echo(f"written: {path}")


def _require_writable(files: Mapping[str, Path], others: list[Any], force: bool) -> None:
    """Raise if writing a file would destroy an input or, without `force`, a foreign file."""
    inputs = [path for value in others for path in _paths(value)]
    places: dict[Path, str] = {}
    for name, path in files.items():
        option = f"--{name} {path}"
        if is_stream(path):
            continue
        real = path.resolve()
        if real in places:
            raise ValueError(f"{option}: is also the file of --{places[real]}; give two different files")
        places[real] = name
        if real.is_dir():
            raise ValueError(f"{option}: is a folder; expected a file")
        _require_folder(option, real.parent)
        if real.exists():
            _require_ours(option, real, KINDS[name], inputs, force)


def _paths(value: Any) -> Iterator[Path]:
    """Yield the files and folders among the values of an option."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, str | Path) and os.path.exists(one):
            yield Path(one).resolve()


def _require_folder(option: str, folder: Path) -> None:
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise ValueError(f"{option}: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{option}: no permission to write to the folder {folder}")


def _require_ours(option: str, path: Path, kind: ResultKind, inputs: list[Path], force: bool) -> None:
    """Raise if an existing file is an input, part of an input folder or run, or not a result of this kind."""
    from dnlnet.runs.run_folder import RUN_FILE

    if path in inputs:
        raise ValueError(f"{option}: is an input of this command; choose another file")
    ours = is_result(path, kind)
    for folder in [*inputs, *([path.parent] if (path.parent / RUN_FILE).exists() else [])]:
        if folder in path.parents and (kind == "model" or not ours):
            raise ValueError(f"{option}: is part of {folder}; choose another file")
    if not ours and not force:
        raise ValueError(f"{option}: exists and was not written by dnlnet; choose another file, or add --force")
