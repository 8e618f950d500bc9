"""Tests for `gaussdecode.collect.unlanded`."""

from gaussdecode.collect.unlanded import HandedOver, Unlanded


def test_the_oldest_commit_is_that_of_the_first_entry_under_way() -> None:
    """Then that of what is not handed over; what is durable tells until when all has landed."""
    parts = HandedOver()
    assert parts.look(0, 0, 90) == Unlanded(None, None, 90)
    assert parts.look(0, 7_000_000, 0) == Unlanded(7.0, None, 0)
    parts.add(100, 1_000_000, 2_000_000)
    parts.add(200, 3_000_000, 4_000_000)
    assert parts.look(90, 7_000_000, 200) == Unlanded(1.0, None, 0), "the boundary is not durable"
    assert parts.look(100, 7_000_000, 0) == Unlanded(3.0, 2.0, 0)
    assert parts.look(200, 7_000_000, 0) == Unlanded(7.0, 4.0, 0)
    assert parts.look(200, 0, 250) == Unlanded(None, 4.0, 250)


def test_a_server_that_tells_no_times_is_known_by_positions_alone() -> None:
    """0 is no time."""
    parts = HandedOver()
    parts.add(100, 0, 0)
    assert parts.look(0, 5_000_000, 50) == Unlanded(None, None, 0)
    assert parts.look(100, 0, 100) == Unlanded(None, None, 100)
