"""Hostile names and hard values, from the server to the Parquet files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.memory import MemoryWatch
from kit.postgres import Database, Postgres
from kit.values import ALL_TYPES, TYPE_DDL
from psycopg import sql

from gaussdecode.settings.sections import ROW_COPIES

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]

_TABLES = (
    ("public", "plain"), ("..", "."), ("a.b", "c"), ("a", "b.c"), ("_hidden", ".hidden"),
    ("con", "x=1"), ("UPPER", "upper"), ("upper", "UPPER"), ("%2e", "%"), ('q"q', "q'q"),
    ("😀" * 15, "é" * 31), ("long", "x" * 63), ("long", "x" * 62 + "y"), ("new\nline", "tab\t"),
    ("gd_transactions", "gd_messages"), ("sp ace", "\\back\\slash"), ("a", "/etc/passwd"),
)  # fmt: skip
_COLUMNS = ("ID", "Id", "gd_lsn", "gd_old", "old.id", "sp ace", 'q"q', "a.b", "😀", "_x", "x" * 63)


def _visible(root: Path) -> Iterator[Path]:
    """Everything below data/ that Spark would look at."""
    for path in (root / "data").rglob("*"):
        assert not path.name.startswith(("_", ".")), f"hidden: {path}"
        yield path


def test_names(database: Database, make_daemon: MakeDaemon) -> None:
    """Names that mean something to paths, Hive or Spark land apart, and keep their meaning."""
    with database.connect() as session:
        for schema, name in _TABLES:
            table = sql.Identifier(schema, name)
            columns = sql.SQL(", ").join(
                sql.SQL("{} text").format(sql.Identifier(column)) for column in _COLUMNS
            )
            session.execute(
                sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))
            )
            session.execute(
                sql.SQL("CREATE TABLE {} (id int4 PRIMARY KEY, {})").format(table, columns)
            )
            session.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(table))
        database.create_slot()
        for schema, name in _TABLES:
            table = sql.Identifier(schema, name)
            values = [f"{schema} {name} {column}" for column in _COLUMNS]
            texts = sql.SQL(", ").join(map(sql.Literal, values))
            query = sql.SQL("INSERT INTO {0} VALUES (1, {1}), (2, {1})").format(table, texts)
            session.execute(query)
            session.execute(sql.SQL("UPDATE {} SET id = 3 WHERE id = 2").format(table))
    with make_daemon(database) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    assert {change.schema.table for change in landed.changes} == set(_TABLES)
    directories = {path.parent.parent.name for path in _visible(daemon.root) if path.is_file()}
    assert len(directories - {"gd_transactions", "gd_messages"}) == len(_TABLES)
    assert len({name.lower() for name in directories}) == len(directories) - 1  # UPPER.upper
    for path in _visible(daemon.root):
        if path.is_file():
            names = [name.lower() for name in pq.read_schema(path).names]
            assert len(names) == len(set(names)), "columns that Spark cannot tell apart"


def test_every_value(database: Database, make_daemon: MakeDaemon) -> None:
    """Each type's hard values land exactly, or as text in gd_raw."""
    from random import Random

    database.execute(TYPE_DDL)
    database.create_slot()
    rng = Random(7)
    with database.connect() as session:
        for column in ALL_TYPES:
            table = sql.Identifier("kit", f"t_{column.name}")
            session.execute(
                f"CREATE TABLE kit.t_{column.name} (id int4 PRIMARY KEY, v {column.type})"
            )
            rows = [(1, None), *((n, column.value(rng)) for n in range(2, 60))]
            with session.cursor() as cursor:
                cursor.executemany(sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(table), rows)
    with make_daemon(database) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    assert len({change.schema.table for change in landed.changes}) == len(ALL_TYPES)


def test_many_columns(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A table of 1600 columns, PostgreSQL's most, lands."""
    names = [f"c{n}" for n in range(1599)]
    columns = ", ".join(f"{name} int4" for name in names)
    database_15.execute(f"CREATE TABLE public.wide (id int4 PRIMARY KEY, {columns})")
    database_15.create_slot()
    values = ", ".join(str(n) if n % 3 else "NULL" for n in range(1599))
    database_15.execute(f"INSERT INTO public.wide SELECT g, {values} FROM generate_series(1, 50) g")
    with make_daemon(database_15) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)


def test_large_values(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Values far larger than a ring's entries pass, in pieces."""
    database_15.execute("CREATE TABLE public.large (id int4 PRIMARY KEY, t text, b bytea)")
    database_15.create_slot()
    for size in (1 << 20, 5 << 20, 40 << 20):
        database_15.execute(
            f"INSERT INTO public.large VALUES ({size}, repeat('x', {size}), "
            f"convert_to(repeat('y', {size // 4}), 'UTF8'))"
        )
    with make_daemon(database_15) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)


