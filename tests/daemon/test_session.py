"""Which error a session ends with, when several processes end together."""

import dataclasses
import json
import os
import select
from typing import Any, cast

import pytest

from gaussdecode.daemon.session import Session, SessionSettings
from gaussdecode.errors import ChildError, GaussDecodeError, SourceError, to_record
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
        decoder_count=2, queue_entries=4, raw_ring_bytes=1, decoded_ring_bytes=1, reader={}
    )
    return Session(settings, cast("Any", None), lambda: None, lambda: False, lambda: None)


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
    try:
        with pytest.raises(SourceError, match="connection refused"):
            session._watch()
    finally:
        for fd in writing:
            os.close(fd)
        session._close()


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
    try:
        with pytest.raises(SourceError, match="connection refused"):
            session._watch()
    finally:
        for fd in writing:
            os.close(fd)
        session._close()
