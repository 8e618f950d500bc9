"""Tables of a target in a catalog of Iceberg, read by pyiceberg and Polars; Spark's own reader is in `iceberg_cases`."""

import datetime as dt
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars
import pyarrow as pa
import pytest
from kit.history import Column, History, Table, canon
from kit.icebergcatalog import in_a_file
from kit.lakes import each_version, last_state, live, small
from kit.postgres import Database
from kit.s3 import ENVIRONMENT, IDENTITY, S3, SECRET
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table as IcebergTable

from gaussdecode.cli import main
from gaussdecode.errors import EX_IOERR, EX_OK, CatalogError, ConfigError, LandingError
from gaussdecode.model.landing import EntryKind
from gaussdecode.source.quoting import literal
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.catalogs import iceberg
from gaussdecode.spark.log.landing import Point
from gaussdecode.spark.maintain.upkeep import compact_with, vacuum
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.failpoint import VARIABLE, Step
from gaussdecode.spark.target.formats import ICEBERG
from gaussdecode.spark.target.layout import read_layouts
from gaussdecode.spark.target.store import Target

Rows = list[dict[str, Any]]  # Any: values
Read = Callable[[IcebergTable, int], Rows]


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here survives the machine: do not wait for its disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog in a file, as another program opens it."""
    return in_a_file(monkeypatch, tmp_path)


def by_pyiceberg(table: IcebergTable, snapshot: int) -> Rows:
    """Rows of a snapshot."""
    rows: Rows = table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
    return rows


def by_polars(table: IcebergTable, snapshot: int) -> Rows:
    """The same by Polars' own reader."""
    scan = polars.scan_iceberg(table, snapshot_id=snapshot, reader_override="native")
    return scan.collect().to_dicts()


def apply(root: Path, catalog: str = "lake.cdc", **options: Any) -> None:  # Any: of `Options`
    """Bring the target to the end of the log."""
    made = Options(
        format=ICEBERG, catalog=catalog, history=True, changelog="gd_commit_date", **options
    )
    apply_with(LocalEngine(), root / "landing", root / "target", made)


def name_of(table: Table, kind: str = "") -> tuple[str, str]:
    """Of a table, in the catalog."""
    return ("cdc", f"public_{table.name}{kind}")


def check(catalog: Catalog, source: History) -> None:
    """Every table is the source's."""
    for table in source.tables:
        state = last_state(source, table)
        if state is not None:
            rows = catalog.load_table(name_of(table)).scan().to_arrow().to_pylist()
            assert canon([tuple(row[name] for name in state.names) for row in rows]) == state.rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_version_is_the_source_s(seed: int, catalog: Catalog, tmp_path: Path) -> None:
    """Rows at the tag of each entry, with renames and retypes, by readers that were not written here."""
    source, rng = History(tmp_path / "landing", seed), Random(seed)
    for _ in range(5):
        source.run(rng.randint(1, 3))
        apply(tmp_path, buckets=rng.choice((1, 3)))
    store, checked = Target(tmp_path / "target"), 0
    newest = store.database_versions()[-1]
    for database, table, state in each_version(source, store):
        opened = catalog.load_table(name_of(table))
        ref = opened.refs().get(f"v{database.tables[table.directory]}")
        if ref is None:  # a name means another column now: no older snapshot shows it wrong
            assert database.k != newest
            continue
        for read in (by_pyiceberg, by_polars):
            rows = read(opened, ref.snapshot_id)
            found = canon([tuple(row[name] for name in state.names) for row in rows])
            assert found == state.rows, (table.name, database.n, read)
            checked += 1
    assert checked > 20


