"""The products through Spark: equal to the source at the end and at points of its past."""

import dataclasses
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from kit.history import START, History, Place, Snapshot, Table, canon, shop, state_at
from pyspark.sql import DataFrame, SparkSession

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.apply import apply
from gaussdecode.spark.datasource import GaussDecodeSource, changes_of
from gaussdecode.spark.landing import Landing, Point
from gaussdecode.spark.query import changelog, current, database, history, register
from gaussdecode.spark.reading import changes
from gaussdecode.spark.store import Target
from gaussdecode.spark.upkeep import compact

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def rows_of(frame: DataFrame, state: Snapshot) -> list[tuple[Any, ...]]:
    """Rows of a frame as a state has them."""
    table = frame.select(*[f"`{name}`" for name in state.names]).toArrow()
    return canon([tuple(row.values()) for row in table.to_pylist()])


def last_state(source: History, table: Table) -> Snapshot:
    """State after the last change that landed."""
    states = source.states[table.name]
    return states[max(states)]


def many(lives: int) -> list[Table]:
    """Tables of every kind, so many times: each lives its own random life."""
    found = []
    for life in range(lives):
        found += [dataclasses.replace(t, name=f"{t.name}_{life}") for t in shop()]
    return found


def test_tens_of_histories_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Many tables in one apply of two steps: all rows and all places of the past are right."""
    source = History(tmp_path / "landing", 77, with_schema_changes=False, tables=many(8))
    for _ in range(2):
        for _ in range(5):
            for _ in range(20):
                source.transaction()
            source.publish()
        apply(spark, tmp_path / "landing", tmp_path / "target", history=True, buckets=2)
    target, rng = Target(tmp_path / "target"), Random(77)
    compared = 0
    for table in source.tables:
        rows = intervals(target, table.directory)
        states = source.states[table.name]
        for place in {max(states), *rng.sample(sorted(states), min(6, len(states)))}:
            valid = [row for row in rows if begin(row) <= place < end(row)]
            found = canon([tuple(row[c.name] for c in table.columns) for row in valid])
            assert found == states[place].rows, (table.name, place)
            compared += 1
    assert compared > 150


def intervals(target: Target, table: str) -> list[dict[str, Any]]:
    """All versions of the rows of a table, read without Spark."""
    version = target.newest(table)
    assert version is not None
    files = [target.table_root(table) / file.path for file in (*version.current, *version.closed)]
    return [{"gd_to_lsn": None, **row} for path in files for row in pq.read_table(path).to_pylist()]


def begin(row: dict[str, Any]) -> Place:
    """Where an interval begins."""
    return (row["gd_epoch"], row["gd_lsn"], row["gd_seq"])


def end(row: dict[str, Any]) -> Place:
    """Where an interval ends."""
    if row["gd_to_lsn"] is None:
        return (1 << 62, 0, 0)
    return (row["gd_to_epoch"], row["gd_to_lsn"], row["gd_to_seq"])


@pytest.mark.parametrize("seed", [2000])
def test_current_state_through_spark(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Applied by Spark in two steps, with schema changes, read by Spark: the source's rows."""
    source = History(tmp_path / "landing", seed)
    for steps in (3, 4):
        source.run(steps)
        apply(spark, tmp_path / "landing", tmp_path / "target", history=True, buckets=3)
    frames = database(spark, tmp_path / "target")
    for table in source.tables:
        state = last_state(source, table)
        assert rows_of(frames[f"public.{table.name}"], state) == state.rows, table.name


