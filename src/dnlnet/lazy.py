"""Imports at first use, so that nobody waits for torch, or needs a package, without using it."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from dnlnet.errors import missing_package

_PROVIDERS: dict[str, str] = {}


def importer(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, which finds each name in its module; names are separated by spaces.

    >>> importer("a", {"math": "sqrt floor"})("floor")(2.5)
    2
    >>> importer("a", {"math": "sqrt floor"})("root")
    Traceback (most recent call last):
    AttributeError: module 'a' has no attribute 'root'
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in places:
            return getattr(_load(places[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


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
