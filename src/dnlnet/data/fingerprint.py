"""Fingerprint of the data of a run, independent of where they are stored."""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

# File of a data set, and its labels: a class, boxes, or the `sampled` content and the decoder of a mask.
Listed = tuple[Path, Any]
_PART = 1024  # bytes


def fingerprint(files: Iterable[Listed], root: Path, classes: Sequence[str]) -> dict[str, Any]:
    """Return the number of files, the names of the classes, and checksums of the files and labels.

    Files are identified by size and by name relative to the data set's folder, which may be moved or copied. Images
    are not read, because that would take as long as an epoch.

    Args:
        files: Files in the order of the samples.
        root: Folder of the data set.
        classes: Names of the classes 0..K - 1.

    >>> a = fingerprint([(Path("/data/a.jpg"), 1)], Path("/data"), ["sky", "road"])
    >>> a == fingerprint([(Path("/b/a.jpg"), 1)], Path("/b"), ["sky", "road"])
    True
    >>> b = fingerprint([(Path("/data/a.jpg"), 0)], Path("/data"), ["sky", "road"])
    >>> [key for key in a if a[key] != b[key]]
    ['labels']
    """
    names, labels, count = sha256(), sha256(), 0
    for count, (path, about) in enumerate(files, start=1):  # noqa: B007
        name = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
        size = path.stat().st_size if path.is_file() else None  # the size of a folder depends on the file system
        names.update(json.dumps([name.as_posix(), size, None]).encode() + b"\n")
        labels.update(json.dumps(about).encode() + b"\n")
    return {
        "files": count,
        "sha256": names.hexdigest()[:16],
        "classes": list(classes),
        "labels": labels.hexdigest()[:16],
    }


def sampled(path: Path) -> str:
    """Return a checksum of the beginning, the middle and the end of a file.

    The end of a PNG contains a checksum of its pixels, so this detects any change of a mask.

    >>> sampled(Path("/dev/null"))
    'e3b0c44298fc1c14'
    """
    digest = sha256()
    with path.open("rb") as file:
        size = file.seek(0, 2)
        for start in (0, (size - _PART) // 2, size - _PART):
            file.seek(max(0, start))
            digest.update(file.read(_PART))
    return digest.hexdigest()[:16]
