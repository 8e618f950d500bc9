"""Tests for `gaussdecode.model.histogram` and `gaussdecode.model.committimes`."""

import numpy as np
import pytest

from gaussdecode.model.committimes import LIMIT, CommitTimes
from gaussdecode.model.histogram import BOUNDS, Counted, Histogram

NOW = 1_800_000_000.0


def ages(*seconds: float) -> np.ndarray:
    """Commit times so long before now, in microseconds."""
    return np.array([round((NOW - age) * 1e6) for age in seconds], dtype=np.int64)


def told(times: CommitTimes) -> Counted:
    """What a histogram makes of them."""
    histogram = Histogram()
    times.tell(histogram, NOW)
    return histogram.counted


def upward(counted: Counted) -> dict[float, int]:
    """Durations up to each bound."""
    return {bound: sum(counted.counts[: i + 1]) for i, bound in enumerate(BOUNDS)}


def test_a_duration_is_in_the_first_bucket_that_holds_it() -> None:
    """A bound belongs to its bucket; what is above all of them is in the last."""
    histogram = Histogram()
    for bound in BOUNDS:
        histogram.add(bound)
        histogram.add(bound * 1.01)
    assert histogram.counted.counts == (1, *(2,) * (len(BOUNDS) - 1), 1)
    assert histogram.counted.seconds == pytest.approx(2.01 * sum(BOUNDS))


def test_what_lies_ahead_counts_as_nothing() -> None:
    """A source whose clock is ahead brings no negative sum: that would make a counter fall."""
    histogram = Histogram()
    histogram.add_all(np.array([-5.0, 0.0]), np.array([3, 1]))
    assert (histogram.counted.counts[0], histogram.counted.seconds) == (4, 0.0)


def test_commit_times_are_exact() -> None:
    """Each transaction counts once; one whose time was not sent does not."""
    times = CommitTimes()
    times.add(np.concatenate([ages(0.0005, 0.3, 25.0), np.zeros(2, dtype=np.int64)]))
    times.add(ages(4000.0))
    counted = told(times)
    assert sum(counted.counts) == 4
    assert counted.seconds == pytest.approx(4025.3005)
    found = upward(counted)
    assert [found[bound] for bound in (0.001, 0.2, 0.5, 20.0, 30.0, 3600.0)] == [1, 1, 2, 2, 3, 3]


def test_many_commit_times_take_little_room() -> None:
    """None is lost, and none is wrong by more than was promised, however many there are."""
    times, exact = CommitTimes(), Histogram()
    span = 1000.0
    random = np.random.default_rng(7)
    seconds = random.uniform(10.0, 10.0 + span, 20 * LIMIT)
    for part in np.split(seconds, 20):
        times.add(((NOW - part) * 1e6).astype(np.int64))
        exact.add_all(part, np.ones(len(part), dtype=np.int64))
    assert sum(len(kept) for kept in times._times) <= 2 * LIMIT + len(part)
    counted = told(times)
    assert sum(counted.counts) == len(seconds)
    worst = span / 32768 + 1e-5
    assert 0 <= counted.seconds - exact.counted.seconds <= worst * len(seconds)
    for bound, count in upward(counted).items():
        least, most = np.sum(seconds <= bound - worst), np.sum(seconds <= bound + 1e-5)
        assert least <= count <= most
