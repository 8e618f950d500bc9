"""Tables of a target, read and kept by others: delta-rs, Polars; Spark's own reader is in `delta_cases`."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kit.history import Column, History, Table, canon
from kit.lakes import each_version
from kit.postgres import Database
from kit.s3 import ENVIRONMENT, S3

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK, ConfigError, LandingError
from gaussdecode.source.quoting import literal
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.maintain.upkeep import compact_with, vacuum
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.sizing import Sizes
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.delta_log import DeltaLog
from gaussdecode.spark.target.layout import read_layouts
from gaussdecode.spark.target.store import Target

Rows = list[dict[str, Any]]  # Any: values
Read = Callable[[Path, int | None], Rows]
BESIDE = Sizes(small_bucket=0, share=1000.0)


def by_delta_rs(table: Path, version: int | None = None) -> Rows:
    """Rows of a Delta table by delta-rs, which knows no deletion vectors."""
    found: Rows = DeltaTable(table, version=version).to_pyarrow_table().to_pylist()
    return found


def by_polars(table: Path, version: int | None = None) -> Rows:
    """The same by Polars."""
    return polars.scan_delta(str(table), version=version).collect().to_dicts()


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here survives the machine: do not wait for its disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def place(root: Path, table: Table, kind: str = "current") -> Path:
    """Directory of a Delta table."""
    return root / "target" / "tables" / table.directory / kind


def apply(root: Path, **options: Any) -> None:  # Any: of `Options`
    """Bring the target to the end of the log."""
    made = Options(history=True, changelog="gd_commit_date", **options)
    apply_with(LocalEngine(), root / "landing", root / "target", made)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_version_is_the_source_s(seed: int, tmp_path: Path) -> None:
    """Current rows at each entry, by readers that were not written here; with renames and retypes."""
    source, rng = History(tmp_path / "landing", seed), Random(seed)
    with_vectors = seed % 2 == 1
    for _ in range(6):
        source.run(rng.randint(1, 3))
        apply(tmp_path, buckets=rng.choice((1, 3)), vectors=with_vectors, sizes=BESIDE)
    store, readers = (
        Target(tmp_path / "target"),
        [by_polars, *([] if with_vectors else [by_delta_rs])],
    )
    checked = 0
    for database, table, state in each_version(source, store):
        for read in readers:
            rows = read(place(tmp_path, table), database.tables[table.directory])
            found = canon([tuple(row[name] for name in state.names) for row in rows])
            assert found == state.rows, (table.name, database.n)
            checked += 1
    assert checked > 12


@pytest.mark.parametrize("read", [by_delta_rs, by_polars])
def test_history_and_changelog_follow_the_columns(read: Read, tmp_path: Path) -> None:
    """After renames, drops, adds and retypes both have the names of now, each value under its own."""
    number, text = Column(2, "a", pa.int32()), Column(3, "b", pa.string())
    table = Table("t", [Column(1, "id", pa.int32()), number, text], (1,), full=False)
    source = History(tmp_path / "landing", 1, with_schema_changes=False, tables=[table])

    def land(*rows: tuple[str, dict[int, Any]]) -> None:
        source.lsn += 10
        for seq, (op, row) in enumerate(rows):
            source.land(table, seq, op, row, None, [])
        source.commit()

    land(("I", {1: 1, 2: 10, 3: "x"}), ("I", {1: 2, 2: 20, 3: "y"}))
    apply(tmp_path)
    number.name, text.name = "b", "a"  # they change places
    land(("U", {1: 1, 2: 11, 3: "z"}))
    apply(tmp_path)
    number.type = pa.int64()
    table.columns.remove(text)
    table.columns.append(Column(4, "a", pa.string()))
    land(("U", {1: 1, 2: 1 << 40, 4: "new"}))
    apply(tmp_path)
    names = ("id", "b", "a")
    rows = {kind: read(place(tmp_path, table, kind), None) for kind in ("history", "changelog")}
    found = {
        kind: sorted(tuple(row[name] for name in names) for row in of) for kind, of in rows.items()
    }
    assert found["history"] == [(1, 10, None), (1, 11, None)]
    assert found["changelog"] == [(1, 10, None), (1, 11, None), (1, 1 << 40, "new"), (2, 20, None)]
    assert {row["gd_commit_date"] for row in rows["changelog"]} <= {
        row["gd_ts"].date() for row in rows["changelog"]
    }


@pytest.mark.slow
def test_others_keep_the_tables_small(tmp_path: Path) -> None:
    """OPTIMIZE, VACUUM, checkpoints and clean-up by delta-rs between applies change no row."""
    source = History(tmp_path / "landing", 3, with_schema_changes=False)
    for _ in range(3):
        for _ in range(3):
            source.run(2)
            apply(tmp_path, buckets=3)
        for table in source.tables:
            for kind in ("current", "history", "changelog"):
                opened = DeltaTable(place(tmp_path, table, kind))
                opened.optimize.compact()
                opened.create_checkpoint()
                opened.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
                opened.cleanup_metadata()
    apply_with(
        LocalEngine(), tmp_path / "landing", tmp_path / "once",
        Options(history=True, changelog="gd_commit_date", buckets=1),
    )  # fmt: skip
    for table in source.tables:
        for kind in ("current", "history", "changelog"):
            theirs = tmp_path / "once" / "tables" / table.directory / kind
            ours, wanted = (by_delta_rs(path) for path in (place(tmp_path, table, kind), theirs))
            assert canon([tuple(row.items()) for row in ours]) == canon(
                [tuple(row.items()) for row in wanted]
            )


def test_rows_that_another_writer_changed(tmp_path: Path) -> None:
    """The next apply says which commit it was, and writes nothing."""
    source = History(tmp_path / "landing", 5, with_schema_changes=False)
    source.run(5)
    apply(tmp_path)
    table = next(t for t in source.tables if t.rows)
    DeltaTable(place(tmp_path, table)).delete()
    source.run(1)
    before = sorted((tmp_path / "target").rglob("*"))
    with pytest.raises(LandingError, match=r"DELETE of another writer changed rows in version \d+"):
        apply(tmp_path)
    assert sorted((tmp_path / "target").rglob("*")) == before


@pytest.mark.slow
def test_old_commits_go_behind_a_checkpoint(tmp_path: Path) -> None:
    """After vacuum a table is read from its checkpoint, here and by others; compaction changes no row."""
    source = History(tmp_path / "landing", 7, with_schema_changes=False)
    for _ in range(25):
        source.run(1)
        apply(tmp_path, buckets=2)
    compact_with(LocalEngine(), tmp_path / "target")
    vacuum(tmp_path / "target", older_than_seconds=0)
    for table in source.tables:
        log = DeltaLog(place(tmp_path, table))
        assert 0 not in log.versions()
        assert log.snapshot().adds.keys() == DeltaLog(log.root).snapshot().adds.keys()
        for read in (by_delta_rs, by_polars):
            rows = read(place(tmp_path, table), None)
            state = source.states[table.name][max(source.states[table.name])]
            assert canon([tuple(row[name] for name in state.names) for row in rows]) == state.rows
    source.run(2)
    apply(tmp_path)


@pytest.mark.slow
def test_positions_can_be_read(tmp_path: Path) -> None:
    """The versions that belong together are there, also after compaction and vacuum."""
    source = History(tmp_path / "landing", 15, with_schema_changes=False)
    for step in range(12):
        source.run(1)
        apply(tmp_path, buckets=2)
        if step == 8:
            compact_with(LocalEngine(), tmp_path / "target")
        vacuum(tmp_path / "target", older_than_seconds=0)
        store = Target(tmp_path / "target")
        database = store.database()
        assert database is not None
        rows = by_delta_rs(tmp_path / "target" / "positions")
        told: dict[str, int] = {}
        for row in rows:
            told[row["path"]] = max(told.get(row["path"], -1), row["version"])
        for directory, v in database.tables.items():
            for folder, number in store.log(directory).numbers(v).items():
                path = f"tables/{directory}/{folder}"
                assert told[path] == number
                by_delta_rs(tmp_path / "target" / path, number)


def test_an_entry_is_in_the_commit(tmp_path: Path) -> None:
    """Readers find the landing and the entry as the transaction of an application."""
    source = History(tmp_path / "landing", 9)
    source.run(3)
    apply(tmp_path)
    store = Target(tmp_path / "target")
    for table in store.tables():
        opened = DeltaTable(str(store.table_root(table) / "current"))
        version = store.newest(table)
        assert version is not None
        assert opened.transaction_version(f"gaussdecode-{store.landing_id}") == version.n
        assert store.landing_id in (opened.metadata().description or "")


def test_bounds_leave_files_out(tmp_path: Path) -> None:
    """Statistics are right: a reader that goes by them finds every row it asks for."""
    source = History(tmp_path / "landing", 11, with_schema_changes=False, keys=200)
    source.run(12)
    apply(tmp_path, buckets=8)
    for table in source.tables:
        scanned = polars.scan_delta(str(place(tmp_path, table)))
        rows = scanned.collect().to_dicts()
        column = table.columns[0].name
        for value in {row[column] for row in rows if row[column] is not None}:
            found = scanned.filter(polars.col(column) == value).collect().height
            assert found == sum(row[column] == value for row in rows)
        days = polars.scan_delta(str(place(tmp_path, table, "changelog")))
        dates = days.collect()["gd_commit_date"].to_list()
        for date in set(dates) - {None}:
            assert isinstance(date, dt.date)
            assert days.filter(
                polars.col("gd_commit_date") == date
            ).collect().height == dates.count(date)


def test_comments_of_the_source(
    database_15: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are in the schema for every reader, need no Spark, stay over an apply, and go again."""
    source = History(tmp_path / "landing", 5, with_schema_changes=False)
    source.run(4)
    apply(tmp_path)
    table = next(t for t in source.tables if t.name == "plain")
    name, dsn = table.columns[0].name, f"{database_15.dsn} sslmode=disable"
    database_15.execute(f'CREATE TABLE plain ("{name}" int PRIMARY KEY)')

    def say(of: str, text: str) -> tuple[str, str, str]:
        database_15.execute(f"COMMENT ON {of} IS {literal(text)}")
        command = ["spark", "comments", str(tmp_path / "landing"), str(tmp_path / "target")]
        assert (
            main([*command, "--dsn", dsn, "--allow-insecure", "--tables", "public.plain"]) == EX_OK
        )
        opened = DeltaTable(place(tmp_path, table))
        field = next(f for f in opened.schema().fields if f.name == name)
        history = DeltaTable(place(tmp_path, table, "history")).metadata().description or ""
        return opened.metadata().description or "", str(field.metadata.get("comment", "")), history

    assert say("COLUMN plain." + f'"{name}"', "what it's of")[1] == "what it's of"
    whole, column, history = say("TABLE plain", "Things")
    assert whole.startswith("Things\n\npublic.plain of orders")
    assert history.startswith("Things\n\nHistory of public.plain of orders")
    assert "things" not in capsys.readouterr().out.casefold()
    source.run(3)
    apply(tmp_path)
    assert say("TABLE plain", "Things") == (whole, column, history)
    assert "0 tables changed" in capsys.readouterr().out
    assert say("COLUMN plain." + f'"{name}"', "")[1] == ""


