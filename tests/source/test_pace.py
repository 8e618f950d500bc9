"""The pacer against machines that are played to it: it settles on the best pace, and follows changes."""

import dataclasses
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussdecode.source._pace import PACES, Pacer

GATHER_US = 3000
Rates = tuple[float, ...]  # MB/s of each pace
TCP = (40.0, 42.0, 45.0, 80.0, 78.0, 72.0)
UNIX = (70.0, 60.0, 30.0, 3.0, 1.5, 1.0)
ALIKE = (50.0, 50.0, 50.0, 50.0, 50.0, 50.0)


@dataclasses.dataclass
class Machine:
    """Gives so many bytes a second under each pace, give or take.

    Attributes:
        rates: of each pace now.
        noise: share by which one read may differ.
        got: bytes so far.
        now_us: its clock.
        best: bytes that the best fixed pace would have brought.
    """

    rates: Rates
    noise: float = 0.2
    seed: int = 1
    got: float = 0.0
    now_us: int = 1_000_000
    best: float = 0.0
    stalled_us: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def read(self, pacer: Pacer, rest_us: int) -> int:
        """Rest as told, read what came, and tell the pacer; gives the next rest."""
        spent = rest_us or GATHER_US
        self.now_us += spent
        share = 1 + self.rng.uniform(-self.noise, self.noise)
        self.got += self.rates[pacer.pace] * spent * share  # MB/s are bytes a microsecond
        self.best += max(self.rates) * spent
        return pacer.feed(self.now_us, int(self.got), self.stalled_us)

    def run(self, pacer: Pacer, seconds: float) -> float:
        """Read for so long; gives the share of the best fixed pace that came."""
        until, got, best = self.now_us + seconds * 1e6, self.got, self.best
        rest_us = pacer.feed(self.now_us, int(self.got), self.stalled_us)
        while self.now_us < until:
            rest_us = self.read(pacer, rest_us)
        return (self.got - got) / (self.best - best)


@pytest.mark.parametrize(
    "rates",
    [TCP, UNIX, TCP[::-1], (3.0, 6.0, 60.0, 70.0, 65.0, 30.0), (9.0, 20.0, 40.0, 10.0, 5.0, 2.0)],
)
@pytest.mark.parametrize("first", range(len(PACES)))
def test_it_settles_within_seconds(rates: Rates, first: int) -> None:
    """Whatever it began with, and wherever the best one stands."""
    machine, pacer = Machine(rates), Pacer(first)
    machine.run(pacer, 9)
    assert pacer.is_streaming
    assert rates[pacer.best] > 0.96 * max(rates)
    assert machine.run(pacer, 60) > 0.95


@pytest.mark.parametrize(
    ("before", "after"),
    [(TCP, TCP[::-1]), (UNIX, TCP), (TCP, UNIX), (TCP, (9.0, 9.0, 30.0, 9.0, 9.0, 9.0))],
)
def test_it_follows_a_machine_that_changes(before: Rates, after: Rates) -> None:
    """Another load, other rows: what was best is no more."""
    machine, pacer = Machine(before), Pacer(3)
    machine.run(pacer, 20)
    machine.rates = after
    machine.run(pacer, 6)
    assert machine.rates[pacer.best] > 0.9 * max(machine.rates)
    assert machine.run(pacer, 60) > 0.95


def test_where_all_are_alike_nothing_is_lost() -> None:
    """Noise may move it, and that costs nothing."""
    machine, pacer = Machine(ALIKE), Pacer(3)
    assert machine.run(pacer, 60) > 0.98
    assert pacer.trial_count > 10


def test_what_is_much_worse_is_rarely_tried_again() -> None:
    """And trials of it are short."""
    machine, pacer = Machine(UNIX), Pacer(0)
    machine.run(pacer, 10)
    early = pacer.trial_count
    machine.run(pacer, 60)
    assert pacer.trial_count - early < 60 / 4 + 8


def test_little_is_gathered() -> None:
    """Below a stream no pace is used, so that a lone transaction does not wait for one."""
    machine, pacer = Machine(tuple(0.8 for _ in PACES)), Pacer(3)
    machine.run(pacer, 5)
    assert not pacer.is_streaming
    assert PACES[pacer.pace] == "gather"
    assert pacer.trial_count == 0


def test_a_new_connection_is_taken_for_a_stream() -> None:
    """Of a kind whose sender buffers much it is left alone from the beginning."""
    pacer = Pacer(3)
    assert PACES[pacer.pace] == "14ms"
    assert PACES[Pacer(0).pace] == "gather"
    machine = Machine(TCP)
    machine.run(pacer, 1)
    assert pacer.is_streaming
    assert pacer.rates()[0] == 0


def test_a_connection_that_begins_with_little_is_gathered() -> None:
    """After a tenth of a second with a few messages in it none waits for a rest."""
    pacer = Pacer(3)
    pacer.feed(1_000_000, 0)
    pacer.feed_nothing()
    assert PACES[pacer.pace] == "14ms"  # nothing has come yet
    pacer.feed(2_000_000, 400)
    pacer.feed_nothing()
    assert PACES[pacer.pace] == "14ms"
    pacer.feed(2_200_000, 800)
    pacer.feed_nothing()
    assert PACES[pacer.pace] == "gather"
    assert not pacer.is_streaming


