"""List the licence and origin of every file in the packages, and fail if a file has none or the metadata lack one.

Without archives, build the wheels and source distributions of this repository first. REUSE.toml has the licences.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from zipfile import ZipFile

ROOT = Path(__file__).parent.parent
PROJECTS = {"dnlnet": "", "dnlnet_street": "packages/street/"}  # folder of each distribution
GENERATED = {".gitignore", "METADATA", "PKG-INFO", "RECORD", "WHEEL", "entry_points.txt"}
Licence = tuple[str, str]  # SPDX expression, origin


def main() -> None:
    """Print a row per file, and the problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", type=Path, nargs="*", help="wheels and source distributions")
    given = parser.parse_args()
    problems = []
    with TemporaryDirectory() as folder:
        for archive in given.archives or build(Path(folder)):
            rows, missing = check(archive)
            print(f"\n{archive.name}")
            for name, (licence, origin) in rows.items():
                print(f"  {licence:13} {name}  ({origin})")
            problems += [f"{archive.name}: {problem}" for problem in missing]
    if problems:
        sys.exit("\n".join(["", *problems]))
    print("\nEvery file has a licence, and the metadata of its package name it.")


def build(out: Path) -> list[Path]:
    """Build the wheel and source distribution of each project."""
    for folder in PROJECTS.values():
        command = [sys.executable, "-m", "hatchling", "build", "-d", out]
        subprocess.run(command, cwd=ROOT / folder, check=True, stdout=subprocess.DEVNULL)
    return sorted(out.iterdir())


def check(archive: Path) -> tuple[dict[str, Licence], list[str]]:
    """Return the licence of each file of an archive, and its problems."""
    content = read(archive)
    project = PROJECTS[archive.name.partition("-")[0]]
    annotations = tomllib.loads((ROOT / "REUSE.toml").read_text(encoding="utf-8"))["annotations"]
    rows: dict[str, Licence] = {}
    texts, used, problems = set(), set(), []
    for name in sorted(content):
        path = PurePosixPath(name)
        if path.name in GENERATED:
            rows[name] = "MIT", "written by the build"
        elif path.name == "LICENSE" or path.parent.name == "LICENSES":
            texts.add("MIT" if path.name == "LICENSE" else path.stem)
            rows[name] = "-", "text of a licence"
        else:
            source = project + ("src/" + name if archive.suffix == ".whl" else name.partition("/")[2])
            found = find_licence(source, annotations)
            if found is None:
                problems.append(f"{name} has no licence; add a row for {source} to REUSE.toml")
            else:
                rows[name] = found
                used.update(found[0].split(" AND "))
    if archive.suffix == ".whl":
        metadata = next(text for name, text in content.items() if name.endswith(".dist-info/METADATA"))
        stated = set(message_from_bytes(metadata)["License-Expression"].split(" AND "))
        if stated != used:
            problems.append(
                f"its metadata state {' AND '.join(sorted(stated))}, its files {' AND '.join(sorted(used))}"
            )
        problems += [f"the text of {licence} is missing; add it to license-files" for licence in sorted(used - texts)]
    return rows, problems


def read(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel or source distribution."""
    if archive.suffix == ".whl":
        with ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as source:
        return {one.name: stream.read() for one in source if (stream := source.extractfile(one)) is not None}


def find_licence(path: str, annotations: list[dict[str, object]]) -> Licence | None:
    """Return the licence and origin that the last matching annotation states."""
    for row in reversed(annotations):
        if any(re.fullmatch(expression(pattern), path) for pattern in listed(row["path"])):
            return str(row["SPDX-License-Identifier"]), "; ".join(listed(row["SPDX-FileCopyrightText"]))
    return None


def listed(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def expression(pattern: str) -> str:
    """Return the regular expression of a pattern in which * matches all but slashes, and ** everything."""
    parts = re.split(r"(\*+)", pattern)
    return "".join({"*": "[^/]*", "**": ".*"}.get(part, re.escape(part)) for part in parts)


if __name__ == "__main__":
    main()
