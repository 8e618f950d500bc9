"""Which error a session ends with, and when a stage counts as stuck."""

import dataclasses
import json
import os
import re
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
from kit.landrun import Landing
from kit.simdisk import SimFiles

from gaussdecode.collect.collector import Collector, CollectorSettings
from gaussdecode.collect.spool import Spool
from gaussdecode.collect.tables import Tables
from gaussdecode.daemon import session as session_module
from gaussdecode.daemon.session import Facts, Session, SessionSettings
from gaussdecode.daemon.session_life import Turn
from gaussdecode.errors import (
    ChildError,
    GaussDecodeError,
    SourceError,
    TableError,
    WireError,
    to_record,
)
from gaussdecode.ipc.control import Word
from gaussdecode.ipc.process import STUCK_SECONDS, Child
from gaussdecode.ipc.ring import Ring
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.writer import Intake, Writer
from gaussdecode.model.landing import EntryKind, SourcePosition

_COLLECTOR: Final = CollectorSettings(
    row_group_rows=10,
    row_group_bytes=1 << 20,
    memory_bytes=1 << 22,
    txn_memory_bytes=1 << 20,
    target_file_size=1 << 20,
    max_commit_interval=3600.0,
    only_local=True,
    skip_empty_xacts=False,
    include_xids=False,
    include_timestamp=False,
)


@dataclasses.dataclass(slots=True)
class _Process:
    """A process that has ended.

    Attributes:
        returncode: its exit status.
        pid: its number.
    """

    returncode: int
    pid: int = 1

    def poll(self) -> int:
        """As `subprocess.Popen`."""
        return self.returncode

    def kill(self) -> None:
        """As `subprocess.Popen`."""

    def wait(self, timeout: float | None = None) -> int:
        """As `subprocess.Popen`."""
        return self.returncode


def _session() -> Session:
    settings = SessionSettings(
        decoder_count=2,
        queue_entries=4,
        raw_ring_bytes=1,
        decoded_ring_bytes=1,
        kept_buffer_bytes=1,
        max_row_bytes=1 << 30,
        defers_large_rows=False,
        reader={},
    )
    session = Session(settings, cast("Any", None), lambda _: True, lambda: False, lambda: None)
    session._turn(Turn.SPAWN)
    return session


def _ended(session: Session, name: str, error: GaussDecodeError | None) -> int:
    """Add a child that has ended; gives the writing end of its reports."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    status = 0 if error is None else error.exit_status
    child = Child(name, cast("Any", _Process(status)), reading)
    session._children.append(child)
    session._selector.register(reading, select.POLLIN, child)
    if error is not None:
        report = {"kind": "error", "error": to_record(error)}
        os.write(writing, json.dumps(report).encode() + b"\n")
    return writing


def _end_of(session: Session, writing: list[int]) -> GaussDecodeError:
    """Let the session see its children's ends; give the error it ends with."""
    try:
        with pytest.raises(GaussDecodeError) as caught:
            session._watch()
    finally:
        for fd in writing:
            os.close(fd)
        session._close()
    return caught.value


@pytest.mark.parametrize("is_reader_first", [True, False])
def test_refused_reader_is_the_reason(is_reader_first: bool) -> None:
    """Decoders that die because the reader could not connect do not hide why."""
    session = _session()
    errors = [
        ("reader", SourceError("connection refused")),
        ("decoder 0", ChildError("the reader ended without closing its stream")),
    ]
    writing = [
        _ended(session, name, error)
        for name, error in (errors if is_reader_first else errors[::-1])
    ]
    error = _end_of(session, writing)
    assert isinstance(error, SourceError)
    assert "connection refused" in str(error)


def test_refusal_written_after_the_first_look() -> None:
    """Reports are read again once a dead child is seen."""
    session = _session()
    writing = [_ended(session, "reader", None), _ended(session, "decoder 0", None)]
    reader, decoder = session._children
    cast("Any", reader.process).returncode = SourceError.exit_status
    cast("Any", decoder.process).returncode = ChildError.exit_status

    def write_late() -> None:
        report = {"kind": "error", "error": to_record(SourceError("connection refused"))}
        os.write(writing[0], json.dumps(report).encode() + b"\n")

    session._on_tick = write_late
    error = _end_of(session, writing)
    assert isinstance(error, SourceError)
    assert "connection refused" in str(error)


