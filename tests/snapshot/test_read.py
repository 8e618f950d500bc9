"""Tests for `gaussdecode.snapshot.read`: how fast several readers may read."""

import pytest

from gaussdecode.collect.snapshot_gate import HoldLostError
from gaussdecode.snapshot import read as snapshotread
from gaussdecode.snapshot.read import Throttle


class Clock:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.naps: list[float] = []

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.naps.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that throttles go by."""
    clock = Clock()
    monkeypatch.setattr(snapshotread, "time", clock)
    return clock


def _nothing() -> None:
    """Nobody wants to stop."""


def test_rate_is_kept(clock: Clock) -> None:
    """So many bytes take so long, however they are cut; a pause is not made up for."""
    throttle = Throttle(1000)
    for size in (100, 900, 3000):
        throttle.take(size, _nothing)
    assert clock.now == pytest.approx(1004.0)
    clock.now += 60.0
    throttle.take(2000, _nothing)
    assert clock.now == pytest.approx(1066.0)


def test_without_a_rate(clock: Clock) -> None:
    """Nothing is waited for."""
    Throttle(None).take(10**12, _nothing)
    assert clock.naps == []


def test_stop_is_noticed(clock: Clock) -> None:
    """Somebody who waits for the rate asks often whether to stop, and does."""
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise HoldLostError("a stop was asked for")

    with pytest.raises(HoldLostError):
        Throttle(1).take(10**9, check)
    assert max(clock.naps) <= 0.5
    assert clock.now <= 1001.0
