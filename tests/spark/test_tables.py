"""The products through Spark: equal to the source at the end and at points of its past."""

import dataclasses
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kit.history import START, History, Place, Snapshot, Table, canon, shop, state_at
from kit.renames import CASES, Source, in_steps, row
from kit.s3 import S3
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.apply import Options, apply, apply_with
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.maintain.checksums import LakeTable, Overlay, Shape, StoredFiles
from gaussdecode.spark.maintain.upkeep import compact, compact_with, vacuum
from gaussdecode.spark.merge.engine import DRIVER_BYTES, LocalEngine, SparkEngine
from gaussdecode.spark.merge.sizing import Sizes, labels
from gaussdecode.spark.query import changelog, current, database, history
from gaussdecode.spark.sql.views import ask, register
from gaussdecode.spark.stream.changes import changes
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

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
            source.commit()
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
    files = (*version.current, *version.closed)
    parts = [current_rows(target.table_root(table), file) for file in files]
    return [{"gd_to_lsn": None, **row} for part in parts for row in part.to_pylist()]


def begin(row: dict[str, Any]) -> Place:
    """Where an interval begins."""
    return (row["gd_epoch"], row["gd_lsn"], row["gd_seq"])


def end(row: dict[str, Any]) -> Place:
    """Where an interval ends."""
    if row["gd_to_lsn"] is None:
        return (1 << 62, 0, 0)
    return (row["gd_to_epoch"], row["gd_to_lsn"], row["gd_to_seq"])


@pytest.mark.parametrize("is_at_url", [False, True])
def test_current_state_through_spark(
    is_at_url: bool, spark: SparkSession, tmp_path: Path, s3: S3
) -> None:
    """Applied by Spark in two steps, with schema changes, read by Spark: the source's rows."""
    source, bucket = History(tmp_path / "landing", 2000), s3.bucket()
    landing, target = str(tmp_path / "landing"), str(tmp_path / "target")
    beside = Options(
        history=True, vectors=True, buckets=3, sizes=Sizes(small_bucket=0, share=1000.0)
    )
    for steps in (3, 4):
        source.run(steps)
        if is_at_url:
            landing = s3.keep(tmp_path / "landing", bucket, "landing")
            target = s3.url(bucket, "target")
        apply_with(SparkEngine(spark), landing, target, beside)
    store = Target(target)
    newest = [v for name in store.tables() if (v := store.newest(name)) is not None]
    assert any(file.deletes for version in newest for file in version.current)
    frames = database(spark, target)
    for table in source.tables:
        state = last_state(source, table)
        assert rows_of(frames[f"public.{table.name}"], state) == state.rows, table.name
    if is_at_url:
        name = source.tables[0].name
        check_columns(spark, target, name, frames[f"public.{name}"])
        check_house(spark, source, target, s3)


def check_columns(spark: SparkSession, target: str, name: str, whole: DataFrame) -> None:
    """A query reads the columns that it names, and gives what it gives with all of them."""
    first, *others = (column for column in whole.columns if not column.startswith("gd_"))
    found = ask(
        spark, target, f"SELECT `{first}` AS v, count(*) AS n FROM public.{name} GROUP BY 1"
    )
    read = found._jdf.queryExecution().analyzed().toString()
    assert "gd_raw" not in read
    assert not any(f" {other}#" in read for other in others), read
    wanted = whole.groupBy(whole[first].alias("v")).agg(F.count("*").alias("n"))
    assert sorted(map(repr, found.collect())) == sorted(map(repr, wanted.collect()))


def check_house(spark: SparkSession, source: History, target: str, s3: S3) -> None:
    """Files are merged and old ones go; the rows stay what they were."""
    compact_with(SparkEngine(spark), target, buckets=1)
    s3.age(target.split("/")[2], 8000)
    with pytest.MonkeyPatch.context() as patch:
        later = time.time() + 7200
        patch.setattr("gaussdecode.spark.maintain.upkeep.time", SimpleNamespace(time=lambda: later))
        assert vacuum(target, older_than_seconds=3600).files
    for name, frame in database(spark, target).items():
        (table,) = (t for t in source.tables if f"public.{t.name}" == name)
        assert rows_of(frame, last_state(source, table)) == last_state(source, table).rows, name


