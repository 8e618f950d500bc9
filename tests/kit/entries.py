"""Builds decoded batches byte by byte, as a decoder process would hand them over.

Only what the collector's tests need: relations of one int64 column ``id`` (the identity)
and one text column ``note``, rows without old tuples, markers and messages.
"""

import dataclasses
import json
import struct
from typing import Any

from gaussdecode.model.relation import Column, Relation, ReplicaIdentity
from gaussdecode.model.types import ColumnType, Kind
from kit.wire import NONE, Tally

ENTRY_MAGIC = 0x42444447
HEADER = struct.Struct("=IIQQIIQQQQ3Q18QII")
EVENT = struct.Struct("=BBHIIIQQQQQ")
PART = struct.Struct("=IIIIQQQQQQII")
COLUMN = struct.Struct("=BBHIQQQQIIQQQQ")
BEGIN, COMMIT, SEGMENT, TRUNCATE, MESSAGE, ORIGIN, KEEPALIVE, RELATION, CSN, NOTICE = range(1, 11)
STREAM_START, STREAM_COMMIT, STREAM_ABORT = range(12, 15)
PREPARE, COMMIT_PREPARED, ROLLBACK_PREPARED = range(15, 18)
TAKEN_BACK = 19
DATA, END, ERROR = range(3)


@dataclasses.dataclass(frozen=True)
class Row:
    """One inserted row of relation `version`; in a block, of (sub)transaction `xid`.

    Rows of one segment must not have an LSN below the first one's, or 4 GiB above it.
    """

    version: int
    id: int
    note: str | None
    xid: int = 0
    lsn: int = 0


@dataclasses.dataclass(frozen=True)
class Mark:
    """Any event that is not rows."""

    kind: int
    flags: int = 0
    index: int = 0
    x: int = 0
    y: int = 0
    z: int = 0
    payload: bytes = b""


Item = Row | Mark


def relation(
    version: int, name: str, oid: int | None = None, *, filtered: bool = False
) -> Relation:
    """Describe a table ``public.<name>``."""
    columns = (
        Column("id", 20, -1, "bigint", ColumnType(Kind.INT64), is_identity=True),
        Column("note", 25, -1, "text", ColumnType(Kind.STRING), is_identity=False),
    )
    return Relation(
        version, oid or version + 16384, "public", name, ReplicaIdentity.DEFAULT, columns, filtered
    )


def relation_mark(of: Relation, *, is_streamed: bool = False) -> Mark:
    """The event that describes a relation."""
    payload = json.dumps(of.to_record()).encode()
    return Mark(RELATION, is_streamed, of.version, payload=payload)


class _Bytes:
    """Bytes that grow, and are padded to 8."""

    def __init__(self) -> None:
        self.data = bytearray()

    def put(self, chunk: bytes) -> int:
        offset = len(self.data)
        self.data += chunk + bytes(-len(chunk) % 8)
        return offset


def tally(items: list[Item]) -> Tally:
    """What a reader would have counted of these."""
    marks = [item.kind for item in items if isinstance(item, Mark)]
    rows = len(items) - len(marks)
    ends = sum(marks.count(kind) for kind in (COMMIT, STREAM_COMMIT, COMMIT_PREPARED))
    deletes = marks.count(TAKEN_BACK)
    return ends, rows, 0, deletes, marks.count(TRUNCATE), marks.count(MESSAGE)


def entry(
    seq: int,
    items: list[Item],
    kind: int = DATA,
    *,
    framed: Tally | None = None,
    filtered: Tally = NONE,
    before_start: Tally = NONE,
    moments: tuple[int, int, int] = (0, 0, 0),
    stream_xid: int = 0,
) -> bytes:
    """Build one decoded batch.

    Args:
        seq: dispatch sequence.
        items: in wire order; consecutive rows of a relation become one segment.
        kind: DATA, END or ERROR.
        framed: what the reader says it counted; what the items are by default.
        filtered: what of it reader or decoder left out, because nobody wants the table,
        before_start: or because it stands before the position to start from.
        moments: when it was opened, when decoding it began and ended; monotonic nanoseconds.
        stream_xid: whose block it is of; 0 for none.
    """
    out = _Bytes()
    out.put(bytes(HEADER.size))
    rows: dict[int, list[Row]] = {}
    events: list[list[Any]] = []  # Any: fields of an event
    for item in items:
        if isinstance(item, Row):
            held = rows.setdefault(item.version, [])
            part = list(rows).index(item.version)
            last = events[-1] if events else None
            if last is None or last[0] != SEGMENT or (last[3], last[8]) != (part, item.xid) or (
                (last[6] == 0) != (item.lsn == 0) or not 0 <= item.lsn - last[6] < 2**32
            ):  # fmt: skip
                last = [SEGMENT, 0, 0, part, len(held), 0, item.lsn, 0, item.xid, [], 0]
                events.append(last)
            last[5] += 1
            last[9].append(item.lsn - last[6])
            held.append(item)
        else:
            offset = out.put(item.payload)
            events.append(
                [item.kind, item.flags, 0, item.index, 0, 0, item.x, item.y, item.z, offset,
                 len(item.payload)]
            )  # fmt: skip
    for event in events:
        if event[0] == SEGMENT:
            steps = struct.pack(f"={event[5]}I", *event[9]) if event[6] else b""
            event[9], event[10] = out.put(steps), len(steps)
    parts = b"".join(_part(out, version, held) for version, held in rows.items())
    event_offset = out.put(b"".join(EVENT.pack(*event) for event in events))
    part_offset = out.put(parts)
    count = sum(map(len, rows.values()))
    out.data[: HEADER.size] = HEADER.pack(
        ENTRY_MAGIC, kind, seq, len(out.data), len(events), len(rows), event_offset, part_offset,
        0, count, *moments, *(tally(items) if framed is None else framed), *filtered, *before_start,
        stream_xid, int(stream_xid != 0),
    )  # fmt: skip
    return bytes(out.data)


def _part(out: _Bytes, version: int, rows: list[Row]) -> bytes:
    ids = out.put(struct.pack(f"={len(rows)}q", *(row.id for row in rows)))
    texts = [(row.note or "").encode() for row in rows]
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    offsets = out.put(struct.pack(f"={len(ends)}i", *ends))
    data = out.put(b"".join(texts))
    nulls = sum(row.note is None for row in rows)
    validity = out.put(bytes(row.note is not None for row in rows))
    columns = out.put(
        COLUMN.pack(Kind.INT64, 0, 0, 0, 0, 0, ids, 8 * len(rows), 0, 0, 0, 0, 0, 0)
        + COLUMN.pack(
            Kind.STRING,
            0,
            0,
            nulls,
            validity if nulls else 0,
            offsets,
            data,
            ends[-1],
            0,
            0,
            0,
            0,
            0,
            0,
        )
    )
    ops = out.put(b"I" * len(rows))
    return PART.pack(version, len(rows), 2, 0, columns, ops, 0, 0, 0, 0, 0, 0)
