"""Parse messages into plain values: pgoutput's, and GaussDB's translated ones.

The twin of ``_wire.pyx``; letters and layouts are in `wire.letters`.

`parse` returns the content of one XLogData payload, and refuses bytes that break the format, at the same byte as
the fast decoder. `peek` uses it, and the tests as an oracle. The reader's slow path has `described`, for
relations and types. It keeps no state: the caller knows the columns of a row.

References:
    PostgreSQL manual, "Logical Replication Message Formats".
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from gaussdecode.protocol.copyboth import EPOCH_US
from gaussdecode.protocol.described import (
    MessageReader,
    RelationMessage,
    TypeMessage,
    read_relation,
    read_type,
)
from gaussdecode.protocol.notices import Notice
from gaussdecode.wire.encoding import UTF8, Encoding
from gaussdecode.wire.letters import Cell, Image, Letter

_CASCADE: Final = 1
_RESTART_IDENTITY: Final = 2
_TRANSACTIONAL: Final = 1
_NOT_SENT: Final = -(2**63)  # as a commit time


class Absent(enum.Enum):
    """Why a tuple holds no text for a column."""

    NULL = Cell.NULL.decode()
    UNCHANGED = Cell.UNCHANGED.decode()


TupleValue = bytes | Absent
Tuple = tuple[TupleValue, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins. Times, here and below: microseconds since 1970-01-01 UTC."""

    commit_lsn: int
    commit_time_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The open transaction ends; `end_lsn` is the position to confirm."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the open transaction was made first."""

    lsn: int
    name: bytes


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relation_oid: int
    new: Tuple


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row; `old_tag` says what `old` is: K a key, O a full row."""

    relation_oid: int
    old_tag: str | None
    old: Tuple | None
    new: Tuple


@dataclass(frozen=True, slots=True)
class Delete:
    """A row that is gone; `old_tag` as in Update, or ``X``: it was inserted by an upsert, and which is not said."""

    relation_oid: int
    old_tag: str
    old: Tuple


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables that were emptied together."""

    relation_oids: tuple[int, ...]
    is_cascade: bool
    is_restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What pg_logical_emit_message() was given."""

    is_transactional: bool
    lsn: int
    prefix: bytes
    content: bytes


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
class _OfPrepare:
    """What is said of a transaction that is prepared, wherever it is said."""

    prepare_lsn: int
    end_lsn: int
    prepare_time_us: int
    xid: int
    gid: bytes


@dataclass(frozen=True, slots=True)
class PrepareBegin(_OfPrepare):
    """A prepared transaction begins; all of it follows, up to its Prepare."""


@dataclass(frozen=True, slots=True)
class Prepare(_OfPrepare):
    """A transaction is prepared, and waits for its end; `end_lsn` is the position to confirm."""


@dataclass(frozen=True, slots=True)
class StreamPrepare(_OfPrepare):
    """The same of a transaction that was sent in blocks."""


@dataclass(frozen=True, slots=True)
class CommitPrepared:
    """A prepared transaction commits."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int
    xid: int
    gid: bytes


@dataclass(frozen=True, slots=True)
class RollbackPrepared:
    """A prepared transaction is rolled back."""

    prepare_end_lsn: int
    end_lsn: int
    prepare_time_us: int
    rollback_time_us: int
    xid: int
    gid: bytes


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
    Begin
    | Commit
    | Origin
    | Change
    | Streamed
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | PrepareBegin
    | Prepare
    | StreamPrepare
    | CommitPrepared
    | RollbackPrepared
    | GaussBegin
    | GaussCommit
    | Notice
    | Heartbeat
)


class _Reader(MessageReader):
    """A cursor over one message, which knows tuples too."""

    def __init__(
        self, payload: bytes, column_counts: Mapping[int, int] | None, encoding: Encoding
    ) -> None:
        super().__init__(payload, encoding)
        self.column_counts = column_counts

    def time_us(self) -> int:
        return self.number(8, signed=True) + EPOCH_US

    def sent_time_us(self) -> int | None:
        time = self.number(8, signed=True)
        return None if time == _NOT_SENT else time + EPOCH_US

    def int63(self) -> int | None:
        value = self.number(8)
        if value >= 2**63:
            raise self.fail("a number that does not fit 63 bits", 8)
        return value or None

    def prepared(self) -> tuple[int, int, int, int, bytes]:
        """Two positions, a time, xid and global identifier of a prepared transaction."""
        return (self.number(8), self.number(8), self.time_us(), self.number(4), self.string())

    def relation_oid(self) -> int:
        oid = self.number(4)
        if self.column_counts is not None and oid not in self.column_counts:
            raise self.fail("row of a relation that was not described", 4)
        return oid

    def row(self, relation_oid: int, *, is_old: bool) -> Tuple:
        count = self.number(2)
        if self.column_counts is not None and count != self.column_counts[relation_oid]:
            raise self.fail("another number of columns than its relation", 2)
        return tuple(self.value(is_old=is_old) for _ in range(count))

    def value(self, *, is_old: bool) -> TupleValue:
        tag = self.take(1)
        if tag == Cell.TEXT:
            return self.encoding.to_utf8(self.take(self.number(4)))
        if tag == Cell.BINARY:
            size = len(self.take(self.number(4)))
            raise self.fail("binary value, though binary is off", 1 + 4 + size)
        if tag not in (Cell.NULL, Cell.UNCHANGED):
            raise self.fail("unknown kind of value")
        if tag == Cell.UNCHANGED and is_old:
            raise self.fail("unchanged value in an old tuple")
        return Absent(tag.decode())


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
    parser = _PARSERS.get(tag)
    if parser is None:
        raise reader.fail("unknown type of message")
    xid = reader.change_xid() if is_streamed and tag in _WITH_XID else None
    message = parser(reader)
    if xid is not None:
        message = Streamed(xid, cast("Change", message))
    reader.end()
    return message