def test_failed_reader_is_the_reason() -> None:
    """What broke in the reader is named, not that the decoders then saw its queue end."""
    session = _session()
    session._fail(ChildError("a decoder ended without closing its stream"))
    writing = _ended(session, "reader", GaussDecodeError("MemoryError: no memory"))
    assert "no memory" in str(_end_of(session, [writing]))


def test_reader_that_died_without_a_word_is_the_reason() -> None:
    """Its exit status is named where there is no report."""
    session = _session()
    session._fail(ChildError("a decoder ended without closing its stream"))
    writing = _ended(session, "reader", None)
    cast("Any", session._children[0].process).returncode = 1
    error = _end_of(session, [writing])
    assert isinstance(error, ChildError)
    assert re.search("reader .* ended with status 1", str(error))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_killed_reader_is_the_reason(place: int) -> None:
    """Whoever of them is looked at first: the decoders died of it."""
    session = _session()
    leave = threading.Event()
    session._thread = threading.Thread(target=leave.wait)  # a collector that has seen nothing yet
    session._thread.start()
    names = ["decoder 0", "decoder 1"]
    names.insert(place, "reader")
    of_a_neighbour = ChildError("the reader ended without closing its stream")
    writing = [
        _ended(session, name, None if name == "reader" else of_a_neighbour) for name in names
    ]
    cast("Any", session._children[place].process).returncode = -9
    session._turn(Turn.CONNECTED)
    leaving = threading.Timer(1.0, leave.set)
    leaving.start()
    error = _end_of(session, writing)
    leaving.join()
    assert re.search("reader .* was killed by signal 9", str(error))


def test_slow_collector_comes_to_what_a_decoder_said() -> None:
    """It waits for the disk a while, say; what it then finds in the queue names the table."""
    session = _session()
    error = TableError("public", "t", 16384, 5, "a row of 3 columns")

    def collect() -> None:
        time.sleep(1.0)
        session._fail(error)

    session._thread = threading.Thread(target=collect)
    session._thread.start()
    writing = _ended(session, "decoder 0", WireError("a row of 3 columns", 0))
    session._turn(Turn.CONNECTED)
    assert _end_of(session, [writing]) is error


def test_first_failure_is_the_reason() -> None:
    """What fails because of it does not take its place."""
    session = _session()
    session._fail(SourceError("the disk of the server is full"))
    session._fail(ChildError("the reader ended without closing its stream"))
    assert "disk of the server" in str(_end_of(session, []))


@pytest.mark.parametrize("turn", [Turn.STOPPED, Turn.FAIL])
def test_reader_that_connects_too_late_is_not_answered(turn: Turn) -> None:
    """Nothing is begun for it, and it is not let go."""
    session = _session()
    begun: list[Facts] = []
    session._begin = lambda facts, _: cast("Any", begun.append(facts))
    session._turn(turn)
    session._connected({})
    assert not begun
    assert not session.control.get(Word.GO)
    session._close()


@pytest.mark.parametrize("has_begun", [False, True])
def test_stream_has_begun_when_the_source_says_so(has_begun: bool) -> None:
    """Not when it has connected: it may still refuse, as it does where the slot is in use."""
    told: list[bool] = []
    session = _session()
    session._on_streaming = lambda: told.append(True)
    session._turn(Turn.CONNECTED)
    writing = _ended(session, "reader", SourceError("slot orders is in use by process 7"))
    reports = [{"kind": "streaming"}] if has_begun else []
    for report in reports:
        session._take_report(session._children[0], report)
    session._take_reports(1.0)
    assert session._reader_error is not None
    assert told == [True] * has_begun
    os.close(writing)
    session._close()


# ---- the end ------------------------------------------------------------------------------


@pytest.fixture
def intake() -> Iterator[Intake]:
    """The way into a landing."""
    log = Landing(SimFiles()).open()
    log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 1)))
    writer = Writer(log, lanes=1, on_durable=lambda _: None, on_error=lambda _: None)
    yield writer.begin()
    writer.close()
    log.close()


def _collecting(session: Session, intake: Intake, directory: Path) -> Ring:
    """Give a session a collector, and a queue to which nothing comes."""
    tables = Tables(intake.schemas, lambda schema, name: f"{schema}.{name}", list, lambda _: None)
    spool = Spool(directory, SpaceWait().run)
    position = SourcePosition(0, 1, 1)
    session.collector = Collector(_COLLECTOR, tables, intake, spool, position, {})
    session.decoded_rings = [Ring.create(1 << 16, 4)]
    session._thread = threading.Thread(target=session._collect, daemon=True)
    return session.decoded_rings[0]


