"""Choosing how many decoders there are, on machines that are played."""

import dataclasses

import pytest

from gaussdecode.daemon.decoders import (
    BACKOFF_SECONDS,
    MOST_BACKOFF_SECONDS,
    MOST_REREAD_BYTES,
    Choice,
    Seen,
    Window,
)

MB = 1_000_000
STEP = 0.2


@dataclasses.dataclass
class Machine:
    """A stream whose rate is that of its slowest stage; seconds per GB, cores, and what comes in.

    Attributes:
        receive: of the reader's thread, without decoding.
        decode: of decoding.
        rest: of collector and lanes, on other cores.
        lanes: cores that these may use at most.
        cores: of the machine.
        offered: GB/s that the server sends at most.
        overhead: seconds per GB that queues cost where decoders are processes.
        reread: see `Seen`.
    """

    receive: float = 0.4
    decode: float = 1.2
    rest: float = 0.5
    lanes: float = 1.0
    cores: float = 8.0
    offered: float = 100.0
    overhead: float = 0.2
    reread: int | None = 0
    count: int = 1
    now: float = 1000.0
    changes: int = 0
    idle: float = 0.0
    taken: float = 0.0
    reader: float = 0.0
    stalled: float = 0.0
    decoders: float = 0.0
    blocked: float = 0.0

    def rate(self) -> float:
        """GB/s."""
        if self.count == 1:
            stages = [1 / (self.receive + self.decode)]
            total = self.receive + self.decode + self.rest
        else:
            stages = [1 / (self.receive + self.overhead / 2), self.count / self.decode]
            total = self.receive + self.decode + self.rest + self.overhead
        return min(*stages, self.lanes / self.rest, self.cores / total, self.offered)

    def run(self, choice: Choice, seconds: float) -> None:
        """Stream for so long, with the number of decoders that is chosen."""
        end = self.now + seconds
        while self.now < end:
            self._step()
            if choice.is_due(self.now) and choice.look(self._seen()):
                self.changes += 1
                self.count = choice.count
                self.taken = self.reader = self.stalled = self.decoders = self.blocked = 0.0
                choice.begin()

    def _step(self) -> None:
        rate = self.rate()
        self.now += STEP
        self.taken += rate * STEP
        own = self.receive + (self.decode if self.count == 1 else self.overhead / 2)
        self.reader += rate * own * STEP
        is_behind = rate >= self.lanes / self.rest * 0.999
        self.stalled += STEP * (1 - rate * own) * is_behind
        others = 0.0 if self.count == 1 else rate * (self.decode + self.overhead / 2)
        self.decoders += others * STEP
        self.blocked += STEP * (self.count - others) * (is_behind and self.count > 1)
        self.idle += STEP * (self.cores - rate * (own + self.rest) - others)

    def _seen(self) -> Seen:
        return Seen(
            at=self.now,
            received_bytes=int(self.taken * 1000 * MB),
            reader_busy=self.reader,
            reader_stalled=self.stalled,
            decoders_busy=self.decoders,
            decoders_blocked=self.blocked,
            idle=(self.idle,),
            reread_bytes=self.reread,
        )


def best_of(machine: Machine) -> float:
    """The rate with the best number of decoders."""
    return max(dataclasses.replace(machine, count=count).rate() for count in (1, 2, 4))


MACHINES = {
    "eight cores": Machine(),
    "sixteen cores, dear values": Machine(decode=4.0, cores=16.0),
    "four cores": Machine(cores=4.0),
    "two cores": Machine(cores=2.0),
    "one core": Machine(cores=1.0),
    "dear queues": Machine(decode=0.1, overhead=1.0),
    "slow files": Machine(rest=4.0),
    "slow server": Machine(offered=0.3),
}


@pytest.mark.parametrize("name", MACHINES)
def test_it_settles_near_the_best(name: str) -> None:
    """After two minutes the rate is within 5 % of the best number's, on every machine."""
    machine, choice = dataclasses.replace(MACHINES[name]), Choice(4)
    machine.run(choice, 120)
    assert machine.rate() >= 0.95 * best_of(machine)


@pytest.mark.parametrize("name", ["one core", "slow files", "slow server"])
def test_nothing_is_tried_where_it_cannot_help(name: str) -> None:
    """A machine without idle cores, or with another limit, stays serial."""
    machine, choice = dataclasses.replace(MACHINES[name]), Choice(4)
    machine.run(choice, 3600)
    assert machine.changes == 0


def test_what_is_worse_is_given_up_and_tried_seldom() -> None:
    """Tries that bring nothing come a minute apart, then two, and never more than an hour."""
    machine, choice = dataclasses.replace(MACHINES["dear queues"]), Choice(4)
    machine.run(choice, 4 * MOST_BACKOFF_SECONDS)
    tries = machine.changes // 2
    assert choice.count == 1
    assert 7 <= tries <= 12


def test_a_try_in_vain_waits_before_the_next() -> None:
    """Within the first backoff there is one try."""
    machine, choice = dataclasses.replace(MACHINES["dear queues"]), Choice(4)
    machine.run(choice, BACKOFF_SECONDS)
    assert machine.changes == 2
    assert choice.rate_tried is not None
    assert choice.rate_before is not None
    assert choice.rate_tried < choice.rate_before


def test_quiet_streams_go_back_to_one() -> None:
    """When the work would fit one thread with time to spare, decoders go."""
    machine, choice = Machine(), Choice(4)
    machine.run(choice, 120)
    assert choice.count > 1
    machine.offered = 0.05
    machine.run(choice, 600)
    assert choice.count == 1


def test_a_machine_that_gets_busy_gets_fewer() -> None:
    """Where no core is left, the cheapest way is the fastest."""
    machine, choice = Machine(overhead=0.4), Choice(4)
    machine.run(choice, 120)
    assert choice.count > 1
    machine.cores = 1.0
    machine.run(choice, 600)
    assert machine.rate() >= 0.95 * best_of(machine)
    assert choice.count == 1


@pytest.mark.parametrize("reread", [None, MOST_REREAD_BYTES + 1])
def test_a_server_that_would_read_much_again_is_left_alone(reread: int | None) -> None:
    """No session ends where that may cost more than it brings."""
    machine, choice = Machine(reread=reread), Choice(4)
    machine.run(choice, 600)
    assert machine.changes == 0


def test_no_more_than_the_most() -> None:
    """A bound of two is kept."""
    machine, choice = Machine(decode=4.0, cores=16.0), Choice(2)
    machine.run(choice, 600)
    assert choice.count == 2


def test_idle_is_what_the_one_tells_who_tells_of_the_fewest() -> None:
    """Per second of the window; nothing where others tell than before."""
    seen = Seen(at=10.0, received_bytes=0, reader_busy=0, reader_stalled=0, idle=(100.0, 7.0))

    def found(*idle: float) -> float:
        return Window.between(seen, dataclasses.replace(seen, at=20.0, idle=idle)).idle

    assert found(109.0, 7.0) == 0.0
    assert found(100.0, 11.0) == 0.0
    assert found(103.0, 11.0) == pytest.approx(0.3)
    assert found(200.0) == 0.0
