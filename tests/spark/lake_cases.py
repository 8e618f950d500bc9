"""Tables of Iceberg, with its jar; `test_lake` runs these with Spark 4.0."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit.csnhistory import SharedHistory
from kit.dying import Killed, die_at
from kit.history import Column, History, LandingWriter, Snapshot, Table, canon
from kit.lakes import CONF, last_state, live, rows_of, small, small_spark
from kit.postgres import Database
from kit.s3 import S3
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.cli import main
from gaussdecode.errors import EX_IOERR, EX_OK, ConfigError, DataTestError, LandingError
from gaussdecode.model.landing import EntryKind
from gaussdecode.source.quoting import literal
from gaussdecode.spark import failpoint, lakerun, localdisk
from gaussdecode.spark.apply import Options, apply, apply_with
from gaussdecode.spark.datatests import DataTest, Failed, Kind, OnFailure, load_tests
from gaussdecode.spark.engine import LocalEngine, SparkEngine
from gaussdecode.spark.events import ACTION, PUT
from gaussdecode.spark.failpoint import Step
from gaussdecode.spark.formats import DELTA, ICEBERG
from gaussdecode.spark.house import APPLIES, VACUUM_SECONDS, House
from gaussdecode.spark.icebergtable import IcebergTable, Merge
from gaussdecode.spark.lake import open_lake
from gaussdecode.spark.lakesums import stored_frame
from gaussdecode.spark.landing import Landing, Point
from gaussdecode.spark.layout import Layout, Partition
from gaussdecode.spark.place import Given
from gaussdecode.spark.query import changelog, current, database, history, quarantine
from gaussdecode.spark.run import Summary
from gaussdecode.spark.session import beside
from gaussdecode.spark.sqltext import quoted
from gaussdecode.spark.store import Target
from gaussdecode.spark.upkeep import compact, vacuum
from gaussdecode.spark.verify import LakeTable as VerifiedTable
from gaussdecode.spark.verify import Overlay, Shape, StoredFiles
from gaussdecode.spark.views import ask

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
_ODD = "it's a \\ `name`"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local Spark with the jars of both."""
    with small_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


def all_of(frame: DataFrame) -> list[str]:
    """Rows of a frame, in an order."""
    return sorted(map(repr, frame.toArrow().to_pylist()))


def by_engine(source: History) -> Path:
    """A target whose tables the engine writes, with all that can be kept, which was applied at once."""
    made = Options(buckets=1, history=True, changelog="gd_commit_date")
    files = source.writer.root.with_name("files")
    apply_with(LocalEngine(), source.writer.root, files, made)
    return files


def same(of: Callable[..., DataFrame], spark: SparkSession, target: Path, files: Path) -> None:
    """What of every table, its history or its changelog, is that of a target of the engine's."""
    for table in Target(files).tables():
        found, wanted = (of(spark, place, table) for place in (target, files))
        assert all_of(found) == all_of(wanted.select(*map(quoted, found.columns))), table


_QUARANTINED = {"pair": "not-null doc", "bag": "not-null y"}
_TESTS = {
    f"public.{table}": [
        DataTest(name, Kind.NOT_NULL, (name.partition(" ")[2],), on_failure=OnFailure.QUARANTINE)
    ]
    for table, name in _QUARANTINED.items()
}


def check(spark: SparkSession, source: History, target: Given, *, is_tested: bool = False) -> None:
    """Every table is the source's, and nothing in it is unknown.

    Args:
        spark: running.
        source: all of whose changes were applied.
        target: directory.
        is_tested: with `_TESTS`: rows are there that pass them, those in quarantine that do not.
    """
    frames = database(spark, target)
    for table in source.tables:
        state = last_state(source, table)
        if state is None:
            continue
        frame = frames[f"public.{table.name}"]
        test = _QUARANTINED.get(table.name) if is_tested else None
        if test is None:
            assert rows_of(frame, state) == state.rows, table.name
        else:
            out = quarantine(spark, target, f"public.{table.name}")
            assert out.where(f"gd_failed <> array('{test}')").isEmpty()
            at = state.names.index(test.partition(" ")[2])
            assert rows_of(frame, state) == [row for row in state.rows if row[at] is not None]
            assert rows_of(out, state) == [row for row in state.rows if row[at] is None]
        assert frame.where("gd_unchanged is not null").isEmpty(), table.name


