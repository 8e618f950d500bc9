"""A hold shows every change up to one position after the other."""

import threading
from collections.abc import Iterable

import pyarrow as pa
import pytest

from gaussdecode.collect.gate import Gate, HoldLostError
from gaussdecode.errors import GaussDecodeError

ROWS = pa.table({"id": [1]})


class Collector:
    """Plays the collector: a position, and rows that are flushed when asked for."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.boundary = 10
        self.gathered: list[pa.Table] = []

    def settle(self) -> bool:
        """All is published."""
        return True

    def flush_tables(self, directories: Iterable[str]) -> None:
        """Hand over what is gathered."""
        for rows in self.gathered:
            self.gate.see("public.t", rows)
        self.gathered.clear()

    def schema_landed(self, directory: str, schema_id: str) -> None:
        """Never asked for here."""
        raise AssertionError


@pytest.fixture
def collector() -> Collector:
    """A collector at work, whose gate it attends when nudged."""
    made = Collector(Gate())
    made.gate.attach()
    return made


def held(collector: Collector) -> tuple[threading.Thread, list[object]]:
    """Let another thread hold and ask for two positions; gives what it was shown."""
    found: list[object] = []

    def ask() -> None:
        try:
            hold = collector.gate.hold(["public.t"])
            found.append(hold.boundary)
            found.append(len(collector.gate.shown(hold, 20, lambda: None)))
            found.append(len(collector.gate.shown(hold, 15, lambda: None)))
            found.append(len(collector.gate.shown(hold, 30, lambda: None)))
            collector.gate.release(hold)
        except GaussDecodeError as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, found


def attend_until(collector: Collector, found: list[object], count: int) -> None:
    """Attend until so much was found."""
    while len(found) < count:
        collector.gate.attend(collector)


def test_positions_one_after_the_other(collector: Collector) -> None:
    """A later position is waited for anew; an earlier one is reached already."""
    thread, found = held(collector)
    attend_until(collector, found, 1)
    collector.gathered.append(ROWS)
    collector.boundary = 20
    attend_until(collector, found, 3)
    collector.gathered.append(ROWS)
    collector.gate.attend(collector)
    assert len(collector.gathered) == 1, "nothing is flushed before the position"
    collector.boundary = 31
    attend_until(collector, found, 4)
    thread.join()
    assert found == [10, 1, 1, 2]


def test_abandoned_hold_is_lost(collector: Collector) -> None:
    """Who waits for a position when the session ends is told so."""
    thread, found = held(collector)
    attend_until(collector, found, 1)
    collector.gate.abandon()
    thread.join()
    assert isinstance(found[-1], HoldLostError)