def test_a_stream_that_ends_is_gathered_again() -> None:
    """And when it comes back, the pace that was best is used at once."""
    machine, pacer = Machine(TCP), Pacer(3)
    machine.run(pacer, 9)
    best = pacer.best
    machine.rates = tuple(0.5 for _ in PACES)
    machine.run(pacer, 2)
    assert PACES[pacer.pace] == "gather"
    machine.rates = TCP
    machine.run(pacer, 1)
    assert pacer.is_streaming
    assert pacer.best == best


def test_windows_in_which_the_source_had_nothing_do_not_count() -> None:
    """A server that makes pauses is no stream, and says nothing of a pace."""
    machine, pacer = Machine(TCP), Pacer(3)
    rest_us = 0
    for _ in range(2000):
        rest_us = machine.read(pacer, rest_us)
        if machine.now_us % 30_000 < GATHER_US:
            pacer.feed_nothing()
            machine.now_us += 40_000
    assert not pacer.is_streaming
    assert pacer.rates() == [0.0] * len(PACES)


def test_a_trial_ends_where_each_of_its_rests_finds_the_socket_empty() -> None:
    """A server that sends slowly leaves nothing after 300 us; the trial is measured all the same."""
    machine, pacer = Machine(TCP, noise=0.0), Pacer(3)
    longest = in_trial_since = 0
    rest_us = pacer.feed(machine.now_us, 0)
    while machine.now_us < 60_000_000:
        rest_us = machine.read(pacer, rest_us)
        if PACES[pacer.pace] != "300us":
            in_trial_since = machine.now_us
        else:
            pacer.feed_nothing(700)
            machine.now_us += 700
        longest = max(longest, machine.now_us - in_trial_since)
    assert 0 < pacer.rates()[1] < pacer.rates()[pacer.best]
    assert longest < 500_000


def test_lone_transactions_after_a_stream_are_read_at_once() -> None:
    """No window ends any more: the rest of the stream is given up with the stream."""
    machine, pacer = Machine(TCP), Pacer(3)
    machine.run(pacer, 9)
    assert PACES[pacer.pace] != "gather"
    for _ in range(40):
        machine.now_us += 60_000
        machine.got += 200
        pacer.feed_nothing(60_000)
        pacer.feed(machine.now_us, int(machine.got))
    found = (pacer.is_streaming, PACES[pacer.pace])
    assert found == (False, "gather")


def test_a_trial_ends_when_the_source_has_nothing() -> None:
    """Whatever comes after it finds the best pace, not the one that was tried."""
    machine, pacer = Machine(TCP, noise=0.0), Pacer(3)
    rest_us = pacer.feed(machine.now_us, 0)
    while pacer.pace == pacer.best:
        rest_us = machine.read(pacer, rest_us)
    tried = pacer.pace
    pacer.feed_nothing()
    assert pacer.pace == pacer.best
    while pacer.pace == pacer.best:
        rest_us = machine.read(pacer, rest_us)
    assert pacer.pace != tried


def test_time_in_which_nobody_read_is_taken_off() -> None:
    """Full rings are no fault of the pace."""

    def rate_of(stall_us: int) -> float:
        machine, pacer = Machine(TCP, noise=0.0), Pacer(3)
        rest_us = 0
        while pacer.rates()[3] == 0:
            rest_us = machine.read(pacer, rest_us)
            machine.now_us += stall_us
            machine.stalled_us += stall_us
        return pacer.rates()[3]

    assert rate_of(7000) == pytest.approx(rate_of(0), rel=0.1)


@settings(max_examples=25, deadline=None)
@given(
    rates=st.lists(st.floats(8, 100), min_size=len(PACES), max_size=len(PACES)),
    first=st.integers(0, len(PACES) - 1),
    seed=st.integers(0, 1000),
)
def test_no_machine_loses_much(rates: list[float], first: int, seed: int) -> None:
    """Of any rates, with noise: nine tenths and more of the best fixed pace in a minute."""
    machine, pacer = Machine(tuple(rates), noise=0.3, seed=seed), Pacer(first)
    machine.run(pacer, 5)
    assert machine.run(pacer, 60) > 0.93


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(-5_000, 10**9), st.integers(0, 10**12), st.booleans()), max_size=200
    )
)
def test_whatever_is_fed_is_survived(steps: list[tuple[int, int, bool]]) -> None:
    """Clocks that stand, counters that leap: always one of the paces, and no error."""
    pacer, now_us, total = Pacer(3), 10**9, 0
    for forth, more, is_idle in steps:
        now_us, total = max(0, now_us + forth), total + more
        rest_us = pacer.feed(now_us, total)
        if is_idle:
            pacer.feed_nothing()
        assert rest_us in {0, 300, 7000, 14_000, 22_000}
        assert 0 <= pacer.best < len(PACES)


@pytest.mark.parametrize("first", [-1, len(PACES)])
def test_paces_that_are_none(first: int) -> None:
    """Refused."""
    with pytest.raises(ValueError, match="no pace"):
        Pacer(first)


def test_the_machines_are_what_they_are_called() -> None:
    """The played machines differ as those measured do."""
    fastest: Callable[[Rates], int] = lambda rates: rates.index(max(rates))  # noqa: E731
    assert PACES[fastest(TCP)] == "14ms"
    assert PACES[fastest(UNIX)] == "gather"
