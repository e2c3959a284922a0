"""One way to say that a name is not known."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """An error that names what came, the nearest known names, and all of them when they are few.

    >>> str(unknown("variant", "dnll", ["dnl", "gc"]))
    "unknown variant 'dnll'; did you mean 'dnl'? known: dnl, gc"
    """
    names = list(known)
    near = get_close_matches(str(name), names, n=3)
    message = f"unknown {kind} {name!r}"
    if near:
        message += "; did you mean " + " or ".join(map(repr, near)) + "?"
    if len(names) <= 16:
        message += f"{'' if near else ';'} known: {', '.join(names)}"
    elif not near:
        message += f"; known names start with: {', '.join(names[:8])}, ..."
    return ValueError(message)
