"""Which error a session ends with, and when a stage counts as stuck."""

import dataclasses
import json
import os
import re
import select
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from gaussdecode.daemon.session import STUCK_SECONDS, Session, SessionSettings, Turn
from gaussdecode.errors import ChildError, GaussDecodeError, SourceError, to_record
from gaussdecode.ipc.control import Word
from gaussdecode.ipc.process import Child


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


def test_source_that_does_not_answer_ends_the_session() -> None:
    """Before the stream nothing moves; the source is asked again by the next session."""
    session = _session()
    session._check_progress()
    session._grace_until = 0.0
    with pytest.raises(SourceError, match="has not answered") as caught:
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
