"""Compaction: the same rows and positions in fewer files."""

import dataclasses
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.landrun import IDENTITY, Landing, landed_rows
from kit.simdisk import SimFiles

from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.compaction import Small, compact, joint_schema, merge, plan_groups
from gaussdecode.land.verify import verify_files
from gaussdecode.model.landing import EntryKind, LandingFile, Position


def file(table: str, schema_id: str, lsn: int, size: int = 100) -> LandingFile:
    """A landing file, as far as planning looks at it."""
    return LandingFile(
        table=table,
        path=f"data/{table}/{lsn}",
        rows=1,
        bytes=size,
        first=Position(lsn, 0),
        last=Position(lsn, 9),
        schema_id=schema_id,
        ops={"I": 1},
        has_unchanged=False,
        has_key_change=False,
        checksum="",
    )


def planned(*smalls: Small, target: int = 1000) -> list[list[int]]:
    """Groups by the LSN of their files."""
    return [[s.file.first.lsn for s in group] for group in plan_groups(list(smalls), target)]


def test_runs_of_one_schema_are_merged() -> None:
    """A schema change in between separates; a single file is left alone."""
    smalls = [Small(n, file("t", schema, n)) for n, schema in enumerate("AABAA", 1)]
    assert planned(*smalls) == [[1, 2], [4, 5]]


def test_schemas_that_alternate_inside_an_entry() -> None:
    """Each stretch is a run, in the order of the entry's files, also where their LSNs fall."""
    files = [file("t", schema, lsn) for schema, lsn in (("A", 50), ("B", 40), ("A", 30), ("A", 20))]
    assert planned(*(Small(1, of) for of in files)) == [[30, 20]]


def test_tables_are_kept_apart() -> None:
    """Each table is merged on its own, in position order."""
    smalls = [Small(n, file(table, "A", n)) for n, table in enumerate("ababa", 1)]
    assert planned(*smalls) == [[1, 3, 5], [2, 4]]


def test_groups_stay_below_the_target() -> None:
    """A merged file does not become bigger than asked for."""
    smalls = [Small(n, file("t", "A", n, size=400)) for n in range(1, 6)]
    assert planned(*smalls) == [[1, 2], [3, 4]]


def test_merged_files_hold_the_rows_of_the_old_ones() -> None:
    """The entry names what each file replaces; the old files stay; order is by position."""
    files = SimFiles()
    Landing(files, transactions=2).run()
    rows = sorted(landed_rows(files))
    log = Landing(files, "second").open()
    entries = list(log.iterate(0, log.next_n - 1))
    compacts = [entry for entry in entries if entry.kind is EntryKind.COMPACT]
    if not compacts:
        entry = compact(log)
        assert entry is not None
        compacts = [entry]
    (entry,) = compacts
    assert len(entry.files) == 2
    assert entry.positions == entries[2].positions
    for merged, replacement in zip(entry.files, entry.replaced, strict=True):
        assert replacement.path == merged.path
        assert len(replacement.replaced) == 2
        assert all(files.size(path) for path in replacement.replaced)
        table = pq.read_table(io.BytesIO(files.read(merged.path)))
        positions = list(zip(table["gd_lsn"].to_pylist(), table["gd_seq"].to_pylist(), strict=True))
        assert positions == sorted(positions)
        assert merged.rows == table.num_rows == 4
        assert merged.ops == {"I": 4}
    assert sorted(landed_rows(files)) == rows
    log.close()
    report = verify_files(files)
    assert report.is_clean, report.findings


def test_incomplete_block_is_left_alone() -> None:
    """Nothing is merged before a block of entries is full."""
    files = SimFiles()
    Landing(files, transactions=1).run()
    log = Landing(files, "second").open()
    assert compact(log) is None


def test_stop_gives_up_what_was_merged() -> None:
    """Asked to stop, no entry is committed and no file is left."""
    files = SimFiles()
    landing = Landing(files, transactions=2)
    log = landing.open()
    log.close()
    landing._maintain = lambda log: None  # type: ignore[method-assign]  # noqa: ARG005
    landing.run()
    log = Landing(files, "second").open()
    before = sorted(files.image.paths())
    assert compact(log, should_stop=lambda: True) is None
    assert sorted(files.image.paths()) == before
    assert compact(log) is not None