def test_tables_on_a_store(tmp_path: Path, s3: S3) -> None:
    """Others read them where they are, by the names of their URL; a changelog by any column too."""
    source = History(tmp_path / "landing", 17, with_schema_changes=False)
    bucket = s3.bucket()
    target = s3.url(bucket, "a b/tables")
    for _ in range(12):
        source.run(1)
        made = Options(history=True, changelog=source.tables[0].columns[1].name, buckets=2)
        apply_with(LocalEngine(), tmp_path / "landing", target, made)
    options = {
        **ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3.port}", "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true", "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    }  # fmt: skip
    for table in source.tables:
        where = f"s3://{bucket}/a b/tables/tables/{table.directory}"
        states = source.states[table.name]
        state = states[max(states)]
        found = DeltaTable(f"{where}/current", storage_options=options).to_pyarrow_table()
        rows = [tuple(row[name] for name in state.names) for row in found.to_pylist()]
        assert canon(rows) == state.rows
        changes = DeltaTable(f"{where}/changelog", storage_options=options)
        assert changes.to_pyarrow_table().num_rows > len(state.rows)


@pytest.mark.slow
@pytest.mark.parametrize("with_vectors", [False, True])
def test_layouts(tmp_path: Path, *, with_vectors: bool) -> None:
    """Files are divided by values, NULLs and odd ones too, and rows sorted; a column may be renamed, or go."""
    day, word = Column(2, "day", pa.date32()), Column(3, "word", pa.string())
    flag, at = Column(4, "flag", pa.bool_()), Column(5, "at", pa.timestamp("us"))
    table = Table("t", [Column(1, "id", pa.int32()), day, word, flag, at], (1,), full=False)
    source = History(tmp_path / "landing", 1, with_schema_changes=False, tables=[table])
    rng, rows = Random(3), dict[int, dict[int, Any]]()
    noon = dt.datetime.fromisoformat("2026-01-01T12:00:00.000001")
    words = ["a/b", "it's = 5%", "é", None, "x y"]

    def land(count: int) -> None:
        source.lsn += 10
        for seq in range(count):
            number = rng.randint(1, 60)
            row = {1: number, 2: dt.date(2026, 1, rng.randint(1, 3)), 3: rng.choice(words)}
            row |= {
                4: rng.choice([True, False, None]),
                5: noon + dt.timedelta(hours=rng.randint(0, 2)),
            }
            source.land(table, seq, "U" if number in rows else "I", row, None, [])
            rows[number] = row
        source.commit()

    def check() -> None:
        read = [by_polars, *([] if with_vectors else [by_delta_rs])]
        for by in read:
            found = [
                tuple(r[c.name] for c in table.columns) for r in by(place(tmp_path, table), None)
            ]
            wanted = [tuple(row[c.number] for c in table.columns) for row in rows.values()]
            assert canon(found) == canon(wanted)

    layouts = read_layouts(["public.t=day,word,flag,at"], ["public.t=id"])
    made: dict[str, Any] = {
        "layouts": layouts,
        "vectors": with_vectors,
        "buckets": 2,
        "sizes": BESIDE,
    }
    for _ in range(4):
        land(30)
        apply(tmp_path, **made)
        check()
    store = Target(tmp_path / "target")
    version = store.newest(table.directory)
    assert version is not None
    assert len({file.partition for file in version.current}) > 8
    for file in version.current:
        ids = current_rows(store.table_root(table.directory), file).column("id").to_pylist()
        assert ids == sorted(ids) or file.bucket < 0
    if not with_vectors:
        opened = DeltaTable(place(tmp_path, table))
        assert opened.metadata().partition_columns == ["day", "word", "flag", "at"]
        some = opened.to_pyarrow_table(filters=[("word", "=", "it's = 5%")])
        assert some.num_rows == sum(row[3] == "it's = 5%" for row in rows.values())
    land(1)
    with pytest.raises(ConfigError, match="was made with another layout"):
        apply(tmp_path, **{**made, "layouts": read_layouts(["public.t=day"], [])})
    word.name = "name"
    land(20)
    apply(tmp_path)
    check()
    table.columns.remove(day)
    for row in rows.values():
        del row[2]
    land(20)
    for row in rows.values():
        row.pop(2, None)
    apply(tmp_path)
    check()
    newest = Target(tmp_path / "target").newest(table.directory)
    assert newest is not None
    assert newest.partition == ("name", "flag", "at")
    compact_with(LocalEngine(), tmp_path / "target")
    assert compact_with(LocalEngine(), tmp_path / "target").tables == 0
    check()


