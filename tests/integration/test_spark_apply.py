"""A real server, a daemon that is killed, an apply that is killed: the tables, and their past."""

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kit import landing, oracle, targets
from kit.canon import Canon
from kit.daemon import Daemon
from kit.oracle import Cell, TableName, TableState
from kit.postgres import Database
from kit.stranger import Reader, check_files
from kit.workload import SUSPECTS, Workload
from pyspark.sql import DataFrame, SparkSession

from gaussdecode.demo.proof import spark_session
from gaussdecode.model.title import split_title, table_title
from gaussdecode.spark.apply import apply
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.query import current, history
from gaussdecode.spark.target.store import Target

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.crash]
MARKED: tuple[TableName, ...] = tuple(
    ("kit", name) for name in ("toast", "toast_full", "pair_key", "index_key", "bag_full")
)
Captured = dict[int, dict[TableName, list[dict[str, str | None]]]]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark."""
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with spark_session(directory) as session:
            yield session


def capture(database: Database, number: int) -> dict[TableName, list[dict[str, str | None]]]:
    """Read tables in the transaction that writes a mark, while nobody else can write them."""
    names = ", ".join(".".join(name) for name in MARKED)
    with database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        while True:
            try:
                with session.transaction():
                    session.execute(f"LOCK TABLE {names} IN SHARE MODE")
                    found = {table: oracle.source_rows(session, table) for table in MARKED}
                    session.execute(f"INSERT INTO kit.marks VALUES ({number})")
            except psycopg.errors.DeadlockDetected:
                continue  # with a transaction of the workload that wants two of them
            return found


class Follower:
    """``gaussdecode spark apply --follow`` in a process of its own."""

    def __init__(self, root: Path, target: Path) -> None:
        self._arguments = [
            sys.executable, "-m", "gaussdecode", "spark", "apply", str(root), str(target),
            "--local", "--history", "--buckets", "2", "--follow", "--interval", "0.05",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin."""
        self._process = subprocess.Popen(self._arguments, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """End it at once; it was running."""
        assert self._process is not None
        self._process.kill()
        assert self._process.wait() == -signal.SIGKILL


def state_of(table: pa.Table, schema: TableSchema, key: tuple[str, ...] | None) -> TableState:
    """What Spark gave, as the oracle compares it."""
    true = {column.name: column.true_name for column in schema.columns}
    state = TableState()
    state.key = key
    state.types = {true[f.name]: f.type for f in table.schema if f.name in true}
    bag: Counter[tuple[tuple[str, Canon], ...]] = Counter()
    for row in table.to_pylist():
        assert row["gd_unchanged"] is None
        texts = dict(row["gd_raw"] or ())
        cells = {
            name: Cell(row[landed], texts.get(landed), state.types[name])
            for landed, name in true.items()
        }
        if key is None:
            bag[tuple(sorted((n, c.canon) for n, c in cells.items() if c.canon is not None))] += 1
        else:
            state.keyed[tuple(cells[name].canon for name in key)] = cells
    state.bag = bag
    return state


def schema_of(target: Target, table: str) -> TableSchema:
    """Newest schema of a table."""
    version = target.newest(table)
    assert version is not None
    return target.schema(table, version.schema_id)


def true_key(schema: TableSchema) -> tuple[str, ...] | None:
    """Key of a table by its true names."""
    names = {column.name: column.true_name for column in schema.columns}
    return tuple(names[name] for name in schema.key) or None


@pytest.mark.timeout(600)
def test_tables_and_their_past(
    database_15: Database, make_daemon: Callable[..., Daemon], spark: SparkSession, tmp_path: Path
) -> None:
    """Current state equals the source; history equals what each marked transaction saw."""
    workload = Workload(database_15, 61)
    workload.create()
    database_15.execute("CREATE TABLE kit.marks (id int8 PRIMARY KEY)")
    database_15.create_slot()
    daemon, captured = make_daemon(database_15), Captured()
    follower = Follower(daemon.root, tmp_path / "target")
    for round_ in range(3):
        daemon.start()
        daemon.catch_up()
        follower.start()
        workload.start(60, pause=0.02)
        for number in range(round_ * 4, round_ * 4 + 4):
            time.sleep(0.15)
            captured[number] = capture(database_15, number)
        daemon.kill9()
        follower.kill()
        workload.finish(stop=False)
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    summary = apply(spark, daemon.root, tmp_path / "target", history=True)
    assert [name for name in summary.stopped if not re.fullmatch(SUSPECTS, name)] == []
    without = [split_title(title)[1] for title in summary.stopped]
    check_now(spark, daemon.root, tmp_path / "target", database_15, without)
    check_past(spark, daemon.root, tmp_path / "target", captured)
    check_stranger(daemon, database_15, without)


def test_tables_whose_names_read_alike(
    database_15: Database, make_daemon: Callable[..., Daemon], spark: SparkSession, tmp_path: Path
) -> None:
    """Each has its own rows, now and in its history, whatever the other does."""
    names = (("a", "b.c"), ("a.b", "c"))
    for schema, table in names:
        database_15.execute(f'CREATE SCHEMA "{schema}"')
        database_15.execute(f'CREATE TABLE "{schema}"."{table}" (id int8 PRIMARY KEY, v text)')
    database_15.create_slot()
    daemon, target = make_daemon(database_15), tmp_path / "target"
    with daemon:
        for number, (schema, table) in enumerate(names):
            database_15.execute(f'INSERT INTO "{schema}"."{table}" VALUES ({number}, \'first\')')
        daemon.catch_up()
        apply(spark, daemon.root, target, history=True)
        database_15.execute('TRUNCATE a."b.c"')
        database_15.execute("""UPDATE "a.b".c SET v = 'second'""")
        daemon.catch_up()
        assert daemon.stop() == 0
    apply(spark, daemon.root, target, history=True)
    found = Landing(daemon.root).tables()
    first, second = (found[table_title(*name)] for name in names)
    assert first != second

    def rows(frame: DataFrame) -> list[tuple[int, str]]:
        return sorted((row["id"], row["v"]) for row in frame.collect())

    assert rows(current(spark, target, first)) == []
    assert rows(current(spark, target, second)) == [(1, "second")]
    assert rows(history(spark, target, first)) == [(0, "first")]
    assert rows(history(spark, target, second)) == [(1, "first"), (1, "second")]


def check_stranger(daemon: Daemon, database: Database, without: Iterable[str] = ()) -> None:
    """A reader made from docs/landing-format.md alone has the same tables, but for some names."""
    read, found = Reader(daemon.root).advance(), Landing(daemon.root).tables()
    for entry in daemon.entries():
        check_files(daemon.root, entry)
    with database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for name in oracle.source_tables(session):
            if name[1] in without:
                continue
            table = read.tables.get(found.get(table_title(*name), ""))
            rows = oracle.source_rows(session, name)
            if table is None:
                assert not rows, name
                continue
            oracle.compare(name, targets.stranger_state(table), rows)


def check_now(
    spark: SparkSession, root: Path, path: Path, database: Database, without: Iterable[str] = ()
) -> None:
    """Compare every table of the source, but for some names."""
    target, found = Target(path), Landing(root).tables()
    with database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        compared = 0
        for name in oracle.source_tables(session):
            if name[1] in without:
                continue
            rows = oracle.source_rows(session, name)
            directory = found.get(table_title(*name))
            if directory is None or directory not in target.tables():
                assert not rows, name
                continue
            schema = schema_of(target, directory)
            state = state_of(current(spark, path, directory).toArrow(), schema, true_key(schema))
            oracle.compare(name, state, rows)
            compared += 1
    assert compared >= 10


def check_past(spark: SparkSession, root: Path, path: Path, captured: Captured) -> None:
    """Compare the marked tables at the positions of the marks."""
    target = Target(path)
    marks = {
        change.new["id"]: change.order[1]
        for change in landing.read(root).changes
        if change.schema.table == ("kit", "marks")
    }
    assert marks.keys() == captured.keys()
    for name in MARKED:
        directory = ".".join(name)
        if directory not in target.tables():
            assert not any(tables[name] for tables in captured.values())
            continue
        schema = schema_of(target, directory)
        past = history(spark, path, directory).toArrow()
        for number, tables in captured.items():
            begun = pc.less_equal(past["gd_lsn"], marks[number])
            ended = pc.fill_null(pc.less_equal(past["gd_to_lsn"], marks[number]), fill_value=False)
            valid = past.filter(pc.and_not(begun, ended))
            oracle.compare(name, state_of(valid, schema, true_key(schema)), tables[name])
        last = max(captured)
        frame = current(spark, path, directory, at=Point(lsn=marks[last]))
        state = state_of(frame.toArrow(), schema, true_key(schema))
        oracle.compare(name, state, captured[last][name])
