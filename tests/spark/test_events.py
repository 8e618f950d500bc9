"""Keys, values that do not fit, values that are not known, and schemas, on small tables."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gaussdecode.errors import LandingError
from gaussdecode.spark.log import keys
from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.log.events import to_events
from gaussdecode.spark.log.schema import (
    NAMES_TYPE,
    RAW_TYPE,
    Column,
    TableSchema,
    match_columns,
    parse_type,
    reads_as,
    why_inexact,
)
from gaussdecode.spark.merge.merge import Merged, merge

ORDER = ("gd_epoch", "gd_lsn", "gd_seq")
DAY = "date32[day]"


def schema_of(*columns: Column, key: tuple[str, ...] = ("id",), name: str = "s") -> TableSchema:
    """One version of a table."""
    return TableSchema(name, "public.t", "t", 1, key, columns)


SCHEMA = schema_of(
    Column("id", DAY, 1, identity=True), Column("a", "string", 2), Column("n", "int32", 3)
)


def change(op: str, lsn: int, **values: Any) -> dict[str, Any]:
    """One landed row."""
    return {"gd_op": op, "gd_epoch": 0, "gd_lsn": lsn, "gd_seq": 0, **values}


def landed(schema: TableSchema, *rows: dict[str, Any]) -> pa.Table:
    """Landed rows of a version."""
    old = pa.struct([pa.field(c.name, parse_type(c.type)) for c in schema.columns if c.identity])
    arrow = pa.schema(
        [
            ("gd_op", pa.string()), ("gd_epoch", pa.int32()), ("gd_lsn", pa.int64()),
            ("gd_seq", pa.int64()), ("gd_csn", pa.int64()), ("gd_xid", pa.int64()),
            ("gd_ts", pa.timestamp("us", tz="UTC")), ("gd_unchanged", NAMES_TYPE),
            ("gd_old", old), ("gd_raw", RAW_TYPE), *schema.arrow(),
        ]
    )  # fmt: skip
    return pa.Table.from_pylist(list(rows), schema=arrow)


def merged(schema: TableSchema, *rows: dict[str, Any], base: pa.Table | None = None) -> Merged:
    """Merge changes of one entry."""
    numbers = np.ones(len(rows), dtype=np.int64)
    events = to_events(landed(schema, *rows), schema, numbers, order=ORDER)
    return merge(base, events, (), schema, ORDER)


def seen(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """Some columns of some rows."""
    return sorted((tuple(row[n] for n in names) for row in rows.to_pylist()), key=repr)


def test_keys_that_do_not_fit_are_told_apart() -> None:
    """Two keys that are both NULL in their column are two rows, by their texts."""
    done = merged(
        SCHEMA,
        change("I", 1, a="up", gd_raw=[("id", "infinity")]),
        change("I", 2, a="down", gd_raw=[("id", "-infinity")]),
        change("U", 3, a="down again", gd_raw=[("id", "-infinity")]),
        change("D", 4, gd_old={"id": None}, gd_raw=[("old.id", "infinity")]),
    )
    assert seen(done.current, "a", "gd_raw") == [("down again", [("id", "-infinity")])]
    assert seen(done.closed, "a", "gd_to_lsn") == [("down", 3), ("up", 4)]


def test_texts_follow_their_column() -> None:
    """A value kept from the row before keeps its text; a value that fits has none any more."""
    done = merged(
        SCHEMA,
        change("I", 1, a=None, n=None, gd_raw=[("a", "\\xff"), ("n", "9e99")]),
        change("U", 2, n=5, gd_unchanged=["a"]),
    )
    assert seen(done.current, "a", "n", "gd_raw") == [(None, 5, [("a", "\\xff")])]


def test_values_never_seen_are_named() -> None:
    """An update of a row older than the slot leaves NULL and says that it is no NULL."""
    first = merged(SCHEMA, change("U", 1, n=1, gd_unchanged=["a"]))
    assert seen(first.current, "a", "n", "gd_unchanged") == [(None, 1, ["a"])]
    later = merged(SCHEMA, change("U", 2, n=2, gd_unchanged=["a"]), base=first.current)
    assert seen(later.current, "n", "gd_unchanged") == [(2, ["a"])]
    known = merged(SCHEMA, change("U", 3, a="x", n=3), base=later.current)
    assert seen(known.current, "a", "gd_unchanged") == [("x", None)]


def test_values_do_not_cross_a_deletion() -> None:
    """A row that was deleted and is updated later (an error of the source) starts unknown."""
    done = merged(
        SCHEMA,
        change("I", 1, a="old"),
        change("D", 2, gd_old={"id": None}),
        change("U", 3, n=1, gd_unchanged=["a"]),
    )
    assert seen(done.current, "a", "gd_unchanged") == [(None, ["a"])]


def test_redelivered_changes_are_merged_once() -> None:
    """The same rows again change neither the state nor the intervals."""
    rows = (change("I", 1, a="x"), change("U", 2, a="y"), change("U", 3, a="z"))
    once, twice = merged(SCHEMA, *rows), merged(SCHEMA, *rows, *rows)
    assert twice.current.equals(once.current)
    assert twice.closed.equals(once.closed)


def test_removals_of_absent_rows_are_counted() -> None:
    """In a table without key a removal of a row that is older than the slot removes nothing."""
    bag = schema_of(Column("x", "int32", 1, identity=True), key=())
    done = merged(bag, change("D", 1, gd_old={"x": 1}), change("I", 2, x=1), change("I", 3, x=1),
                  change("D", 4, gd_old={"x": 1}))  # fmt: skip
    assert done.unmatched == 1
    assert seen(done.current, "x", "gd_lsn") == [(1, 3)]
    assert seen(done.closed, "gd_lsn", "gd_to_lsn") == [(2, 4)]


def test_deletion_without_key_is_refused() -> None:
    """A D row that does not say of what is damage, not a change."""
    with pytest.raises(LandingError, match="without the key"):
        merged(SCHEMA, change("D", 1))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["ab", "c"], ["a", "bc"]),
        ([None, "n"], ["n", None]),
        (["", None], [None, ""]),
        (["1v", ""], ["", "1v"]),
    ],
)
def test_different_keys_have_different_bytes(left: list[Any], right: list[Any]) -> None:
    """No two keys of several columns are joined to the same bytes."""
    one, other = (
        keys.encode([pa.array([value], pa.string()) for value in row], [None, None])
        for row in (left, right)
    )
    assert one != other


def test_a_text_is_not_its_value() -> None:
    """A key that did not fit differs from one whose value is spelled the same."""
    value = keys.encode([pa.array(["x"])], [pa.array([None], pa.string())])
    text = keys.encode([pa.array([None], pa.string())], [pa.array(["x"])])
    assert value != text


def test_columns_are_followed_by_number() -> None:
    """Renamed columns keep their values; a column dropped and added anew does not."""
    new = schema_of(
        Column("id", DAY, 1), Column("b", "string", 2), Column("a", "string", 4), name="new"
    )
    assert match_columns(SCHEMA, new) == {"id": "id", "b": "a"}
    assert not reads_as(SCHEMA, new)
    rows = conform(landed(SCHEMA, change("I", 1, a="x", gd_unchanged=["n"])), SCHEMA, new)
    assert seen(rows, "a", "b", "gd_unchanged") == [(None, "x", None)]


def test_added_and_dropped_columns_need_no_rewriting() -> None:
    """Files without a column, or with one more, are read as they are."""
    added = schema_of(*SCHEMA.columns, Column("z", "int64", 9), name="added")
    assert reads_as(SCHEMA, added)
    assert reads_as(added, SCHEMA)
    retyped = schema_of(*SCHEMA.columns[:2], Column("n", "int64", 3), name="retyped")
    assert not reads_as(SCHEMA, retyped)


def test_values_that_nobody_knows_under_a_new_type_are_kept_as_text() -> None:
    """What a server made of them is not guessed, also where a value would fit."""
    wide = schema_of(
        Column("id", DAY, 1), Column("n", "int64", 3, server_type="bigint"), name="wide"
    )
    rows = landed(wide, change("I", 1, n=5), change("I", 2, n=None))
    assert why_inexact(wide, SCHEMA) is not None
    found = conform(rows, wide, SCHEMA)
    assert seen(found, "n", "gd_raw") == [(None, None), (None, [("n", "5")])]


@pytest.mark.parametrize(
    "of",
    [
        pa.decimal128(38, 10), pa.list_(pa.field("element", pa.int32())), pa.float32(),
        pa.list_(pa.field("element", pa.decimal128(5, 0))), pa.timestamp("us", tz="UTC"),
        pa.struct([("months", pa.int32()), ("days", pa.int32()), ("micros", pa.int64())]),
    ],
    ids=str,
)  # fmt: skip
def test_types_are_read_as_they_are_spelled(of: pa.DataType) -> None:
    """The spelling in a schema file gives the type back."""
    assert parse_type(str(of)) == of


def test_unknown_type_is_refused() -> None:
    """A type of a newer program is named."""
    with pytest.raises(LandingError, match="does not know"):
        parse_type("half_float")


def test_table_without_columns() -> None:
    """Rows of a table that has no columns are counted too."""
    empty = schema_of(key=())
    done = merged(empty, change("I", 1), change("I", 2), change("D", 3, gd_old={}))
    assert done.current.num_rows == 1
    assert done.closed.num_rows == 1


PAIR = schema_of(
    Column("id", "int64", 1, identity=True), Column("day", DAY, 2, identity=True),
    Column("n", "int32", 3), key=("id", "day"),
)  # fmt: skip
