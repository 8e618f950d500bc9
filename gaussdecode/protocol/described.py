"""Parse pgoutput's messages about tables and types, which come before their rows.

A Relation or Type message becomes a plain value, and a relation's types are resolved from the wire alone. It
keeps no state: the caller numbers the versions of a table.

References:
    PostgreSQL manual, "Logical Replication Message Formats".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gaussdecode.model.relation import PG_CATALOG, Column, Relation, ReplicaIdentity
from gaussdecode.model.types import column_type
from gaussdecode.protocol.fields import Fields
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
    reader = Fields(payload, encoding)
    letter = reader.take(1)
    if letter not in (Letter.RELATION, Letter.TYPE):
        raise reader.fail("another message where a relation or type must be described")
    if is_streamed:
        reader.change_xid()
    message = read_relation(reader) if letter == Letter.RELATION else read_type(reader)
    reader.end()
    return message


def read_relation(reader: Fields) -> RelationMessage:
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


def read_type(reader: Fields) -> TypeMessage:
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
