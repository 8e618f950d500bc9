"""A snapshot that stands exactly where the last transaction ends, as one of a quiet GaussDB does."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit.history import Column, LandingWriter, Table
from kit.stranger import Reader

from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

TITLE = "public.t"
Row = tuple[str, int, str | None]  # op, id, v


class Source:
    """A landing of one table."""

    def __init__(self, root: Path, *, has_key: bool) -> None:
        columns = [Column(0, "id", pa.int32()), Column(1, "v", pa.string())]
        self.table = Table("t", columns, (0,) if has_key else (), full=not has_key)
        self.writer = LandingWriter(root / "landing")
        self.root = root

    def land(self, lsn: int, *rows: Row) -> None:
        """One entry, of changes of a transaction or of a snapshot."""
        is_snapshot = rows[0][0] == "R"
        content = pa.Table.from_pylist(
            [
                {"gd_op": op, "gd_epoch": 0, "gd_lsn": lsn, "gd_seq": seq, "id": number, "v": value,
                 **({"gd_old": {"id": number, "v": value}} if op == "D" else {})}
                for seq, (op, number, value) in enumerate(rows)
            ],
            schema=self.table.schema(),
        )  # fmt: skip
        schema_id = self.writer.schema_id(self.table)
        file = self.writer.file(self.table.directory, schema_id, content, 0)
        said = {"epoch": 0, "lsn": lsn,
                "tables": {TITLE: {"where": None, "rows": len(rows)}}}  # fmt: skip
        kind = EntryKind.SNAPSHOT if is_snapshot else EntryKind.DATA
        self.writer.entry(kind, lsn, [file], extra={"snapshot": said} if is_snapshot else None)

    def apply(self, **options: Any) -> list[tuple[int, str | None]]:
        """Bring the target up to the log; give its rows, which must be those of a reader by the page."""
        target = self.root / "target"
        apply_with(LocalEngine(), self.root / "landing", target, Options(**options))
        store = Target(target)
        database = store.database()
        assert database is not None
        version = store.version(TITLE, database.tables[TITLE])
        rows = [
            (row["id"], row["v"])
            for file in version.current
            for row in current_rows(store.table_root(TITLE), file).to_pylist()
        ]
        table = Reader(self.root / "landing").advance().tables[TITLE]
        held = [*table.rows.values(), *table.bag]
        assert len(held) == len(rows)
        return sorted(rows)


@pytest.mark.parametrize("has_key", [True, False], ids=["key", "multiset"])
@pytest.mark.parametrize("in_steps", [True, False], ids=["in-steps", "at-once"])
def test_its_rows_replace_those_of_the_transaction(
    tmp_path: Path, *, has_key: bool, in_steps: bool
) -> None:
    """Wherever both stand in their order: what the target had of that transaction is gone."""
    source = Source(tmp_path, has_key=has_key)
    source.land(100, ("I", 1, "a"), ("I", 2, "b"))
    source.land(
        200, ("I", 3, "wrong"), ("I", 4, "not there"), ("I", 5, "e"), ("I", 6, "f"), ("I", 7, "g")
    )
    if in_steps:
        assert len(source.apply()) == 7
    right = [(1, "a"), (2, "b"), (3, "right"), (5, "e"), (6, "f"), (7, "g")]
    source.land(200, *[("R", number, value) for number, value in reversed(right)])
    assert source.apply(history=True) == right
    source.land(300, ("D", 5, "e"), ("I", 8, "h"))
    assert source.apply(history=True) == [of for of in right if of[0] != 5] + [(8, "h")]


@pytest.mark.parametrize("has_key", [True, False], ids=["key", "multiset"])
def test_an_empty_one_leaves_nothing(tmp_path: Path, *, has_key: bool) -> None:
    """The file of a table without rows has one of op T, at the same place."""
    source = Source(tmp_path, has_key=has_key)
    source.land(100, ("I", 1, "a"))
    source.land(200, ("I", 2, "b"), ("I", 3, "c"))
    assert len(source.apply()) == 3
    schema_id = source.writer.schema_id(source.table)
    row = {"gd_op": "T", "gd_epoch": 0, "gd_lsn": 200, "gd_seq": 0}
    content = pa.Table.from_pylist([row], schema=source.table.schema())
    file = source.writer.file(TITLE, schema_id, content, 0)
    said = {"epoch": 0, "lsn": 200, "tables": {TITLE: {"where": None, "rows": 0}}}
    source.writer.entry(EntryKind.SNAPSHOT, 200, [file], extra={"snapshot": said})
    assert source.apply() == []
    source.land(300, ("I", 4, "d"))
    assert source.apply() == [(4, "d")]


@pytest.mark.parametrize("has_key", [True, False], ids=["key", "multiset"])
@pytest.mark.parametrize("in_steps", [True, False], ids=["in-steps", "at-once"])
def test_a_truncate_of_that_transaction_leaves_its_rows(
    tmp_path: Path, *, has_key: bool, in_steps: bool
) -> None:
    """Its place is among those of the snapshot's rows, and it came before all of them."""
    source = Source(tmp_path, has_key=has_key)
    source.land(100, ("I", 1, "a"), ("I", 2, "b"))
    new: list[Row] = [("I", 3, "c"), ("I", 4, "d"), ("T", 0, None), ("I", 5, "e"), ("I", 6, "f")]
    source.land(200, *new)
    if in_steps:
        assert source.apply() == [(5, "e"), (6, "f")]
    rows: list[Row] = [("R", number, "new") for number in range(5, 12)]
    source.land(200, *rows)
    assert source.apply(history=True) == [(number, "new") for number in range(5, 12)]
