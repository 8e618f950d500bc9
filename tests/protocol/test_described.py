"""Descriptions of tables and types: the same as among all messages, and what becomes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import wire
from twins.canonical import Streamed, parse

from gaussdecode.errors import TruncatedError, WireError
from gaussdecode.model.types import ColumnType, Kind
from gaussdecode.protocol.described import RelationMessage, describe, parse_description

RELATION = wire.relation_message([(1, "id", 23, -1), (0, "note", 25, -1)], name="orders")
TYPE = wire.type_message(16500, "public", "mood")


@pytest.mark.parametrize("message", [RELATION, TYPE], ids=["relation", "type"])
def test_they_are_the_same_as_among_all_messages(message: bytes) -> None:
    """In a block of a streamed transaction too."""
    assert parse_description(message) == parse(message)
    streamed = message[:1] + b"\0\0\0\7" + message[1:]
    outer = parse(streamed, is_streamed=True)
    assert isinstance(outer, Streamed)
    assert parse_description(streamed, is_streamed=True) == outer.change


@pytest.mark.parametrize("message", [RELATION, TYPE], ids=["relation", "type"])
def test_every_prefix_is_truncated(message: bytes) -> None:
    """And what is too long is refused."""
    for size in range(len(message)):
        with pytest.raises(TruncatedError):
            parse_description(message[:size])
    with pytest.raises(WireError, match="bytes after the end"):
        parse_description(message + b"\0")


def test_other_messages_are_refused() -> None:
    """Whatever they are."""
    with pytest.raises(WireError, match="another message"):
        parse_description(wire.begin(16, 17, 5))
    with pytest.raises(WireError, match="transaction 0"):
        parse_description(b"R\0\0\0\0" + RELATION[1:], is_streamed=True)


@given(st.binary(max_size=80), st.sampled_from([b"R", b"Y"]))
def test_the_same_error_at_the_same_byte(tail: bytes, letter: bytes) -> None:
    """Of any bytes that begin as one of them."""

    def outcome(read: object) -> str:
        assert callable(read)
        try:
            return repr(read(letter + tail))
        except WireError as error:
            return f"{type(error).__name__} at {error.offset}: {error.reason}"

    assert outcome(parse_description) == outcome(parse)


def test_describe_resolves_types() -> None:
    """A relation gets column types from the wire alone, domains by their base."""
    message = parse_description(
        wire.relation_message(
            [(1, "id", 20, -1), (0, "size", 16501, -1), (0, "mood", 16502, -1)],
            namespace="",
            name="orders",
        )
    )
    assert isinstance(message, RelationMessage)
    types = {16501: ("", "int4"), 16502: ("public", "mood")}
    relation = describe(message, 7, types)
    assert (relation.version, relation.namespace, relation.name) == (7, "pg_catalog", "orders")
    assert [column.type.kind for column in relation.columns] == [
        Kind.INT64,
        Kind.INT32,
        Kind.STRING,
    ]
    assert [column.type_name for column in relation.columns] == ["bigint", "integer", "public.mood"]
    assert [column.is_identity for column in relation.columns] == [True, False, False]


def test_full_identity_is_every_column() -> None:
    """Under REPLICA IDENTITY FULL the flags of the columns do not matter."""
    message = parse_description(wire.relation_message([(0, "a", 25, -1)], identity=b"f"))
    assert isinstance(message, RelationMessage)
    relation = describe(message, 1, {}, is_filtered=True)
    assert relation.columns[0].is_identity
    assert relation.is_filtered
    assert relation.columns[0].type == ColumnType(Kind.STRING)
