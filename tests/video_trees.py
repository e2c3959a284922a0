"""Small generated videos with numbered frames, and data sets of them."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from numpy.typing import NDArray

from trees import save

SIZE = (48, 64)  # height, width
MOTIONS = {"down": (1, 0), "left": (0, -1), "right": (0, 1), "up": (-1, 0)}  # rows, columns
# Container -> encoder included in every wheel of PyAV.
CODECS = {".mp4": "libx264", ".avi": "mpeg4", ".mkv": "mpeg4", ".webm": "libvpx-vp9", ".mov": "mpeg4"}
_OPTIONS = {
    "libx264": {"preset": "ultrafast", "crf": "18"},
    "libvpx-vp9": {"cpu-used": "8", "deadline": "realtime", "crf": "20"},
}
_BIT = 8  # side in pixels of the squares that encode a number
_BITS = 8
_HERTZ = 16000

Frames = NDArray[np.uint8]  # (T, H, W, 3)


def numbered_frame(number: int, size: tuple[int, int] = SIZE) -> Frames:
    """Draw a grey frame with a number encoded in black and white squares at its upper left, and one moving square."""
    frame = np.full((*size, 3), 96, dtype=np.uint8)
    for bit in range(_BITS):
        frame[:_BIT, bit * _BIT : (bit + 1) * _BIT] = 255 if number >> bit & 1 else 0
    left = number % (size[1] - _BIT)
    frame[-2 * _BIT : -_BIT, left : left + _BIT] = (220, 40, 30)
    return frame


def shown_number(frame: Frames) -> int:
    """Read the number on a `numbered_frame`, at any size and after any codec."""
    height, width = frame.shape[0] * _BIT / SIZE[0], frame.shape[1] * _BIT / SIZE[1]
    row = int(height / 2)
    return sum(int(frame[row, int((bit + 0.5) * width)].mean() > 128) << bit for bit in range(_BITS))


def write_video(
    path: Path,
    frames: int | Sequence[Frames] = 40,
    *,
    rate: int | Fraction = 30,
    codec: str | None = None,
    stamps: Sequence[int] | None = None,
    key_every: int = 12,
    container: dict[str, str] | None = None,
    sound: float = 0.0,
    title: str = "",
    **settings: Any,
) -> Path:
    """Write a video of these frames, or of this many numbered ones.

    Args:
        path: File; its suffix sets the container and the default codec.
        stamps: Time stamp of each frame in milliseconds. Default: evenly spaced.
        key_every: Interval between key frames, in frames.
        container: Muxer options.
        sound: Seconds of sound.
        title: Title in the header.
        settings: Attributes of the encoder, such as max_b_frames.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [numbered_frame(number) for number in range(frames)] if isinstance(frames, int) else frames
    codec = codec or CODECS[path.suffix]
    with av.open(str(path), "w", options=container or {}) as file:
        options = {**_OPTIONS.get(codec, {}), **({"keyint_min": str(key_every)} if codec == "libx264" else {})}
        stream: Any = file.add_stream(codec, rate=rate, options={**options, "g": str(key_every)})
        stream.height, stream.width = images[0].shape[:2] if len(images) else SIZE
        stream.pix_fmt = "yuv420p"
        stream.bit_rate = 2_000_000
        stream.codec_context.thread_count = 1
        for name, value in settings.items():
            setattr(stream.codec_context, name, value)
        if stamps is not None:
            stream.codec_context.time_base = stream.time_base = Fraction(1, 1000)
        if title:
            file.metadata["title"] = title
        speech: Any = file.add_stream("aac", rate=_HERTZ) if sound else None
        file.start_encoding()  # writes the header even without frames
        for index, image in enumerate(images):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = index if stamps is None else stamps[index]
            frame.time_base = Fraction(1, 1000) if stamps is not None else 1 / Fraction(rate)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
        if sound:
            file.mux(_silence(speech, sound))
    return path


def _silence(stream: Any, seconds: float) -> list[Any]:
    samples = np.zeros((1, int(seconds * _HERTZ)), np.float32)
    frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
    frame.sample_rate, frame.pts = _HERTZ, 0
    return [*stream.encode(frame), *stream.encode(None)]


