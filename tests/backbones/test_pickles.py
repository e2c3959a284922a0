"""Weight files that ask for far more work than their size are refused with one sentence, before the work starts."""

import pickle
import zipfile
from copy import copy
from pathlib import Path

import pytest
import torch

from dnlnet.backbones import read_state_dict
from dnlnet.conversion.converting import read

TENSORS = {"a.weight": torch.ones(2, 3)}
FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before PyTorch 1.6"])


def saved(path: Path, content: object, zipped: bool = True) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


def refused(path: Path, match: str) -> None:
    """Assert that both readers of foreign files refuse the file with one sentence."""
    for reader in (read, read_state_dict):
        with pytest.raises(ValueError, match=match) as caught:
            reader(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


def repack(path: Path, kind: int, replaced: dict[str, bytes]) -> Path:
    """Copy an archive, replacing the content of some records."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in records.items():
            archive.writestr(name, replaced.get(Path(name).name, content))
    return path


def test_records_that_unpack_to_more_than_the_file_are_refused(tmp_path: Path) -> None:
    path = repack(saved(tmp_path / "a.pth", TENSORS), zipfile.ZIP_DEFLATED, {"0": bytes(10_000_000)})
    assert path.stat().st_size < 20_000
    refused(path, r"unpacks to 10,00\d,\d{3} bytes, but has \d+,\d{3}; expected records as PyTorch writes them")


def test_records_that_overlap_are_refused(tmp_path: Path) -> None:
    """Many directory entries point to the same bytes."""
    path = repack(saved(tmp_path / "a.pth", TENSORS), 0, {"0": bytes(1_000_000)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a/b", "")
        largest = max(archive.filelist, key=lambda entry: entry.file_size)
        for number in range(1, 10):
            entry = copy(largest)
            entry.filename = f"{largest.filename[:-1]}{number}"
            archive.filelist.append(entry)
    refused(path, r"unpacks to 10,00\d,\d{3} bytes, but has 1,00\d,\d{3}")


def tuples(depth: int, *, twice: bool) -> bytes:
    """Return a pickled dictionary whose key is a nested tuple with one or two items per level."""
    return b"\x80\x02})" + depth * (b"q\x00h\x00\x86" if twice else b"\x85") + b"K\x01s."


@pytest.mark.parametrize("twice", [True, False])
def test_deeply_nested_tuple_keys_are_refused(twice: bool, tmp_path: Path) -> None:
    """Keys are hashed: one file takes 2^60 steps, the other crashes the interpreter by recursion."""
    content = tuples(60 if twice else 300_000, twice=twice)
    refused(repack(saved(tmp_path / "a.pth", TENSORS), 0, {"data.pkl": content}), "values in it .* tuples")
    first = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {})]
    (tmp_path / "b.pth").write_bytes(b"".join([*first, content]))
    refused(tmp_path / "b.pth", "values in it .* tuples")
    (tmp_path / "c.pth").write_bytes(b"".join([*first, pickle.dumps({}, 2), content]))  # used as keys of the data
    refused(tmp_path / "c.pth", "values in it .* tuples")


@FORMATS
def test_byte_counts_set_by_the_file_are_refused(zipped: bool, tmp_path: Path) -> None:
    """PyTorch calls bytearray with any number the file contains, such as 10^10."""
    refused(saved(tmp_path / "a.pth", {"state_dict": TENSORS, "meta": bytearray(8)}, zipped), "bytearray")


@FORMATS
@pytest.mark.parametrize("kind", ["expanded", "sparse", "shared", "without data"])
def test_tensors_larger_than_their_data_are_refused(kind: str, zipped: bool, tmp_path: Path) -> None:
    tensors = {
        "expanded": {"a": torch.zeros(1).expand(1_000_000, 1_000_000)},
        "sparse": {"a": torch.sparse_coo_tensor([[0]], [1.0], (1_000_000_000,), check_invariants=True)},
        "without data": {"a": torch.zeros(2, device="meta")},
        "shared": dict.fromkeys(map(str, range(1000)), torch.zeros(100_000)),
    }
    refused(saved(tmp_path / "a.pth", tensors[kind], zipped), r"its tensors take \d[\d,]* bytes, but the file has")


def test_tied_weights_are_read(tmp_path: Path) -> None:
    weight = torch.ones(100, 100)
    state = read_state_dict(saved(tmp_path / "a.pth", {"a": weight, "b": weight}))
    torch.testing.assert_close(state, {"a": weight, "b": weight})


def test_ordinary_checkpoints_are_far_below_the_limits(tmp_path: Path) -> None:
    names = tuple(f"class {number}" for number in range(20_000))
    content = {"state_dict": TENSORS, "meta": {"CLASSES": names, "sizes": {(1, (2, 3)): names}}}
    assert read(saved(tmp_path / "a.pth", content)).meta["CLASSES"] == names
