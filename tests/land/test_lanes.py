"""How many lanes there are, on machines that are played."""

import dataclasses

import pytest

from gaussdecode.land.lanes import WINDOW_SECONDS, Lanes


@dataclasses.dataclass
class Machine:
    """Cores, and what a stream that never waits has its lanes do.

    Attributes:
        cores: of the machine.
        others: that something else uses.
        wanted: cores that the lanes could use, if there were as many of them.
        of_a_lane: core seconds in a second of its work; the rest it waits for the disk.
    """

    cores: float
    others: float
    wanted: float
    of_a_lane: float = 1.0
    now: float = 1000.0
    spent: float = 0.0
    waited: float = 0.0
    idle: float = 0.0
    count: int = 2

    def run(self, lanes: Lanes, seconds: float) -> None:
        """Look four times in each window."""
        step = WINDOW_SECONDS / 4
        for _ in range(round(seconds / step)):
            working = min(self.count, self.wanted / self.of_a_lane)
            used = min(self.cores, self.others + working * self.of_a_lane)
            self.spent += step * working
            self.waited += step * (working == self.count)
            self.idle += step * (self.cores - used)
            self.now += step
            self.count += lanes.look(self.now, self.spent, self.waited, self.count)

    def lanes(self, most: int = 8) -> Lanes:
        """Those of this machine."""
        return Lanes(2, most, lambda _: (self.idle,))


@pytest.mark.parametrize(
    ("machine", "count"),
    [
        pytest.param(Machine(8, 2, 100), 6, id="until the cores are used"),
        pytest.param(Machine(64, 3, 100), 8, id="until there are as many as allowed"),
        pytest.param(Machine(64, 2, 3.3), 4, id="until they keep up"),
        pytest.param(Machine(64, 2, 1.5), 2, id="not where two keep up"),
        pytest.param(Machine(2, 1, 100), 2, id="not where no core is idle"),
        pytest.param(Machine(8, 7, 100), 2, id="not where others use the cores"),
        pytest.param(Machine(2, 0.5, 100, 0.1), 8, id="where the disk is slow, too"),
    ],
)
def test_lanes_grow_as_long_as_they_help(machine: Machine, count: int) -> None:
    """The collector waits for them, and cores are idle: within seconds."""
    machine.run(machine.lanes(), 12 * WINDOW_SECONDS)
    assert machine.count == count


def test_a_number_that_somebody_named_stays() -> None:
    """Whatever the cores could do; nobody asks what they do then."""

    def ask(_: float) -> tuple[float, ...]:
        raise AssertionError

    machine = Machine(64, 0, 100)
    machine.run(Lanes(2, 2, ask), 12 * WINDOW_SECONDS)
    assert machine.count == 2


def test_who_waits_for_the_committer_gets_no_lanes() -> None:
    """Entries that take long leave the lanes without work."""
    lanes, idle = Lanes(2, 8, lambda now: (4 * now,)), 0
    for second in range(12):
        idle += lanes.look(WINDOW_SECONDS * second, 0.8 * second, 0.9 * second, 2)
    assert not idle


def test_where_nobody_tells_of_the_cores_there_are_no_others() -> None:
    """They could make everything slower."""
    machine = Machine(64, 0, 100)
    machine.run(Lanes(2, 8, lambda _: ()), 12 * WINDOW_SECONDS)
    assert machine.count == 2
