"""Every file of the packages has a licence, and the metadata name it."""

import runpy
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import dnlnet

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "licences.py"))


@pytest.fixture(scope="module")
def archives(script: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    built = script["build"](tmp_path_factory.mktemp("dist"))
    return {path.name.replace(f"-{dnlnet.__version__}", "").replace("-py3-none-any", ""): path for path in built}


def test_every_file_of_every_package_has_a_licence(script: dict[str, Any], archives: dict[str, Path]) -> None:
    """Both packages have the version of dnlnet."""
    assert set(archives) == {"dnlnet.whl", "dnlnet.tar.gz", "dnlnet_street.whl", "dnlnet_street.tar.gz"}
    for path in archives.values():
        rows, problems = script["check"](path)
        assert problems == []
        assert rows.keys() == script["read"](path).keys()


def test_dnlnet_may_be_used_commercially(script: dict[str, Any], archives: dict[str, Path]) -> None:
    for name in ("dnlnet.whl", "dnlnet.tar.gz"):
        rows, _ = script["check"](archives[name])
        assert not any("NC" in licence for licence, _ in rows.values())
    rows, _ = script["check"](archives["dnlnet.whl"])
    assert rows["dnlnet/bundled/pets.safetensors"][0] == "CC-BY-SA-4.0"
    street, _ = script["check"](archives["dnlnet_street.whl"])
    assert street["dnlnet_street/street.safetensors"][0] == "CC-BY-NC-4.0"


@pytest.mark.parametrize(
    ("removed", "added", "fact"),
    [
        (None, "dnlnet/bundled/new.bin", "dnlnet/bundled/new.bin has no licence"),
        ("licenses/LICENSES/CC0-1.0.txt", None, "text of CC0-1.0 is missing"),
        (
            "page/colours.json",
            None,
            "metadata state Apache-2.0 AND CC-BY-SA-4.0 AND CC0-1.0 AND MIT, its files CC-BY-SA-4.0",
        ),
    ],
)
def test_a_gap_is_found(
    removed: str | None,
    added: str | None,
    fact: str,
    script: dict[str, Any],
    archives: dict[str, Path],
    tmp_path: Path,
) -> None:
    content = script["read"](archives["dnlnet.whl"])
    path = tmp_path / archives["dnlnet.whl"].name
    with ZipFile(path, "w") as wheel:
        for name, text in content.items():
            if removed is None or not name.endswith(removed):
                wheel.writestr(name, text)
        if added is not None:
            wheel.writestr(added, b"")
    (problem,) = script["check"](path)[1]
    assert fact in problem


def test_the_texts_of_licences_are_the_same_in_both_packages() -> None:
    own = sorted((ROOT / "packages/street/LICENSES").iterdir())
    assert [path.name for path in own] == ["CC-BY-2.0.txt", "CC-BY-NC-4.0.txt"]
    assert all(path.read_bytes() == (ROOT / "LICENSES" / path.name).read_bytes() for path in own)
    assert (ROOT / "LICENSES/MIT.txt").read_bytes() == (ROOT / "LICENSE").read_bytes()