def test_collector_of_a_session_that_was_given_up_ends(intake: Intake, tmp_path: Path) -> None:
    """Even where nothing comes any more, and nothing that it could hand over."""
    session = _session()
    _collecting(session, intake, tmp_path)
    assert session._thread is not None
    session._thread.start()
    session._close()
    assert not session._thread.is_alive()


def test_queue_is_not_closed_under_a_thread_that_uses_it(
    intake: Intake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for the disk longer than anybody waits for it: it would read nowhere."""
    monkeypatch.setattr(session_module, "LEAVE_SECONDS", 0.1)
    session = _session()
    ring = _collecting(session, intake, tmp_path)
    leave = threading.Event()
    session._thread = threading.Thread(target=leave.wait)
    session._thread.start()
    session._close()
    try:
        ring.put_bytes(b"x")
    finally:
        leave.set()
        session._thread.join()
    ring.close()


# ---- standing still -----------------------------------------------------------------------


@pytest.fixture
def idle_collector() -> Iterator[Session]:
    """A session whose collector runs, but has not moved for too long."""
    session = _session()
    leave = threading.Event()
    session._thread = threading.Thread(target=leave.wait)
    session._thread.start()
    session._grace_until = 0.0
    session.collector_round_ns = time.monotonic_ns() - int(2 * STUCK_SECONDS * 1e9)
    yield session
    leave.set()
    session._close()


def test_stage_that_stands_still_ends_the_session(idle_collector: Session) -> None:
    """It is named."""
    with pytest.raises(ChildError, match="collector has not moved"):
        idle_collector._check_progress()


def test_decoder_that_never_moved_ends_the_session(idle_collector: Session) -> None:
    """It hangs in its start, and its first sign of life is waited for no longer than any other."""
    idle_collector.collector_round_ns = time.monotonic_ns()
    idle_collector.raw_rings = [Ring.create(1 << 16, 16)]
    idle_collector._spawned_ns = time.monotonic_ns() - int(2 * STUCK_SECONDS * 1e9)
    idle_collector.control.set(Word.READER_HEARTBEAT_NS, time.monotonic_ns())
    with pytest.raises(ChildError, match="decoder 0 has not moved"):
        idle_collector._check_progress()


def test_source_that_does_not_answer_ends_the_session() -> None:
    """Before the stream nothing moves; the source is asked again by the next session."""
    session = _session()
    session._check_progress()
    session._grace_until = 0.0
    with pytest.raises(SourceError, match="did not answer") as caught:
        session._check_progress()
    assert caught.value.retryable
    session._close()


def test_waiting_for_the_disk_is_not_standing_still(idle_collector: Session) -> None:
    """After a long wait for room the stages have time to move again."""
    idle_collector.control.set(Word.DISK_WAIT, 1)
    idle_collector._tick()
    idle_collector.control.set(Word.DISK_WAIT, 0)
    idle_collector._tick()
    assert idle_collector.stuck_stage() is None


def test_waiting_for_a_writer_that_moves_is_not_standing_still(idle_collector: Session) -> None:
    """A slow disk takes its time, and the collector waits for it."""
    idle_collector._landed_ns = time.monotonic_ns
    assert idle_collector.stuck_stage() is None


def test_watchdog_is_fed_while_the_rest_is_landed() -> None:
    """The end of a session waits for the disk without looking dead."""
    session = _session()
    session._thread = threading.Thread(target=int)
    session._thread.start()
    session._thread.join()
    session._turn(Turn.CONNECTED)
    session._turn(Turn.COLLECTED)
    ticks: list[int] = []
    session._on_tick = lambda: ticks.append(1)
    session._drain = lambda _: len(ticks) >= 3
    session._finish()
    session._close()
    assert len(ticks) >= 3


def test_writer_that_hangs_at_the_end_ends_the_session(idle_collector: Session) -> None:
    """A publication that never ends is found while it is waited for, too."""
    idle_collector.collector_round_ns = time.monotonic_ns()

    def drain(_: float) -> bool:
        idle_collector._drain_began_ns = time.monotonic_ns() - int(2 * STUCK_SECONDS * 1e9)
        return False

    idle_collector._drain = drain
    with pytest.raises(ChildError, match="writer has not moved"):
        idle_collector._finish()
