"""Rows of prepared transactions for readers: what would land of them now, and nobody is asked."""

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from collect.test_assembler import FIRST, TABLES, File, Schemas, Sink, Step, prepared
from collect.test_gauss import Writer
from kit.entries import ORIGIN, STREAM_ABORT, TRUNCATE, Item, Mark, Row, entry, relation_mark

from gaussdecode.collect.collector import Collector, CollectorSettings
from gaussdecode.collect.shown import Showing, Shown
from gaussdecode.collect.spool import Spool
from gaussdecode.collect.tables import Tables
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.landing import SourcePosition

SETTINGS = CollectorSettings(
    row_group_rows=2, row_group_bytes=1 << 20, memory_bytes=1 << 22, txn_memory_bytes=1 << 20,
    target_file_size=1 << 20, max_commit_interval=3600.0, only_local=True, skip_empty_xacts=False,
    include_xids=False, include_timestamp=False,
)  # fmt: skip


def asked(_: object) -> None:
    """The catalogue."""
    raise AssertionError("a prepared transaction may hold its lock")


def kept(tmp_path: Any, steps: list[Step]) -> File:  # Any: Path
    """What is kept of transaction 7."""
    sink = Sink(tmp_path)
    sink.assembler.absorb_bytes(entry(0, [relation_mark(of) for of in TABLES.values()]))
    for owner, items in steps:
        sink.assembler.absorb_bytes(entry(1, items, stream_xid=owner))
    sink.keep()
    return sink.files[7]


def show(file: File, **tables: Any) -> list[Shown]:  # Any: arguments of `Tables`
    """All parts."""
    parts: list[Shown] = []
    schemas = Schemas()
    made = Tables(schemas, lambda schema, name: f"{schema}.{name}", list, asked, **tables)
    Showing(made, SETTINGS, parts.append).show(file)
    assert len(schemas.known) == 2, "no schema but those of the tables of the system"
    return parts


@pytest.fixture
def file(tmp_path: Any) -> File:  # Any: Path
    """With rows of two tables that land and one that does not, some of them rolled back."""
    rows: list[Item] = [FIRST, Mark(ORIGIN, payload=b"far"), Row(2, 1, "x", 7), Row(1, 2, None, 8)]
    rows += [Row(2, 3, "gone", 9), Mark(TRUNCATE, index=1, z=7), Mark(TRUNCATE, index=3, z=7)]
    rows += [Row(2, number, "y", 7) for number in (4, 5, 6)]
    return kept(tmp_path, prepared((7, rows), (0, [Mark(STREAM_ABORT, x=7, y=9)])))


def test_rows_that_would_land_are_shown(file: File) -> None:
    """With their order, in parts of a row group; nothing of an end that has not come."""
    parts = show(file)
    found = sorted(
        (row["gd_seq"], part.schema["name"], row["gd_op"], row["gd_xid"], row["id"], row["note"])
        for part in parts
        for row in part.rows.to_pylist()
    )
    assert found == [
        (0, "b", "I", 7, 1, "x"),
        (1, "a", "I", 7, 2, None),
        (2, "a", "T", 7, None, None),
        (3, "b", "I", 7, 4, "y"),
        (4, "b", "I", 7, 5, "y"),
        (5, "b", "I", 7, 6, "y"),
    ]
    assert max(part.rows.num_rows for part in parts) < 6
    for part in parts:
        assert {"gd_epoch", "gd_lsn", "gd_csn", "gd_ts"}.isdisjoint(part.rows.schema.names)
        assert [column["attribute_number"] for column in part.schema["columns"]] == [None, None]


def test_tables_that_nobody_wants_are_not_shown(file: File) -> None:
    """As they do not land."""
    parts = show(file, is_wanted=lambda of: of.name == "a")
    assert {part.schema["name"] for part in parts} == {"a"}


def test_the_file_lands_as_before(file: File) -> None:
    """To show it takes nothing away."""
    before = [(offset, size) for offset, size in file.places]
    show(file)
    assert file.places == before
    assert [part.rows.to_pylist() for part in show(file)] == [
        part.rows.to_pylist() for part in show(file)
    ]


def collector_of(tmp_path: Any, **settings: Any) -> Collector:  # Any: Path, of the settings
    """One that was not asked anything yet."""
    tables = Tables(Schemas(), lambda schema, name: f"{schema}.{name}", list, asked)
    return Collector(
        dataclasses.replace(SETTINGS, **settings), tables, Writer(),
        Spool(tmp_path, SpaceWait().run), SourcePosition(1, 1, 1), {},
    )  # fmt: skip


def test_what_would_be_left_out_is_not_shown(file: File, tmp_path: Any) -> None:  # Any: Path
    """A transaction of another origin, unless those land."""
    parts: list[Shown] = []
    assert collector_of(tmp_path)._show(file, parts.append) is None
    assert parts == []
    assert collector_of(tmp_path, only_local=False)._show(file, parts.append) is None
    assert sum(part.rows.num_rows for part in parts) == 6


def test_a_row_that_cannot_be_shown_stops_nothing(file: File, tmp_path: Any) -> None:  # Any: Path
    """It is said what kind of error it was, without what that says."""

    def refuse(_: Shown) -> None:
        raise pa.ArrowInvalid("a value: 4711")

    why = collector_of(tmp_path, only_local=False)._show(file, refuse)
    assert why == "a row cannot be written (ArrowInvalid)"