def test_each_name_has_its_own_values(catalog: Catalog, tmp_path: Path) -> None:
    """Columns change places, get another type and are made anew: no snapshot shows one for another."""
    number, text = Column(2, "a", pa.int32()), Column(3, "b", pa.string())
    table = Table("t", [Column(1, "id", pa.int32()), number, text], (1,), full=False)
    source = History(tmp_path / "landing", 1, with_schema_changes=False, tables=[table])
    shown: dict[int, list[tuple[Any, ...]]] = {}

    def land(*rows: tuple[str, dict[int, Any]], names: tuple[str, ...]) -> None:
        source.lsn += 10
        for seq, (op, row) in enumerate(rows):
            source.land(table, seq, op, row, None, [])
        source.commit()
        apply(tmp_path)
        opened = catalog.load_table(name_of(table))
        newest = opened.current_snapshot()
        assert newest is not None
        now = opened.scan().to_arrow().to_pylist()
        shown[newest.snapshot_id] = sorted(tuple(row[name] for name in names) for row in now)
        for snapshot in opened.snapshots():  # those that are left show what they showed
            width = len(shown[snapshot.snapshot_id][0])
            held = opened.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
            found = [tuple(row.values())[-width:] for row in held.to_pylist()]
            assert sorted(map(str, map(set, found))) == sorted(
                map(str, map(set, shown[snapshot.snapshot_id]))
            )

    land(("I", {1: 1, 2: 10, 3: "x"}), ("I", {1: 2, 2: 20, 3: "y"}), names=("id", "a", "b"))
    number.type = pa.int64()  # a wider type keeps what is before it
    land(("U", {1: 1, 2: 1 << 40, 3: "x"}), names=("id", "a", "b"))
    assert len(shown) == len(catalog.load_table(name_of(table)).snapshots()) == 2
    number.name, text.name = "b", "a"
    land(("U", {1: 1, 2: 11, 3: "z"}), names=("id", "b", "a"))
    assert len(catalog.load_table(name_of(table)).snapshots()) == 1
    table.columns.remove(text)
    land(("U", {1: 1, 2: 12}), names=("id", "b"))
    table.columns.append(Column(4, "a", pa.string()))
    land(("U", {1: 1, 2: 13, 4: "new"}), names=("id", "b", "a"))
    opened = catalog.load_table(name_of(table, "_changelog"))
    rows = opened.scan().to_arrow().to_pylist()
    assert max((row["id"], row["b"], row["a"]) for row in rows) == (2, 20, None)
    # Older files have a column that is gone; a table that is made anew has to be read all the same.
    table.columns.pop()
    catalog.drop_table(name_of(table, "_changelog"))
    land(("U", {1: 1, 2: 14}), names=("id", "b"))
    opened = catalog.load_table(name_of(table, "_changelog"))
    assert "a" not in opened.schema().column_names
    assert opened.scan().to_arrow().num_rows == len(rows) + 1


def test_partitions_types_and_odd_names(catalog: Catalog, tmp_path: Path) -> None:
    """Values of each type divide files, NULL and odd texts too; names are as in the source."""
    types = {
        "id": pa.int32(), "day": pa.date32(), "ok": pa.bool_(), "t.s": pa.timestamp("us"),
        "tz": pa.timestamp("us", tz="UTC"), "of %": pa.string(), "n": pa.decimal128(12, 2),
        "big": pa.int64(), "s": pa.int16(), "l": pa.list_(pa.field("element", pa.int32())),
    }  # fmt: skip
    table = Table(
        "odd%20name",
        [Column(i, n, t) for i, (n, t) in enumerate(types.items(), 1)],
        (1,),
        full=True,
    )
    source = History(tmp_path / "landing", 1, with_schema_changes=False, tables=[table])
    at = dt.datetime(2026, 2, 3, 4, 5, 6, 789)  # noqa: DTZ001 - of a timestamp without zone
    rows: list[list[Any]] = [
        [1, at.date(), True, at, at.replace(tzinfo=dt.UTC), "a/b=c %20", Decimal("1.50"), 1 << 40, -3, [1, None]],
        [2, None, None, None, None, None, None, None, None, None],
        [3, at.date(), False, at, at.replace(tzinfo=dt.UTC), "`é`\n", Decimal("-0.01"), -1, 3, []],
    ]  # fmt: skip
    source.lsn += 10
    for seq, row in enumerate(rows):
        source.land(table, seq, "I", dict(enumerate(row, 1)), None, [])
    source.commit()
    columns = ["day", "ok", "t.s", "tz", "of %", "n", "big", "s"]
    layouts = read_layouts([f"public.odd%20name={','.join(columns)}"], [])
    apply(tmp_path, layouts=layouts)
    opened = catalog.load_table(("cdc", "public_odd%20name"))
    assert [field.name for field in opened.spec().fields] == columns
    found = opened.scan().to_arrow().to_pylist()
    assert canon([tuple(row[name] for name in types) for row in found]) == canon(
        [tuple(row) for row in rows]
    )
    for name, value in (("day", at.date()), ("of %", "a/b=c %20"), ("big", -1), ("s", 3)):
        (wanted,) = {row[0] for row in rows if row[list(types).index(name)] == value} - {3} or {3}
        text = value if isinstance(value, int) else f"'{value}'"
        some = opened.scan(row_filter=f'"{name}" = {text}').to_arrow().to_pylist()
        assert wanted in [row["id"] for row in some]