@pytest.fixture(scope="module")
def past(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[History, Path]:
    """A source without schema changes and snapshots, applied with everything."""
    root = tmp_path_factory.mktemp("past")
    source = History(root / "landing", 5, with_schema_changes=False)
    for _ in range(6):
        for _ in range(2):
            source.transaction()
        source.commit()
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
    assert views == sorted(f"public.{table.name}" for table in source.tables)
    joined = "SELECT count(*) FROM `public.plain` CROSS JOIN `public.pair`"
    (count,) = spark.sql(joined).collect()[0]
    sizes = {table.name: len(last_state(source, table).rows) for table in source.tables}
    assert count == sizes["plain"] * sizes["pair"]


def test_renamed_tables_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Two exchange their names: rows, past and changes are found by the names of now."""
    source = Source(tmp_path, SparkEngine(spark), history=True, changelog="gd_commit_date")
    source.land(row(1))
    steps, wanted = CASES["exchanged"]
    in_steps(source, steps, is_together=False)
    assert source.state() == wanted
    for title, ids in wanted.values():
        frames = [
            current(spark, source.target, title),
            history(spark, source.target, title),
            changelog(spark, source.target, title),
            ask(spark, source.target, f"SELECT id FROM {title}"),
        ]
        assert [sorted(of.id for of in frame.select("id").collect()) for frame in frames] == [
            ids
        ] * 4
    assert database(spark, source.target).keys() == {"public.t", "public.u"}


def test_changes_of_a_schema_that_comes_again(spark: SparkSession, tmp_path: Path) -> None:
    """The newest version is the one of the newest rows, also where it was there before others."""
    source = History(tmp_path / "landing", 3, with_schema_changes=False)
    plain = source.tables[0]
    for number, name in enumerate(("c", "renamed", "c")):
        plain.columns = [*plain.columns[:-1], dataclasses.replace(plain.columns[-1], name=name)]
        source.lsn += 10
        source.land(plain, 0, *source.put(plain, {1: number, 2: "", 3: b"", 4: 7 + number}))
    source.commit()
    frame = changes(spark, tmp_path / "landing", "public.plain")
    assert frame.columns[-4:] == ["id", "a", "b", "c"]
    assert sorted(row.c for row in frame.select("c").collect()) == [7, 8, 9]


def test_changes_over_schema_versions(spark: SparkSession, tmp_path: Path, s3: S3) -> None:
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
    url = s3.keep(tmp_path / "landing", s3.bucket(), "landing")
    far = changes(spark, url, "public.plain", from_=2, to=5, with_n=True)
    assert far.dtypes == part.dtypes
    assert sorted(map(repr, far.collect())) == sorted(map(repr, part.collect()))


def test_every_bucket_is_a_task(spark: SparkSession, tmp_path: Path) -> None:
    """As many map tasks as parts of files, as many merges as buckets that are worth one."""
    source = History(
        tmp_path / "landing", 1, with_schema_changes=False, tables=shop()[:1], keys=400
    )
    for _ in range(150):
        for change in source.insert(source.tables[0]):
            source.lsn += 1
            source.land(source.tables[0], 0, *change)
    source.commit()
    landed = Landing(tmp_path / "landing").entry(1).files[0]
    small = Sizes(read=landed.bytes // 3 + 1, reduce=1)
    for name, sizes, expected in (("many", small, [3, 8, 1]), ("one", Sizes(), [1])):
        assert stages(spark, name, tmp_path, Options(buckets=8, sizes=sizes)) == expected
        (table,) = source.tables
        frame = current(spark, tmp_path / name, "public.plain").select("id", "a", "b", "c")
        assert canon([tuple(row) for row in frame.collect()]) == table.visible()
    for count in (8, 100):
        values = ", ".join(f"({label}L)" for label in labels(count))
        parts = spark.sql(f"SELECT pmod(hash(col1), {count}) AS part FROM VALUES {values}")
        assert sorted(row.part for row in parts.collect()) == list(range(count))


def stages(spark: SparkSession, name: str, root: Path, options: Options) -> list[int]:
    """Numbers of tasks of the stages that an apply ran."""
    context = spark.sparkContext
    context.setJobGroup(name, name)
    apply_with(SparkEngine(spark), root / "landing", root / name, options)
    tracker = context.statusTracker()
    found: dict[int, int] = {}
    for job in tracker.getJobIdsForGroup(name):
        about = tracker.getJobInfo(job)
        for stage in [] if about is None else about.stageIds:
            facts = tracker.getStageInfo(stage)
            if facts is not None and facts.numCompletedTasks:
                found[int(stage)] = facts.numTasks
    context.setJobGroup("tests", "tests")
    return [found[stage] for stage in sorted(found)]


def test_damage_is_named_by_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """A landed file that is missing ends apply with our error, not with one of Spark's."""
    source = History(tmp_path / "landing", 3)
    source.run(2)
    (tmp_path / "landing" / Landing(tmp_path / "landing").entry(1).files[0].path).unlink()
    with pytest.raises(LandingError, match="is the landing complete"):
        apply(spark, tmp_path / "landing", tmp_path / "target")


def test_executors_add_up_the_same_checksums(
    spark: SparkSession, past: tuple[History, Path]
) -> None:
    """Sums of ranges by Spark's tasks are those of this process."""
    _, root = past
    store = Target(root / "target")
    version = store.newest("public.plain")
    assert version is not None
    schema = store.schema("public.plain", version.schema_id)
    shape = Shape(schema.names, schema.key)
    ours, theirs = (
        LakeTable(StoredFiles(engine, store, "public.plain", version), shape, Overlay())
        for engine in (LocalEngine(), SparkEngine(spark))
    )
    assert ours.sums(1) == theirs.sums(1) != {}
    assert ours.rows(list(ours.sums(1))) == theirs.rows(list(ours.sums(1)))


def test_small_applies_start_no_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """The driver does them, with the same result; the setting gives them back to tasks."""
    source = History(tmp_path / "landing", 8, with_schema_changes=False)
    source.run(3)
    counts = []
    for name, most in (("tasks", "0"), ("driver", str(1 << 20))):
        session = spark.newSession()
        session.conf.set(DRIVER_BYTES, most)
        group = f"apply-{name}"
        spark.sparkContext.setJobGroup(group, name)
        apply_with(SparkEngine(session), tmp_path / "landing", tmp_path / name)
        counts.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
    assert counts[0] > 0
    assert counts[1] == 0
    versions = [Target(tmp_path / name).newest("public.plain") for name in ("tasks", "driver")]
    rows = [version and sum(file.rows for file in version.current) for version in versions]
    assert rows[0] == rows[1]
