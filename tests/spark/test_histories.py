"""Random histories through the whole of apply, without Spark, against the source itself."""

import itertools
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.history import History, Place, Snapshot, Table, canon, state_at

from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.events import ENDS, STAMPS
from gaussdecode.spark.log.landing import Point
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.sizing import Sizes
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.state_file import TableVersion
from gaussdecode.spark.target.store import Target

OPEN = 1 << 62


def read(target: Target, table: str, version: TableVersion, kind: str) -> list[dict[str, Any]]:
    """Rows of the current state or of the closed intervals."""
    files = version.current if kind == "current" else version.closed
    tables = [current_rows(target.table_root(table), file) for file in files]
    return [row for rows in tables for row in rows.to_pylist()]


def last_state(history: History, table: Table) -> Snapshot | None:
    """State after the last change that landed."""
    states = history.states[table.name]
    return states[max(states)] if states else None


def check_current(history: History, target: Target) -> None:
    """The target's rows are the source's."""
    for table in history.tables:
        expected = last_state(history, table)
        version = target.newest(table.directory)
        if expected is None or version is None:
            assert expected is None or not expected.rows
            continue
        rows = read(target, table.directory, version, "current")
        assert all(row["gd_unchanged"] is None and row["gd_raw"] is None for row in rows)
        found = canon([tuple(row.get(name) for name in expected.names) for row in rows])
        assert found == expected.rows, table.name
        assert version.unmatched == 0


def sizes(rng: Random) -> Sizes:
    """Such that a few rows go every way: beside a bucket or in it, spread anew, cut, gathered."""
    return Sizes(
        read=rng.choice((1 << 11, 1 << 20)),
        full_bucket=rng.choice((1 << 12, 1 << 30, 1 << 30)),
        bucket=1 << 12,
        small_bucket=rng.choice((0, 0, 0, 1 << 20)),
        share=rng.choice((1.5, 1000.0)),
        gathered=rng.choice((0, 1 << 30, 1 << 30)),
        added=rng.choice((0, 1 << 30)),
    )


def apply_in_steps(source: History, root: Path, rng: Random, **options: Any) -> Target:
    """Live, land, and apply now and then; give the target."""
    for _ in range(3):
        source.run(rng.randint(1, 4))
        made = Options(
            buckets=rng.choice((1, 2, 5)),
            sizes=sizes(rng),
            **{"history": True, "vectors": rng.random() < 0.7, **options},
        )
        summary = apply_with(LocalEngine(), root / "landing", root / "target", made)
        assert summary.n == source.writer.n - 1
    return Target(root / "target")


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here survives the machine: do not wait for its disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_current_state_and_history(block: int, tmp_path: Path) -> None:
    """Current rows are the source's, and history gives every state it ever had."""
    for seed in range(block * 12, block * 12 + 12):
        root = tmp_path / str(seed)
        root.mkdir()
        history = History(root / "landing", seed, with_schema_changes=False)
        target = apply_in_steps(history, root, Random(seed))
        check_current(history, target)
        for table in history.tables:
            check_history(history, target, table, Random(seed))


def check_history(history: History, target: Target, table: Table, rng: Random) -> None:
    """Rows valid at a place are those the source had after that place."""
    version = target.newest(table.directory)
    states = history.states[table.name]
    if version is None:
        return
    rows = [
        {**dict.fromkeys(ENDS), **row}
        for kind in ("current", "closed")
        for row in read(target, table.directory, version, kind)
    ]
    for place in rng.sample(sorted(states), min(8, len(states))):
        valid = [row for row in rows if begin(row) <= place < end(row)]
        found = canon([tuple(row[c.name] for c in table.columns) for row in valid])
        assert found == states[place].rows, (table.name, place)
    for n, place in rng.sample(sorted(history.ends.items()), min(5, len(history.ends))):
        valid = [row for row in rows if row["gd_n"] <= n < (row["gd_to_n"] or OPEN)]
        expected = state_at(states, place)
        if any(row["gd_op"] == "R" for row in rows):
            continue  # a snapshot may be ahead of its entry's position
        found = canon([tuple(row[c.name] for c in table.columns) for row in valid])
        assert found == (expected.rows if expected else []), (table.name, n)


def begin(row: dict[str, Any]) -> Place:
    """Where an interval begins."""
    if row["gd_op"] == "R":  # a snapshot's rows are there together
        return (row["gd_epoch"], row["gd_lsn"], 0)
    return (row["gd_epoch"], row["gd_lsn"], row["gd_seq"])


def end(row: dict[str, Any]) -> Place:
    """Where an interval ends."""
    if row["gd_to_lsn"] is None:
        return (OPEN, 0, 0)
    return (row["gd_to_epoch"], row["gd_to_lsn"], max(row["gd_to_seq"], 0))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_schema_changes(block: int, tmp_path: Path) -> None:
    """Columns come, go, change name and type, the key's type too: the rows are the source's."""
    for seed in range(1000 + block * 12, 1012 + block * 12):
        root = tmp_path / str(seed)
        root.mkdir()
        history = History(root / "landing", seed)
        target = apply_in_steps(history, root, Random(seed), history=seed % 2 == 0)
        check_current(history, target)


