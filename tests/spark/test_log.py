"""What the log says beside data: gaps, doubts, merged files, retention, epochs, points."""

import datetime as dt
import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.history import START, Column, History, canon, merge_first, state_of

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.model.entry import CheckpointHeader, checkpoint_name
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.apply import Options, Summary, apply_with
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.maintain.status import metrics_text, status
from gaussdecode.spark.maintain.upkeep import compact_with, vacuum
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.sizing import Sizes
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target


def run(root: Path, to: Point | None = None, **options: Any) -> Summary:
    """Apply a landing."""
    made = Options(**options)
    return apply_with(LocalEngine(), root / "landing", root / "target", made, to=to)


def rows(root: Path, table: str, kind: str = "current") -> list[tuple[object, ...]]:
    """Rows of the newest version the database names."""
    target = Target(root / "target")
    database = target.database()
    assert database is not None
    version = target.version(table, database.tables[table])
    names = target.schema(table, version.schema_id).names
    return canon([
        tuple(row.get(name) for name in names)
        for file in getattr(version, kind)
        for row in current_rows(target.table_root(table), file).to_pylist()
    ])  # fmt: skip


def check(history: History, root: Path) -> None:
    """Compare every table with the source."""
    for table in history.tables:
        states = history.states[table.name]
        if states:
            assert rows(root, table.directory) == states[max(states)].rows, table.name


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A source with a few entries."""
    source = History(tmp_path / "landing", 4, with_schema_changes=False)
    for _ in range(4):
        source.transaction()
        source.transaction()
        source.commit()
    return source


def test_gap_stops_until_it_is_accepted(history: History, tmp_path: Path) -> None:
    """Apply stays before a gap and says so; going on is a choice that is recorded."""
    gap = history.writer.entry(EntryKind.GAP, history.lsn)
    history.transaction()
    history.commit()
    for _ in range(2):
        summary = run(tmp_path)
        assert (summary.n, summary.stopped_at_gap) == (gap - 1, gap)
    summary = run(tmp_path, accept_gaps=True)
    assert (summary.n, summary.stopped_at_gap) == (history.writer.n - 1, None)
    database = Target(tmp_path / "target").database()
    assert database is not None
    assert database.accepted_gaps == (gap,)
    check(history, tmp_path)


@pytest.mark.parametrize("is_stepwise", [False, True])
def test_rows_of_a_condition_take_no_others_away(
    history: History, tmp_path: Path, *, is_stepwise: bool
) -> None:
    """They are put by their key; changes up to their position go on counting for all others."""
    run(tmp_path)
    history.transaction()
    keyed = [table for table in history.tables if isinstance(table.rows, dict) and table.rows]
    assert any(len(table.rows) > 1 for table in keyed)
    for table in keyed:
        history.snapshot(table, where="id % 2 = 0")
        if is_stepwise:
            run(tmp_path)
    history.commit()
    history.transaction()
    history.commit()
    run(tmp_path)
    check(history, tmp_path)


def test_rows_of_a_condition_count_at_their_position(history: History, tmp_path: Path) -> None:
    """Older changes of later entries need the rows that were there, and bring older columns."""
    plain = history.tables[0]
    assert isinstance(plain.rows, dict)
    history.lsn += 10
    first = {1: 70, 2: "kept", 3: b"", 4: 1}
    history.land(plain, 0, *history.put(plain, first))
    history.commit()
    run(tmp_path)
    history.lsn += 10
    history.remove(plain, first)
    history.add(plain, {**first, 1: 71})
    history.land(plain, 0, "U", {**first, 1: 71, 2: None}, {1: 70}, ["a"])
    history.land(plain, 1, *history.put(plain, {**first, 2: "another"}))
    plain.columns = [*plain.columns, Column(11, "extra", pa.int32())]
    for row in plain.rows.values():
        row[11] = 7
    plain.rows = {(70,): plain.rows.pop((70,)), (71,): plain.rows.pop((71,))}  # the first is chosen
    history.snapshot(plain, where="id = 70")
    chosen = history.writer.n - 1
    summary = run(tmp_path)
    assert summary.n == chosen - 1, "the log does not reach the position of these rows"
    history.commit()
    assert run(tmp_path).n == chosen + 1
    target = Target(tmp_path / "target")
    version = target.newest(plain.directory)
    assert version is not None
    assert target.schema(plain.directory, version.schema_id).names == ("id", "a", "b", "c", "extra")
    found = {row[0]: row[1:] for row in rows(tmp_path, plain.directory)}
    assert found[70] == ("another", b"", 1, 7)
    assert found[71] == ("kept", b"", 1, None), (
        "a condition chose one row: the other has no such column yet"
    )


def test_gap_that_an_operator_accepted_stops_readers_too(history: History, tmp_path: Path) -> None:
    """Its entry stands after the hole in the next epoch; a snapshot makes the tables right."""
    told = history.writer.entry(EntryKind.GAP, history.lsn)
    history.lsn += 1000
    history.writer.epoch += 1
    accepted = history.writer.entry(EntryKind.GAP, history.lsn)
    history.commit()
    for table in history.tables:
        history.snapshot(table)
    history.transaction()
    history.commit()
    summary = run(tmp_path)
    assert (summary.n, summary.stopped_at_gap) == (told - 1, told)
    summary = run(tmp_path, accept_gaps=True)
    assert (summary.n, summary.stopped_at_gap) == (history.writer.n - 1, None)
    database = Target(tmp_path / "target").database()
    assert database is not None
    assert database.accepted_gaps == (told, accepted)
    check(history, tmp_path)


def test_suspect_entry_only_alarms(history: History, tmp_path: Path) -> None:
    """A possibly incomplete entry is passed, and reported."""
    suspect = history.writer.entry(EntryKind.SUSPECT, history.lsn)
    summary = run(tmp_path)
    assert summary.suspects == (suspect,)
    assert summary.n == suspect
    check(history, tmp_path)


def test_a_table_in_quarantine_stays_until_its_snapshot(history: History, tmp_path: Path) -> None:
    """What lands of it after the entry is not applied; all others go on."""
    run(tmp_path)
    held = next(table for table in history.tables if isinstance(table.rows, dict) and table.rows)
    table = held.directory
    target = Target(tmp_path / "target")
    before = target.newest(table)
    extra = {"reason": "table_error", "tables": [table]}
    stopped = history.writer.entry(EntryKind.QUARANTINE, history.lsn, extra=extra)
    for _ in range(2):
        for _ in range(5):
            history.transaction()
        history.commit()
        summary = run(tmp_path)
        assert (summary.n, summary.quarantined) == (history.writer.n - 1, {table: stopped})
    assert target.newest(table) == before
    others = [target.newest(other.directory) for other in history.tables if other is not held]
    assert any(version is not None and version.n > stopped for version in others)
    history.snapshot(held, where="id % 2 = 0")  # some of its rows are not the table
    assert run(tmp_path).quarantined == {table: stopped}
    assert target.newest(table) == before
    history.snapshot(held)
    history.transaction()
    history.commit()
    assert run(tmp_path).quarantined == {}
    check(history, tmp_path)


def test_merged_files_stand_for_the_old_ones(history: History, tmp_path: Path) -> None:
    """With the old files gone the merged one gives the same rows and the same numbers."""
    run(tmp_path, history=True)
    before = {kind: rows(tmp_path, "public.plain", kind) for kind in ("current", "closed")}
    numbers = applied_numbers(tmp_path)
    replaced = merge_first(history, "public.plain", range(1, 4))
    for path in replaced.replaced:
        (tmp_path / "landing" / path).unlink()
    (tmp_path / "target").rename(tmp_path / "older")
    run(tmp_path, history=True)
    assert {k: rows(tmp_path, "public.plain", k) for k in ("current", "closed")} == before
    assert applied_numbers(tmp_path) == numbers


def applied_numbers(root: Path) -> list[tuple[int, int]]:
    """Position and entry number of every current row."""
    target = Target(root / "target")
    version = target.newest("public.plain")
    assert version is not None
    tables = [pq.read_table(target.table_root("public.plain") / f.path) for f in version.current]
    return sorted((row["gd_lsn"], row["gd_n"]) for t in tables for row in t.to_pylist())


def test_merged_files_are_not_used_halfway(history: History, tmp_path: Path) -> None:
    """A merged file with rows of entries that are applied already is left alone."""
    run(tmp_path, to=Point(n=2))
    merge_first(history, "public.plain", range(1, 4))
    run(tmp_path)
    check(history, tmp_path)


def test_entries_in_checkpoints(history: History, tmp_path: Path) -> None:
    """Entries that are only in a checkpoint are read from there."""
    landing = tmp_path / "landing"
    entries = [(landing / "commits" / f"{n:020d}.json") for n in range(3)]
    lines = b"".join(path.read_bytes() + b"\n" for path in entries)
    last = Landing(landing).entry(2)
    header = CheckpointHeader(
        first=0, last=2, previous="0" * 64, hash=last.hash, positions=last.positions, schemas={},
        floor=-1, anchor="0" * 64, compacted=0, mtime_ms=0, committed_time=START,
        checksum=hashlib.sha256(lines).hexdigest(), elapsed_ms=0,
    )  # fmt: skip
    directory = landing / "commits" / "checkpoints"
    directory.mkdir()
    (directory / checkpoint_name(0, 2)).write_bytes(header.to_line() + b"\n" + lines)
    for path in entries:
        path.unlink()
    assert run(tmp_path).n == history.writer.n - 1
    check(history, tmp_path)


def test_retention_is_named(history: History, tmp_path: Path) -> None:
    """What retention has taken is missed, and only gone over by choice."""
    for n in range(2):
        (tmp_path / "landing" / "commits" / f"{n:020d}.json").unlink()
    with pytest.raises(LandingError, match="removed by retention, the log begins at 2"):
        run(tmp_path)
    assert run(tmp_path, accept_gaps=True).accepted_gaps == (1,)
    assert history.writer.n


def test_damaged_entry_is_refused(history: History, tmp_path: Path) -> None:
    """An entry that was altered is named, and nothing is applied."""
    path = tmp_path / "landing" / "commits" / f"{2:020d}.json"
    path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":7'))
    with pytest.raises(LandingError, match="altered"):
        run(tmp_path)
    assert history.writer.n


def test_new_epoch_with_lower_positions(history: History, tmp_path: Path) -> None:
    """After the epoch rose, lower positions come later."""
    run(tmp_path, to=Point(n=2))
    history.writer.epoch, history.lsn = 1, 5
    for table in history.tables:
        history.snapshot(table)
    history.commit()
    history.transaction()
    history.commit()
    run(tmp_path)
    check(history, tmp_path)


def test_fork_below_an_idle_position(history: History, tmp_path: Path) -> None:
    """Idle WAL of the older timeline was counted; rows then come at lower positions again."""
    run(tmp_path)
    idle = history.lsn + 1_000_000
    history.writer.entry(EntryKind.IDLE, idle)
    history.writer.epoch += 1
    extra = {"from_lsn": idle, "from_timeline": 1}
    fork = history.writer.entry(EntryKind.FORK, history.lsn, extra=extra)
    for _ in range(3):
        history.transaction()
        history.commit()
    assert history.lsn < idle
    assert run(tmp_path).n == history.writer.n - 1
    check(history, tmp_path)
    assert Landing(tmp_path / "landing").resolve(Point(lsn=idle)) == history.writer.n - 1 > fork


def test_points(history: History, tmp_path: Path) -> None:
    """Numbers, positions and times find the entries they mean."""
    landing = Landing(tmp_path / "landing")
    last = landing.last_n
    lsns = [landing.position(landing.entry(n)).lsn for n in range(last + 1)]
    assert landing.resolve(Point()) == last == history.writer.n - 1
    assert landing.resolve(Point(lsn=lsns[2])) == 2
    assert landing.resolve(Point(lsn=lsns[3] - 1)) == 2
    assert landing.resolve(Point(lsn=1 << 60)) == last
    times = {n: landing.entry(n).commit_time for n in range(1, last + 1)}
    second = times[2]
    assert second is not None
    expected = next((n - 1 for n, t in times.items() if t is not None and t > second), last)
    assert landing.resolve(Point(time=second)) == expected
    assert landing.resolve(Point(time=START - dt.timedelta(days=1))) == 0
    for wrong in (Point(n=99), Point(n=-2)):
        with pytest.raises(ConfigError, match="the log holds entries"):
            landing.resolve(wrong)
    with pytest.raises(ConfigError, match="once"):
        Point(n=1, lsn=2)
    with pytest.raises(ConfigError, match="zone"):
        Point(time=dt.datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused


def test_points_of_an_older_epoch(history: History, tmp_path: Path) -> None:
    """A position below the newest epoch's first one is looked for before that epoch."""
    before = history.writer.n - 1
    lsn = history.lsn
    history.writer.epoch = 1
    history.writer.entry(EntryKind.SNAPSHOT, lsn + 1000)
    assert Landing(tmp_path / "landing").resolve(Point(lsn=lsn)) == before