@pytest.fixture(scope="module")
def past(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[History, Path]:
    """A source without schema changes and snapshots, applied with everything."""
    root = tmp_path_factory.mktemp("past")
    source = History(root / "landing", 5, with_schema_changes=False)
    for _ in range(6):
        for _ in range(2):
            source.transaction()
        source.publish()
    apply(spark, root / "landing", root / "target", history=True, changelog="gd_commit_date",
          buckets=2)  # fmt: skip
    return source, root


def test_travel_by_entry_and_position(spark: SparkSession, past: tuple[History, Path]) -> None:
    """At every entry, and after a transaction inside of one: what the source had there."""
    source, root = past
    (table,) = [t for t in source.tables if t.name == "plain"]
    states = source.states["plain"]
    for n in (1, 3, 5):
        expected = state_at(states, source.ends[n])
        frame = current(spark, root / "target", "public.plain", at=Point(n=n))
        if expected is not None:
            assert rows_of(frame, expected) == expected.rows, n
    for place in sorted(states)[::4]:
        expected = state_at(states, (place[0], place[1], 1 << 40))
        assert expected is not None
        frame = current(spark, root / "target", "public.plain", at=Point(lsn=place[1]))
        assert rows_of(frame, expected) == expected.rows, place
    assert table.rows is not None


def test_travel_by_time(spark: SparkSession, past: tuple[History, Path]) -> None:
    """A time means the last entry before the first commit after it."""
    source, root = past
    with pytest.raises(ConfigError, match="give the root"):
        current(spark, root / "target", "public.plain", at=Point(time=START))
    frame = current(
        spark, root / "target", "public.plain", at=Point(time=source.time), root=root / "landing"
    )
    (table,) = [t for t in source.tables if t.name == "plain"]
    state = last_state(source, table)
    assert rows_of(frame, state) == state.rows


def test_history_has_every_version_once(spark: SparkSession, past: tuple[History, Path]) -> None:
    """Each row that was put begins one interval, and all but the current ones have ended."""
    source, root = past
    for table in source.tables:
        landed = changes(spark, root / "landing", f"public.{table.name}", with_n=True)
        puts = landed.where("gd_op in ('I', 'U')")
        found = history(spark, root / "target", f"public.{table.name}")
        place = ["gd_epoch", "gd_lsn", "gd_seq", "gd_n"]
        assert sorted(map(tuple, found.select(*place).collect())) == sorted(
            map(tuple, puts.select(*place).collect())
        )
        state = last_state(source, table)
        assert found.where("gd_to_n is null").count() == len(state.rows)


def test_changelog_holds_the_changes(spark: SparkSession, past: tuple[History, Path]) -> None:
    """The changelog has exactly the landed rows, also after its files were merged."""
    source, root = past
    expected = changes(spark, root / "landing", "public.full_key", with_n=True)
    names = expected.columns
    wanted = sorted(map(repr, expected.select(*names).collect()))
    found = changelog(spark, root / "target", "public.full_key").select(*names)
    assert sorted(map(repr, found.collect())) == wanted
    compact(spark, root / "target", buckets=1)
    found = changelog(spark, root / "target", "public.full_key").select(*names)
    assert sorted(map(repr, found.collect())) == wanted
    (table,) = [t for t in source.tables if t.name == "full_key"]
    state = last_state(source, table)
    frame = current(spark, root / "target", "public.full_key")
    assert rows_of(frame, state) == state.rows


def test_tables_join_at_one_point(spark: SparkSession, past: tuple[History, Path]) -> None:
    """Registered views answer SQL over several tables."""
    source, root = past
    views = register(spark, root / "target")
    assert views == {f"public.{table.name}": table.name for table in source.tables}
    (count,) = spark.sql("SELECT count(*) FROM plain CROSS JOIN pair").collect()[0]
    sizes = {table.name: len(last_state(source, table).rows) for table in source.tables}
    assert count == sizes["plain"] * sizes["pair"]


def test_changes_over_schema_versions(spark: SparkSession, tmp_path: Path) -> None:
    """All versions come as one frame, with one row per landed row and old values converted."""
    source = History(tmp_path / "landing", 2013)
    source.run(6)
    frame = changes(spark, tmp_path / "landing", "public.plain")
    landed = sum(
        file.rows
        for entry in Landing(tmp_path / "landing").entries(0, source.writer.n - 1)
        for file in entry.files
        if file.table == "public.plain"
    )
    assert frame.count() == landed
    assert {column.name for column in source.tables[0].columns} <= set(frame.columns)
    part = changes(spark, tmp_path / "landing", "public.plain", from_=2, to=5, with_n=True)
    numbers = {row.gd_n for row in part.select("gd_n").distinct().collect()}
    assert numbers <= {3, 4, 5}
    assert numbers


# --- the commit log as a source --------------------------------------------------------------


def landed(root: Path) -> Counter[str]:
    """Files that the log names."""
    landing = Landing(root)
    return Counter(
        str(landing.root / file.path)
        for entry in landing.entries(0, landing.last_n)
        for file in entry.files
    )


def test_batch_lists_the_files_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """One row for each landed file, from the entry asked for."""
    source = History(tmp_path / "landing", 1)
    source.run(4)
    spark.dataSource.register(GaussDecodeSource)
    frame = spark.read.format("gaussdecode").load(str(tmp_path / "landing"))
    assert Counter(row.path for row in frame.collect()) == landed(tmp_path / "landing")
    later = spark.read.format("gaussdecode").option("startingN", "2")
    assert {row.n for row in later.load(str(tmp_path / "landing")).collect()} == {
        row.n for row in frame.collect() if row.n > 2
    }


def test_stream_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """Started again with its checkpoint while more lands, it sees every change once."""
    root = tmp_path / "landing"
    source = History(root, 2, with_schema_changes=False)
    spark.dataSource.register(GaussDecodeSource)
    seen: Counter[tuple[str, int, int]] = Counter()

    def keep(batch: DataFrame, _: int) -> None:
        for table, frame in changes_of(spark, str(root), batch).items():
            seen.update((table, row.gd_lsn, row.gd_seq) for row in frame.collect())

    for _ in range(2):
        source.run(3)
        stream = spark.readStream.format("gaussdecode").option("path", str(root)).load()
        query = (
            stream.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
    expected = sum(f.rows for e in Landing(root).entries(0, source.writer.n - 1) for f in e.files)
    assert seen.total() == expected
    assert max(seen.values()) == 1


def test_damage_is_named_by_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """A landed file that is missing ends apply with our error, not with one of Spark's."""
    source = History(tmp_path / "landing", 3)
    source.run(2)
    (tmp_path / "landing" / Landing(tmp_path / "landing").entry(1).files[0].path).unlink()
    with pytest.raises(LandingError, match="is the landing complete"):
        apply(spark, tmp_path / "landing", tmp_path / "target")
