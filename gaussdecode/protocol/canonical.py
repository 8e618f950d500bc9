"""Parse pgoutput's messages into plain values, for `peek`.

Letters and layouts are in `wire.letters`. `parse` returns the content of one XLogData payload. The reader's slow
path has `described`, for relations and types. It keeps no state: the caller knows the columns of a row.

References:
    PostgreSQL manual, "Logical Replication Message Formats".
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gaussdecode.protocol.copyboth import EPOCH_US
from gaussdecode.protocol.described import RelationMessage, TypeMessage, read_relation, read_type
from gaussdecode.protocol.fields import Fields
from gaussdecode.wire.encoding import UTF8, Encoding
from gaussdecode.wire.letters import Cell, Image, Letter

_CASCADE: Final = 1
_RESTART_IDENTITY: Final = 2
_TRANSACTIONAL: Final = 1


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


Message = (
    Begin
    | Commit
    | Origin
    | RelationMessage
    | TypeMessage
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | PrepareBegin
    | Prepare
    | CommitPrepared
    | RollbackPrepared
)


class Reader(Fields):
    """A cursor over one message, which knows tuples too."""

    def time_us(self) -> int:
        """A time, in microseconds since 1970."""
        return self.number(8, signed=True) + EPOCH_US

    def prepared(self) -> tuple[int, int, int, int, bytes]:
        """Two positions, a time, xid and global identifier of a prepared transaction."""
        return (self.number(8), self.number(8), self.time_us(), self.number(4), self.string())

    def relation_oid(self) -> int:
        """The relation that a row is of."""
        return self.number(4)

    def column_count(self, relation_oid: int) -> int:
        """The number of columns of a row of a relation."""
        return self.number(2)

    def row(self, relation_oid: int, *, is_old: bool) -> Tuple:
        """One tuple."""
        count = self.column_count(relation_oid)
        return tuple(self._value(is_old=is_old) for _ in range(count))

    def _value(self, *, is_old: bool) -> TupleValue:
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


def parse(payload: bytes, encoding: Encoding = UTF8) -> Message:
    """Read one message.

    Args:
        payload: payload from its type byte; its length is the message's.
        encoding: encoding of names and values.

    Returns:
        What it says, in UTF-8; what has no letter there is escaped.

    Raises:
        TruncatedError: a field reaches past the end.
        WireError: unknown type, flags or kind of value; bytes after the end.
    """
    reader = Reader(payload, encoding)
    parser = PARSERS.get(reader.take(1))
    if parser is None:
        raise reader.fail("unknown type of message")
    message = parser(reader)
    reader.end()
    return message


def _begin(reader: Reader) -> Begin:
    return Begin(reader.number(8), reader.time_us(), reader.number(4))


def _commit(reader: Reader) -> Commit:
    reader.flags(0, "commit")
    return Commit(reader.number(8), reader.number(8), reader.time_us())


def _origin(reader: Reader) -> Origin:
    return Origin(reader.number(8), reader.string())


def _new(reader: Reader, tag: bytes, oid: int) -> Tuple:
    if tag != Image.NEW:
        raise reader.fail("no new tuple where one must be")
    return reader.row(oid, is_old=False)


def _insert(reader: Reader) -> Insert:
    oid = reader.relation_oid()
    return Insert(oid, _new(reader, reader.take(1), oid))


def _update(reader: Reader) -> Update:
    oid, tag = reader.relation_oid(), reader.take(1)
    if tag not in (Image.KEY, Image.OLD):
        return Update(oid, None, None, _new(reader, tag, oid))
    old = reader.row(oid, is_old=True)
    return Update(oid, tag.decode(), old, _new(reader, reader.take(1), oid))


def _delete(reader: Reader) -> Delete:
    oid, tag = reader.relation_oid(), reader.take(1)
    if tag == Image.NONE:
        return Delete(oid, tag.decode(), ())
    if tag not in (Image.KEY, Image.OLD):
        raise reader.fail("delete without an old tuple")
    return Delete(oid, tag.decode(), reader.row(oid, is_old=True))


def _truncate(reader: Reader) -> Truncate:
    count = reader.number(4)
    bits = reader.flags(_CASCADE | _RESTART_IDENTITY, "truncate")
    oids = tuple(reader.relation_oid() for _ in range(count))
    return Truncate(oids, bool(bits & _CASCADE), bool(bits & _RESTART_IDENTITY))


def _logical(reader: Reader) -> LogicalMessage:
    flags = reader.flags(_TRANSACTIONAL, "logical message")
    return LogicalMessage(
        bool(flags), reader.number(8), reader.string(), reader.take(reader.number(4))
    )


def _prepare_begin(reader: Reader) -> PrepareBegin:
    return PrepareBegin(*reader.prepared())


def _prepare(reader: Reader) -> Prepare:
    reader.flags(0, "prepare")
    return Prepare(*reader.prepared())


def _commit_prepared(reader: Reader) -> CommitPrepared:
    reader.flags(0, "commit")
    return CommitPrepared(*reader.prepared())


def _rollback_prepared(reader: Reader) -> RollbackPrepared:
    reader.flags(0, "rollback")
    prepare_end_lsn, end_lsn, time_us = reader.number(8), reader.number(8), reader.time_us()
    return RollbackPrepared(
        prepare_end_lsn, end_lsn, time_us, reader.time_us(), reader.number(4), reader.string()
    )


PARSERS: Final[Mapping[bytes, Callable[[Reader], Message]]] = {
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
    Letter.PREPARE_BEGIN: _prepare_begin,
    Letter.PREPARE: _prepare,
    Letter.COMMIT_PREPARED: _commit_prepared,
    Letter.ROLLBACK_PREPARED: _rollback_prepared,
}
