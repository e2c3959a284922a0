"""Which data a run was started on, without a word of where they lie."""

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

# A file of a data set, and what is known about it from elsewhere, such as a list of classes.
Listed = tuple[Path, Any]


def fingerprint(files: Iterable[Listed], root: Path) -> dict[str, Any]:
    """The number of files and a checksum over their names in the data set's folder, sizes and annotations, in order.

    The folder may be moved or copied. What is inside the files is not read: that would take as long as an epoch.

    Args:
        files: in the order that samples are drawn from.
        root: folder of the data set.

    >>> fingerprint([(Path("/data/a.jpg"), 3)], Path("/data")) == fingerprint([(Path("/b/a.jpg"), 3)], Path("/b"))
    True
    >>> fingerprint([], Path("/data"))
    {'files': 0, 'sha256': 'e3b0c44298fc1c14'}
    """
    digest, count = sha256(), 0
    for count, (path, about) in enumerate(files, start=1):  # noqa: B007
        name = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
        size = path.stat().st_size if path.is_file() else None  # that of a folder is the file system's own affair
        digest.update(json.dumps([name.as_posix(), size, about]).encode() + b"\n")
    return {"files": count, "sha256": digest.hexdigest()[:16]}
