"""The plain decoder: what a decoded batch must hold, by way of the plain parser.

Built from `twins.canonical` and `protocol.values` alone, row by row, so that it shares
no code with the fast decoder.
"""

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

from twins import canonical as pgoutput
from twins.canonical import Absent
from twins.values import Misfit, decode_value

from gaussdecode.errors import WireError
from gaussdecode.model.relation import Relation
from gaussdecode.protocol.notices import Notice
from kit import wire
from kit.decoded import OLD_COLUMN, Entry, Event, EventKind, Part


class _Rows:
    """Rows of one relation version."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.part = Part(
            relation.version, 0, [[] for _ in relation.columns], [], b"", b"", b"", [], {}
        )
        self.ops: list[str] = []
        self.old: list[list[Any] | None] = []  # Any: a value of the column's kind
        self.changed: list[bool] = []

    def add(self, message: pgoutput.Insert | pgoutput.Update | pgoutput.Delete) -> None:
        old = None if isinstance(message, pgoutput.Insert) else message.old
        tag = None if isinstance(message, pgoutput.Insert) else message.old_tag
        self.ops.append(type(message).__name__[0])
        self.old.append(None if old is None else self._old_values(old))
        if isinstance(message, pgoutput.Delete):
            for column in self.part.columns:
                column.append(None)
            self.changed.append(False)
            return
        for index in range(len(message.new)):
            self._new_value(index, message.new[index], old, tag)
        self.changed.append(tag == "K" and old is not None and self._differs(old, message.new))

    def finish(self) -> Part:
        part, has_old = self.part, any(old is not None for old in self.old)
        identity = [column for column in self.relation.columns if column.is_identity]
        columns: list[list[Any]] = []  # Any: a value of the column's kind
        if has_old:
            columns = [
                [None if old is None else old[index] for old in self.old]
                for index in range(len(identity))
            ]
        return Part(
            part.version,
            len(self.ops),
            part.columns,
            columns,
            "".join(self.ops).encode(),
            bytes(old is not None for old in self.old) if columns else b"",
            bytes(self.changed) if any(self.changed) else b"",
            part.unchanged,
            part.misfits,
        )

    def _old_values(self, old: pgoutput.Tuple) -> list[Any]:  # Any: a value of the column's kind
        values = []
        for index, column in enumerate(self.relation.columns):
            if column.is_identity:
                values.append(self._value(index, old[index], OLD_COLUMN))
        return values

    def _new_value(
        self, index: int, value: pgoutput.TupleValue, old: pgoutput.Tuple | None, tag: str | None
    ) -> None:
        held = self.part.columns[index]
        if value is Absent.UNCHANGED:
            usable = tag == "O" or (tag == "K" and self.relation.columns[index].is_identity)
            if old is not None and usable and isinstance(old[index], bytes):
                value = old[index]
            else:
                self.part.unchanged.append((len(held), index))
        held.append(self._value(index, value, 0))

    def _value(self, index: int, value: pgoutput.TupleValue, flag: int) -> Any:  # Any: as above
        if isinstance(value, Absent):
            return None
        decoded = decode_value(self.relation.columns[index].type, value)
        if isinstance(decoded, Misfit):
            self.part.misfits[len(self.ops) - 1, index | flag] = decoded.text
            return None
        return decoded

    def _differs(self, old: pgoutput.Tuple, new: pgoutput.Tuple) -> bool:
        return any(
            column.is_identity and Absent.UNCHANGED not in (before, after) and before != after
            for column, before, after in zip(self.relation.columns, old, new, strict=True)
        )


def decode(
    messages: Sequence[bytes],
    relations: Sequence[Relation],
    seq: int = 0,
    stream_xid: int = 0,
    lsns: Sequence[int] = (),
) -> Entry:
    """Decode messages as a decoder must, slowly.

    Args:
        messages: payloads from their type byte.
        relations: described before them; their events are left out.
        seq: dispatch sequence.
        stream_xid: whose block they are of; 0 for none.
        lsns: LSN of each message; () where none is known.

    Raises:
        WireError: as the fast decoder, at the same byte of the same message.
    """
    by_oid = {relation.oid: relation for relation in relations}
    counts = {oid: len(relation.columns) for oid, relation in by_oid.items()}
    parts: dict[int, _Rows] = {}
    events: list[Event] = []
    filtered: list[bytes] = []
    for payload, lsn in zip(messages, lsns or [0] * len(messages), strict=True):
        if payload[:1] in (b"R", b"Y", b"E"):
            raise WireError("message that is the reader's inside a batch", 0)
        message = pgoutput.parse(payload, counts, is_streamed=stream_xid != 0)
        xid = 0
        if isinstance(message, pgoutput.Streamed):
            xid, message = message.xid, message.change
        if isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete):
            relation = by_oid[message.relation_oid]
            if relation.is_filtered:
                filtered.append(payload)
                continue
            if isinstance(message, pgoutput.Delete) and message.old_tag == "X":
                events.append(_event(EventKind.TAKEN_BACK, index=relation.version, x=lsn))
                continue
            rows = parts.setdefault(relation.version, _Rows(relation))
            index, first = list(parts).index(relation.version), len(rows.ops)
            rows.add(message)
            last = events[-1] if events else None
            if last is None or (last.kind, last.index, last.z) != (
                EventKind.SEGMENT, index, xid,
            ) or not (0 < last.x <= lsn < last.x + 2**32 or last.x == lsn == 0):  # fmt: skip
                last = Event(EventKind.SEGMENT, 0, index, first, 0, lsn, 0, xid, b"")
                events.append(last)
            step = struct.pack("=I", lsn - last.x) if lsn else b""
            events[-1] = dataclasses.replace(
                last, row_count=last.row_count + 1, payload=last.payload + step
            )
        else:
            if isinstance(message, pgoutput.Truncate):
                unwanted = [oid for oid in message.relation_oids if by_oid[oid].is_filtered]
                filtered.append(wire.truncate(*unwanted))
            events += [_with_lsn(event, lsn) for event in _events(message, by_oid, xid)]
    done = [rows.finish() for rows in parts.values()]
    wire_bytes = sum(len(payload) + 4 for payload in messages)
    return Entry(
        0, seq, wire_bytes, sum(part.row_count for part in done), events, done,
        wire.tally(messages, is_streamed=stream_xid != 0), wire.tally(filtered), wire.NONE,
    )  # fmt: skip


def _with_lsn(event: Event, lsn: int) -> Event:
    """The same, and the LSN of its message where the layout has that."""
    if event.kind is EventKind.TRUNCATE:
        return dataclasses.replace(event, x=lsn)
    if event.kind is EventKind.STREAM_START:
        return dataclasses.replace(event, y=lsn)
    if event.kind is EventKind.BEGIN and not event.flags and lsn:
        return dataclasses.replace(event, payload=struct.pack("=Q", lsn))
    return event


def _event(  # fields as in the layout
    kind: EventKind, *, flags: int = 0, index: int = 0, x: int = 0, y: int = 0, z: int = 0,
    payload: bytes = b"",
) -> Event:  # fmt: skip
    return Event(kind, flags, index, 0, 0, x % 2**64, y % 2**64, z % 2**64, payload)


def _events(message: pgoutput.Message, by_oid: dict[int, Relation], xid: int) -> list[Event]:
    match message:
        case pgoutput.Begin(lsn, time, xid):
            return [_event(EventKind.BEGIN, x=lsn, y=time, z=xid)]
        case pgoutput.Commit(commit_lsn, end_lsn, time):
            return [_event(EventKind.COMMIT, x=commit_lsn, y=end_lsn, z=time)]
        case pgoutput.Origin(lsn, name):
            return [_event(EventKind.ORIGIN, x=lsn, payload=name)]
        case pgoutput.GaussBegin():
            return _gauss_begin(message)
        case pgoutput.GaussCommit(end_lsn, found_xid, sent, csn):
            commit = _event(EventKind.COMMIT, flags=1, x=found_xid or 0, y=end_lsn, z=sent or 0)
            return [*([_event(EventKind.CSN, x=csn)] if csn else []), commit]
        case Notice(code, text):
            return [_event(EventKind.NOTICE, index=code, payload=text)]
        case pgoutput.Heartbeat(lsn, flushed_lsn, time):
            return [_event(EventKind.HEARTBEAT, x=lsn, y=flushed_lsn, z=time)]
        case pgoutput.LogicalMessage(is_transactional, lsn, prefix, content):
            payload = prefix + b"\0" + content
            flags = int(is_transactional)
            return [_event(EventKind.MESSAGE, flags=flags, x=lsn, z=xid, payload=payload)]
        case pgoutput.Truncate(oids, is_cascade, is_restart):
            bits = is_cascade | is_restart << 1
            kept = [by_oid[oid] for oid in oids if not by_oid[oid].is_filtered]
            return [
                _event(EventKind.TRUNCATE, flags=bits, index=each.version, z=xid) for each in kept
            ]
        case pgoutput.StreamStart(top, is_first):
            return [_event(EventKind.STREAM_START, flags=int(is_first), x=top)]
        case pgoutput.StreamCommit(top, commit_lsn, end_lsn, time):
            event = EventKind.STREAM_COMMIT
            return [_event(event, index=top, x=commit_lsn, y=end_lsn, z=time)]
        case pgoutput.StreamAbort(top, subxid):
            return [_event(EventKind.STREAM_ABORT, x=top, y=subxid)]
        case pgoutput.PrepareBegin(_, _, _, top):
            return [_event(EventKind.STREAM_START, flags=1, x=top)]
        case pgoutput.Prepare(lsn, end_lsn, time, top, gid) | pgoutput.StreamPrepare(
            lsn, end_lsn, time, top, gid
        ):
            event = EventKind.PREPARE
            return [_event(event, index=top, x=lsn, y=end_lsn, z=time, payload=gid)]
        case pgoutput.CommitPrepared(lsn, end_lsn, time, top, gid):
            event = EventKind.COMMIT_PREPARED
            return [_event(event, index=top, x=lsn, y=end_lsn, z=time, payload=gid)]
        case pgoutput.RollbackPrepared(lsn, end_lsn, _, time, top, gid):
            event = EventKind.ROLLBACK_PREPARED
            return [_event(event, index=top, x=lsn, y=end_lsn, z=time, payload=gid)]
    raise AssertionError(message)


def _gauss_begin(message: pgoutput.GaussBegin) -> list[Event]:
    time, xid = message.commit_time_us or 0, message.xid or 0
    events = [_event(EventKind.BEGIN, flags=1, x=message.first_lsn, y=time, z=xid)]
    if message.csn or message.user:
        events.append(_event(EventKind.CSN, x=message.csn or 0, payload=message.user))
    if message.origin:
        events.append(_event(EventKind.ORIGIN, payload=str(message.origin).encode()))
    return events