def test_tables_apart_then_together(history: History, tmp_path: Path) -> None:
    """The database's version waits for all its tables; then it names them at one entry."""
    run(tmp_path, to=Point(n=2))
    alone = run(tmp_path, tables=["public.plain"])
    assert alone.n == 2
    database = Target(tmp_path / "target").database()
    assert database is not None
    assert database.n == 2
    assert run(tmp_path).n == history.writer.n - 1
    check(history, tmp_path)


def test_one_table_first(history: History, tmp_path: Path) -> None:
    """A target that began with one table gets the others in full."""
    run(tmp_path, tables=["public.pair"])
    assert Target(tmp_path / "target").tables() == ["public.pair"]
    run(tmp_path)
    check(history, tmp_path)
    with pytest.raises(ConfigError, match=r"no table 'public\.nothing'"):
        run(tmp_path, tables=["public.nothing"])


def test_recreated_table_begins_empty(history: History, tmp_path: Path) -> None:
    """Rows of a table that was dropped and made again do not live on."""
    run(tmp_path, to=Point(n=2), history=True)
    (table,) = [t for t in history.tables if t.name == "plain"]
    table.oid, table.rows = 99, {}
    history.lsn += 1
    history.land(table, 0, *history.insert(table)[0])
    history.states["plain"][history.place(0)] = last = state_of(table)
    history.commit()
    run(tmp_path)
    assert rows(tmp_path, "public.plain") == last.rows


