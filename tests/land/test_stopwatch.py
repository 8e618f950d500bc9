"""Tests for `gaussdecode.land.stopwatch`."""

import pytest

from gaussdecode.land.stopwatch import Stopwatch


def test_who_is_inside_counts_until_now() -> None:
    """One, then two at once, then none; the sum never falls."""
    now = 5_000_000_000
    spent = Stopwatch(lambda: now)
    seen = [spent.seconds]
    with spent:
        now += 1_000_000_000
        seen.append(spent.seconds)
        with spent:
            now += 1_000_000_000
            seen.append(spent.seconds)
        seen.append(spent.seconds)
        now += 500_000_000
    now += 9_000_000_000
    seen.append(spent.seconds)
    assert seen == [0.0, 1.0, 3.0, 3.0, 3.5]


def test_two_at_once_may_count_once() -> None:
    """Time in which anybody was inside, whoever came first or left last."""
    now = 5_000_000_000
    spent = Stopwatch(lambda: now)
    seen = [spent.any_seconds]
    for _ in range(2):
        with spent:
            now += 1_000_000_000
            with spent:
                now += 1_000_000_000
                seen.append(spent.any_seconds)
            now += 500_000_000
        now += 9_000_000_000
        seen.append(spent.any_seconds)
    assert seen == [0.0, 2.0, 2.5, 4.5, 5.0]


def test_an_error_ends_it_too() -> None:
    """What fails has taken its time."""
    now = 0
    spent = Stopwatch(lambda: now)

    def fail() -> None:
        nonlocal now
        with spent:
            now += 2_000_000_000
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    now += 2_000_000_000
    assert spent.seconds == 2.0
