"""Show the sources of a ``/status`` document to a person."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gaussdecode.daemon.status.text import UNKNOWN, known, size, span
from gaussdecode.model.words import counted

_MOST: Final = 3  # transactions that are named; arbitrary

COLUMNS: Final = (
    "source",
    "slot",
    "server",
    "lag",
    "lag in time",
    "received LSN",
    "durable LSN",
    "confirmed LSN",
    "CSN",
    "waiting for turn",
    "CSN mark",
)


def member_cells(of: Mapping[str, Any]) -> tuple[str, ...]:  # Any: JSON
    """A row below `COLUMNS`."""
    csn = of["watermark_csn"]
    return (
        of["name"],
        of["slot"],
        of["host"],
        known(of["lag_bytes"], size),
        known(of["lag_seconds"], span),
        of["received_lsn"] or UNKNOWN,
        of["durable_lsn"] or UNKNOWN,
        of["confirmed_lsn"] or UNKNOWN,
        "-" if csn is None else str(csn),
        str(of["waiting_transactions"]),
        waited_for(of) or "-",
    )


def member_line(of: Mapping[str, Any]) -> str:  # Any: JSON
    """One line of a source."""
    csn = of["watermark_csn"]
    parts = [
        f"{known(of['lag_bytes'], size)}, {known(of['lag_seconds'], span)} behind",
        f"durable {of['durable_lsn'] or UNKNOWN}" + ("" if csn is None else f", CSN {csn}"),
    ]
    if of["waiting_transactions"]:
        turn = of["waiting_transactions"]
        verb = "waits for its turn" if turn == 1 else "wait for their turn"
        parts.append(f"{counted(turn, 'transaction')} {verb}")
    if of["is_late"]:
        parts.append(waited_for(of))
    return f"source {of['name']} ({of['slot']} at {of['host']}): {'; '.join(parts)}"


def waited_for(of: Mapping[str, Any]) -> str:  # Any: JSON
    """Since when, and for what, the mark waits for a source; empty where it does not."""
    if not of["is_late"]:
        return ""
    rows: Sequence[Mapping[str, Any]] = of["held_by"]  # Any: JSON
    named = [
        f"transaction {row['xid']}" + (f" of thread {row['pid']}" if row["pid"] else ", prepared")
        for row in rows[:_MOST]
    ]
    more = [f"{len(rows) - _MOST} more"] if len(rows) > _MOST else []
    what = "; ".join([*named, *more]) or "its stream or answer"
    return f"the mark has waited {span(of['held_seconds'])} for {what}"
