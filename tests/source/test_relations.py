"""The reader's slow path."""

import json
import struct

import pytest

from gaussdecode.errors import SequenceError, WireError
from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.model.types import Kind
from gaussdecode.source.postgresql.relations import Relations
from gaussdecode.source.relations import WhiteList, relation_record


def relation_message(oid: int = 7, name: str = "t", identity: bytes = b"d") -> bytes:
    """A table of an integer key, a domain or enum 20000, and numeric(10,2)."""
    columns = [(1, "id", 23, -1), (0, "kind", 20000, -1), (0, "n", 1700, (10 << 16 | 2) + 4)]
    head = b"R" + struct.pack(">I", oid) + b"public\0" + name.encode() + b"\0" + identity
    return (
        head
        + struct.pack(">H", len(columns))
        + b"".join(
            struct.pack(">B", flags)
            + column.encode()
            + b"\0"
            + struct.pack(">Ii", type_oid, modifier)
            for flags, column, type_oid, modifier in columns
        )
    )


@pytest.mark.parametrize(
    ("items", "allowed"),
    [
        ([], True),
        ([("public", "t")], True),
        ([("public", "*")], True),
        ([("*", "t")], True),
        ([("*", "*")], True),
        ([("public", "u"), ("other", "t")], False),
        ([("Public", "t")], False),
    ],
)
def test_white_list(items: list[tuple[str, str]], allowed: bool) -> None:
    """Exact names, or * for all; an empty list wants everything."""
    assert WhiteList(items).allows("public", "t") is allowed


def test_versions_rise_and_types_are_resolved() -> None:
    """A Type message gives a user's type its name, a domain its base."""
    relations = Relations(WhiteList())
    assert relations.define(relation_message()).version == 1
    assert relations.note_type(b"Y" + struct.pack(">I", 20000) + b"\0int4\0") == 20000

    relation = relations.define(relation_message())

    assert relation.version == 2
    assert [column.type.kind for column in relation.columns] == [
        Kind.INT32,
        Kind.INT32,
        Kind.DECIMAL,
    ]
    assert [column.is_identity for column in relation.columns] == [True, False, False]
    full = relations.define(relation_message(identity=b"f"))
    assert full.identity is ReplicaIdentity.FULL
    assert all(column.is_identity for column in full.columns)


def test_record_has_the_layout_of_a_raw_batch() -> None:
    """Header, plan and definition, padded to eight."""
    relations = Relations(WhiteList([("public", "other")]))
    relation = relations.define(relation_message())
    record = relation_record(relation)

    size, oid, version, flags, count, _, length = struct.unpack_from("=IIIIHHI", record)

    assert (size, oid, version, flags, count) == (len(record), 7, 1, 1, 3)
    assert size % 8 == 0
    plan = [record[24 + 8 * i : 32 + 8 * i] for i in range(3)]
    assert plan[0] == bytes([Kind.INT32, 0, 0, 0, 1, 0, 0, 0])
    assert plan[2] == bytes([Kind.DECIMAL, 0, 10, 2, 0, 0, 0, 0])
    assert Relation.from_record(json.loads(record[48 : 48 + length])) == relation
    assert not any(record[48 + length :])


def test_other_messages_are_refused() -> None:
    """The slow path is for relations and types."""
    relations = Relations(WhiteList())
    with pytest.raises(SequenceError):
        relations.note_type(relation_message())
    with pytest.raises(SequenceError):
        relations.define(b"Y" + struct.pack(">I", 1) + b"a\0b\0")
    with pytest.raises(WireError):
        relations.define(relation_message()[:-1])
