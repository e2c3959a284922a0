"""Video files, read with PyAV.

All packets are listed once, which is cheap and gives the times of all frames and the key frames. Then only needed
frames are decoded: decoding starts at a key frame, seeks ahead where that is faster, and stops after the last one.
"""

# F frames of the video

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dnlnet.errors import load_extra
from dnlnet.video.data.video import Video, VideoError, resized_size

_LEAST_SKIP = 4  # fewest skipped frames for which seeking is faster than decoding
_MISSING_SECONDS, _MISSING_SHARE = 0.25, 0.02  # tolerated without a note; the share is of the stated duration
_USUAL_RATE = 30.0  # frames per second of a stream that does not state its rate


@dataclass(frozen=True)
class _Packets:
    """Frames of a video file, as listed by its packets.

    Args:
        stamps: Time stamps of the frames in display order, in units of `unit`, (F,).
        keys: Numbers of the key frames, where decoding can start.
        unit: Seconds per unit of the stamps.
        timed: True if the stamps come from the file, False if they only count the frames.
        last: Duration of the last frame in seconds.
        missing: Note if the file is truncated.
    """

    stamps: NDArray[np.int64]
    keys: NDArray[np.int64]
    unit: float
    timed: bool
    last: float
    missing: str | None


class VideoFile(Video):
    """A file in any container and codec of PyAV's wheel. Rotated videos are turned upright.

    It is decoded in one thread, because several files are read in parallel.
    """

    def __init__(self, path: Path) -> None:
        self._av = load_extra("av", "video")
        self._file: Any = None
        self._seeks = True  # until a seek fails
        self.path = path
        if not path.stat().st_size:
            raise VideoError(path, "is empty: 0 bytes; fetch it again")
        try:
            self._open()
            self._packets = self._list_packets()
        except BaseException:
            self.close()
            raise
        stamps, unit = self._packets.stamps, self._packets.unit
        times = (stamps - stamps[0]) * unit
        super().__init__(path, times, float(times[-1]) + self._packets.last)
        if self._packets.missing:
            self.notes.append(self._packets.missing)
        self._convert: Any = load_extra("av.video.reformatter", "video").VideoReformatter().reformat

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def count_decodable(self) -> int:
        """Decode every frame and count the decodable ones."""
        return sum(1 for _ in self._decode_from(0))

    def _decode(self, wanted: list[int], short_side: int | None) -> list[NDArray[np.uint8]]:
        converted: list[NDArray[np.uint8]] = []
        good: Any = None  # the last frame that was decoded
        lost = 0

        def take(frame: Any) -> None:
            size = converted[0].shape[:2] if converted else None
            converted.append(self._to_rgb(frame, size, short_side))

        frames = self._decode_from(wanted[0])
        while len(converted) < len(wanted):
            number, frame = next(frames, (len(self), None))
            while len(converted) < len(wanted) and wanted[len(converted)] < number:
                if good is None and frame is None:
                    raise VideoError(self.path, "has frames, but none of the needed ones can be decoded")
                lost += 1  # undecodable: replaced by the previous frame, or at the start by the next
                take(frame if good is None else good)
            if len(converted) < len(wanted) and wanted[len(converted)] == number:
                take(frame)
            good = frame
            if len(converted) < len(wanted) and self._key_before(wanted[len(converted)]) > number + _LEAST_SKIP:
                frames = self._decode_from(wanted[len(converted)])
        if lost:
            self.notes.append(f"{lost} of {len(wanted)} needed frames cannot be decoded; neighbours replace them")
        return converted

    def _to_rgb(self, frame: Any, size: tuple[int, ...] | None, short_side: int | None) -> NDArray[np.uint8]:
        """Convert a frame to upright RGB, of this height and width if given, else with that shorter side."""
        turns = round(frame.rotation / 90) % 4  # anticlockwise
        if size is None:
            height, width = resized_size((frame.height, frame.width), short_side)
        else:
            height, width = size[::-1] if turns % 2 else size
        # One thread: starting the default, one per core, takes longer than converting a frame.
        pixels = self._convert(frame, width, height, "rgb24", interpolation="BILINEAR", threads=1).to_ndarray()
        upright: NDArray[np.uint8] = np.rot90(pixels, turns) if turns else pixels
        return upright

    def _decode_from(self, number: int) -> Iterator[tuple[int, Any]]:
        """Yield decoded frames with their numbers, ascending, starting at or before frame `number`."""
        key = self._key_before(number)
        if key > 0:
            if self._seek(int(self._packets.stamps[key])):
                frames = self._decode_from_here(key - 1)
                first = next(frames, None)
                if first is not None and first[0] <= number:
                    yield first
                    yield from frames
                    return
            self._seeks = False  # the key frame is damaged, or the container's own index is wrong or missing
        if not (self._packets.timed and self._seek(int(self._packets.stamps[0]))):
            self._open()
        yield from self._decode_from_here(-1)

    def _decode_from_here(self, number: int) -> Iterator[tuple[int, Any]]:
        """Yield decoded frames with their numbers from the current position, which is after frame `number`."""
        # AVI stores no presentation times, and guessed ones are out of order if B-frames are packed into the packets
        # of others; the decoding time gives the order.
        stamp_of = "dts" if self._file.format.name == "avi" else "pts"
        for frame in self._raw_frames():
            stamp = getattr(frame, stamp_of) if self._packets.timed else None
            following = number + 1 if stamp is None else self._frame_number(stamp)
            if number < following < len(self):
                number = following
                self.decoded += 1
                yield number, frame

    def _raw_frames(self) -> Iterator[Any]:
        """Yield all decodable frames from the current position on."""
        packets = self._file.demux(self._file.streams.video[self._stream])
        while True:
            try:
                packet = next(packets, None)
            except self._av.FFmpegError:
                return  # nothing after this can be read
            if packet is None:
                return
            if not packet.is_corrupt:
                try:
                    frames = packet.decode()
                except self._av.FFmpegError:
                    continue  # later ones may be decodable
                yield from frames

    def _frame_number(self, stamp: int) -> int:
        return int(np.searchsorted(self._packets.stamps, stamp, side="right")) - 1

    def _key_before(self, number: int) -> int:
        """Return the last key frame up to a frame, or the first frame if seeking is impossible."""
        if not self._seeks:
            return 0
        place = int(np.searchsorted(self._packets.keys, number, side="right")) - 1
        return int(self._packets.keys[place]) if place >= 0 else 0

    def _seek(self, stamp: int) -> bool:
        """Seek to a key frame. Return False if the container cannot."""
        try:
            self._file.seek(stamp, stream=self._file.streams.video[self._stream])
        except self._av.FFmpegError:
            return False
        return True

    def _open(self) -> None:
        """Open the file at its start."""
        self.close()
        try:
            # Titles may have any encoding. Version 19 of PyAV has no option for that, and needs none.
            old = int(self._av.__version__.partition(".")[0]) < 19
            self._file = self._av.open(str(self.path), **({"metadata_errors": "replace"} if old else {}))
        except self._av.error.InvalidDataError:
            raise VideoError(self.path, "is not a video, or is cut off so that it cannot be opened") from None
        except (self._av.FFmpegError, OSError) as error:
            raise VideoError(self.path, f"cannot be read: {error.strerror or error}") from None
        streams = self._file.streams
        cover = load_extra("av.stream", "video").Disposition.attached_pic
        places = [place for place, stream in enumerate(streams.video) if not stream.disposition & cover]
        if not places:
            raise VideoError(self.path, "has sound but no video stream" if streams.audio else "has no video stream")
        self._stream = places[0]
        codec = streams.video[self._stream].codec_context
        if codec is None:
            raise VideoError(self.path, "has an unknown video codec")
        codec.thread_count = 1

    def _list_packets(self) -> _Packets:
        """List all packets, including sound, without decoding them."""
        stream = self._file.streams.video[self._stream]
        stamps: list[int | None] = []
        keys: list[int | None] = []
        end, last, cut = 0.0, 0, False
        try:
            for packet in self._file.demux():
                stamp = packet.dts if packet.pts is None else packet.pts
                if not packet.size or packet.is_discard:
                    continue
                if packet.is_corrupt:
                    cut = True
                    continue
                if stamp is not None:
                    end = max(end, float((stamp + (packet.duration or 0)) * packet.time_base))
                if packet.stream.index == stream.index:
                    stamps.append(stamp)
                    last = packet.duration or last
                    if packet.is_keyframe:
                        keys.append(stamp)
        except self._av.FFmpegError:
            cut = True  # the packets before can be used
        if not stamps:
            raise VideoError(self.path, "has a video stream without frames")
        nominal = float(stream.guessed_rate or stream.average_rate or _USUAL_RATE)
        known = [stamp for stamp in stamps if stamp is not None]
        if len(known) < len(stamps):
            every = np.arange(len(stamps))
            return _Packets(every, every[:1], 1 / nominal, timed=False, last=1 / nominal, missing=None)
        ordered = np.unique(np.array(known, dtype=np.int64))
        unit = float(stream.time_base)
        begin = float(ordered[0]) * unit
        return _Packets(
            stamps=ordered,
            keys=np.unique(np.searchsorted(ordered, np.array(keys, dtype=np.int64))),
            unit=unit,
            timed=True,
            last=last * unit or 1 / nominal,
            missing=_truncation_note(end - begin, _stated_seconds(self._file, stream), cut),
        )


def _stated_seconds(file: Any, stream: Any) -> float:
    """Return the longest duration stated in the file's headers, or 0 if there is none."""
    container = (file.duration or 0) / 1_000_000
    counted = Fraction(stream.frames or 0) / (stream.average_rate or 1)
    return float(max(container, counted))


def _truncation_note(present: float, stated: float, cut: bool) -> str | None:
    """Return a note on how much of a truncated file is missing, or None if it is complete.

    >>> _truncation_note(1.9, 3.333, cut=False), _truncation_note(3.3, 3.333, cut=False)
    ('is cut off: 1.9 of 3.3 seconds are there', None)
    """
    if cut or stated - present > max(_MISSING_SECONDS, _MISSING_SHARE * stated):
        return f"is cut off: {present:.1f} of {max(stated, present):.1f} seconds are there"
    return None