def same_sums(spark: SparkSession, target: Path, files: Path) -> None:
    """What is compared with the source is what a target of the engine's has, quarantine included."""

    def stored(root: Path, table: str) -> VerifiedTable:
        store = Target(root)
        database = store.database()
        assert database is not None
        schema = store.schema_at(database, table)
        shape = Shape(schema.names, schema.key)
        if store.format == ICEBERG:
            return VerifiedTable(stored_frame(spark, store, database, table), shape, Overlay())
        version = store.version(table, database.tables[table])
        return VerifiedTable(StoredFiles(LocalEngine(), store, table, version), shape, Overlay())

    for table in Target(files).tables():
        mine, theirs = stored(target, table), stored(files, table)
        assert mine.sums(1) == theirs.sums(1), table


def tables_of(spark: SparkSession, target: Given) -> dict[str, IcebergTable]:
    """All tables of a target."""
    store = Target(target)
    lake = open_lake(spark, store)
    return {name: lake.table(name) for name in store.tables()}


def versions(spark: SparkSession, target: Path) -> dict[str, int]:
    """Newest version of every table."""
    return {name: table.version() for name, table in tables_of(spark, target).items()}


@pytest.mark.parametrize(
    ("kind", "seed", "is_tested"), [(ICEBERG, 23, False), (ICEBERG, 8, True), (DELTA, 8, True)]
)
def test_rows_are_the_sources(
    kind: str,
    seed: int,
    is_tested: bool,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random histories (keys that change, truncates, snapshots, schemas), applied in steps, tested."""
    if is_tested:
        monkeypatch.setattr(lakerun, "_SMALL_BYTES", 0)  # reduced by tasks, not here
    source = History(tmp_path / "landing", seed, with_schema_changes=True)
    for steps in (2, 2):
        source.run(steps)
        summary = apply(
            spark, tmp_path / "landing", tmp_path / "target", format=kind,
            tests=_TESTS if is_tested else None, history=is_tested,
            changelog=None if is_tested else "gd_commit_date",
        )  # fmt: skip
        assert (summary.n, summary.unmatched) == (source.writer.n - 1, {})
        check(spark, source, tmp_path / "target", is_tested=is_tested)
    files = by_engine(source)
    same_sums(spark, tmp_path / "target", files)
    same(history if is_tested else changelog, spark, tmp_path / "target", files)
    if kind == DELTA:
        return
    before = versions(spark, tmp_path / "target")
    again = apply(spark, tmp_path / "landing", tmp_path / "target")
    assert (again.tables, versions(spark, tmp_path / "target")) == (0, before)
    assert not list((tmp_path / "target").glob("staging*"))


def test_several_sources_in_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    """In the order of CSNs, a TRUNCATE on some of them only: as a target of the engine's has it."""
    source = SharedHistory(tmp_path / "landing", 1)
    for steps in (3, 3):
        source.run(steps)
        summary = apply(
            spark, source.writer.root, tmp_path / "target", format=ICEBERG, history=True
        )
        assert (summary.n, summary.stopped) == (source.writer.n - 1, {})
    files = by_engine(source)
    same_sums(spark, tmp_path / "target", files)
    same(history, spark, tmp_path / "target", files)
    assert "gd_source" in database(spark, tmp_path / "target")["public.plain"].columns


def killed(landing: Path, target: Path, rule: str) -> int:
    """Run the command with a failpoint; give how it ended."""
    conf = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
    words = ["-m", "gaussdecode", "spark", "apply", str(landing), str(target), *conf]
    done = subprocess.run(
        [sys.executable, *words], env={**os.environ, failpoint.VARIABLE: rule}, check=False,
        capture_output=True,
    )  # fmt: skip
    return done.returncode


def keep_up(spark: SparkSession, target: Path, tables: int) -> None:
    """Do what upkeep does, with so many tables."""
    clock, said = [0.0], list[str]()
    house = House(
        SparkEngine(spark), target, keep_seconds=0, say=said.append, clock=lambda: clock[0]
    )
    clock[0] = VACUUM_SECONDS
    for _ in range(APPLIES):
        house.keep(is_changed=True)
    assert said == [f"wrote small files of {tables} tables anew"]


@pytest.mark.parametrize(("step", "count"), [(Step.LAKE_HISTORY, 2), (Step.LAKE_COMMITTED, 1)])
def test_run_that_ended_anywhere_is_run_again(
    step: Step, count: int, spark: SparkSession, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, told: "Told",
) -> None:  # fmt: skip
    """A table that has its commit is not merged again, the others are; rows are the source's.

    Commits of others that change no rows do not hide the position, nor do upkeep and comments.
    """
    source = small(tmp_path)
    landing, target = tmp_path / "landing", tmp_path / "target"
    with_history, by = step == Step.LAKE_HISTORY, "gd_commit_date"
    apply(spark, landing, target, format=ICEBERG, history=with_history, changelog=by)
    for table in tables_of(spark, target).values():
        spark.sql(f"DELETE FROM {table.name} WHERE false")
        spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('kept-by' = 'somebody')")
    keep_up(spark, target, 6 if with_history else 4)
    told.say("COLUMN bag.y", "what it's of")
    assert told.run(landing, target)["changed"] == (5 if with_history else 3)
    before = versions(spark, target)
    live(source)
    if not with_history:
        assert killed(landing, target, f"{step}:{count}") == -signal.SIGKILL
    else:
        with monkeypatch.context() as patch:
            patch.setattr(lakerun, "reach", die_at(step, count))
            patch.setattr(lakerun.LakeRun, "_sweep", lambda _: None)
            with pytest.raises(Killed):
                apply(spark, landing, target)
    ended = versions(spark, target)
    assert [name for name in before if ended[name] != before[name]] == ["public.bag"]
    assert apply(spark, landing, target).tables == 1
    assert versions(spark, target)["public.bag"] == ended["public.bag"]
    check(spark, source, target)
    files = by_engine(source)
    same(changelog, spark, target, files)
    if with_history:
        same(history, spark, target, files)
    assert told.run(landing, target)["changed"] == 0


@dataclasses.dataclass
class Told:
    """A database that has the tables of `small`, which says something of them, and the command that takes it over."""

    database: Database
    capsys: pytest.CaptureFixture[str]

    def say(self, of: str, text: str | None) -> None:
        """Give a table or a column a comment, or none."""
        self.database.execute(f"COMMENT ON {of} IS {'NULL' if text is None else literal(text)}")

    def run(
        self, landing: Path, target: Path, *words: str, status: int = EX_OK
    ) -> dict[str, Any]:  # Any: JSON
        """Run the command; give what it says."""
        dsn = f"{self.database.dsn} sslmode=disable"
        self.capsys.readouterr()
        ended = main(
            ["spark", "comments", str(landing), str(target), "--dsn", dsn, "--allow-insecure",
             "--json", *words]
        )  # fmt: skip
        said = self.capsys.readouterr()
        assert ended == status, said.err
        found: dict[str, Any] = json.loads(said.out)
        found["of"] = {(of["table"].partition(".")[2], of["of"]): of for of in found["tables"]}
        return found


@pytest.fixture
def told(database_15: Database, capsys: pytest.CaptureFixture[str]) -> Told:
    """The tables, of which nothing is said yet."""
    database_15.execute(
        "CREATE TABLE keyed (id int4 PRIMARY KEY, a text); CREATE TABLE bag (x int4, y text)"
    )
    return Told(database_15, capsys)


_SAID = {
    "id": 'it\'s a \\ "key"; `$$`',
    "a": "${env:HOME} ${spark.app.name} \\u0041 \\${x} €\n\t\U0001f418 " + 10_000 * "é",
}


def test_comments_are_the_source_s(spark: SparkSession, tmp_path: Path, told: Told) -> None:
    """Set, altered and removed as in the database; what is equal is not written.

    A table of somebody else is left alone, another writer waited for, and a table that is replaced keeps its own.
    """
    landing, target = tmp_path / "landing", tmp_path / "target"
    source, database = small(tmp_path), told.database
    database.execute("ALTER TABLE keyed RENAME a TO b")  # known by its number
    source.tables[0].oid = int(database.execute("SELECT 'keyed'::regclass::oid::int8")[0][0])
    live(source)
    apply(spark, landing, target, format=ICEBERG, history=True)
    begins = {"current": "", "history": "History of "}
    lake, names = open_lake(spark, Target(target)), ("keyed", "bag")
    tables = {
        (name, of): lake.table(f"public.{name}", of.replace("current", ""))
        for name in names
        for of in begins
    }
    for of, text in {
        "TABLE keyed": "All\n\n of them", "COLUMN keyed.id": _SAID["id"], "COLUMN keyed.b": _SAID["a"],
        "TABLE bag": "", "COLUMN bag.y": "some",
    }.items():  # fmt: skip
        told.say(of, text)

    def said(of: tuple[str, str]) -> tuple[str, dict[str, str]]:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {tables[of].name}").collect()
        (end,) = (i for i, row in enumerate(rows) if row.col_name == "# Detailed Table Information")
        (table,) = (row.data_type for row in rows[end:] if row.col_name == "Comment")
        parts = (i for i, row in enumerate(rows) if row.col_name.startswith("#"))
        columns = {row.col_name: row.comment for row in rows[: next(parts)] if row.comment}
        return table, columns

    def commits() -> dict[tuple[str, str], Any]:
        return {
            of: table._table().operations().current().metadataFileLocation()
            for of, table in tables.items()
        }

    then, only = commits(), ("--tables", "public.keyed")
    assert told.run(landing, target, "--dry-run", *only)["changed"] == len(begins)
    assert commits() == then
    with localdisk.locked(target):
        assert main(["spark", "comments", str(landing), str(target), "--dsn",
                     f"{database.dsn} sslmode=disable", "--allow-insecure", "--wait", "0.1"]) == EX_IOERR  # fmt: skip
    assert "is being written by another process" in told.capsys.readouterr().err
    found = told.run(landing, target)
    for of, begin in begins.items():
        assert found["of"]["keyed", of]["columns"] == ["id", "a"]
        table, columns = said(("keyed", of))
        assert columns == _SAID
        assert table.startswith(f"All\n\n of them\n\n{begin}public.keyed of ")
    table, columns = said(("bag", "current"))
    assert columns == {"y": "some"}
    assert table.startswith("public.bag of ")
    then = commits()
    assert told.run(landing, target, *only)["changed"] == 0
    assert commits() == then
    told.say("COLUMN keyed.id", None)
    told.say("TABLE keyed", "less")
    foreign = tables["bag", "current"].name
    spark.sql(f"DROP TABLE {foreign}")
    spark.sql(f"CREATE TABLE {foreign} (y string) USING iceberg")
    found = told.run(landing, target, status=EX_IOERR)
    assert found["changed"] == len(begins)
    assert "was not made by this target" in found["of"]["bag", "current"]["left"]
    assert found["of"]["keyed", "current"]["removed"] == ["id"]
    assert said(("keyed", "current"))[1] == {"a": _SAID["a"]}
    keyed = tables["keyed", "current"]
    at = keyed.position()
    assert at is not None
    keyed.replace(keyed.read().localCheckpoint(), at, Layout(comment="newer"))
    table, columns = said(("keyed", "current"))
    assert columns == {"a": _SAID["a"]}
    assert table.startswith("less\n\nnewer")


def test_travel_to_where_an_apply_ended(spark: SparkSession, tmp_path: Path) -> None:
    """Versions of the database can be shown, points between them are refused.

    Apply stays before a gap, and going on is recorded. A table at an older snapshot than was seen is
    not merged into.
    """
    source = small(tmp_path)
    landing, target = tmp_path / "landing", tmp_path / "target"
    gap = source.writer.entry(EntryKind.GAP, source.lsn)
    then = {table.name: last_state(source, table) for table in source.tables}
    live(source, 1)
    summary = apply(spark, landing, target, format=ICEBERG)
    n = gap - 1
    assert (summary.n, summary.stopped_at_gap) == (n, gap)
    before = versions(spark, target)["public.bag"]
    assert apply(spark, landing, target, accept_gaps=True).accepted_gaps == (gap,)
    check(spark, source, target)
    for name, state in then.items():
        assert state is not None
        frame = current(spark, target, f"public.{name}", at=Point(n=n))
        assert rows_of(frame, state) == state.rows
    with pytest.raises(ConfigError, match="where an apply ended"):
        current(spark, target, "public.bag", at=Point(n=gap))
    assert ask(spark, target, "SELECT count(*) FROM public.keyed").collect()[0][0] == len(
        source.tables[0].rows
    )
    for refused in (
        lambda: compact(spark, target),
        lambda: apply(spark, landing, target, format=DELTA),
    ):
        with pytest.raises(ConfigError, match="is kept as"):
            refused()
    assert vacuum(target, older_than_seconds=0).versions == 1
    live(source)
    table = tables_of(spark, target)["public.bag"]
    table._table().manageSnapshots().rollbackTo(before).commit()
    spark.sql(f"ALTER TABLE {table.name} UNSET TBLPROPERTIES ('gaussdecode.n')")
    with pytest.raises(LandingError, match="set back"):
        apply(spark, landing, target)


@dataclasses.dataclass
class Shelf:
    """A target whose tables stand in a catalog of the session by their names.

    Attributes:
        spark: running.
        source: of the tables.
        keep: copy the source's landing to a store; gives its URL.
        target: URL.
        catalog: pattern of the names.
        space: namespace of the tables.
        layout: of table ``keyed``.
    """

    spark: SparkSession
    source: History
    keep: Callable[[], str]
    target: str
    catalog: str
    space: str
    layout: Layout

    def apply(self, **changed: Any) -> Summary:  # Any: options
        """Bring the tables to the end of the landing; options may be others than they are."""
        options = {"catalog": self.catalog, "layouts": {"public.keyed": self.layout}, **changed}
        return apply(self.spark, self.keep(), self.target, format=ICEBERG, **options)

    def check(self) -> dict[str, Snapshot]:
        """Tables hold the source's rows; give them."""
        found = {}
        for table in self.source.tables:
            state = last_state(self.source, table)
            assert state is not None
            assert rows_of(self.spark.table(f"{self.space}.{table.name}"), state) == state.rows
            found[f"public.{table.name}"] = state
        return found


@pytest.fixture
def shelf(spark: SparkSession, tmp_path: Path, s3: S3, database_15: Database) -> Shelf:
    """At URLs; the catalog is a database of PostgreSQL, the namespace nested."""
    at = conninfo_to_dict(database_15.dsn)
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog", ".type": "jdbc", ".jdbc.user": f"{at['user']}",
        ".uri": f"jdbc:postgresql://{at['host']}:{at['port']}/{at['dbname']}",
        ".jdbc.schema-version": "V1", ".clients": "1", ".warehouse": str(tmp_path),
    }.items():  # fmt: skip
        spark.conf.set(f"spark.sql.catalog.shop{key}", value)
    source, bucket = small(tmp_path), s3.bucket()
    return Shelf(
        spark, source, lambda: s3.keep(tmp_path / "landing", bucket, "landing"),
        s3.url(bucket, "target"), "shop.cdc.{schema}.{table}", "shop.cdc.public",
        Layout((Partition("id", "bucket", 2),), ("a",)),
    )  # fmt: skip


