"""Imports at first use, because torch takes seconds to import and some packages are optional."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from dnlnet.errors import missing_package

_PROVIDERS: dict[str, str] = {}


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose stub, `__init__.pyi`, lists its names.

    Type checkers read the same stub, so each name is declared once.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    places = {name.name: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for name in node.names}
    names = sorted(places)

    def find(name: str) -> Any:
        if name in places:
            return getattr(_load(str(places[name])), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, names.copy, names


def provide(name: str, module: str) -> None:
    """Register the module whose `name` a lower layer gets from `provided`."""
    _PROVIDERS[name] = module


def provided(name: str) -> Any:
    """Import what a higher layer provides under this name.

    >>> provide("floor", "math")
    >>> provided("floor")(2.5)
    2
    """
    return getattr(_load(_PROVIDERS[name]), name)


def _load(module: str) -> ModuleType:
    """Import a module; the error names the package to install if one that dnlnet needs is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dnlnet") or not str(error).startswith("No module named"):
            raise
        raise missing_package(error.name.partition(".")[0]) from None