def test_bytes_that_are_no_text(postgres_15: Postgres, make_daemon: MakeDaemon) -> None:
    """Text of a SQL_ASCII database that is not UTF-8 is kept, escaped, in gd_raw."""
    database = Database(postgres_15, "kit_ascii", encoding="SQL_ASCII")
    database.execute("CREATE TABLE public.bytes (id int4 PRIMARY KEY, v text)")
    database.create_slot()
    with psycopg.connect(database.dsn, autocommit=True, client_encoding="UTF8") as session:
        session.execute("INSERT INTO public.bytes VALUES (1, E'caf\\xe9'), (2, 'ok')")
    with make_daemon(database) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    rows = {change.new["id"]: change for change in landed.changes}
    assert rows[1].new["v"] is None
    assert rows[1].raw["v"] == "caf\\xe9"
    assert rows[2].new["v"] == "ok"
    database.drop()


def test_renamed_and_moved(database: Database, make_daemon: MakeDaemon) -> None:
    """A table that gets another name or schema in flight goes on under the new one."""
    database.execute("CREATE SCHEMA archive; CREATE SCHEMA attic")
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    database.create_slot()
    steps = (
        "INSERT INTO public.t VALUES (1, 'a')",
        "ALTER TABLE public.t RENAME TO u",
        "INSERT INTO public.u VALUES (2, 'b')",
        "ALTER TABLE public.u SET SCHEMA archive",
        "INSERT INTO archive.u VALUES (3, 'c')",
        # in one transaction, its rows before and after each under the name they had
        (
            "BEGIN; INSERT INTO archive.u VALUES (4, 'd'); ALTER TABLE archive.u RENAME TO w; "
            "INSERT INTO archive.w VALUES (5, 'e'); ALTER TABLE archive.w SET SCHEMA attic; "
            "INSERT INTO attic.w VALUES (6, 'f'); COMMIT"
        ),
        # another table under the old name
        "CREATE TABLE public.t (n int8 PRIMARY KEY)",
        "INSERT INTO public.t VALUES (7)",
        "BEGIN; ALTER TABLE attic.w RENAME TO x; ROLLBACK; INSERT INTO attic.w VALUES (8, 'g')",
    )
    with make_daemon(database) as daemon:
        for step in steps:
            database.execute(step)
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    oracle.check_order(landed)
    assert [(change.schema.table, *change.new.values()) for change in landed.changes] == [
        (("public", "t"), 1, "a"),
        (("public", "u"), 2, "b"),
        (("archive", "u"), 3, "c"),
        (("archive", "u"), 4, "d"),
        (("archive", "w"), 5, "e"),
        (("attic", "w"), 6, "f"),
        (("public", "t"), 7),
        (("attic", "w"), 8, "g"),
    ]


def test_no_columns(database: Database, make_daemon: MakeDaemon) -> None:
    """Rows of a table without columns are counted, and its later columns land."""
    database.execute("CREATE TABLE public.nothing ()")
    database.create_slot()
    with make_daemon(database) as daemon:
        database.execute("INSERT INTO public.nothing DEFAULT VALUES")
        database.execute("INSERT INTO public.nothing SELECT FROM generate_series(1, 9)")
        database.execute("TRUNCATE public.nothing")
        database.execute("ALTER TABLE public.nothing ADD COLUMN v int4 DEFAULT 4")
        database.execute("INSERT INTO public.nothing VALUES (5)")
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    assert [(change.op, change.new) for change in landed.changes] == [
        *[("I", {})] * 10,
        ("T", {}),
        ("I", {"v": 5}),
    ]


def test_huge_row(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A row of 270 MB passes queues and limits of a few MiB, in three times its size of memory.

    The server hears from us meanwhile.
    """
    size = 270_000_000
    database_15.execute("CREATE TABLE public.huge (id int4 PRIMARY KEY, v text)")
    database_15.execute("ALTER TABLE public.huge ALTER v SET STORAGE EXTERNAL")
    database_15.create_slot()
    with make_daemon(database_15, config={"decoding": {"sender-timeout": 2000}}) as daemon:
        daemon.wait_for_state("streaming")
        watch = MemoryWatch(daemon)
        watch.start()
        database_15.execute(
            f"INSERT INTO public.huge VALUES (1, repeat('0123456789', {size // 10}))"
        )
        database_15.execute("INSERT INTO public.huge VALUES (2, 'small')")
        daemon.catch_up()
        watch.end()
        assert daemon.stop() == 0
    assert watch.grown <= ROW_COPIES * size, watch.peak
    assert daemon.log.read_text().count('"source_connected"') == 1
    rows = landing.read(daemon.root).changes
    assert [len(row.new["v"]) for row in rows] == [size, 5]
    assert rows[0].new["v"] == "0123456789" * (size // 10)
