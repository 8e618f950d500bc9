"""Messages recorded from real servers, through both decoders.

Recorded with pg_logical_slot_get_binary_changes() of a table with a two-column key, a
value out of line, an enum and a domain, and of one with REPLICA IDENTITY FULL.
"""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from kit import plain, wire
from kit.decoded import Entry, EventKind, read_entry
from twins.canonical import parse
from twins.values import Interval

from gaussdecode._wire import BatchDecoder
from gaussdecode.model.relation import Relation
from gaussdecode.protocol.described import RelationMessage, TypeMessage, describe

VECTORS = sorted((Path(__file__).parent / "vectors").glob("pgoutput-*.json"))


def load(path: Path) -> tuple[list[bytes], list[Relation]]:
    """Split a recording into messages for a decoder and the relations before them."""
    messages: list[bytes] = []
    relations: dict[int, Relation] = {}
    types: dict[int, tuple[str, str]] = {}
    for text in json.loads(path.read_text())["messages"]:
        payload = bytes.fromhex(text)
        message = parse(payload)
        if isinstance(message, TypeMessage):
            types[message.oid] = (message.namespace, message.name)
        elif isinstance(message, RelationMessage):
            known = relations.get(message.oid)
            version = known.version if known else len(relations) + 1
            relations[message.oid] = describe(message, version, types)
            assert known in (None, relations[message.oid])
        else:
            messages.append(payload)
    return messages, list(relations.values())


@pytest.fixture(params=VECTORS, ids=lambda path: path.stem)
def recording(request: pytest.FixtureRequest) -> tuple[list[bytes], list[Relation]]:
    """Messages and relations of one server."""
    return load(request.param)


@pytest.fixture
def entry(recording: tuple[list[bytes], list[Relation]]) -> Entry:
    """What the fast decoder makes of it, relation events left out."""
    messages, relations = recording
    data = BatchDecoder().decode_bytes(wire.raw_batch(messages, relations))
    decoded = read_entry(data, {each.version: each for each in relations})
    del decoded.events[: len(relations)]
    return decoded


def test_decoders_agree(recording: tuple[list[bytes], list[Relation]], entry: Entry) -> None:
    """The fast decoder reads a real server as the plain one does."""
    assert repr(entry) == repr(plain.decode(*recording))


def test_types_are_resolved(recording: tuple[list[bytes], list[Relation]]) -> None:
    """Enum, domain and the rest have the names and kinds they should."""
    held = {column.name: column for column in recording[1][0].columns}
    assert held["few"].type_name == "integer"
    assert held["feeling"].type_name == "public.mood"
    assert held["tags"].type_name == "text[]"
    assert [name for name, column in held.items() if column.is_identity] == ["id", "tag"]
    assert all(column.is_identity for column in recording[1][1].columns)


def test_rows_of_the_keyed_table(entry: Entry) -> None:
    """Values, unchanged TOAST, key change, misfits and a delete come out exactly."""
    part = entry.parts[0]
    first = [column[0] for column in part.columns]
    assert first == [
        1,
        "a",
        True,
        Decimal("-12.50"),
        datetime(2024, 2, 29, 7, 4, 56, 789000, tzinfo=UTC),
        Interval(14, -3, 14_706_700_000),
        "x" * 3000,
        ["a", "b c", None, 'q"\\'],
        b"\x00\xff",
        0.1,
        "ok",
        7,
        None,
    ]
    assert part.ops == b"IUUD"
    assert part.key_changed == bytes([0, 0, 1, 0])
    assert part.old_columns == [[None, None, 1, 2], [None, None, "a", "a"]]
    assert part.unchanged == [(1, 6), (2, 6)]
    assert part.misfits[0, 12] == "infinity"
    assert part.misfits[2, 3] == "NaN"


def test_rows_of_the_full_table(entry: Entry) -> None:
    """Under FULL the unchanged value is the old one, NULL and empty stay apart."""
    part = entry.parts[1]
    assert part.ops == b"IIIUUUD"
    big = "y" * 3000
    assert part.columns == [[1, 2, 3, 11, 12, 13, None], [big, None, "", big, None, "", None]]
    assert part.old_columns == [
        [None, None, None, 1, 2, 3, 12],
        [None, None, None, big, None, "", None],
    ]
    assert part.unchanged == []


def test_messages_and_truncates(entry: Entry) -> None:
    """A logical message keeps its bytes, a truncate names both tables with its options."""
    (message,) = [each for each in entry.events if each.kind is EventKind.MESSAGE]
    assert message.payload == b"app\0" + "héllo".encode()
    truncates = [each for each in entry.events if each.kind is EventKind.TRUNCATE]
    assert sorted(each.index for each in truncates) == [1, 2]
    assert {each.flags for each in truncates} == {3}