def test_damaged_files_are_left_alone() -> None:
    """A missing file is named in the entry; the other tables are merged, nothing stops."""
    files = SimFiles()
    landing = Landing(files, transactions=2)
    landing._maintain = lambda log: None  # type: ignore[method-assign]  # noqa: ARG005
    landing.run()
    log = Landing(files, "second").open()
    (entry,) = log.iterate(1, 1)
    files.unlink(entry.files[0].path)
    merged = compact(log)
    assert merged is not None
    assert [file.table for file in merged.files] == [entry.files[1].table]
    assert len(merged.extra["skipped"]) == 1
    assert entry.files[0].path in merged.extra["skipped"][0]
    assert not any(".gd-" in path for path in files.image.paths())


def test_sources_are_kept_apart() -> None:
    """A merged file has rows of one of several sources; between them their LSNs mean nothing."""
    smalls = [
        Small(n, dataclasses.replace(file("t", "A", lsn), source=source))
        for n, (source, lsn) in enumerate((("dn1", 9), ("dn2", 1), ("dn1", 10), ("dn2", 2)), 1)
    ]
    assert planned(*smalls) == [[9, 10], [1, 2]]


@pytest.mark.parametrize(
    ("order", "merged"), [("csn", [(1, 30), (2, 10)]), ("lsn", [(2, 10), (1, 30)])]
)
def test_merged_files_are_in_the_order_of_the_landing(
    order: str, merged: list[tuple[int, int]]
) -> None:
    """Where CSNs and LSNs go different ways; and say which source they are of."""
    files = SimFiles()
    log = CommitLog.open(
        files, IDENTITY, source="dn1", others={"dn2": IDENTITY}, order=order, writer="first"
    )
    given = []
    for csn, lsn in ((1, 30), (2, 10)):
        rows = pa.table(
            {
                "gd_op": ["I"], "gd_epoch": [0], "gd_source": ["dn2"], "gd_csn": [csn],
                "gd_lsn": [lsn], "gd_seq": [0],
            }
        )  # fmt: skip
        content = io.BytesIO()
        pq.write_table(rows, content)
        path = f"{csn}.parquet"
        files.write(files.create(path), content.getvalue())
        given.append(dataclasses.replace(file("t", "A", lsn), path=path, source="dn2"))
    made = merge(log, 0, given, "zstd")
    rows = pq.read_table(io.BytesIO(files.read(made.path)))
    assert [(row["gd_csn"], row["gd_lsn"]) for row in rows.to_pylist()] == merged
    assert (made.source, made.rows) == ("dn2", 2)
    if order == "csn":
        assert (made.first.lsn, made.last.lsn) == (30, 10)
    log.close()


def test_files_with_and_without_a_later_column_are_merged() -> None:
    """Rows of the earlier files have NULL in it; another column of the table is none of ours."""
    older = pa.schema([pa.field("gd_lsn", pa.int64(), nullable=False), pa.field("id", pa.int64())])
    newer = older.insert(1, pa.field("gd_change_lsn", pa.int64()))
    assert joint_schema([older, newer]) == joint_schema([newer, older]) == newer
    with pytest.raises(ValueError, match="id is not in all of them"):
        joint_schema([older.remove(1), older])

    files = SimFiles()
    log = Landing(files, "first").open()
    written = []
    for n, schema in enumerate((older, newer)):
        values = {"gd_lsn": n, "gd_change_lsn": 7, "id": n}
        rows = pa.Table.from_pylist([values], schema=schema)
        sink = io.BytesIO()
        pq.write_table(rows, sink)
        of = dataclasses.replace(file("t", "A", n), path=f"{n}.parquet")
        files.write(files.create(of.path), sink.getvalue())
        written.append(of)
    merged = merge(log, 0, written, "none")
    table = pq.read_table(io.BytesIO(files.read(merged.path)))
    assert table.schema.names == newer.names
    assert table["gd_change_lsn"].to_pylist() == [None, 7]
