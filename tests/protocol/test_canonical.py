"""The plain parser: every message by field name, and what it refuses."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import wire
from twins import canonical as pgoutput
from twins.canonical import Absent

from gaussdecode.errors import TruncatedError, WireError
from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.protocol import canonical
from gaussdecode.protocol.described import RelationColumn, RelationMessage, TypeMessage
from gaussdecode.wire.encoding import find_encoding

# As PostgreSQL 15 sends it: the table of the documentation's first example.
RELATION = wire.relation_message(
    [(1, "id", 23, -1), (0, "note", 25, -1), (0, "price", 1700, (10 << 16 | 2) + 4)],
    oid=16400,
)

MESSAGES: list[tuple[bytes, pgoutput.Message]] = [
    (wire.begin(0x10, 1_700_000_000_000_001, 5), pgoutput.Begin(0x10, 1_700_000_000_000_001, 5)),
    (
        wire.commit(0x10, 0x40, 1_700_000_000_000_001),
        pgoutput.Commit(0x10, 0x40, 1_700_000_000_000_001),
    ),
    (wire.origin(0x99, "north"), pgoutput.Origin(0x99, b"north")),
    (
        RELATION,
        RelationMessage(
            16400,
            "public",
            "orders",
            ReplicaIdentity.DEFAULT,
            (
                RelationColumn(is_key=True, name="id", type_oid=23, type_modifier=-1),
                RelationColumn(is_key=False, name="note", type_oid=25, type_modifier=-1),
                RelationColumn(is_key=False, name="price", type_oid=1700, type_modifier=655366),
            ),
        ),
    ),
    (wire.type_message(16500, "public", "mood"), TypeMessage(16500, "public", "mood")),
    (
        wire.insert(["1", None, ""], 16400),
        pgoutput.Insert(16400, (b"1", Absent.NULL, b"")),
    ),
    (
        wire.update(["1", wire.UNCHANGED], oid=16400),
        pgoutput.Update(16400, None, None, (b"1", Absent.UNCHANGED)),
    ),
    (
        wire.update(["2"], key=["1"], oid=16400),
        pgoutput.Update(16400, "K", (b"1",), (b"2",)),
    ),
    (
        wire.update(["2"], old=["1"], oid=16400),
        pgoutput.Update(16400, "O", (b"1",), (b"2",)),
    ),
    (wire.delete(["1"], oid=16400), pgoutput.Delete(16400, "K", (b"1",))),
    (wire.truncate(1, 2, bits=3), pgoutput.Truncate((1, 2), True, True)),
    (
        wire.logical(b"app", b"\0x", 0x55, 1),
        pgoutput.LogicalMessage(True, 0x55, b"app", b"\0x"),
    ),
    (wire.stream_start(9, is_first=False), pgoutput.StreamStart(9, is_first=False)),
    (b"E", pgoutput.StreamStop()),
    (wire.stream_commit(9, 1, 2, 3), pgoutput.StreamCommit(9, 1, 2, 3)),
    (wire.stream_abort(9, 10), pgoutput.StreamAbort(9, 10, None, None)),
    (wire.prepared(b"b", 9, b"g", 2, 1, 3), pgoutput.PrepareBegin(1, 2, 3, 9, b"g")),
    (wire.prepared(b"P", 9, b"g", 2, 1, 3), pgoutput.Prepare(1, 2, 3, 9, b"g")),
    (wire.prepared(b"p", 9, b"g", 2, 1, 3), pgoutput.StreamPrepare(1, 2, 3, 9, b"g")),
    (wire.prepared(b"K", 9, b"g", 2, 1, 3), pgoutput.CommitPrepared(1, 2, 3, 9, b"g")),
    (wire.prepared(b"r", 9, b"g", 2, 1, 3), pgoutput.RollbackPrepared(1, 2, 3, 3, 9, b"g")),
]


@pytest.mark.parametrize(("payload", "message"), MESSAGES, ids=lambda each: type(each).__name__)
def test_messages(payload: bytes, message: pgoutput.Message) -> None:
    """Every field comes out where it belongs."""
    assert pgoutput.parse(payload) == message
    if payload[:1] in canonical.PARSERS:
        assert canonical.parse(payload) == message
    else:
        with pytest.raises(WireError, match="unknown type"):
            canonical.parse(payload)


@pytest.mark.parametrize("payload", [payload for payload, _ in MESSAGES], ids=lambda each: each[:1])
def test_every_prefix_is_truncated(payload: bytes) -> None:
    """Cut anywhere, a message raises instead of guessing."""
    for size in range(len(payload)):
        with pytest.raises(TruncatedError):
            pgoutput.parse(payload[:size])


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"Q\0\0\0\1\1", "unknown type"),
        (wire.prepared(b"P", flags=1), "unknown flags of a prepare"),
        (wire.prepared(b"p", flags=1), "unknown flags of a prepare"),
        (wire.prepared(b"K", flags=1), "unknown flags of a commit"),
        (wire.prepared(b"r", flags=1), "unknown flags of a rollback"),
        (b"S\0\0\0\1\2", "unknown flags of a block"),
        (wire.stream_commit(flags=1), "unknown flags of a commit"),
        (wire.begin() + b"\0", "after the end"),
        (wire.relation_message([], identity=b"x"), "replica identity"),
        (wire.relation_message([(2, "id", 23, -1)]), "unknown flags of a column"),
        (wire.insert(["1"]), "not described"),
        (wire.insert(["1"], 16400), "number of columns"),
        (wire.delete([wire.UNCHANGED, None], oid=16400), "old tuple"),
    ],
)
def test_breaking_the_format_is_an_error(payload: bytes, reason: str) -> None:
    """What no server sends is refused, with the reason."""
    with pytest.raises(WireError, match=reason):
        pgoutput.parse(payload, {16400: 2})


def test_changes_of_a_block_name_their_transaction() -> None:
    """Each letter that stands in a block has it, the others do not."""
    for payload, message in MESSAGES:
        if payload[:1] in b"RYIUDTM":
            assert pgoutput.parse(wire.of_block(payload, 9), is_streamed=True) == (
                pgoutput.Streamed(9, cast("pgoutput.Change", message))
            )
        else:
            assert pgoutput.parse(payload, is_streamed=True) == message
    abort = pgoutput.parse(wire.stream_abort(9, 10, (1, 2)))
    assert abort == pgoutput.StreamAbort(9, 10, 1, wire.EPOCH_US + 2)


@given(st.binary(max_size=80))
def test_any_bytes_give_a_message_or_a_wire_error(payload: bytes) -> None:
    """Nothing else escapes, and the byte is inside of the message."""
    offset = 0
    try:
        pgoutput.parse(payload)
    except WireError as error:
        offset = error.offset
    assert 0 <= offset <= len(payload)


def test_names_and_values_are_translated() -> None:
    """From the database's encoding; what has no letter in it is spelled out."""
    named = wire.relation_message([], name="cafe").replace(b"cafe", b"caf\x81")
    table = pgoutput.parse(named, encoding=find_encoding("WIN1252"))
    assert isinstance(table, RelationMessage)
    assert table.name == "caf\\x81"
    row = b"I\0\0\0\1N\0\1t\0\0\0\1\xe9"
    assert pgoutput.parse(row, encoding=find_encoding("WIN1252")) == pgoutput.Insert(
        1, ("\u00e9".encode(),)
    )
