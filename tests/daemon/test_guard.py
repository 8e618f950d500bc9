"""Tests for `gaussdecode.daemon.guard`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gaussdecode.daemon.guard import (
    Guard,
    Look,
    Step,
    next_step,
    outlook,
    seconds_to_zero,
    slope,
)
from gaussdecode.errors import SourceError
from gaussdecode.settings.sections import GuardConfig
from gaussdecode.source.probe import SlotView

GIB = 2**30
SETTINGS = GuardConfig(interval=15.0, warn_before=7200.0, pause_before=1800.0, drop_slot_above=None)
CALM = SlotView(wal_end=100 * GIB, retained_bytes=GIB, wal_status="reserved", safe_bytes=10 * GIB)


class Script:
    """A probe that gives what it was told to, one after the other."""

    def __init__(self, views: Sequence[SlotView | None]) -> None:
        self.views = list(views)

    def look(self) -> SlotView:
        """The next view; None stands for a server that is away."""
        view = self.views.pop(0)
        if view is None:
            raise SourceError("looking at the slot: away")
        return view

    def close(self) -> None:
        """Nothing to give back."""


def looks(safe: Sequence[int], free: Sequence[float]) -> list[Look]:
    """Looks 10 seconds apart."""
    return [
        Look(10.0 * index, room, dataclasses.replace(CALM, safe_bytes=size))
        for index, (size, room) in enumerate(zip(safe, free, strict=True))
    ]


@pytest.mark.parametrize(
    ("changes", "holder"),
    [
        ({"confirmed_lsn": 99 * GIB}, "landing"),
        ({"confirmed_lsn": 100 * GIB}, "checkpoint"),
        ({"confirmed_lsn": 100 * GIB, "transaction_seconds": 9.0}, "transaction"),
        (
            {"confirmed_lsn": 100 * GIB, "transaction_seconds": 9.0, "prepared_seconds": 10.0},
            "prepared",
        ),
        ({"confirmed_lsn": None}, None),
    ],
)
def test_what_holds_the_slot_back_is_named(changes: Mapping[str, Any], holder: str | None) -> None:
    """What is not confirmed, else the older of what is open and what is prepared."""
    assert dataclasses.replace(CALM, **changes).held_by == holder


def test_a_straight_line_is_drawn() -> None:
    """Least squares: exact on a line, 0 where there is none."""
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2.0)
    assert slope([(5, 1)]) == slope([]) == slope([(5, 1), (5, 9)]) == 0.0


def test_the_end_is_told_only_of_what_shrinks() -> None:
    """From the newest value with the rate of all; not from a burst; 0 where it is reached."""
    assert seconds_to_zero([(0, 40), (10, 30), (20, 20), (30, 10)]) == pytest.approx(10.0)
    assert seconds_to_zero([(0, 40), (10, 30)]) is None
    assert seconds_to_zero([(0, 10), (10, 20), (20, 20), (30, 30)]) is None
    assert seconds_to_zero([(0, 10), (10, 0)]) == 0.0
    assert seconds_to_zero([]) is None


def test_both_ends_are_seen() -> None:
    """The nearer of slot and disk counts."""
    view = outlook(looks([400, 300, 200, 100], [9000, 8000, 7000, 6000]))
    assert view.invalidation_seconds == pytest.approx(10.0)
    assert view.full_seconds == pytest.approx(60.0)
    assert view.nearest == view.invalidation_seconds


def test_a_slot_that_keeps_up_has_no_end() -> None:
    """What is held only until the server's next snapshot does not count, until little is left."""
    kept = dataclasses.replace(CALM, confirmed_lsn=CALM.wal_end)
    ages = [
        Look(10.0 * i, 1.0, dataclasses.replace(kept, safe_bytes=(9 - i) * GIB)) for i in range(4)
    ]
    assert outlook(ages).invalidation_seconds is None
    late = [
        Look(10.0 * i, 1.0, dataclasses.replace(kept, safe_bytes=(4 - i) * GIB)) for i in range(4)
    ]
    assert outlook(late).invalidation_seconds == pytest.approx(10.0)


