"""Tests for `gaussdecode.daemon.status.lag`."""

import dataclasses

from gaussdecode.daemon.status.lag import Evidence, Known, Lag, reached

AWAY = Evidence(is_heard=False)


def heard(end: int, complete: int, oldest: float | None = None) -> Evidence:
    """What a stream proves whose server has said something."""
    return Evidence(True, end, complete, oldest)


def test_a_server_that_never_rests_is_not_late() -> None:
    """There is always something behind, but never for long."""
    lag = Lag()
    for second in range(1000):
        lag.note(float(second), heard(100 * second + 100, 100 * (second - 3) + 100))
    assert lag.seconds(999.0, heard(100_000, 99_700)) == 3.0


def test_what_stands_still_grows_late() -> None:
    """The age is that of the newest end that has landed, whatever came after it."""
    lag = Lag()
    for second in range(5000):
        lag.note(float(second), heard(100 + second, 100))
    assert lag.seconds(5000.0, heard(5100, 100)) == 5000.0


def test_nothing_behind_is_no_lag() -> None:
    """And nothing known is none either: it is unknown, until WAL waits: then it is at least so old."""
    lag = Lag()
    assert lag.seconds(10.0, AWAY) is None
    assert lag.seconds(10.0, heard(0, 0)) is None
    lag.note(1.0, heard(100, 0))
    lag.note(5.0, heard(200, 0))
    assert lag.seconds(10.0, heard(200, 0)) == 9.0
    assert lag.known.through is None
    assert lag.seconds(10.0, AWAY) is None
    assert lag.seconds(10.0, heard(200, 200)) == 0.0


def test_the_oldest_commit_that_came_is_exact() -> None:
    """Also where nothing else is known; once it has landed, the newest that landed tells."""
    lag = Lag()
    assert lag.seconds(60.0, heard(100, 0, oldest=34.0)) == 26.0
    lag.note(60.0, heard(150, 0, oldest=34.0))
    landed = dataclasses.replace(heard(200, 100), landed_time=50.0)
    assert lag.seconds(60.0, landed) == 10.0
    ahead = heard(200, 100, oldest=99.0)  # the server's clock is
    assert lag.seconds(60.0, ahead) == 0.0


def test_the_lag_grows_while_the_server_is_away() -> None:
    """From the last moment at which all had landed."""
    lag = Lag()
    lag.note(10.0, heard(100, 100))
    lag.note(12.0, AWAY)
    assert lag.seconds(40.0, AWAY) == 30.0
    assert lag.size(AWAY, landed=100) is None, "the server may be anywhere by now"
    assert lag.size(AWAY, landed=60) == 40, "so much is known"
    assert lag.size(AWAY, landed=0) is None


def test_the_last_facts_outlast_a_restart() -> None:
    """Nothing that the new process saw says less than they do."""
    first = Lag()
    first.note(10.0, heard(100, 100))
    again = Lag(Known(**dataclasses.asdict(first.known)))
    assert again.known == Known(10.0, 100, 10.0)
    assert again.seconds(36.0, AWAY) == 26.0
    assert again.seconds(36.0, heard(300, 100)) == 26.0
    again.note(36.0, heard(300, 100))
    assert again.seconds(37.0, heard(300, 100, oldest=15.0)) == 22.0
    assert again.seconds(38.0, heard(300, 300)) == 0.0


def test_a_look_that_failed_takes_nothing_back() -> None:
    """The end of WAL that the guard saw counts until the stream has reached it."""
    lag = Lag()
    lag.note(1.0, heard(100, 100))
    lag.note(3.0, heard(500, 100))
    assert lag.seconds(9.0, heard(100, 100)) == 8.0
    assert lag.size(heard(100, 100), landed=100) == 400


def test_marks_of_a_session_end_with_it() -> None:
    """The next may be on a timeline that forked before them."""
    lag = Lag()
    lag.note(1.0, heard(900, 100))
    lag.note(2.0, AWAY)
    assert lag.seconds(3.0, heard(400, 400)) == 0.0


def test_memory_is_bounded_and_the_oldest_stays() -> None:
    """Thinned out, not cut off."""
    lag = Lag()
    for at in range(100_000):
        lag.note(float(at), heard(at + 1, 1))
    assert len(lag._marks) <= 1024
    assert lag.seconds(100_000.0, heard(100_000, 1)) == 100_000.0


def test_wal_without_anything_for_us_is_no_lag() -> None:
    """What the server says to hold nothing more counts once all that was sent has landed."""
    assert reached(durable=100, received=100, idle=300) == 300
    assert reached(durable=100, received=200, idle=300) == 100
    assert reached(durable=400, received=200, idle=300) == 400
    assert reached(durable=100, received=100, idle=0) == 100
    lag = Lag()
    for second in range(100):
        end = 100 + 50 * second
        lag.note(float(second), heard(end, reached(100, 100, idle=end - 50)))
    assert lag.seconds(99.0, heard(end, reached(100, 100, idle=end))) == 0.0
