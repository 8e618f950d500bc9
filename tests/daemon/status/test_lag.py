"""Tests for `gaussdecode.daemon.status.lag`."""

from gaussdecode.daemon.status.lag import Lag, reached


def test_a_server_that_never_rests_is_not_late() -> None:
    """There is always something behind, but never for long."""
    lag = Lag()
    for second in range(1000):
        lag.note(float(second), 100 * second, durable=100 * (second - 3))
    assert lag.seconds(999.0, durable=100 * 996) == 2.0


def test_what_stands_still_grows_late() -> None:
    """The age is that of the oldest end that has not landed, whatever came after it."""
    lag = Lag()
    for second in range(5000):
        lag.note(float(second), 100 + second, durable=100)
    assert lag.seconds(5000.0, durable=100) == 4999.0


def test_nothing_behind_is_no_lag() -> None:
    """Also before anything is known."""
    lag = Lag()
    assert lag.seconds(10.0, durable=0) == 0.0
    lag.note(1.0, 100, durable=0)
    assert lag.seconds(10.0, durable=0) == 9.0
    assert lag.seconds(10.0, durable=100) == 0.0


def test_memory_is_bounded_and_the_oldest_stays() -> None:
    """Thinned out, not cut off."""
    lag = Lag()
    for at in range(100_000):
        lag.note(float(at), at + 1, durable=0)
    assert len(lag._marks) <= 1024
    assert lag.seconds(100_000.0, durable=0) == 100_000.0


def test_wal_without_anything_for_us_is_no_lag() -> None:
    """What the server says to hold nothing more counts once all that was sent has landed."""
    assert reached(durable=100, received=100, idle=300) == 300
    assert reached(durable=100, received=200, idle=300) == 100
    assert reached(durable=400, received=200, idle=300) == 400
    assert reached(durable=100, received=100, idle=0) == 100
    lag = Lag()
    for second in range(100):
        end = 100 + 50 * second
        lag.note(float(second), end, reached(100, 100, idle=end - 50))
    assert lag.seconds(99.0, reached(100, 100, idle=end)) == 0.0
