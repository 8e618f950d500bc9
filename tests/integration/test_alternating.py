"""Tables whose schema goes back and forth inside an entry: readers that take files as they stand are right."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from integration.test_spark_apply import check_stranger
from integration.test_streaming import stream_early
from kit.daemon import Daemon, Json
from kit.postgres import Database, run

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK
from gaussdecode.model.lsn import Lsn
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration

CHANGES = (
    ("ALTER TABLE {t} REPLICA IDENTITY FULL", "ALTER TABLE {t} REPLICA IDENTITY DEFAULT"),
    ("ALTER TABLE {t} ADD extra int", "ALTER TABLE {t} DROP extra"),
    ("ALTER TABLE {t} RENAME note TO remark", "ALTER TABLE {t} RENAME remark TO note"),
    ("ALTER TABLE {t} ALTER n TYPE text", "ALTER TABLE {t} ALTER n TYPE int8 USING n::int8"),
    ("ALTER TABLE {t} ALTER note TYPE varchar", "ALTER TABLE {t} ALTER note TYPE text"),
)
TABLES = tuple(f"t{number}" for number in range(len(CHANGES)))
STOPPED = "t3"
"""The log names it, as nobody knows what USING makes of values: whoever reads it stands still."""
LARGE = 3000
PADDING = "repeat(md5(g::text), 60)"  # two row groups of a few MiB, which another lane may encode


def rows(table: str, first: int, count: int) -> list[str]:
    """Changes of each kind."""
    last = first + count - 1
    return [
        f"INSERT INTO {table} (id, n) SELECT g, g FROM generate_series({first}, {last}) g",
        f"UPDATE {table} SET id = id + 1000000 WHERE id = {first}",
        f"UPDATE {table} SET n = '5' WHERE id = {first + 1}" if table == "t3"
        else f"UPDATE {table} SET n = n + 1 WHERE id = {first + 1}",
        f"DELETE FROM {table} WHERE id = {first + 2}",
    ]  # fmt: skip


def insert_and_pause(daemon: Daemon, table: str, number: int) -> None:
    """Insert a row, and give the daemon a moment once it has that."""
    begun = daemon.database.wal_end()
    daemon.database.execute(f"INSERT INTO {table} (id) VALUES ({number})")
    daemon.wait_while_running(
        lambda: Lsn.parse(daemon.record()["reader_lsn"] or "0/0") > begun, "the row is received"
    )
    time.sleep(0.3)


def alternate(daemon: Daemon) -> None:
    """In transactions of their own, inside of one, with a savepoint, prepared, and large.

    Columns come and go, and change names, only where the daemon has a moment to ask which they are.
    """
    database = daemon.database
    for table, (there, back) in zip(TABLES, CHANGES, strict=True):
        times = 1 if table == "t1" else 2  # nobody can tell a column made anew from the one before
        for number, text in enumerate((there, back) * times):
            for statement in (*rows(table, 1000 * number, 9), text.format(t=table)):
                database.execute(statement)
            insert_and_pause(daemon, table, 1000 * number + 500)
    for table in ("t0", "t3", "t4"):
        there, back = CHANGES[TABLES.index(table)]
        with database.connect() as session:
            for begin, end in ((10_000, "COMMIT"), (20_000, f"PREPARE TRANSACTION '{table}'")):
                run(session, "BEGIN")
                for number, text in enumerate(
                    (there, "SAVEPOINT s", back, "ROLLBACK TO SAVEPOINT s", back)
                ):
                    for statement in (*rows(table, begin + 1000 * number, 9), text.format(t=table)):
                        run(session, statement)
                run(session, f"INSERT INTO {table} (id) VALUES ({begin + 9000})")
                run(session, end)
        database.execute(f"COMMIT PREPARED '{table}'")
    with database.connect() as session:
        run(session, "BEGIN")
        for number, text in enumerate(("SELECT 1", *CHANGES[0])):
            run(session, text.format(t="t0"))
            begin = 5_000_000 + number * LARGE
            series = f"generate_series({begin}, {begin + LARGE - 1}) g"
            run(session, f"INSERT INTO t0 (id, note) SELECT g, {PADDING} FROM {series}")
        run(session, "COMMIT")
    for text in CHANGES[2] * 2:
        for statement in (*rows("bag", 10, 5), text.format(t="bag")):
            database.execute(statement)
        insert_and_pause(daemon, "bag", 1)


@pytest.mark.parametrize(
    ("postgres", "source"),
    [(14, {}), (16, {"streaming": "on", "two-phase": True})],
    ids=["whole", "early"],
    indirect=["postgres"],
)
def test_back_and_forth_inside_of_an_entry(
    database: Database, make_daemon: Callable[..., Daemon], tmp_path: Path, source: Json
) -> None:
    """Files follow each other, one for each stretch; a stranger, DuckDB, verify and an apply agree."""
    for table in TABLES:
        database.execute(f"CREATE TABLE {table} (id int8 PRIMARY KEY, note text, n int8 DEFAULT 1)")
    database.execute("CREATE TABLE bag (id int8, note text, n int8 DEFAULT 1)")
    database.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    database.create_slot()
    if source:
        stream_early(database)
        source = {**source, "two-phase": database.server.major >= 15}
    landing = {
        "max-commit-interval": "20s", "writer-lanes": 4, "row-group-rows": 1024,
        "target-file-size": "64MiB",
    }  # fmt: skip
    with make_daemon(database, config={"landing": landing, "source": source}) as daemon:
        daemon.wait_for_state("streaming")
        alternate(daemon)
        daemon.catch_up()
        assert daemon.stop() == 0
    most = 0
    for entry in daemon.entries():
        by_table: dict[str, list[Json]] = {}
        for file in entry["files"]:
            by_table.setdefault(file["table"], []).append(file)
        for files in by_table.values():
            most = max(most, len(files))
            for before, after in pairwise(files):
                assert before["last"] < after["first"]
                assert before["schema_id"] != after["schema_id"], "one for each stretch"
            check_duckdb(daemon.root, files)
    assert most > 8, "nothing alternates inside of an entry: the test tells nothing"
    assert main(["verify", str(daemon.root)]) == EX_OK
    check_stranger(daemon, database, without=[STOPPED])
    check_applied(daemon.root, tmp_path / "target", database)


def check_duckdb(root: Path, files: list[Json]) -> None:
    """Read files as they stand; positions only rise."""
    paths = [str(root / file["path"]) for file in files]
    columns = "gd_lsn, gd_seq" if not files[0]["table"].startswith("gd_") else "gd_lsn, 0"
    query = (
        f"SELECT {columns} FROM read_parquet(?, union_by_name = true, hive_partitioning = false)"
    )
    found = duckdb.connect().execute(query, [paths]).fetchall()
    assert len(found) == sum(file["rows"] for file in files)
    assert found == sorted(found)


def check_applied(root: Path, path: Path, database: Database) -> None:
    """The target has the source's columns and rows."""
    assert apply_with(LocalEngine(), root, path, Options()).stopped.keys() == {f"public.{STOPPED}"}
    target = Target(path)
    for table in {*TABLES, "bag"} - {STOPPED}:
        version = target.newest(f"public.{table}")
        assert version is not None
        wanted = target.schema(f"public.{table}", version.schema_id)
        expected = database.execute(f"SELECT * FROM {table}")
        found = []
        for file in version.current:
            held = target.schema(f"public.{table}", file.schema_id)
            part = conform(current_rows(target.table_root(f"public.{table}"), file), held, wanted)
            found += [tuple(row.values()) for row in part.select(list(wanted.names)).to_pylist()]
        assert sorted(found, key=repr) == sorted(expected, key=repr), table