def test_partitions_that_are_computed(catalog: Catalog, tmp_path: Path) -> None:
    """Readers see the column; a rename makes the table anew."""
    columns = [Column(1, "id", pa.int32()), Column(2, "at", pa.timestamp("us"))]
    table = Table("t", columns, (1,), full=True)
    source = History(tmp_path / "landing", 1, with_schema_changes=False, tables=[table])

    def land(number: int, at: dt.datetime | None, **options: Any) -> list[tuple[Any, ...]]:
        source.lsn += 10
        source.land(table, 0, "I", {1: number, 2: at}, None, [])
        source.commit()
        apply(tmp_path, **options)
        rows = catalog.load_table(name_of(table)).scan().to_arrow().to_pylist()
        return sorted((row["id"], row[f"{columns[1].name}_day"]) for row in rows)

    at = dt.datetime(2026, 2, 3, 4, 5)  # noqa: DTZ001 - of a timestamp without zone
    layouts = read_layouts(["public.t=days(at)"], [])
    assert land(1, at, layouts=layouts) == [(1, at.date())]
    assert land(2, None) == [(1, at.date()), (2, None)]
    columns[1].name = "then"
    assert land(3, at) == [(1, at.date()), (2, None), (3, at.date())]


POINTS = [
    Step.FILES_DURABLE, f"{Step.MANIFEST_LINKED}:2", Step.TABLES_DONE,
    *(f"{step}:{n}" for step in (Step.CATALOG_WRITTEN, Step.CATALOG_COMMITTED) for n in (1, 2, 5)),
    Step.DATABASE_DURABLE,
]  # fmt: skip


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_killed_apply_is_run_again(point: str, catalog: Catalog, tmp_path: Path) -> None:
    """Readers see the version before or the one after of each table; a second run gives the whole, once."""
    source = History(tmp_path / "landing", 31)
    source.run(7)
    made = Options(format=ICEBERG, catalog="lake.cdc", history=True, changelog="gd_commit_date")
    places = (tmp_path / "landing", tmp_path / "target")
    apply_with(LocalEngine(), *places, made, to=Point(n=2))
    before = content(catalog)
    command = [sys.executable, "-m", "gaussdecode", "spark", "apply", *map(str, places), "--local"]
    ended = subprocess.run(
        command, env={**os.environ, VARIABLE: point}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    between = content(catalog)
    apply_with(LocalEngine(), *places, made)
    after = content(catalog)
    check(catalog, source)
    assert all(rows in (before.get(name), after[name]) for name, rows in between.items())
    snapshots = {name: len(catalog.load_table(name).snapshots()) for name in after}
    apply_with(LocalEngine(), *places, made)
    assert {name: len(catalog.load_table(name).snapshots()) for name in after} == snapshots


def content(catalog: Catalog) -> dict[tuple[str, ...], list[str]]:
    """Rows of all tables, that of positions left out."""
    tables = {name: catalog.load_table(name) for name in catalog.list_tables("cdc")}
    return {
        name: sorted(map(repr, table.scan().to_arrow().to_pylist()))
        for name, table in tables.items()
        if name[-1] != "gd_positions"
    }


def test_tables_on_a_store(
    s3: S3, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data and Iceberg's own files are on the store, with the settings of its URL alone."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    source, bucket = small(tmp_path), s3.bucket()
    url = s3.url(bucket, "a b/tables")
    made = Options(format=ICEBERG, catalog="lake.cdc", history=True)
    for _ in range(3):
        apply_with(LocalEngine(), tmp_path / "landing", url, made)
        live(source)
    apply_with(LocalEngine(), tmp_path / "landing", url, made)
    settings = {
        "s3.endpoint": f"http://127.0.0.1:{s3.port}", "s3.access-key-id": IDENTITY,
        "s3.secret-access-key": SECRET, "s3.region": "us-east-1",
    }  # fmt: skip
    check(load_catalog("lake", **settings), source)
    assert catalog.list_tables("cdc")
    s3.age(bucket, 4000)
    vacuum(url, older_than_seconds=3600)
    check(load_catalog("lake", **settings), source)


def test_names_of_others_and_catalogs_that_are_away(catalog: Catalog, tmp_path: Path) -> None:
    """Nobody else's table is taken; a catalog that is away is said, and later has all of it."""
    source = small(tmp_path)
    catalog.create_namespace("cdc")
    schema = pa.schema({"mine": pa.int32()})
    catalog.create_table(name_of(source.tables[0]), schema, location=f"file://{tmp_path}/mine")
    with pytest.raises(
        ConfigError, match=r"lake\.cdc\.public_keyed is there already, and is another"
    ):
        apply(tmp_path)
    assert catalog.load_table(name_of(source.tables[0])).schema().column_names == ["mine"]
    catalog.drop_table(name_of(source.tables[0]))
    apply(tmp_path)
    check(catalog, source)
    small(tmp_path / "other")
    with pytest.raises(ConfigError, match=r"lake\.cdc\.gd_positions is there already"):
        apply(tmp_path / "other")
    check(catalog, source)
    kept = tmp_path / "catalog.db"
    kept.rename(tmp_path / "away.db")
    kept.mkdir()
    apply(tmp_path)  # with nothing new it is not asked
    live(source)
    with pytest.raises(CatalogError, match=r"catalog lake cannot be opened \(OperationalError"):
        apply(tmp_path)
    kept.rmdir()
    (tmp_path / "away.db").rename(kept)
    apply(tmp_path)
    check(catalog, source)


def test_one_of_two_writers_is_told(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who commits while another does changes nothing there, and the next run has all."""
    source = small(tmp_path)
    apply(tmp_path)
    live(source)

    def meanwhile(step: Step) -> None:
        if step is Step.CATALOG_WRITTEN:
            monkeypatch.undo()
            in_a_file(monkeypatch, tmp_path)
            for table in source.tables:
                catalog.load_table(name_of(table)).delete()

    monkeypatch.setattr(iceberg, "reach", meanwhile)
    with pytest.raises(LandingError, match="was committed by another writer at the same time"):
        apply(tmp_path)
    apply(tmp_path)
    check(catalog, source)


@pytest.mark.slow
def test_upkeep_keeps_what_is_shown(catalog: Catalog, tmp_path: Path) -> None:
    """After compact and vacuum all is readable, few snapshots are left, and no file that none names."""
    source = small(tmp_path)
    for _ in range(5):
        apply(tmp_path)
        live(source)
    apply(tmp_path)
    compact_with(LocalEngine(), tmp_path / "target", buckets=2)
    check(catalog, source)
    before = content(catalog)
    own = len(list((tmp_path / "target").rglob("_iceberg/*.avro")))
    vacuum(tmp_path / "target", older_than_seconds=0)
    assert content(catalog) == before
    for name in before:
        opened = catalog.load_table(name)
        assert (len(opened.snapshots()), len(opened.refs())) == (1, 2)
    assert len(list((tmp_path / "target").rglob("_iceberg/*.avro"))) < own / 2
    live(source)
    apply(tmp_path)
    check(catalog, source)


@pytest.mark.slow
def test_many_applies_leave_few_files(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests are merged, and old snapshots go; those that a tag of somebody else names stay."""
    monkeypatch.setattr(iceberg, "SNAPSHOTS", 5)
    monkeypatch.setattr(iceberg, "_MANIFESTS", 4)
    source = small(tmp_path)
    for number in range(24):
        live(source, 1)
        apply(tmp_path, buckets=1)
        if number == 3:
            first = catalog.load_table(name_of(source.tables[0]))
            held = first.current_snapshot()
            assert held is not None
            first.manage_snapshots().create_tag(held.snapshot_id, "mine").commit()
            rows = by_pyiceberg(first, held.snapshot_id)
    for table in source.tables:
        for kind in ("", "_changelog"):
            opened = catalog.load_table(name_of(table, kind))
            last = opened.current_snapshot()
            assert last is not None
            assert len(last.manifests(opened.io)) <= 5
            assert len(opened.snapshots()) <= 11
    mine = catalog.load_table(name_of(source.tables[0]))
    assert by_pyiceberg(mine, mine.refs()["mine"].snapshot_id) == rows
    check(catalog, source)


def test_comments_are_shown_at_once(
    catalog: Catalog, database_15: Database, tmp_path: Path
) -> None:
    """`spark comments` changes them in Iceberg too, without an apply; rows stay."""
    source = small(tmp_path)
    apply(tmp_path)
    database_15.execute("CREATE TABLE public.keyed (id int PRIMARY KEY, a text)")
    database_15.execute(f"COMMENT ON TABLE keyed IS {literal('it holds %')}")
    database_15.execute("COMMENT ON COLUMN keyed.a IS 'the first'")
    places = [str(tmp_path / "landing"), str(tmp_path / "target")]
    dsn = f"{database_15.dsn} sslmode=disable"
    assert main(["spark", "comments", *places, "--dsn", dsn, "--allow-insecure"]) == EX_OK
    opened = catalog.load_table(name_of(source.tables[0]))
    assert opened.properties["comment"].startswith("it holds %")
    assert opened.schema().find_field("a").doc == "the first"
    check(catalog, source)
    live(source)
    apply(tmp_path)
    check(catalog, source)


def test_verify_tells_what_others_changed(
    catalog: Catalog, database_15: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that another writer changed is named, and the command that is named sets it right."""
    landing, target = tmp_path / "landing", tmp_path / "target"
    columns = [Column(1, "id", pa.int64()), Column(2, "a", pa.string())]
    table = Table("item", columns, (1,), full=False)
    source = History(landing, 1, with_schema_changes=False, tables=[table])
    for g in range(1, 301):
        source.land(table, g, "I", {1: g, 2: f"x{g}"}, None, [])
    source.commit()
    database_15.execute("CREATE TABLE public.item (id int8 PRIMARY KEY, a text)")
    database_15.execute("INSERT INTO item SELECT g, 'x' || g FROM generate_series(1, 300) g")
    config = tmp_path / "s.yaml"
    config.write_text(
        f"slot: s\nsource: {{kind: postgresql, dsn: {database_15.dsn} sslmode=disable, "
        f"publication: [{database_15.publication}], allow-insecure: true}}\nlanding: {{root: {landing}}}\n"
    )
    config.chmod(0o600)
    source.writer.entry(EntryKind.IDLE, 1 << 50)  # beyond any view's position
    apply_with(LocalEngine(), landing, target, Options(format=ICEBERG, catalog="lake.cdc"))
    verify = ["spark", "verify", str(landing), str(target), "--config", str(config), "--local"]
    assert main(verify) == EX_OK, capsys.readouterr().out
    opened = catalog.load_table(("cdc", "public_item"))
    assert opened.scan().to_arrow().num_rows == 300
    opened.delete("id > 100")
    assert main(verify) == EX_IOERR
    said = capsys.readouterr().out
    assert "in Iceberg lake.cdc.public_item was changed by another writer" in said
    vacuum(target)
    assert catalog.load_table(("cdc", "public_item")).scan().to_arrow().num_rows == 300
    assert main(verify) == EX_OK, capsys.readouterr().out


@pytest.mark.slow
def test_technical_columns_may_be_hidden(catalog: Catalog, tmp_path: Path) -> None:
    """Current tables have the source's columns alone, over changes and upkeep; those beside have all."""
    source = History(tmp_path / "landing", 4)
    for number in range(3):
        source.run(2)
        apply(tmp_path, hides=number == 0)
        check(catalog, source)
    compact_with(LocalEngine(), tmp_path / "target")
    vacuum(tmp_path / "target", older_than_seconds=0)
    check(catalog, source)
    for table in source.tables:
        names = catalog.load_table(name_of(table)).schema().column_names
        assert names
        assert not [name for name in names if name.startswith("gd_")]
        assert "gd_to_n" in catalog.load_table(name_of(table, "_history")).schema().column_names
    History(tmp_path / "shown" / "landing", 1).run(1)
    apply(tmp_path / "shown", "lake.shown")
    with pytest.raises(ConfigError, match="were made with technical columns, which they keep"):
        apply(tmp_path / "shown", "lake.shown", hides=True)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Options(format=ICEBERG), "have their names in a catalog: give --catalog"),
        (Options(format=ICEBERG, catalog="lake", vectors=True), "--deletion-vectors are of Delta"),
        (Options(hides=True), "--hide-technical-columns is for --format iceberg"),
        (Options(format=ICEBERG, catalog="nowhere"), "catalog nowhere cannot be opened"),
        (Options(format=ICEBERG, catalog="lake."), "no name of tables"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    options: Options, why: str, catalog: Catalog, tmp_path: Path
) -> None:
    """In a sentence, with what to do."""
    del catalog
    small(tmp_path)
    with pytest.raises(ConfigError, match=why):
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", options)
    assert not (tmp_path / "target").exists()


def test_pyiceberg_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, with how to install it."""
    small(tmp_path)
    monkeypatch.setitem(sys.modules, "gaussdecode.spark.catalogs.iceberg", None)
    with pytest.raises(ConfigError, match=r"pip install 'gaussdecode\[iceberg\]'"):
        apply(tmp_path)
