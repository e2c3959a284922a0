"""Shared error messages: unknown names, missing packages, quoted values."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from reprlib import Repr
from typing import Any

_LONGEST = 60  # characters of a value in a message
_SHOWN_DEPTH, _SHOWN_ITEMS = 4, 20


class TooMuchWorkError(ValueError):
    """Error for settings, as a model file may hold, that would need hours for one image."""


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """Return an error with the unknown name, the nearest known names, and all of them if they are few.

    >>> str(unknown("variant", "dnll", ["dnl", "gc"]))
    "unknown variant 'dnll'; did you mean 'dnl'? known: dnl, gc"
    """
    names = list(known)
    near = suggestion(name, names)
    message = f"unknown {kind} {shown(name)}{near}"
    if len(names) <= 16:
        message += f"{'' if near else ';'} known: {', '.join(names)}"
    elif not near:
        message += f"; known names start with: {', '.join(names[:8])}, ..."
    return ValueError(message)


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the nearest known names, or "" if none is near.

    >>> suggestion("streat", ["street"])
    "; did you mean 'street'?"
    """
    near = get_close_matches(name, list(known), n=3) if isinstance(name, str) else []
    return "; did you mean " + " or ".join(map(repr, near)) + "?" if near else ""


def require_printable(path: Path, names: Iterable[str]) -> None:
    """Refuse a file whose tensor names have control characters, because messages quote them.

    >>> require_printable(Path("a.pth"), ["a.weight", "b\\x1b[31m"])
    Traceback (most recent call last):
    ValueError: a.pth: has a tensor named 'b\\x1b[31m'; expected names without control characters
    """
    for name in names:
        if not name.isprintable():
            raise ValueError(f"{path}: has a tensor named {shown(name)}; expected names without control characters")


def load_extra(module: str, extra: str) -> Any:
    """Import a module of an optional dependency; if it is missing, the error names the extra to install.

    >>> load_extra("no_such_package.mask", "detection")
    Traceback (most recent call last):
    ModuleNotFoundError: no_such_package is not installed; install it with: pip install "dnlnet[detection]"
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise missing_package(package, extra) from None


def require_package(module: str, extra: str) -> None:
    """Raise an error that names the extra to install if an optional dependency is missing; import nothing.

    >>> require_package("no_such_package", "detection")
    Traceback (most recent call last):
    ModuleNotFoundError: no_such_package is not installed; install it with: pip install "dnlnet[detection]"
    """
    if find_spec(module) is None:
        raise missing_package(module, extra)


def missing_package(package: str, extra: str | None = None) -> ModuleNotFoundError:
    """Return an error that says how to install a package of an extra, or one of those that dnlnet always needs.

    >>> str(missing_package("timm"))
    'timm is not installed; install it with: pip install dnlnet'
    """
    target = "dnlnet" if extra is None else f'"dnlnet[{extra}]"'
    return ModuleNotFoundError(f"{package} is not installed; install it with: pip install {target}", name=package)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means out of memory, for which PyTorch raises a RuntimeError on CPUs.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")), is_out_of_memory(KeyError("a"))
    (True, False)
    """
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # without importing torch
    return named or "allocate memory" in str(error) or "out of memory" in str(error)


def is_lost_connection(error: Exception) -> bool:
    """Return whether an error means that another process of a group ended or cannot be reached.

    >>> is_lost_connection(RuntimeError("[gloo/transport/tcp/pair.cc:545] Read error: Connection reset by peer"))
    True
    """
    named = type(error).__name__ in ("DistBackendError", "DistNetworkError", "DistStoreError")
    return named or (isinstance(error, RuntimeError) and "gloo/" in str(error))


def shown(value: object) -> str:
    """Format a value from a file for a message, shortened if it is long or deeply nested.

    >>> shown(None), shown("sky"), shown([1, 2]), shown({"b": 1, "a": [[]]})
    ('nothing', "'sky'", '[1, 2]', "{'b': 1, 'a': [[]]}")
    """
    if value is None:
        return "nothing"
    try:
        text = _short.repr(value)
    except ValueError:  # a number of too many digits
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class _Short(Repr):
    """`repr` with limited items and depth, because a file can hold any number of both."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = _SHOWN_DEPTH
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = _SHOWN_ITEMS
        self.maxstring = self.maxlong = self.maxother = 4 * _LONGEST

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Keep the order of the file; `Repr` would sort."""
        if x and level <= 0:
            return "{...}"
        parts = [
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
            for key, value in islice(x.items(), self.maxdict)
        ]
        return "{" + ", ".join(parts) + "}"


_short = _Short()