@pytest.mark.slow
@pytest.mark.parametrize("is_chosen", [None, False, True])
def test_schemas_that_alternate(is_chosen: bool | None, tmp_path: Path) -> None:
    """Back and forth inside of entries and transactions, with snapshots of some rows or all ahead of them."""
    for seed in range(280, 292):
        root = tmp_path / str(seed)
        root.mkdir()
        history = History(root / "landing", seed, with_schema_changes=False)
        history.alternates = True
        for _ in range(6):
            history.step()
            if is_chosen is not None and history.rng.random() < 0.5:
                history.transaction()
                held = [table for table in history.tables if table.key and table.rows]
                table = history.rng.choice(held or history.tables[:1])
                history.snapshot(table, where="c" if is_chosen else None)
                if history.rng.random() < 0.5:
                    apply_with(LocalEngine(), root / "landing", root / "target", Options())
                history.commit()
            if history.rng.random() < 0.5:
                apply_with(LocalEngine(), root / "landing", root / "target", Options())
        apply_with(LocalEngine(), root / "landing", root / "target", Options())
        target = Target(root / "target")
        check_current(history, target)
        for table in history.tables:
            version, expected = target.newest(table.directory), last_state(history, table)
            if version is not None and expected is not None:
                names = target.schema(table.directory, version.schema_id).names
                assert names == expected.names, (seed, table.name)


def test_histories_hold_what_is_hard(tmp_path: Path) -> None:
    """The random histories contain each hard case often, or the tests above prove nothing."""
    seen = dict.fromkeys(("moves without values", "truncates", "snapshots", "again"), 0)
    for seed in range(15):
        history = History(tmp_path / str(seed), seed, with_schema_changes=False)
        history.run(8)
        for path in (tmp_path / str(seed) / "data").rglob("*.parquet"):
            rows = pq.read_table(path, partitioning=None).to_pylist()
            seen["truncates"] += sum(row["gd_op"] == "T" for row in rows)
            seen["snapshots"] += any(row["gd_op"] == "R" for row in rows)
            seen["moves without values"] += sum(
                row["gd_unchanged"] is not None and row["gd_old"] is not None for row in rows
            )
            seen["again"] += sum(
                row["gd_op"] == "D" and after["gd_op"] == "I" and row["gd_lsn"] == after["gd_lsn"]
                for row, after in itertools.pairwise(rows)
            )
    assert min(seen.values()) >= 5, seen


def test_applying_again_changes_nothing(tmp_path: Path) -> None:
    """A second apply commits nothing and writes no file."""
    history = History(tmp_path / "landing", 7)
    apply_in_steps(history, tmp_path, Random(7))
    before = sorted(tmp_path.joinpath("target").rglob("*"))
    summary = apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target")
    assert sorted(tmp_path.joinpath("target").rglob("*")) == before
    assert (summary.tables, summary.n) == (0, history.writer.n - 1)


@pytest.mark.parametrize("seed", range(5))
def test_no_file_is_left_behind(seed: int, tmp_path: Path) -> None:
    """After an apply there is no file that no version names."""
    history = History(tmp_path / "landing", seed)
    target = apply_in_steps(history, tmp_path, Random(seed))
    for table in target.tables():
        log = target.log(table)
        named = {p for v in log.versions() for p in log.version(v).paths}
        assert {file.path for file in log.files()} == named


def test_one_apply_or_many_give_the_same(tmp_path: Path) -> None:
    """Applied entry by entry or at once, into other numbers of buckets: the same rows."""
    history = History(tmp_path / "landing", 11, keys=30)
    history.run(12)
    landing = tmp_path / "landing"
    ways = dict.fromkeys(("vector", "added", "own added", "folded", "spread anew"), 0)
    rng, before = Random(11), dict[str, TableVersion]()
    for n in range(history.writer.n):
        made = Options(history=True, vectors=True, buckets=3, sizes=sizes(rng))
        apply_with(LocalEngine(), landing, tmp_path / "slow", made, to=Point(n=n))
        for name in Target(tmp_path / "slow").tables():
            made_of = Target(tmp_path / "slow").newest(name)
            assert made_of is not None
            for way, is_gone in ways_of(made_of, before.get(name, made_of)).items():
                ways[way] += is_gone
            before[name] = made_of
    assert min(ways.values()) > 0, ways
    apply_with(LocalEngine(), landing, tmp_path / "fast", Options(history=True, buckets=1))
    for table in history.tables:
        found = []
        for name in ("slow", "fast"):
            target = Target(tmp_path / name)
            version = target.newest(table.directory)
            assert version is not None
            names = (*STAMPS, *target.schema(table.directory, version.schema_id).names)
            rows = read(target, table.directory, version, "current")
            spelled = sorted(repr([row.get(name) for name in names]) for row in rows)
            found.append((spelled, len(read(target, table.directory, version, "closed"))))
        assert found[0] == found[1], table.name


def ways_of(version: TableVersion, before: TableVersion) -> dict[str, bool]:
    """Which ways the files of a version went since the one before."""
    added = {f.path for f in version.current if f.bucket < 0}
    old = {f.path for f in before.current if f.bucket < 0}
    buckets = [f.bucket for f in version.current if f.bucket >= 0]
    return {
        "vector": any(f.deletes for f in version.current),
        "added": bool(added),
        "own added": len(buckets) > len(set(buckets)),
        "folded": bool(old - added) and bool(added - old),
        "spread anew": version.buckets != before.buckets,
    }


def test_types_of_the_files(tmp_path: Path) -> None:
    """Files of the state have exactly the landed types."""
    history = History(tmp_path / "landing", 3, with_schema_changes=False)
    target = apply_in_steps(history, tmp_path, Random(3))
    (table,) = [t for t in history.tables if t.name == "full_key"]
    version = target.newest(table.directory)
    assert version is not None
    schema = pq.read_schema(target.table_root(table.directory) / version.current[0].path)
    assert schema.field("l").type == pa.list_(pa.field("element", pa.int32()))
    assert schema.field("gd_ts").type == pa.timestamp("us", tz="UTC")