def test_names_in_a_catalog(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables stand in a catalog of the session by their names, beside tables of others."""
    spark = shelf.spark
    keeps_what_others_made(shelf)
    shelf.apply()
    n, then = shelf.source.writer.n - 1, shelf.check()
    live(shelf.source)
    shelf.apply()
    shelf.check()
    asked = ask(spark, shelf.target, "SELECT count(*) FROM public.keyed").collect()[0][0]
    assert asked == len(shelf.source.tables[0].rows)
    is_laid_out(shelf)
    as_documented(spark, shelf.space, n, then)
    made = tables_of(spark, shelf.target)["public.bag"]
    at = made.position()
    assert at is not None
    made.replace(made.read().localCheckpoint(), at)
    assert made.position() == at, "the table is no longer this target's"
    live(shelf.source)
    refuses_another(shelf)
    refuses_a_second_writer(shelf, monkeypatch)


def keeps_what_others_made(shelf: Shelf) -> None:
    """A table of somebody else is refused by name and stays, and so is one that cannot be opened."""
    spark, foreign = shelf.spark, f"{shelf.space}.bag"
    spark.sql(f"CREATE NAMESPACE {shelf.space}")
    spark.sql(f"CREATE TABLE {foreign} (a int) USING iceberg")
    spark.sql("USE default")
    with pytest.raises(LandingError, match="`bag` was not made by this target"):
        shelf.apply()
    assert spark.table(foreign).columns == ["a"]
    (kept,) = shelf.source.writer.root.parent.rglob("bag/metadata/*.json")
    gone = kept.rename(kept.with_suffix(".gone"))
    with pytest.raises(LandingError, match="`bag` cannot be opened"):
        dataclasses.replace(shelf, spark=beside(spark)).apply()  # which has not seen it yet
    gone.rename(kept)
    spark.sql(f"DROP TABLE {foreign}")


def is_laid_out(shelf: Shelf) -> None:
    """Table ``keyed`` has its layout, and says where it is from."""
    spark, keyed = shelf.spark, tables_of(shelf.spark, shelf.target)["public.keyed"]
    table = keyed._table()
    assert table.spec().toString().count("bucket[2]") == table.sortOrder().isSorted() == 1
    told = spark.sql(f"DESCRIBE TABLE EXTENDED {keyed.name}").where("col_name = 'Comment'")
    assert told.collect()[0].data_type.endswith("key: id")


def as_documented(spark: SparkSession, space: str, n: int, wanted: dict[str, Snapshot]) -> None:
    """What the documentation does with the table of positions gives all tables as they were at an entry."""
    page = Path(__file__, "../../../docs/spark.md").resolve().read_text()
    code = re.search(r"```python\n(positions = .*?)```", page, re.DOTALL)
    assert code is not None
    text = code[1].replace("lake.gd.positions", space.replace("public", "gd") + ".positions")
    found: dict[str, Any] = {"spark": spark, "n": n, "F": F}
    exec(text, found)
    assert set(found["tables"]) == set(wanted)
    for title, state in wanted.items():
        assert rows_of(found["tables"][title], state) == state.rows


def refuses_another(shelf: Shelf) -> None:
    """Another layout, another catalog, none or one that there is not: nothing is made."""
    with pytest.raises(ConfigError, match=r"public\.keyed was made with another layout"):
        shelf.apply(layouts={"public.keyed": Layout()})
    with pytest.raises(ConfigError, match=r"are in [a-z_.{}]+, not in other.\{schema\}.\{table\}"):
        apply(shelf.spark, shelf.keep(), shelf.target, catalog="other")
    with pytest.raises(ConfigError, match="give --catalog"):
        apply(shelf.spark, shelf.keep(), shelf.target.replace("target", "none"), format=ICEBERG)
    lost = shelf.source.writer.root.with_name("elsewhere")
    with pytest.raises(
        ConfigError, match=r"cannot use catalog nowhere \([\w.]*CatalogNotFound\w*\)"
    ):
        apply(shelf.spark, shelf.source.writer.root, lost, format=ICEBERG, catalog="nowhere")
    assert not lost.exists()


def refuses_a_second_writer(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """An apply that another has overtaken writes nothing over what that has written."""
    check = lakerun.LakeRun._check_not_overtaken

    def overtaken(of: lakerun.LakeRun, one: lakerun.Prepared) -> None:
        monkeypatch.undo()
        shelf.apply()
        check(of, one)

    monkeypatch.setattr(lakerun.LakeRun, "_check_not_overtaken", overtaken)
    with pytest.raises(LandingError, match="was committed by another writer at the same time"):
        shelf.apply()
    shelf.check()


_ROWS = """
CREATE TABLE public.item (id int8 PRIMARY KEY, "A.b" text, n numeric(12, 3), t timestamptz, l int4[]);
INSERT INTO item SELECT g, nullif('it''s ' || g, 'it''s 7'), g * 1.5, 'epoch'::timestamptz + g * '1 min'::interval,
  ARRAY[g, NULL] FROM generate_series(1, 3000) g;
CREATE TABLE public.bag (x int4); ALTER TABLE public.bag REPLICA IDENTITY FULL;
INSERT INTO bag SELECT g % 3 FROM generate_series(1, 30) g
"""


def test_rows_that_executors_read_are_the_source_s(
    spark: SparkSession, tmp_path: Path, database_15: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A load, the apply after it and a comparison; of a row that is missing, the daemon is asked."""
    landing, target, dsn = (
        tmp_path / "landing",
        tmp_path / "target",
        f"{database_15.dsn} sslmode=disable",
    )
    writer = LandingWriter(landing)
    database_15.execute(_ROWS)
    config = tmp_path / "s.yaml"
    config.write_text(
        f"slot: s\nsource: {{kind: postgresql, dsn: {dsn}, publication: [{database_15.publication}], "
        f"allow-insecure: true}}\nlanding: {{root: {landing}}}\nsnapshot: {{chunk-bytes: 64KiB}}\n"
    )
    config.chmod(0o600)
    assert main(["spark", "snapshot", str(config), str(target), "--format", ICEBERG]) == EX_OK
    writer.entry(EntryKind.IDLE, 1 << 50)  # beyond the rows' position
    apply(spark, landing, target)
    verify = ["spark", "verify", str(landing), str(target), "--config", str(config)]
    assert main(verify) == EX_OK, capsys.readouterr().out
    assert current(spark, target, "public.item").count() == 3000
    database_15.execute("INSERT INTO item VALUES (0, 'which never lands')")
    capsys.readouterr()
    assert main([*verify, "--repair", "--json"]) == EX_IOERR
    (item,) = (
        of for of in json.loads(capsys.readouterr().out)["tables"] if of["table"] == "public.item"
    )
    assert item["differences"] == [{"kind": "missing", "key": '{"id": "0"}'}]
    assert item["repair"] == "a snapshot of 1 rows"
    (asked,) = (landing / "snapshots").rglob("*.json")
    assert json.loads(asked.read_bytes())["where"] == "(\"id\") IN (('0'))"


_OLD: list[tuple[str, str | None, list[str] | None, dict[str, str] | None]] = [
    ("plain", "old", None, None),
    ("raw", None, None, {_ODD: "its text", "other": "text"}),
    ("unknown", None, [_ODD, "other"], None),
    ("sent", "old", [_ODD], {_ODD: "its text"}),
]
_NEW: list[tuple[str, str | None, list[str] | None, dict[str, str] | None]] = [
    ("plain", None, [_ODD], {"other": "new text"}),
    ("raw", None, [_ODD], None),
    ("unknown", None, [_ODD], {"other": "new text"}),
    ("sent", "new", None, None),
    ("fresh", None, [_ODD], None),
]
_THEN = [
    ("fresh", None, [_ODD], None),
    ("plain", "old", None, {"other": "new text"}),
    ("raw", None, None, {_ODD: "its text"}),
    ("sent", "new", None, None),
    ("unknown", None, [_ODD], {"other": "new text"}),
]


def test_values_that_were_not_sent_stay(spark: SparkSession, tmp_path: Path) -> None:
    """A MERGE keeps the value, the text of a value without column, and what nobody knows."""
    small(tmp_path)
    Target.create(tmp_path / "target", Landing(tmp_path / "landing"), ICEBERG)
    table = open_lake(spark, Target(tmp_path / "target")).table("public.t")
    columns = (
        f"key string, {quoted(_ODD)} string, gd_unchanged array<string>, gd_raw map<string, string>"
    )
    table.replace(spark.createDataFrame(_OLD, columns), 1)
    changes = spark.createDataFrame(_NEW, columns).withColumn(ACTION, F.lit(PUT))
    table.merge(Merge(changes, ("key",), {_ODD}), 2)
    assert sorted(map(tuple, table.read().collect()), key=itemgetter(0)) == _THEN
    for _ in range(2):  # as after a kill
        table.rename_columns({_ODD: "new; 'name'"})
    found = sorted(map(tuple, table.read().collect()), key=itemgetter(0))
    assert repr(found) == repr(_THEN).replace(repr(_ODD), repr("new; 'name'"))
    assert "new; 'name'" in table.read().columns


def test_types_and_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Types that Iceberg has no twin of, odd names, and new names keep their values."""
    types = {
        "id": pa.int16(), "big": pa.int64(), "price in €": pa.decimal128(12, 2),
        "t": pa.timestamp("us"), "tz": pa.timestamp("us", tz="UTC"), "f": pa.float32(),
        "d": pa.float64(), "l": pa.list_(pa.field("element", pa.int32())), "b": pa.binary(),
    }  # fmt: skip
    columns = [Column(i, name, of) for i, (name, of) in enumerate(types.items(), 1)]
    tables = [Table("odd%20name", columns, (1,), full=True)]
    source = History(tmp_path / "landing", 4, with_schema_changes=False, tables=tables)
    live(source, 1)
    apply(spark, tmp_path / "landing", tmp_path / "target", format=ICEBERG)
    # From here on columns have other names, and nothing is written anew.
    monkeypatch.delattr(IcebergTable, "replace")
    columns[2] = Column(3, "Preis = 2", columns[2].type)
    types = {column.name: column.type for column in columns}
    live(source)
    apply(spark, tmp_path / "landing", tmp_path / "target")
    found = current(spark, tmp_path / "target", "public.odd%20name").toArrow()
    state = last_state(source, tables[0])
    assert state is not None
    rows = found.select(list(state.names)).to_pylist()
    spelled = canon([tuple(map(repr, _plain(row.values()))) for row in rows])
    assert spelled == canon([tuple(map(repr, _plain(row))) for row in _typed(state, types)])


def _typed(state: Snapshot, types: dict[str, pa.DataType]) -> list[tuple[Any, ...]]:
    """Rows of the source as their types hold them."""
    arrays = [
        pa.array(list(values), of)
        for values, of in zip(zip(*state.rows, strict=True), types.values(), strict=True)
    ]
    return list(zip(*(array.to_pylist() for array in arrays), strict=True))


def _plain(values: Any) -> list[Any]:
    """Values without their zone, which is UTC by another name."""
    return [value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for value in values]


_FILE = """
on-failure: warn
tables:
  public.items:
    - accepted-values: [new, "1.50"]
      column: "it's a `kind`"
    - expression: price >= 0
      on-failure: quarantine
      name: sold
    - unique: [code]
      on-failure: quarantine
    - not-null: id
      on-failure: stop
"""


def test_what_tests_of_data_do(spark: SparkSession, tmp_path: Path) -> None:
    """Warnings are counted; rows come back when they pass; a stop publishes nothing, and says no value."""
    columns = [
        Column(1, "id", pa.int32()), Column(2, "price", pa.int32()), Column(3, "code", pa.string()),
        Column(4, "it's a `kind`", pa.string()),
    ]  # fmt: skip
    items = Table("items", columns, (), full=True, rows=[])
    source = History(tmp_path / "landing", 1, with_schema_changes=False, tables=[items])
    landing, target = tmp_path / "landing", tmp_path / "target"
    (tmp_path / "tests.yaml").write_text(_FILE)
    tests = load_tests(tmp_path / "tests.yaml")

    def land(*changes: tuple[str, Any, Any]) -> None:
        source.lsn += 10
        for seq, (op, new, old) in enumerate(changes):
            now, then = (row and dict(enumerate(row, 1)) for row in (new, old))
            source.land(items, seq, op, now, then, [])
        source.commit()

    def ids(name: str) -> list[Any]:
        table, _, is_out = name.partition("_")
        rows = (quarantine if is_out else current)(spark, target, f"public.{table}")
        return sorted(row.id for row in rows.collect())

    first = [[1, 5, "a", "new"], [2, -1, None, "1.50"], [3, 5, None, "odd"], [4, None, "b", None]]
    land(*[("I", row, None) for row in first])
    found = apply(spark, landing, target, tests=tests).tests
    assert [(of.test, of.rows) for of in found] == [
        ("accepted-values it's a `kind`", 1), ("sold", 1), ("unique code", 0), ("not-null id", 0),
    ]  # fmt: skip
    assert found[1] == Failed("public.items", "sold", 1, OnFailure.QUARANTINE)
    assert (ids("items"), ids("items_quarantine")) == ([1, 3, 4], [2])
    (row,) = ask(spark, target, "SELECT id, gd_failed FROM items_quarantine").collect()
    assert tuple(row) == (2, ["sold"])
    # One takes a value that another has; the one in quarantine passes now.
    land(("I", [5, 0, "a", "new"], None), ("U", [2, 1, None, "new"], first[1]))
    apply(spark, landing, target, tests=tests)
    assert (ids("items"), ids("items_quarantine")) == ([1, 2, 3, 4], [5])
    # The other gives the value up: what is in quarantine is asked again.
    land(("U", [1, 5, "c", "new"], first[0]))
    apply(spark, landing, target, tests=tests)
    assert (ids("items"), ids("items_quarantine")) == ([1, 2, 3, 4, 5], [])
    land(("I", [None, 77, "d", "new"], None))
    with pytest.raises(
        DataTestError, match=r"public\.items: 1 row fails test 'not-null id'"
    ) as error:
        apply(spark, landing, target, tests=tests)
    assert "77" not in str(error.value)
    assert ids("items") == [1, 2, 3, 4, 5]
    assert not list((target / "tables").rglob("*.tmp"))
    for text, why in (
        ("nothing > 1", "UNRESOLVED_COLUMN"),
        ("1 / (price - 77) > 0", "DIVIDE_BY_ZERO"),
    ):
        bad = {"public.items": [DataTest("bad", Kind.EXPRESSION, expression=text)]}
        with pytest.raises(ConfigError, match=why):
            apply(spark, landing, target, tests=bad)
