"""Tests for `gaussdecode.daemon.summary`."""

import datetime as dt
import io
import json

from gaussdecode.daemon.status.landed import Landed
from gaussdecode.daemon.summary import Summary
from gaussdecode.logs import configure
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile, Position, SourcePosition

LAG = {"lag_bytes": 72, "lag_seconds": 0.251}
_NOW = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


def entry(n: int, rows: int) -> CommitEntry:
    """An entry with one file, or with none."""
    place = Position(0x100, 0)
    file = LandingFile(
        table="t", path=f"data/t/{n}", rows=rows, bytes=10 * rows, first=place, last=place,
        schema_id="s", ops={"I": rows}, has_unchanged=False, has_key_change=False, checksum="c",
    )  # fmt: skip
    return CommitEntry(
        n=n, kind=EntryKind.DATA if rows else EntryKind.IDLE, previous="",
        positions={"a": SourcePosition(1, 1, 0x100 + n)}, committed_time=_NOW, mtime_ms=0,
        commit_time=None, files=(file,) if rows else (), hidden=(),
    )  # fmt: skip


def test_one_line_a_minute_and_none_for_nothing() -> None:
    """With what came since the line before; idle entries alone are nothing; the end has its own."""
    log = io.StringIO()
    configure("info", file=log, is_readable=False)
    landed = Landed()
    summary = Summary(landed, 0.0)
    landed.add(entry(1, 3))
    landed.add(entry(2, 4))
    landed.reach(2, 0x102)
    summary.tell(59.0, LAG)
    summary.tell(60.0, LAG)
    landed.add(entry(3, 0))
    summary.tell(120.0, LAG)
    landed.add(entry(4, 5))
    landed.reach(4, 0x104)
    summary.tell(121.0, LAG, is_last=True)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    names = (
        "event",
        "level",
        "seconds",
        "entries",
        "rows",
        "bytes",
        "files",
        "position",
        "lag_seconds",
    )
    assert [[line[name] for name in names] for line in lines] == [
        ["minute_landed", "info", 60.0, 2, 7, 70, 2, "0/102", 0.3],
        ["minute_landed", "info", 1.0, 1, 5, 50, 1, "0/104", 0.3],
    ]
