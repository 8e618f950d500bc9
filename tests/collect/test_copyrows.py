"""COPY's lines become the rows that the stream's messages would have become."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.postgres import Database

from gaussdecode.collect._columns import Accumulator
from gaussdecode.collect._copyrows import CopyRows, hash_text, sum_rows
from gaussdecode.collect.arrow import table_rows, table_schema
from gaussdecode.collect.tables import Landed
from gaussdecode.errors import WireError
from gaussdecode.model.relation import Column, Relation, ReplicaIdentity
from gaussdecode.model.types import ColumnType, Kind
from gaussdecode.source.relations import relation_record

_ESCAPES = {8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 92: b"\\\\"}
_TEXT = st.one_of(
    st.none(),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.text("\\\t\nN.\b\r\v\f"),
)


def _landed(*kinds: Kind) -> Landed:
    columns = tuple(
        Column(f"c{index}", 25, -1, "text", ColumnType(kind), is_identity=False)
        for index, kind in enumerate(kinds)
    )
    relation = Relation(1, 16500, "public", "t", ReplicaIdentity.DEFAULT, columns)
    names = [column.name for column in columns]
    return Landed("public.t", "id", table_schema(columns, names), tuple(names), relation, 0)


def _read(landed: Landed, *pieces: bytes) -> list[dict[str, object]]:
    kinds, old_count = landed.kinds()
    accumulator = Accumulator(landed, kinds, old_count)
    assert landed.relation is not None
    record = relation_record(landed.relation)
    rows = CopyRows(record, 16500, len(landed.names), accumulator)
    count = sum(rows.add(piece) for piece in pieces)
    assert count == accumulator.row_count
    table = table_rows(
        accumulator.take(), landed.schema, landed.columns, landed.names, 3,
        with_xid=True, with_time=True,
    )  # fmt: skip
    return list(table.to_pylist())


def _copied(value: str | None) -> bytes:
    """What the server prints, as its CopyAttributeOutText does."""
    if value is None:
        return b"\\N"
    return b"".join(_ESCAPES.get(byte, bytes([byte])) for byte in value.encode())


@settings(deadline=None)
@given(st.lists(st.tuples(_TEXT, _TEXT, _TEXT), min_size=1, max_size=20), st.integers(0, 20))
def test_any_text_survives(rows: list[tuple[str | None, ...]], cut: int) -> None:
    """Whatever text a row holds, it lands as it is, however the lines are cut into pieces."""
    lines = [b"\t".join(map(_copied, row)) + b"\n" for row in rows]
    pieces = [piece for piece in (b"".join(lines[:cut]), b"".join(lines[cut:])) if piece]

    landed = _read(_landed(Kind.STRING, Kind.STRING, Kind.STRING), *pieces)

    assert [(row["c0"], row["c1"], row["c2"]) for row in landed] == rows
    assert {row["gd_op"] for row in landed} == {"R"}


def test_values_take_their_types() -> None:
    """A number lands as a number; what does not fit its column keeps its text."""
    landed = _read(_landed(Kind.INT32, Kind.BOOL), b"7\tt\nx\t\\N\n")

    assert [(row["c0"], row["c1"]) for row in landed] == [(7, True), (None, None)]
    assert landed[1]["gd_raw"] == [("c0", "x")]


def test_table_without_columns() -> None:
    """An empty line is a row."""
    assert len(_read(_landed(), b"\n\n\n")) == 3


@pytest.mark.parametrize("lines", [b"1\n", b"1\t2\t3\n", b"1\t2", b"\n"])
def test_other_lines_are_refused(lines: bytes) -> None:
    """Lines with another number of fields, or without an end, raise."""
    with pytest.raises(WireError):
        _read(_landed(Kind.INT32, Kind.INT32), lines)


@given(st.binary(max_size=64))
def test_hash_depends_on_every_byte(text: bytes) -> None:
    """The hash of a text changes when a byte is added, and is a number of 32 bits."""
    assert -(1 << 31) <= hash_text(text) < 1 << 31
    assert hash_text(text) != hash_text(text + b"\0")


@pytest.mark.integration
def test_server_hashes_the_same(database: Database) -> None:
    """For texts of all lengths `hash_text` is the server's hashtext()."""
    rows = database.execute(
        "SELECT repeat('aé漢', g), hashtext(repeat('aé漢', g)) FROM generate_series(0, 30) g"
    )
    assert [hash_text(str(text).encode()) for text, _ in rows] == [value for _, value in rows]


def test_sum_is_of_values_and_not_of_their_order() -> None:
    """Escapes are undone, NULL is no text, and rows may come in any order."""
    lines = [b"a\\tb\t\\N\t\n", b"\\\\N\t\\n\tc\n"]
    wanted = hash_text(b"va\tb\tn\tv\t") + hash_text(b"v\\N\tv\n\tvc\t")
    assert sum_rows(b"".join(lines)) == sum_rows(b"".join(reversed(lines))) == wanted
    assert sum_rows(b"\n\n", has_columns=False) == 2 * hash_text(b"")
    with pytest.raises(WireError, match="without its end"):
        sum_rows(b"a")
