"""Names of a package that are imported on first use, so that `dnlnet --help` does not wait for torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def importer(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names are in these modules, given with spaces between them.

    >>> importer("a", {"math": "sqrt floor"})("floor")(2.5)
    2
    >>> importer("a", {"math": "sqrt floor"})("root")
    Traceback (most recent call last):
    AttributeError: module 'a' has no attribute 'root'
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in places:
            return getattr(import_module(places[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
