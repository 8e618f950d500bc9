"""When a status goes out, and that it never says too much; one suite for both twins."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from twins.feedback import MAX_INTERVAL_US, REPLY_GAP_US, Feedback

from gaussdecode.source._status import StatusClock

SECOND = 1_000_000
Make = Callable[..., Any]  # Any: either twin; they share the interface, not a base


@pytest.fixture(params=[Feedback, StatusClock], ids=["plain", "cython"])
def make(request: pytest.FixtureRequest) -> Make:
    """Either twin: start lsn, clock, sender timeout, receiver timeout."""
    cls: Make = request.param
    return cls


def taken(status: object) -> tuple[int, int, bool] | None:
    """What a `take` gave, in the same shape for both."""
    if status is None or isinstance(status, tuple):
        return status
    return status.written_lsn, status.flushed_lsn, status.reply_wanted  # type: ignore[attr-defined]


def test_first_status_goes_at_once(make: Make) -> None:
    """The server learns where we start before anything comes."""
    feedback = make(100, 0, 60 * SECOND, 0)
    assert feedback.due_us(0) == 0
    assert taken(feedback.take(0)) == (100, 100, False)


@pytest.mark.parametrize(
    ("sender_timeout_us", "interval_us"),
    [(0, MAX_INTERVAL_US), (60 * SECOND, MAX_INTERVAL_US), (3 * SECOND, SECOND), (1, 1)],
)
def test_interval_is_a_third_of_the_servers_timeout(
    make: Make, sender_timeout_us: int, interval_us: int
) -> None:
    """At most ten seconds, and well inside the time after which the server gives us up."""
    feedback = make(0, 0, sender_timeout_us, 0)
    feedback.take(0)
    assert feedback.due_us(0) == interval_us
    assert feedback.take(interval_us - 1) is None
    assert feedback.take(interval_us) is not None


def test_a_reply_goes_at_once(make: Make) -> None:
    """A server that asks is answered, after a gap that stops a busy loop."""
    feedback = make(0, 0, 0, 0)
    feedback.take(0)
    feedback.reply_requested()
    assert feedback.due_us(SECOND) == 0
    assert feedback.take(SECOND) is not None
    feedback.reply_requested()
    assert feedback.due_us(SECOND) == REPLY_GAP_US
    assert feedback.take(SECOND) is None


def test_a_durable_position_goes_at_once(make: Make) -> None:
    """What is landed is confirmed without waiting for the interval."""
    feedback = make(0, 0, 0, 0)
    feedback.take(0)
    feedback.received(50, 1)
    assert feedback.take(1) is None
    feedback.made_durable(40)
    assert taken(feedback.take(2)) == (50, 40, False)


def test_a_lower_position_changes_nothing(make: Make) -> None:
    """Old servers would move the slot back."""
    feedback = make(100, 0, 0, 0)
    feedback.take(0)
    feedback.made_durable(60)
    feedback.received(70, 1)
    assert feedback.take(2) is None
    assert taken(feedback.take(MAX_INTERVAL_US)) == (100, 100, False)


def test_silence_is_answered_with_a_ping_then_with_death(make: Make) -> None:
    """Half the timeout without a byte asks; the other half gives up."""
    feedback = make(0, 0, 0, 8 * SECOND)
    feedback.take(0)
    assert taken(feedback.take(4 * SECOND)) == (0, 0, True)
    assert not feedback.is_dead(8 * SECOND - 1)
    assert feedback.is_dead(8 * SECOND)


def test_a_byte_revives(make: Make) -> None:
    """Anything received takes the ping back."""
    feedback = make(0, 0, 0, 8 * SECOND)
    feedback.take(0)
    feedback.take(4 * SECOND)
    feedback.received(0, 7 * SECOND)
    assert not feedback.is_dead(9 * SECOND)
    assert taken(feedback.take(11 * SECOND)) == (0, 0, True)


def test_a_jump_of_the_clock_does_not_kill(make: Make) -> None:
    """After a stopped process goes on, the server is asked before it is given up."""
    feedback = make(0, 0, 0, 8 * SECOND)
    feedback.take(0)
    assert not feedback.is_dead(3600 * SECOND)
    assert taken(feedback.take(3600 * SECOND)) == (0, 0, True)
    assert not feedback.is_dead(3600 * SECOND)


class Twins(RuleBasedStateMachine):
    """Both twins are told the same; they must do the same, and never confirm too much."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.durable = 10
        self.confirmed = 0
        self.plain = Feedback(10, 0, 6 * SECOND, 20 * SECOND)
        self.fast = StatusClock(10, 0, 6 * SECOND, 20 * SECOND)

    @rule(step=st.integers(0, 15 * SECOND))
    def wait(self, step: int) -> None:
        """Time passes."""
        self.now += step

    @rule(lsn=st.integers(0, 1000))
    def receive(self, lsn: int) -> None:
        """Bytes come."""
        self.plain.received(lsn, self.now)
        self.fast.received(lsn, self.now)

    @rule()
    def ask(self) -> None:
        """The server wants a reply."""
        self.plain.reply_requested()
        self.fast.reply_requested()

    @rule(lsn=st.integers(0, 1000))
    def land(self, lsn: int) -> None:
        """Main says what is durable."""
        self.durable = max(self.durable, lsn)
        self.plain.made_durable(lsn)
        self.fast.made_durable(lsn)

    @rule()
    def send(self) -> None:
        """Send what is due: equal, rising, never above what is durable."""
        assert self.plain.due_us(self.now) == self.fast.due_us(self.now)
        status = taken(self.plain.take(self.now))
        assert status == self.fast.take(self.now)
        if status is not None:
            written, flushed, _ = status
            assert self.confirmed <= flushed <= self.durable
            assert flushed <= written
            self.confirmed = flushed

    @invariant()
    def says_the_same(self) -> None:
        """Nothing the twins show differs, and nothing is claimed that is not so."""
        assert self.plain.sent_flushed_lsn <= self.plain.durable_lsn
        assert self.plain.sent_us is None or self.plain.sent_flushed_lsn <= self.plain.written_lsn
        assert self.plain.is_dead(self.now) == self.fast.is_dead(self.now)
        assert self.plain.written_lsn == self.fast.written_lsn
        assert self.plain.sent_flushed_lsn == self.fast.sent_flushed_lsn


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
