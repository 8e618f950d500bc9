"""A hold shows every change up to one position after the other."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from gaussdecode.collect import snapshot_gate
from gaussdecode.collect.snapshot_gate import Gate, HoldLostError
from gaussdecode.collect.spool import Spool
from gaussdecode.errors import GaussDecodeError
from gaussdecode.land.space import SpaceWait

PATIENCE = 30.0  # seconds, for a thread that has nothing to wait for
ROWS = pa.table({"id": [1], "gd_lsn": [11], "gd_csn": [None], "note": ["x"]})


class Collector:
    """Plays the collector: a position, and rows that are flushed when asked for."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.hold_session = gate.attach()
        self.generation = 1
        self.boundary = 10
        self.gathered: list[pa.Table] = []
        self.reached: dict[int, tuple[int, int]] = {}

    def commit_all(self) -> bool:
        """All is committed."""
        return True

    def reach_csn(self, csn: int) -> tuple[int, int] | None:
        """The CSN that was asked for, once its turn has come."""
        return self.reached.get(csn)

    def flush_tables(self, directories: Iterable[str]) -> None:
        """Hand over what is gathered."""
        for rows in self.gathered:
            self.hold_session.see("public.t", rows)
        self.gathered.clear()

    def schema_landed(self, directory: str, schema_id: str) -> None:
        """Never asked for here."""
        raise AssertionError


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    """A collector at work, whose gate it attends when nudged."""
    return Collector(Gate(lambda: Spool(tmp_path, SpaceWait().run)))


def held(collector: Collector) -> tuple[threading.Thread, list[object]]:
    """Let another thread hold and ask for two positions; gives what it was shown."""
    found: list[object] = []

    def ask() -> None:
        try:
            hold = collector.gate.hold({"public.t": ["id"]})
            found.append(hold.boundary)
            found.append(len(collector.gate.shown(hold, 20, lambda: None)))
            found.append(len(collector.gate.shown(hold, 15, lambda: None)))
            found.append(len(collector.gate.shown(hold, 30, lambda: None)))
            collector.gate.release(hold)
        except GaussDecodeError as error:
            found.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, found


def attend_until(collector: Collector, found: list[object], count: int) -> None:
    """Attend until so much was found."""
    while len(found) < count:
        collector.hold_session.attend(collector)


def test_positions_one_after_the_other(collector: Collector) -> None:
    """A later position is waited for anew; an earlier one is reached already."""
    thread, found = held(collector)
    attend_until(collector, found, 1)
    collector.gathered.append(ROWS)
    collector.boundary = 20
    attend_until(collector, found, 3)
    collector.gathered.append(ROWS)
    collector.hold_session.attend(collector)
    assert len(collector.gathered) == 1, "nothing is flushed before the position"
    collector.boundary = 31
    attend_until(collector, found, 4)
    thread.join()
    assert found == [10, 1, 1, 2]


def test_a_csn_is_waited_for(collector: Collector) -> None:
    """Until the collector says that all up to it is committed; and no longer than for a lost hold."""
    found: list[object] = []

    def ask() -> None:
        hold = collector.gate.hold({})
        found.append(hold)
        found.append(collector.gate.reach_csn(hold, 7))
        collector.gate.release(hold)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    attend_until(collector, found, 1)
    for _ in range(5):
        collector.hold_session.attend(collector)
        time.sleep(0.01)
    assert len(found) == 1
    collector.reached[7] = (8, 99)
    attend_until(collector, found, 2)
    thread.join()
    assert found[1] == (8, 99)


def test_a_csn_that_never_comes_is_given_up(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view is not held for ever behind a statement that does not end."""
    monkeypatch.setattr(snapshot_gate, "_MARK_SECONDS", 0.1)
    found: list[object] = []

    def ask() -> None:
        hold = collector.gate.hold({})
        try:
            collector.gate.reach_csn(hold, 7)
        except HoldLostError as error:
            found.append(error)
        collector.gate.release(hold)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    attend_until(collector, found, 1)
    thread.join()
    assert "no CSN mark reached 7" in str(found[0])


def test_abandoned_hold_is_lost(collector: Collector) -> None:
    """Who waits for a position when the session ends is told so."""
    thread, found = held(collector)
    attend_until(collector, found, 1)
    collector.hold_session.end()
    thread.join(PATIENCE)
    assert isinstance(found[-1], HoldLostError)


def test_hold_is_lost_when_another_collector_attends(collector: Collector) -> None:
    """Also where nobody told of the end of the one before."""
    thread, found = held(collector)
    attend_until(collector, found, 1)
    collector.gate.attach()
    thread.join(PATIENCE)
    assert isinstance(found[-1], HoldLostError)


def test_lost_hold_does_nothing_any_more(collector: Collector) -> None:
    """Though it was lost between the collector's look at it and its turn."""
    thread, found = held(collector)
    attend_until(collector, found, 1)
    hold = collector.hold_session.hold
    assert hold is not None
    collector.hold_session.end()
    acted: list[object] = []
    collector.hold_session._act(hold, acted.append, collector)
    assert not acted
    thread.join(PATIENCE)


def test_only_what_is_looked_at_is_kept(collector: Collector) -> None:
    """Of the changes, their positions and the columns that were asked for; of no other table."""
    seen: list[pa.Table] = []

    def ask() -> None:
        hold = collector.gate.hold({"public.t": ["id", "gd_old"]})
        seen.extend(collector.gate.shown(hold, 20, lambda: None))
        seen.append(pa.table({}))

    thread = threading.Thread(target=ask)
    thread.start()
    while not collector.hold_session.is_closed:
        collector.hold_session.attend(collector)
    collector.hold_session.see("public.other", ROWS)
    collector.hold_session.see("public.t", ROWS)
    collector.boundary = 20
    while len(seen) < 2:
        collector.hold_session.attend(collector)
    thread.join()
    assert seen[0].to_pylist() == [{"id": 1, "gd_lsn": 11, "gd_csn": None}]


_STREAM = """
import resource, sys, threading
from pathlib import Path
import numpy as np, pyarrow as pa
from gaussdecode.collect.snapshot_gate import Gate
from gaussdecode.collect.spool import Spool
from gaussdecode.land.space import SpaceWait

class Port:
    boundary = 0
    def commit_all(self): return True
    def flush_tables(self, directories): pass

gate = Gate(lambda: Spool(Path(sys.argv[1]), SpaceWait().run))
attendance = gate.attach()
holds = []
thread = threading.Thread(target=lambda: holds.append(gate.hold({"public.t": ["id", "text"]})))
thread.start()
while not holds:
    attendance.attend(Port())
thread.join()
noise = np.random.default_rng(1)
streamed = 0
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
while streamed < 400 << 20:
    texts = pa.array([noise.bytes(1000).hex() for _ in range(2000)])
    ids = pa.array(np.arange(2000))
    rows = pa.table({"id": ids, "gd_lsn": ids, "gd_csn": ids, "text": texts})
    attendance.see("public.t", rows)
    streamed += rows.nbytes
count = sum(rows.num_rows for rows in holds[0].seen.pieces())
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(streamed, count, (after - before) << 10)
"""


def test_held_rows_take_no_memory(tmp_path: Path) -> None:
    """400 MiB of changes of a table that is held add a few row groups to the process."""
    output = subprocess.run(
        [sys.executable, "-c", _STREAM, str(tmp_path)], check=True, capture_output=True, text=True
    ).stdout
    streamed, count, grown = map(int, output.split())
    assert count * 2000 < streamed < count * 2100
    assert grown < 100 << 20
