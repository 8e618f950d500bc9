"""docs/landing-format.md is enough: a reader made from it alone has the source's tables."""

import hashlib
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kit.history import History, Table, canon, merge_first
from kit.stranger import Reader, UnreadableError, check_files

from gaussdecode.model.entry import CheckpointHeader, checkpoint_name
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.store import Target


def check(history: History, reader: Reader, *leave_out: str) -> None:
    """Compare every table with the source."""
    for table in history.tables:
        states = history.states[table.name]
        if states and table.directory not in leave_out:
            state = states[max(states)]
            rows = reader.tables[table.directory].named()
            found = canon([tuple(row[name].value for name in state.names) for row in rows])
            assert found == state.rows, table.name


def keyed(history: History) -> list[Table]:
    """Tables with keys and rows."""
    return [table for table in history.tables if isinstance(table.rows, dict) and table.rows]


@pytest.mark.parametrize("alternates", [False, True])
@pytest.mark.parametrize("seed", range(16))
def test_random_histories(seed: int, alternates: bool, tmp_path: Path) -> None:
    """With truncates, key changes, unsent values, other schemas and snapshots: entry by entry.

    Schemas that go back and forth do so inside of entries and transactions.
    """
    history = History(tmp_path, seed)
    history.alternates = alternates
    reader = Reader(tmp_path)
    for _ in range(10):
        history.step()
        if history.rng.random() < 0.4:
            history.transaction()
            table = history.rng.choice(keyed(history) or [history.tables[0]])
            where = None if history.with_schema_changes and table is history.tables[0] else "c"
            history.snapshot(table, where=where)
            history.commit()
        reader.advance()
        check(history, reader)
    check(history, Reader(tmp_path).advance())


def test_it_has_what_apply_has(tmp_path: Path) -> None:
    """Row for row with the texts of ``gd_raw`` the target's, from merged files too."""
    history = History(tmp_path / "landing", 4, with_schema_changes=False)
    for _ in range(4):
        history.transaction()
        history.transaction()
        history.commit()
    merge_first(history, "public.plain", range(1, 4))
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", Options())
    plain = Reader(tmp_path / "landing").advance()
    merged = Reader(tmp_path / "landing", with_merged=True).advance()
    assert merged.files < plain.files
    target = Target(tmp_path / "target")
    for reader in (plain, merged):
        check(history, reader)
        for name, table in reader.tables.items():
            version = target.newest(name)
            assert version is not None
            paths = [target.table_root(name) / file.path for file in version.current]
            rows = [row for p in paths for row in pq.read_table(p, partitioning=None).to_pylist()]
            names = target.schema(name, version.schema_id).names
            assert canon([tuple(row[n] for n in names) for row in rows]) == canon(
                [tuple(row[n].value for n in names) for row in table.named()]
            )


def test_quarantine_and_gaps(tmp_path: Path) -> None:
    """A table in quarantine stands still until a snapshot of all of it; a gap stops until accepted."""
    history = History(tmp_path, 4, with_schema_changes=False)
    for _ in range(6):
        history.transaction()
    history.commit()
    reader = Reader(tmp_path).advance()
    held = keyed(history)[0]
    before = reader.tables[held.directory].named()
    extra = {"reason": "table_error", "tables": [held.directory]}
    history.writer.entry(EntryKind.QUARANTINE, history.lsn, extra=extra)
    for _ in range(9):
        history.transaction()
    history.snapshot(held, where="id % 2 = 0")
    history.commit()
    reader.advance()
    assert reader.quarantined == {held.directory}
    assert reader.tables[held.directory].named() == before
    check(history, reader, held.directory)
    history.transaction()
    history.snapshot(held)
    history.commit()
    check(history, reader.advance())
    gap = history.writer.entry(EntryKind.GAP, history.lsn)
    with pytest.raises(UnreadableError, match=f"entry {gap} is a gap"):
        reader.advance()
    check(history, Reader(tmp_path, accepts_gaps=True).advance())


def test_checkpoints_and_retention(tmp_path: Path) -> None:
    """Entries are read from a checkpoint; below the oldest a new reader is refused, an old one goes on."""
    history = History(tmp_path, 4, with_schema_changes=False)
    for _ in range(6):
        history.transaction()
        history.commit()
    paths = [tmp_path / "commits" / f"{n:020d}.json" for n in range(3)]
    lines = b"".join(path.read_bytes() + b"\n" for path in paths)
    last = Landing(tmp_path).entry(2)
    header = CheckpointHeader(
        first=0, last=2, previous="0" * 64, hash=last.hash, positions=last.positions, schemas={},
        floor=-1, anchor="0" * 64, compacted=0, mtime_ms=0, committed_time=last.committed_time,
        checksum=hashlib.sha256(lines).hexdigest(), elapsed_ms=0,
    )  # fmt: skip
    block = tmp_path / "commits" / "checkpoints" / checkpoint_name(0, 2)
    block.parent.mkdir()
    block.write_bytes(header.to_line() + b"\n" + lines)
    for path in paths:
        path.unlink()
    reader = Reader(tmp_path).advance()
    check(history, reader)
    block.unlink()
    history.transaction()
    history.commit()
    check(history, reader.advance())
    with pytest.raises(UnreadableError, match="retention has taken entry 0"):
        Reader(tmp_path).advance()
    for table in history.tables:
        history.snapshot(table)
    history.commit()
    later = Reader(tmp_path, begin=reader.n).advance()
    check(history, later, *(t.directory for t in history.tables if not t.rows))


def test_another_landing_at_the_same_path_is_noticed(tmp_path: Path) -> None:
    """By its id, and a copy that went on by itself by the hash that its next entry follows."""
    history = History(tmp_path / "landing", 4, with_schema_changes=False)
    history.run(3)
    reader = Reader(tmp_path / "landing").advance()
    shutil.copytree(tmp_path / "landing", tmp_path / "copy")
    read = reader.n
    history.run(2)
    reader.advance()
    reader.root = tmp_path / "copy"
    history.writer.root, history.writer.n = reader.root, read + 1
    history.writer.previous = Landing(reader.root).entry(read).hash
    history.run(6)
    with pytest.raises(UnreadableError, match="does not follow"):
        reader.advance()
    reader.root = tmp_path / "other"
    History(reader.root, 4).run(9)
    with pytest.raises(UnreadableError, match="another landing"):
        reader.advance()


def test_damage_is_noticed(tmp_path: Path) -> None:
    """A byte of an entry, or of a file it names."""
    history = History(tmp_path, 4)
    history.run(2)
    entry = Reader(tmp_path)
    with pytest.raises(UnreadableError, match="data/"):  # the kit writes no checksums
        check_files(tmp_path, {"files": [_file(tmp_path, history)]})
    path = tmp_path / "commits" / f"{1:020d}.json"
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":7'))
    with pytest.raises(UnreadableError, match="hash"):
        entry.advance()


def _file(root: Path, history: History) -> dict[str, object]:
    entries = Landing(root).entries(0, history.writer.n - 1)
    file = next(file for entry in entries for file in entry.files)
    return {"path": file.path, "checksum": file.checksum}
