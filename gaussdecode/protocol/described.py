"""Parse pgoutput's messages about tables and types, which come before their rows.

A Relation or Type message becomes a plain value, and a relation's types are resolved from the wire alone. It
keeps no state: the caller numbers the versions of a table.

References:
    PostgreSQL manual, "Logical Replication Message Formats".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gaussdecode.errors import TruncatedError, WireError
from gaussdecode.model.relation import PG_CATALOG, Column, Relation, ReplicaIdentity
from gaussdecode.model.types import column_type
from gaussdecode.wire.encoding import UTF8, Encoding
from gaussdecode.wire.letters import Letter

_IS_KEY: Final = 1


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """One column of a relation, as sent."""

    is_key: bool
    name: str
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """What a table looks like from here on; an empty namespace is pg_catalog."""

    oid: int
    namespace: str
    name: str
    identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeMessage:
    """Name of a user's type, or of the base type of a user's domain."""

    oid: int
    namespace: str
    name: str


class MessageReader:
    """A cursor over one message; every field goes through `take`."""

    def __init__(self, payload: bytes, encoding: Encoding) -> None:
        self.payload = payload
        self.next = 0
        self.encoding = encoding

    def take(self, size: int) -> bytes:
        """So many bytes.

        Raises:
            TruncatedError: there are not so many.
        """
        have = len(self.payload) - self.next
        if size > have:
            raise TruncatedError(f"need {size} bytes, have {have}", self.next)
        self.next += size
        return self.payload[self.next - size : self.next]

    def number(self, size: int, *, signed: bool = False) -> int:
        """An integer of so many bytes."""
        return int.from_bytes(self.take(size), "big", signed=signed)

    def string(self) -> bytes:
        """Bytes up to a NUL, which is stepped over."""
        nul = self.payload.find(b"\0", self.next)
        if nul < 0:
            self.take(len(self.payload) - self.next + 1)
        return self.take(nul + 1 - self.next)[:-1]

    def text(self) -> str:
        """A name."""
        return self.encoding.name_of(self.string())

    def flags(self, known: int, what: str) -> int:
        """A byte of which only these bits are known."""
        flags = self.number(1)
        if flags & ~known:
            raise self.fail(f"unknown flags of a {what}")
        return flags

    def change_xid(self) -> int:
        """Whose change it is, in a block of a streamed transaction."""
        xid = self.number(4)
        if xid == 0:
            raise self.fail("change of transaction 0", 4)
        return xid

    def end(self) -> None:
        """See that nothing follows."""
        if self.next != len(self.payload):
            raise self.fail("bytes after the end of the message", 0)

    def fail(self, reason: str, back: int = 1) -> WireError:
        """The error of the byte so far back."""
        return WireError(reason, self.next - back)


def parse_description(
    payload: bytes, encoding: Encoding = UTF8, *, is_streamed: bool = False
) -> RelationMessage | TypeMessage:
    """Read one Relation or Type message.

    Args:
        payload: payload from its letter; its length is the message's.
        encoding: encoding of names.
        is_streamed: it stands in a block of a streamed transaction.

    Raises:
        TruncatedError: a field reaches past the end.
        WireError: another message, unknown flags, bytes after the end.
    """
    reader = MessageReader(payload, encoding)
    letter = reader.take(1)
    if letter not in (Letter.RELATION, Letter.TYPE):
        raise reader.fail("another message where a relation or type must be described")
    if is_streamed:
        reader.change_xid()
    message = read_relation(reader) if letter == Letter.RELATION else read_type(reader)
    reader.end()
    return message


def read_relation(reader: MessageReader) -> RelationMessage:
    """What follows the letter of a Relation message."""
    oid, namespace, name = reader.number(4), reader.text(), reader.text()
    letter = reader.take(1)
    if letter not in (b"d", b"n", b"f", b"i"):
        raise reader.fail("unknown replica identity")
    columns = tuple(
        RelationColumn(
            bool(reader.flags(_IS_KEY, "column")),
            reader.text(),
            reader.number(4),
            reader.number(4, signed=True),
        )
        for _ in range(reader.number(2))
    )
    return RelationMessage(oid, namespace, name, ReplicaIdentity(letter.decode()), columns)


def read_type(reader: MessageReader) -> TypeMessage:
    """What follows the letter of a Type message."""
    return TypeMessage(reader.number(4), reader.text(), reader.text())


def describe(
    message: RelationMessage,
    version: int,
    user_types: Mapping[int, tuple[str, str]],
    *,
    is_filtered: bool = False,
) -> Relation:
    """Resolve the types of a relation, from the wire alone.

    Args:
        message: the Relation message.
        version: its number in this connection.
        user_types: namespace and name of the Type messages so far, by OID.
        is_filtered: its rows are not wanted.

    Returns:
        The relation; under REPLICA IDENTITY FULL every column is part of the identity.
    """
    columns = []
    for column in message.columns:
        held, type_name = column_type(
            column.type_oid, column.type_modifier, user_types.get(column.type_oid)
        )
        is_identity = column.is_key or message.identity is ReplicaIdentity.FULL
        columns.append(
            Column(column.name, column.type_oid, column.type_modifier, type_name, held, is_identity)
        )
    return Relation(
        version,
        message.oid,
        message.namespace or PG_CATALOG,
        message.name,
        message.identity,
        tuple(columns),
        is_filtered,
    )
