"""Which files a split of a data set consists of, where a list file says so; and where the data set's folder is."""

from collections.abc import Mapping
from pathlib import Path

from dnlnet.data.files import text_lines
from dnlnet.data.labelled import IMAGE_SUFFIXES, Pair, Problem, composed_keys


def inside(root: Path, *names: str) -> Path:
    """The first of these folders that is in `root`, else `root` itself: users give either.

    >>> inside(Path("/nowhere"), "VOC2010")
    PosixPath('/nowhere')
    """
    return next((root / name for name in names if (root / name).is_dir()), root)


def pair_listed(
    list_file: Path, images: Mapping[str, Path], labels: Mapping[str, Path]
) -> tuple[list[Pair], list[Problem]]:
    """Pairs of the files named by a list file, in its order, and a problem for each line that does not fit.

    The first word of a line counts, without its folder and picture suffix: lists are often made for another root.

    Args:
        list_file: one picture for each line.
        images: stem -> image.
        labels: stem -> label file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "train.txt").write_text("/old/a.png /old/labels/a.png")
    ...     pair_listed(Path(folder) / "train.txt", {"a": Path("a.jpg")}, {"a": Path("a.png")})
    ([Pair(image=PosixPath('a.jpg'), labels=PosixPath('a.png'))], [])
    """
    pairs: list[Pair] = []
    (images, problems), (labels, more) = composed_keys(images), composed_keys(labels)
    problems += more
    seen: dict[str, int] = {}
    for number, line in text_lines(list_file):
        stem = _stem(line.split()[0])
        if stem in seen:
            problems.append(Problem(list_file, f"line {number} names {stem} again, after line {seen[stem]}"))
            continue
        seen[stem] = number
        missing = [kind for kind, files in (("image", images), ("label file", labels)) if stem not in files]
        problems += [Problem(list_file, f"line {number} names {stem}, which has no {kind}") for kind in missing]
        if not missing:
            pairs.append(Pair(images[stem], labels[stem]))
    return pairs, problems


def _stem(word: str) -> str:
    path = Path(word)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name