def _begin(reader: _Reader) -> Begin:
    return Begin(reader.number(8), reader.time_us(), reader.number(4))


def _commit(reader: _Reader) -> Commit:
    reader.flags(0, "commit")
    return Commit(reader.number(8), reader.number(8), reader.time_us())


def _origin(reader: _Reader) -> Origin:
    return Origin(reader.number(8), reader.string())


def _new(reader: _Reader, tag: bytes, oid: int) -> Tuple:
    if tag != Image.NEW:
        raise reader.fail("no new tuple where one must be")
    return reader.row(oid, is_old=False)


def _insert(reader: _Reader) -> Insert:
    oid = reader.relation_oid()
    return Insert(oid, _new(reader, reader.take(1), oid))


def _update(reader: _Reader) -> Update:
    oid, tag = reader.relation_oid(), reader.take(1)
    if tag not in (Image.KEY, Image.OLD):
        return Update(oid, None, None, _new(reader, tag, oid))
    old = reader.row(oid, is_old=True)
    return Update(oid, tag.decode(), old, _new(reader, reader.take(1), oid))


def _delete(reader: _Reader) -> Delete:
    oid, tag = reader.relation_oid(), reader.take(1)
    if tag == Image.NONE:
        return Delete(oid, tag.decode(), ())
    if tag not in (Image.KEY, Image.OLD):
        raise reader.fail("delete without an old tuple")
    return Delete(oid, tag.decode(), reader.row(oid, is_old=True))


def _truncate(reader: _Reader) -> Truncate:
    count = reader.number(4)
    bits = reader.flags(_CASCADE | _RESTART_IDENTITY, "truncate")
    oids = tuple(reader.relation_oid() for _ in range(count))
    return Truncate(oids, bool(bits & _CASCADE), bool(bits & _RESTART_IDENTITY))


def _logical(reader: _Reader) -> LogicalMessage:
    flags = reader.flags(_TRANSACTIONAL, "logical message")
    return LogicalMessage(
        bool(flags), reader.number(8), reader.string(), reader.take(reader.number(4))
    )


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


def _prepare_begin(reader: _Reader) -> PrepareBegin:
    return PrepareBegin(*reader.prepared())


def _prepare(reader: _Reader) -> Prepare:
    reader.flags(0, "prepare")
    return Prepare(*reader.prepared())


def _stream_prepare(reader: _Reader) -> StreamPrepare:
    reader.flags(0, "prepare")
    return StreamPrepare(*reader.prepared())


def _commit_prepared(reader: _Reader) -> CommitPrepared:
    reader.flags(0, "commit")
    return CommitPrepared(*reader.prepared())


def _rollback_prepared(reader: _Reader) -> RollbackPrepared:
    reader.flags(0, "rollback")
    prepare_end_lsn, end_lsn, time_us = reader.number(8), reader.number(8), reader.time_us()
    return RollbackPrepared(
        prepare_end_lsn, end_lsn, time_us, reader.time_us(), reader.number(4), reader.string()
    )


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
_PARSERS: Final[dict[bytes, Callable[[_Reader], Message]]] = {
    Letter.BEGIN: _begin,
    Letter.COMMIT: _commit,
    Letter.ORIGIN: _origin,
    Letter.RELATION: read_relation,
    Letter.TYPE: read_type,
    Letter.INSERT: _insert,
    Letter.UPDATE: _update,
    Letter.DELETE: _delete,
    Letter.TRUNCATE: _truncate,
    Letter.MESSAGE: _logical,
    Letter.STREAM_START: _stream_start,
    Letter.STREAM_STOP: _stream_stop,
    Letter.STREAM_COMMIT: _stream_commit,
    Letter.STREAM_ABORT: _stream_abort,
    Letter.PREPARE_BEGIN: _prepare_begin,
    Letter.PREPARE: _prepare,
    Letter.STREAM_PREPARE: _stream_prepare,
    Letter.COMMIT_PREPARED: _commit_prepared,
    Letter.ROLLBACK_PREPARED: _rollback_prepared,
    Letter.GAUSS_BEGIN: _gauss_begin,
    Letter.GAUSS_COMMIT: _gauss_commit,
    Letter.NOTICE: _notice,
    Letter.HEARTBEAT: _heartbeat,
}
