import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnlnet.video.data.clips import Clip

DURATIONS = st.floats(0.01, 1000)
CLIPS = st.builds(Clip, st.integers(1, 32), st.integers(1, 16), st.floats(1, 240))
ALIGNED = st.builds(Clip, st.integers(1, 32), st.integers(1, 16), st.floats(1, 240), st.just(True))


def test_the_papers_clip_has_8_frames_8_apart_at_30_fps() -> None:
    np.testing.assert_allclose(Clip().times(2.0, 10.0), 2 + np.arange(8) * 8 / 30)
    assert Clip().length == pytest.approx(57 / 30)


def test_a_short_video_is_repeated() -> None:
    np.testing.assert_allclose(Clip(5, 10, 10).times(0.0, 2.5), [0, 1, 2, 0.5, 1.5])
    np.testing.assert_allclose(Clip(4, 10, 10).times(0.0, 0.1), [0, 0, 0, 0], atol=1e-9)


@given(CLIPS | ALIGNED, DURATIONS, st.integers(1, 12))
def test_every_time_is_within_the_video(clip: Clip, duration: float, n: int) -> None:
    for start in [*clip.spread_starts(n, duration), clip.random_start(np.random.default_rng(0), duration)]:
        times = clip.times(start, duration)
        assert times.shape == (clip.count,)
        assert times.min() >= 0
        assert times.max() < duration


@given(CLIPS, DURATIONS, st.integers(0, 99))
def test_a_clip_that_fits_is_not_wrapped_around(clip: Clip, duration: float, seed: int) -> None:
    start = clip.random_start(np.random.default_rng(seed), duration)
    if clip.length < duration:
        assert start + clip.length <= duration * (1 + 1e-12)
        assert (np.diff(clip.times(start, duration)) > 0).all()
    else:
        assert start == 0


@given(ALIGNED, DURATIONS, st.integers(1, 12), st.integers(0, 99))
def test_aligned_clips_are_consecutive_shared_frames(clip: Clip, duration: float, n: int, seed: int) -> None:
    shared = clip.shared_times(duration)
    assert shared[-1] < duration <= shared[-1] + clip.step * (1 + 1e-6) + 1e-6
    for start in [*clip.spread_starts(n, duration), clip.random_start(np.random.default_rng(seed), duration)]:
        numbers = np.rint(clip.times(start, duration) / clip.step).astype(int)
        assert numbers[0] == round(start / clip.step) <= max(0, len(shared) - clip.count)
        assert (np.diff(numbers) % len(shared) == 1 % len(shared)).all()
        np.testing.assert_array_equal(clip.times(start, duration), shared[numbers])


def test_random_aligned_starts_are_uniform() -> None:
    rng, clip = np.random.default_rng(0), Clip(2, 10, 10, aligned=True)
    starts = [clip.random_start(rng, 4.5) for _ in range(400)]  # frames at 0, 1, 2, 3 and 4 seconds
    counts = [starts.count(place) for place in range(4)]
    assert sum(counts) == 400
    assert min(counts) > 70
    assert clip.spread_starts(3, 4.5).tolist() == [0, 1, 3]


def test_random_starts_cover_the_video() -> None:
    rng = np.random.default_rng(0)
    starts = [Clip().random_start(rng, 11.9) for _ in range(400)]
    assert 0 <= min(starts) < 0.1
    assert 9.9 < max(starts) <= 10
    assert np.mean(starts) == pytest.approx(5, abs=0.5)


def test_spread_starts_are_equally_far_apart_and_reach_both_ends() -> None:
    np.testing.assert_allclose(Clip().spread_starts(10, 10.9), np.arange(10))
    assert Clip().spread_starts(1, 11.9) == pytest.approx([5])
    assert Clip().spread_starts(3, 1.0).tolist() == [0, 0, 0]


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="got 0 and 8"):
        Clip(count=0)
    with pytest.raises(ValueError, match="got 8 and -1"):
        Clip(stride=-1)
    with pytest.raises(ValueError, match="got nan"):
        Clip(rate=float("nan"))
    with pytest.raises(ValueError, match="got 0"):
        Clip().spread_starts(0, 1.0)
    for duration in (0.0, float("nan")):
        with pytest.raises(ValueError, match=f"got {duration}"):
            Clip().times(0.0, duration)
