"""The twin of ``_wire.pyx``: parse messages into plain values, pgoutput's and GaussDB's translated ones.

To what `peek` reads (`protocol.canonical`) it adds streamed transactions and GaussDB's messages, and compares rows
with their relations. It refuses bytes that break the format at the same byte as the fast decoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from gaussdecode.protocol import canonical
from gaussdecode.protocol.canonical import (
    Absent,
    Begin,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Prepare,
    PrepareBegin,
    Reader,
    RollbackPrepared,
    Truncate,
    Tuple,
    TupleValue,
    Update,
)
from gaussdecode.protocol.copyboth import EPOCH_US
from gaussdecode.protocol.described import RelationMessage, TypeMessage
from gaussdecode.protocol.notices import Notice
from gaussdecode.wire.encoding import UTF8, Encoding
from gaussdecode.wire.letters import Letter

__all__ = [
    "Absent",
    "Begin",
    "Change",
    "Commit",
    "CommitPrepared",
    "Delete",
    "GaussBegin",
    "GaussCommit",
    "Heartbeat",
    "Insert",
    "LogicalMessage",
    "Message",
    "Origin",
    "Prepare",
    "PrepareBegin",
    "RollbackPrepared",
    "StreamAbort",
    "StreamCommit",
    "StreamPrepare",
    "StreamStart",
    "StreamStop",
    "Streamed",
    "Truncate",
    "Tuple",
    "TupleValue",
    "Update",
    "parse",
]
_NOT_SENT: Final = -(2**63)  # as a commit time


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A block of a transaction that is still open begins; blocks do not nest."""

    xid: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The block ends."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """A transaction that was sent in blocks ends; `end_lsn` is the position to confirm."""

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_time_us: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A transaction that was sent in blocks, or `subxid` of it, was rolled back."""

    xid: int
    subxid: int
    lsn: int | None
    time_us: int | None


@dataclass(frozen=True, slots=True)
class StreamPrepare(Prepare):
    """A transaction that was sent in blocks is prepared."""


@dataclass(frozen=True, slots=True)
class GaussBegin:
    """A transaction of a GaussDB stream begins; what was not sent is None, an empty user."""

    first_lsn: int
    csn: int | None
    xid: int | None
    commit_time_us: int | None
    origin: int | None
    user: bytes


@dataclass(frozen=True, slots=True)
class GaussCommit:
    """The open transaction of a GaussDB stream ends; `end_lsn` is the position to confirm."""

    end_lsn: int
    xid: int | None
    commit_time_us: int | None
    csn: int | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """How far the server has read; its positions run ahead of what was sent."""

    lsn: int
    flushed_lsn: int
    time_us: int


Change = RelationMessage | TypeMessage | Insert | Update | Delete | Truncate | LogicalMessage


@dataclass(frozen=True, slots=True)
class Streamed:
    """What stands in a block, and the (sub)transaction that it is of."""

    xid: int
    change: Change


Message = (
    canonical.Message
    | Streamed
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | StreamPrepare
    | GaussBegin
    | GaussCommit
    | Notice
    | Heartbeat
)


class _Reader(Reader):
    """A cursor that knows how many columns each relation has; None takes rows of any."""

    def __init__(
        self, payload: bytes, column_counts: Mapping[int, int] | None, encoding: Encoding
    ) -> None:
        super().__init__(payload, encoding)
        self.column_counts = column_counts

    def relation_oid(self) -> int:
        oid = super().relation_oid()
        if self.column_counts is not None and oid not in self.column_counts:
            raise self.fail("row of a relation that was not described", 4)
        return oid

    def column_count(self, relation_oid: int) -> int:
        count = super().column_count(relation_oid)
        if self.column_counts is not None and count != self.column_counts[relation_oid]:
            raise self.fail("another number of columns than its relation", 2)
        return count

    def sent_time_us(self) -> int | None:
        time = self.number(8, signed=True)
        return None if time == _NOT_SENT else time + EPOCH_US

    def int63(self) -> int | None:
        value = self.number(8)
        if value >= 2**63:
            raise self.fail("a number that does not fit 63 bits", 8)
        return value or None