def test_without_a_limit_there_is_no_invalidation() -> None:
    """safe_wal_size is NULL where max_slot_wal_keep_size is not set."""
    free = [100.0] * 4
    view = outlook(
        [Look(float(i), free[i], dataclasses.replace(CALM, safe_bytes=None)) for i in range(4)]
    )
    assert (view.invalidation_seconds, view.full_seconds, view.nearest) == (None, None, None)


def test_a_lost_slot_is_seen() -> None:
    """Both a slot that is gone and one whose WAL is."""
    for view in (SlotView(wal_end=1), SlotView(wal_end=1, wal_status="lost")):
        assert outlook([Look(0.0, 1.0, view)]).is_lost
    assert not outlook([Look(0.0, 1.0, CALM)]).is_lost


@pytest.mark.parametrize(
    ("nearest", "now", "step"),
    [
        (None, Step.CALM, Step.CALM),
        (7201.0, Step.CALM, Step.CALM),
        (7199.0, Step.CALM, Step.WARN),
        (1799.0, Step.CALM, Step.PAUSE),
        (1801.0, Step.WARN, Step.WARN),
        (1801.0, Step.PAUSE, Step.PAUSE),
        (2701.0, Step.PAUSE, Step.WARN),
        (10799.0, Step.WARN, Step.WARN),
        (10801.0, Step.WARN, Step.CALM),
        (None, Step.PAUSE, Step.CALM),
    ],
)
def test_the_ladder(nearest: float | None, now: Step, step: Step) -> None:
    """Up at the bound, down only half as far again from it."""
    view = dataclasses.replace(outlook([Look(0.0, 1.0, CALM)]), full_seconds=nearest)
    assert next_step(view, SETTINGS, now) is step


def test_the_slot_is_dropped_only_where_the_operator_asked() -> None:
    """Without the bound nothing leads to the last step; with it, just above it, and for good."""
    lost_soon = dataclasses.replace(outlook([Look(0.0, 1.0, CALM)]), invalidation_seconds=0.0)
    assert next_step(lost_soon, SETTINGS, Step.PAUSE) is Step.PAUSE
    asked = dataclasses.replace(SETTINGS, drop_slot_above=GIB)
    assert next_step(lost_soon, asked, Step.PAUSE) is Step.PAUSE
    more = dataclasses.replace(CALM, retained_bytes=GIB + 1)
    above = outlook([Look(0.0, 1.0, more)])
    assert next_step(above, asked, Step.CALM) is Step.DROP
    assert next_step(lost_soon, asked, Step.DROP) is Step.DROP


def test_a_server_that_is_away_changes_nothing() -> None:
    """A failed look is counted and its reason kept until one succeeds; the step stays."""
    views = [dataclasses.replace(CALM, safe_bytes=size) for size in (4000, 3000, 2000, 1000)]
    guard = Guard(SETTINGS, Script([*views, None, CALM]), lambda: (1e9, 0.0))
    for at in range(4):
        guard.look(10.0 * at)
    assert guard.step is Step.PAUSE
    assert guard.is_paused
    guard.look(40.0)
    assert (guard.failures, guard.reason) == (1, "looking at the slot: away")
    assert guard.step is Step.PAUSE
    guard.look(50.0)
    assert guard.reason is None


def test_each_step_is_one_line_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """With the figures that led to it; no line while nothing changes."""
    looks = iter([(free, 1e7) for free in (4e9, 3e9, 2e9, 1e9, 1e8)])
    guard = Guard(SETTINGS, None, looks.__next__)
    for at in range(5):
        guard.look(10.0 * at)
    text = "".join(capsys.readouterr())
    assert text.count("guard_step") == 1
    assert "pause" in text
    assert "full_seconds" in text


def test_disk_is_full_where_room_is_kept() -> None:
    """The line is drawn to what the landing leaves free, not to 0."""
    looks = [Look(10.0 * at, 100.0 - 10 * at, None, 40.0) for at in range(5)]
    assert outlook(looks).full_seconds == pytest.approx(20.0)
    below = [*looks, Look(50.0, 30.0, None, 40.0)]
    assert outlook(below).full_seconds == 0.0
