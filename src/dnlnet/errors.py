"""One way to say that a name is not known, that a package is not there, and what a file holds instead."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """An error that names what came, the nearest known names, and all of them when they are few.

    >>> str(unknown("variant", "dnll", ["dnl", "gc"]))
    "unknown variant 'dnll'; did you mean 'dnl'? known: dnl, gc"
    """
    names = list(known)
    near = get_close_matches(str(name), names, n=3) if isinstance(name, str) else []
    message = f"unknown {kind} {shown(name)}"
    if near:
        message += "; did you mean " + " or ".join(map(repr, near)) + "?"
    if len(names) <= 16:
        message += f"{'' if near else ';'} known: {', '.join(names)}"
    elif not near:
        message += f"; known names start with: {', '.join(names[:8])}, ..."
    return ValueError(message)


def load_extra(module: str, extra: str) -> Any:
    """A module of a package that is installed only with an extra of this one.

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
        text = f'{package} is not installed; install it with: pip install "dnlnet[{extra}]"'
        raise ModuleNotFoundError(text, name=package) from None


def shown(value: object) -> str:
    """A value from a file as a message quotes it, cut off if it is long.

    >>> shown(None), shown("sky"), shown([1, 2])
    ('nothing', "'sky'", '[1, 2]')
    """
    if value is None:
        return "nothing"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of too many digits, lists in lists without end
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