def write_sound(path: Path, *, cover: bool = False) -> Path:
    """Write a file with sound and no video, except for a cover image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("aac", rate=_HERTZ)
        if cover:
            image: Any = file.add_stream("mjpeg", rate=1)
            image.height, image.width, image.pix_fmt = *SIZE, "yuvj420p"
            image.disposition = Disposition.attached_pic
            shown = av.VideoFrame.from_ndarray(numbered_frame(0), format="rgb24")
            file.mux([*image.encode(shown), *image.encode(None)])
        file.mux(_silence(stream, 0.25))
    return path


def write_frames(folder: Path, count: int = 12, suffix: str = ".png") -> Path:
    """Write a folder of numbered frames whose names have no leading zeros."""
    for number in range(count):
        save(folder / f"frame_{number + 1}{suffix}", numbered_frame(number))
    return folder


def turn(path: Path, degrees: int) -> Path:
    """Set the rotation of an mp4 file: 90, 180 or 270 degrees clockwise."""
    one, matrices = 1 << 16, {90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}
    a, b, c, d = (value * one for value in matrices[degrees])
    matrix = np.array([a, b, 0, c, d, 0, 0, 0, 1 << 30], dtype=">i4").tobytes()
    content = bytearray(path.read_bytes())
    start = content.index(b"tkhd") + 4 + 40  # after version, times, number, duration, layer, volume
    assert content[start - 40] == 0, "the fields of version 1 are longer"
    content[start : start + 36] = matrix
    path.write_bytes(content)
    return path


def moving_shapes(root: Path, videos: int = 12, splits: Sequence[str] = ("train", "val"), frames: int = 16) -> Path:
    """Write videos of a square that moves down, left, right or up, in the layout of `video_folder`.

    The square starts anywhere and wraps around, so only the motion shows the class, not a single frame. A flip swaps
    left and right.

    Args:
        videos: Videos per class and split.
        frames: Frames per video, at 30 per second.
    """
    for index, split in enumerate(splits):
        rng = np.random.default_rng(index)
        for motion in MOTIONS:
            for number in range(videos):
                write_video(root / split / motion / f"{number}.avi", moving_square(rng, motion, frames))
    return root


def moving_square(rng: np.random.Generator, motion: str, frames: int, side: int = 32) -> list[Frames]:
    """Draw a grey square on a darker background, moving by two pixels per frame."""
    square, ground = 8, int(rng.integers(20, 60))
    grey = int(rng.integers(160, 240))
    start, (down, across) = rng.integers(0, side, 2), MOTIONS[motion]
    images = []
    for step in range(frames):
        image = np.full((side, side, 3), ground, dtype=np.uint8)
        image[:square, :square] = grey
        place = start + 2 * step * np.array([down, across])
        images.append(np.roll(image, tuple(place.tolist()), axis=(0, 1)))
    return images


def ucf101_tree(root: Path, first: int = 1, inner: tuple[str, str] = ("ucfTrainTestlist", "UCF-101")) -> Path:
    """Write two classes, numbered from `first`, with two training videos and one test video each, in two splits."""
    lists, videos = (root / name for name in inner)
    lists.mkdir(parents=True, exist_ok=True)
    classes = ("ApplyLipstick", "YoYo")
    (lists / "classInd.txt").write_text("".join(f"{first + k} {name}\r\n" for k, name in enumerate(classes)))
    for split in ("01", "02"):
        paths = [[f"{name}/v_{name}_g0{number}_c01.avi" for number in range(3)] for name in classes]
        train = [f"{path} {first + k}" for k, some in enumerate(paths) for path in some[:2]]
        (lists / f"trainlist{split}.txt").write_text("\r\n".join(train) + "\r\n")
        (lists / f"testlist{split}.txt").write_text("\n".join(some[2] for some in paths))
        for path in [path for some in paths for path in some]:
            write_video(videos / path, 6)
    return root


def grouped_ucf101(root: Path, groups: Mapping[str, Sequence[int]], frames: int = 0) -> Path:
    """Write a UCF101 tree with these numbers of clips in the groups 1, 2, ... of each class.

    One list has the clips of odd groups, the other all clips. Without `frames`, the videos are empty files.
    """
    root.mkdir(parents=True, exist_ok=True)
    (root / "classInd.txt").write_text("".join(f"{k} {name}\n" for k, name in enumerate(groups, start=1)))
    lists: dict[str, list[str]] = {"trainlist01.txt": [], "testlist01.txt": []}
    for name, counts in groups.items():
        for group, clip in [(g, c + 1) for g, count in enumerate(counts, start=1) for c in range(count)]:
            path = f"{name}/v_{name}_g{group:02}_c{clip:02}.avi"
            lists["testlist01.txt"].append(path)
            lists["trainlist01.txt"] += [path] if group % 2 else []
            if frames:
                write_video(root / "videos" / path, frames)
            else:
                (root / "videos" / name).mkdir(parents=True, exist_ok=True)
                (root / "videos" / path).touch()
    for file, paths in lists.items():
        (root / file).write_text("\n".join(paths))
    return root


def kinetics_tree(root: Path, separator: str = " ") -> Path:
    """Write three training videos, of classes 0, 2 and 1, and one validation video of class 0."""
    lists = {"train": {"a b.mp4": 0, "clips/c.mp4": 2, "d,e.mp4": 1}, "val": {"f.mp4": 0}}
    for split, videos in lists.items():
        for path in videos:
            write_video(root / path, 6)
        lines = [f"{path}{separator}{label}\n" for path, label in videos.items()]
        (root / f"{split}.csv").write_text("".join(lines))
    return root


def video_folder_tree(root: Path) -> Path:
    """Write the classes jump (a folder of frames), run and swim to train, and run to val."""
    write_video(root / "train" / "run" / "b.mp4", 6)
    write_video(root / "train" / "run" / "a.webm", 6)
    write_frames(root / "train" / "jump" / "frames", 6)
    write_video(root / "train" / "swim" / "c.MKV", 6, codec="mpeg4")
    (root / "train" / "run" / "notes.txt").touch()
    write_video(root / "val" / "run" / "d.avi", 6)
    return root
