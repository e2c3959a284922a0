"""Options that a user gave."""

from typing import Any


def given(**options: Any) -> dict[str, Any]:
    """Those of the options that are not None.

    >>> given(window=None, flip=False)
    {'flip': False}
    """
    return {name: value for name, value in options.items() if value is not None}