def parse(
    payload: bytes,
    column_counts: Mapping[int, int] | None = None,
    encoding: Encoding = UTF8,
    *,
    is_streamed: bool = False,
) -> Message:
    """Read one message.

    Args:
        payload: payload from its type byte; its length is the message's.
        column_counts: number of columns by relation OID, to check rows against; None
            takes rows of any relation.
        encoding: encoding of names and values.
        is_streamed: it stands in a block of a streamed transaction.

    Returns:
        What it says, in UTF-8; what has no letter there is escaped.

    Raises:
        TruncatedError: a field reaches past the end.
        WireError: unknown type, flags or kind of value; bytes after the end; a row that
            `column_counts` contradicts.
    """
    reader = _Reader(payload, column_counts, encoding)
    tag = reader.take(1)
    parser = _PARSERS.get(tag) or canonical.PARSERS.get(tag)
    if parser is None:
        raise reader.fail("unknown type of message")
    xid = reader.change_xid() if is_streamed and tag in _WITH_XID else None
    message: Message = parser(reader)
    if xid is not None:
        message = Streamed(xid, cast("Change", message))
    reader.end()
    return message


def _gauss_begin(reader: _Reader) -> GaussBegin:
    return GaussBegin(
        reader.number(8),
        reader.int63(),
        reader.int63(),
        reader.sent_time_us(),
        reader.number(4) or None,
        reader.string(),
    )


def _gauss_commit(reader: _Reader) -> GaussCommit:
    return GaussCommit(reader.number(8), reader.int63(), reader.sent_time_us(), reader.int63())


def _stream_start(reader: _Reader) -> StreamStart:
    return StreamStart(reader.number(4), bool(reader.flags(1, "block")))


def _stream_stop(_reader: _Reader) -> StreamStop:
    return StreamStop()


def _stream_commit(reader: _Reader) -> StreamCommit:
    xid = reader.number(4)
    reader.flags(0, "commit")
    return StreamCommit(xid, reader.number(8), reader.number(8), reader.time_us())


def _stream_abort(reader: _Reader) -> StreamAbort:
    xid, subxid = reader.number(4), reader.number(4)
    if reader.next == len(reader.payload):
        return StreamAbort(xid, subxid, None, None)
    return StreamAbort(xid, subxid, reader.number(8), reader.time_us())


def _stream_prepare(reader: _Reader) -> StreamPrepare:
    reader.flags(0, "prepare")
    return StreamPrepare(*reader.prepared())


def _notice(reader: _Reader) -> Notice:
    return Notice(reader.number(1), reader.take(reader.number(4)))


def _heartbeat(reader: _Reader) -> Heartbeat:
    return Heartbeat(reader.number(8), reader.number(8), reader.number(8, signed=True))


_WITH_XID: Final = frozenset(
    {
        Letter.RELATION,
        Letter.TYPE,
        Letter.INSERT,
        Letter.UPDATE,
        Letter.DELETE,
        Letter.TRUNCATE,
        Letter.MESSAGE,
    }
)
_PARSERS: Final[Mapping[bytes, Callable[[_Reader], Message]]] = {
    Letter.STREAM_START: _stream_start,
    Letter.STREAM_STOP: _stream_stop,
    Letter.STREAM_COMMIT: _stream_commit,
    Letter.STREAM_ABORT: _stream_abort,
    Letter.STREAM_PREPARE: _stream_prepare,
    Letter.GAUSS_BEGIN: _gauss_begin,
    Letter.GAUSS_COMMIT: _gauss_commit,
    Letter.NOTICE: _notice,
    Letter.HEARTBEAT: _heartbeat,
}
