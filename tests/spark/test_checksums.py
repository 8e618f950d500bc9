"""Checksums of a table at a position: the same whether changes are applied or laid over."""

import dataclasses
import decimal
import math
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from kit.history import History, Table, shop

from gaussdecode.operations.compare.compare import TableResult, condition
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.schema import Column, TableSchema
from gaussdecode.spark.maintain.checksums import (
    Difference,
    LakeTable,
    MovingError,
    Overlay,
    Shape,
    StoredFiles,
    Sums,
    canonical,
    differences,
    different_ranges,
    overlay,
)
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.store import Target


def apart() -> list[Table]:
    """Tables of every kind, each with an OID of its own."""
    return [dataclasses.replace(table, oid=oid) for oid, table in enumerate(shop(), 1)]


def lake(root: Path, target: Path, table: str, until: tuple[int, int] | None) -> LakeTable:
    """A table of the newest version, with what landed later laid over it."""
    store = Target(target)
    database = store.database()
    assert database is not None
    version = store.version(table, database.tables[table])
    schema = store.schema(table, version.schema_id)
    shape = Shape(schema.names, schema.key)
    laid = Overlay()
    if until is not None:
        landing = Landing(root)
        entries = list(landing.entries(database.n + 1, landing.last_n))
        laid = overlay(landing, entries, table, schema, shape, until)
    return LakeTable(StoredFiles(LocalEngine(), store, table, version), shape, laid)


@pytest.mark.parametrize("seed", range(5))
def test_changes_laid_over_are_changes_applied(seed: int, tmp_path: Path) -> None:
    """Key changes, unsent values, deletes and multisets: every sum, range and row is the same."""
    root = tmp_path / "landing"
    history = History(root, seed, with_schema_changes=False, tables=apart())
    for _ in range(6):
        history.transaction()
    history.commit()
    apply_with(LocalEngine(), root, tmp_path / "early", Options(buckets=2))
    first = history.writer.n
    for _ in range(4):
        history.transaction()
        history.transaction()
        history.commit()
    apply_with(LocalEngine(), root, tmp_path / "late", Options(buckets=2))
    compared = 0
    for table in Target(tmp_path / "early").tables():
        late = lake(root, tmp_path / "late", table, None)
        files = [f for n in range(first, history.writer.n) for f in Landing(root).entry(n).files]
        is_emptied = any(file.table == table and file.ops.get("T") for file in files)
        if is_emptied:
            with pytest.raises(MovingError, match="emptied"):
                lake(root, tmp_path / "early", table, (0, history.lsn))
            continue
        early = lake(root, tmp_path / "early", table, (0, history.lsn))
        for digits in (1, 3):
            assert early.sums(digits) == late.sums(digits), table
        ranges = list(late.sums(1))
        assert early.rows(ranges) == late.rows(ranges)
        compared += 1
    assert compared


def test_only_what_ends_up_to_the_position_is_laid_over(tmp_path: Path) -> None:
    """A position in the middle of an entry: the state after that transaction."""
    root = tmp_path / "landing"
    history = History(root, 3, with_schema_changes=False, tables=apart())
    for _ in range(5):
        history.transaction()
    history.commit()
    apply_with(LocalEngine(), root, tmp_path / "early", Options(buckets=1))
    history.transaction()
    middle = history.lsn
    other = tmp_path / "other"
    twin = History(other, 3, with_schema_changes=False, tables=apart())
    for _ in range(5):
        twin.transaction()
    twin.commit()
    twin.transaction()
    twin.commit()
    history.transaction()
    history.commit()
    apply_with(LocalEngine(), other, tmp_path / "middle", Options(buckets=1))
    for table in Target(tmp_path / "early").tables():
        expected = lake(other, tmp_path / "middle", table, None).sums(2)
        assert lake(root, tmp_path / "early", table, (0, middle)).sums(2) == expected


def test_rows_under_another_name_are_not_passed_over(tmp_path: Path) -> None:
    """The table had it for a while: what the source has cannot be made of the rows of one name."""
    root = tmp_path / "landing"
    history = History(root, 3, with_schema_changes=False, tables=apart())
    for _ in range(5):
        history.transaction()
    history.commit()
    apply_with(LocalEngine(), root, tmp_path / "target", Options(buckets=1))
    for table in history.tables[1:]:
        table.oid = history.tables[0].oid
    history.writer.schemas.clear()
    for _ in range(5):
        history.transaction()
    history.commit()
    with pytest.raises(MovingError, match="under another name"):
        lake(root, tmp_path / "target", history.tables[0].directory, (0, history.lsn))


def test_canonical_texts() -> None:
    """One text for each value, whatever the session's settings are."""
    times = pa.array([0, 1_500_000, 10, None], pa.timestamp("us", tz="UTC"))
    assert canonical(times) == [
        "1970-01-01 00:00:00+00",
        "1970-01-01 00:00:01.5+00",
        "1970-01-01 00:00:00.00001+00",
        None,
    ]
    assert canonical(pa.array([1.0, math.nan, None, -0.0])) == [
        "3ff0000000000000",
        "NaN",
        None,
        "8000000000000000",
    ]
    small = pa.array([decimal.Decimal("1E-10")], pa.decimal128(38, 10))
    assert canonical(small) == ["0.0000000001"]
    assert canonical(pa.array([["a", None], None, []])) == ["[1:a,-]", None, "[]"]
    assert canonical(pa.array([b"\x00\xff", b""])) == ["00ff", ""]
    assert canonical(pa.array([True, False])) == ["true", "false"]


def test_differences_have_a_kind() -> None:
    """Missing, surplus, different; sums tell the range."""
    source: Sums = {"a": (2, 5), "b": (1, 1)}
    assert different_ranges(source, {"a": (2, 5), "c": (1, 1)}) == ["b", "c"]
    left = Counter([("k1", 1, '{"id": "1"}'), ("k2", 2, '{"id": "2"}')])
    right = Counter([("k2", 3, '{"id": "2"}'), ("k3", 1, "{}")])
    assert differences(left, right) == [
        Difference("missing", '{"id": "1"}'),
        Difference("different", '{"id": "2"}'),
        Difference("surplus", "k3"),
    ]


@pytest.mark.parametrize(
    ("kinds", "of", "expected"),
    [
        (("missing", "different"), "string", "(\"I'd\") IN (('it''s 1'), ('it''s 1'))"),
        (("missing", "surplus"), "string", None),
        (("missing",), "double", None),
    ],
)
def test_repair_chooses_rows_where_that_is_enough(
    kinds: tuple[str, ...], of: str, expected: str | None
) -> None:
    """A surplus row needs the whole table, as does a key that SQL does not spell alike."""
    schema = TableSchema("x", "s.t", "t", 1, ("I'd",), (Column("I'd", of, 1, True, "I'd"),))
    rows = tuple(Difference(kind, '{"I\'d": "it\'s 1"}') for kind in kinds)
    assert (
        condition(schema, TableResult(table="s.t", different_ranges=1, differences=rows))
        == expected
    )