@pytest.mark.parametrize("read", [by_delta_rs, by_polars])
def test_files_are_divided_by_what_is_computed(read: Read, tmp_path: Path) -> None:
    """By units of a time, in a column that readers see; it follows a rename, and NULL stays NULL."""
    types = {"id": pa.int32(), "at": pa.timestamp("us", tz="UTC"), "day": pa.date32()}
    columns = [Column(i, n, t) for i, (n, t) in enumerate(types.items(), 1)]
    table = Table("t", columns, (1,), full=True)
    source = History(tmp_path / "landing", 1, with_schema_changes=False, tables=[table])
    times = [
        dt.datetime(2026, 1, 31, 23, 59, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, tzinfo=dt.UTC),
    ]

    def land(*rows: list[Any]) -> None:
        source.lsn += 10
        for seq, row in enumerate(rows):
            source.land(table, seq, "I", dict(enumerate(row, 1)), None, [])
        source.commit()
        parts = "hours(at),months(day),years(at)"
        apply(
            tmp_path, layouts=read_layouts([f"public.t={parts}"], []) if rows[0][0] == 1 else None
        )

    land(*([n, at, at and at.date()] for n, at in enumerate([*times, None], 1)))
    wanted = [("2026-01-31-23", "2026-01", 2026), ("1969-12-31-00", "1969-12", 1969), (None,) * 3]
    found = sorted(read(place(tmp_path, table), None), key=lambda row: row["id"])
    assert [(row["at_hour"], row["day_month"], row["at_year"]) for row in found] == wanted
    opened = DeltaTable(place(tmp_path, table))
    assert opened.metadata().partition_columns == ["at_hour", "day_month", "at_year"]
    assert len(opened.file_uris(file_pruning_predicate=[("at_year", "=", "2026")])) == 1
    columns[1].name = "then"
    land([4, times[0], None])
    found = sorted(read(place(tmp_path, table), None), key=lambda row: row["id"])
    assert [row["then_hour"] for row in found] == [wanted[0][0], wanted[1][0], None, wanted[0][0]]
    assert "at_hour" not in found[0]