def test_compact_and_vacuum_keep_the_rows(history: History, tmp_path: Path) -> None:
    """Fewer files, other buckets, old versions gone: the same rows."""
    for n in range(history.writer.n):
        run(tmp_path, to=Point(n=n), history=True, changelog="id", buckets=2)
    before = {
        (t, k): rows(tmp_path, t, k)
        for t in Target(tmp_path / "target").tables()
        for k in ("current", "closed", "changelog")
    }
    done = compact_with(LocalEngine(), tmp_path / "target", buckets=3)
    assert done.files_after < done.files_before
    removed = vacuum(tmp_path / "target", older_than_seconds=0)
    assert removed.versions > 4
    assert removed.files > 4
    assert {key: rows(tmp_path, *key) for key in before} == before
    again = vacuum(tmp_path / "target", older_than_seconds=0)
    assert (again.versions, again.files) == (0, 0)
    history.transaction()
    history.commit()
    run(tmp_path)
    check(history, tmp_path)


def test_compact_brings_changes_into_their_buckets(tmp_path: Path) -> None:
    """Rows beside their buckets are written into them; nothing of vectors is left after vacuum."""
    history = History(tmp_path / "landing", 5, with_schema_changes=False)
    for _ in range(4):
        history.transaction()
        history.transaction()
        history.commit()
        run(tmp_path, buckets=3, vectors=True, sizes=Sizes(small_bucket=0, share=1000.0))
    store = Target(tmp_path / "target")
    versions = [v for name in store.tables() if (v := store.newest(name)) is not None]
    assert any(file.deletes for version in versions for file in version.current)
    assert any(file.bucket < 0 for version in versions for file in version.current)
    assert compact_with(LocalEngine(), tmp_path / "target").tables
    check(history, tmp_path)
    vacuum(tmp_path / "target", older_than_seconds=0)
    check(history, tmp_path)
    for name in store.tables():
        version = store.newest(name)
        assert version is not None
        buckets = [file.bucket for file in version.current]
        assert min(buckets) >= 0
        assert len(buckets) == len(set(buckets))
        assert not any(file.deletes for file in version.current)
        assert {file.path for file in store.log(name).files()} == version.paths
    assert compact_with(LocalEngine(), tmp_path / "target").tables == 0


def test_vacuum_spares_what_is_young(history: History, tmp_path: Path) -> None:
    """Nothing younger than asked for is removed."""
    run(tmp_path, to=Point(n=2))
    run(tmp_path)
    removed = vacuum(tmp_path / "target", older_than_seconds=3600)
    assert (removed.versions, removed.files) == (0, 0)
    assert history.writer.n


def test_status_and_metrics(history: History, tmp_path: Path) -> None:
    """Lag is counted in entries and in time since the first one that is missing."""
    before = status(tmp_path / "landing", tmp_path / "target")
    assert (before.n, before.lag_entries) == (-1, history.writer.n)
    run(tmp_path, to=Point(n=3))
    now = status(tmp_path / "landing", tmp_path / "target")
    assert (now.n, now.lag_entries) == (3, history.writer.n - 4)
    run(tmp_path)
    text = metrics_text(tmp_path / "landing", tmp_path / "target")
    assert "gaussdecode_spark_lag_entries{" in text
    assert status(tmp_path / "landing", tmp_path / "target").lag_seconds == 0
