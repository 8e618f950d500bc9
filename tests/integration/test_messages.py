"""Logical messages: in their transaction or outside of it, each exactly once."""

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from integration.test_streaming import stream_early
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database, run
from kit.stranger import Reader

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK
from gaussdecode.source.postgresql.ddl import install_sql
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.stream.schema_history import read_schemas
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _emit(database: Database, first: int, last: int) -> None:
    """Send messages inside and outside of transactions, some of which are rolled back."""
    with database.connect() as session:
        for n in range(first, last):
            run(session, "BEGIN")
            run(session, "INSERT INTO public.t VALUES (%s)", [n])
            run(session, "SELECT pg_logical_emit_message(true, 'in', %s)", [f"in {n}"])
            run(session, "SELECT pg_logical_emit_message(false, 'out', %s)", [f"out {n}"])
            run(session, "INSERT INTO public.t VALUES (-%s)", [n])
            run(session, "ROLLBACK" if n % 3 == 0 else "COMMIT")
            run(
                session, "SELECT pg_logical_emit_message(false, 'alone', %s::text::bytea)", [str(n)]
            )


def test_messages(database: Database, make_daemon: MakeDaemon) -> None:
    """Transactional ones follow their transaction; the others land whatever becomes of it."""
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    daemon = make_daemon(database)
    for begin in (1, 31, 61):
        daemon.start()
        _emit(database, begin, begin + 30)
        daemon.catch_up()
        daemon.kill9()
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    read = Reader(daemon.root).advance()
    assert read.system["gd_messages"] == landed.messages
    assert read.system["gd_transactions"] == landed.transactions
    found: dict[str, list[str]] = {"in": [], "out": [], "alone": []}
    for message in landed.messages:
        if message["prefix"] in found:
            found[message["prefix"]].append(message["content"].decode())
            assert message["transactional"] == (message["prefix"] == "in")
    assert found["in"] == [f"in {n}" for n in range(1, 91) if n % 3]
    assert found["out"] == [f"out {n}" for n in range(1, 91)]
    assert found["alone"] == [str(n) for n in range(1, 91)]
    by_lsn = {m["gd_lsn"]: m["gd_seq"] for m in landed.messages if m["prefix"] == "in"}
    assert set(by_lsn.values()) == {1}, "a message has its place between the rows"


def _alter(database: Database) -> None:
    """Run DDL between rows: kept, to a savepoint, rolled back, and failed."""
    with database.connect() as session:
        for command in (
            "BEGIN; INSERT INTO t VALUES (1); ALTER TABLE t ADD a int; INSERT INTO t VALUES (2, 2); COMMIT",
            (
                "BEGIN; INSERT INTO t VALUES (3); SAVEPOINT s; CREATE TABLE undone (id int); ROLLBACK TO s;"
                " ALTER TABLE t RENAME a TO b; COMMIT"
            ),
            "BEGIN; INSERT INTO t VALUES (4); CREATE TABLE undone (id int); ROLLBACK",
            "SELECT pg_logical_emit_message(true, 'gaussdecode.ddl', '{')",
        ):
            run(session, command)
        with pytest.raises(psycopg.errors.DivisionByZero):
            run(session, "BEGIN; CREATE TABLE undone (id int); SELECT 1 / 0; COMMIT")
        run(session, "ROLLBACK")


def test_ddl(database: Database, make_daemon: MakeDaemon) -> None:
    """Each command of a transaction that commits lands once, between the rows around it."""
    is_two_phase = database.execute("SHOW server_version_num")[0][0] >= "15"
    source = {"streaming": "on", "two-phase": is_two_phase}
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY)")
    database.execute(install_sql())
    database.create_slot()
    stream_early(database)
    daemon = make_daemon(database, config={"source": source})
    daemon.start()
    layout = daemon.root / "layout.json"
    assert "ddl" not in json.loads(layout.read_text())["capabilities"], (
        "an older reader may read on"
    )
    _alter(database)
    with database.connect() as session:
        run(session, "BEGIN; INSERT INTO t SELECT generate_series(10, 5000); DROP TABLE IF EXISTS no;"
            " ALTER TABLE t ALTER b TYPE bigint")  # fmt: skip
        run(session, "SAVEPOINT s; CREATE TABLE undone (id int); ROLLBACK TO s")
        with database.connect() as other:
            run(other, "BEGIN; CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1)")
            run(other, "PREPARE TRANSACTION 'ddl'")
        daemon.catch_up()
        daemon.kill9()
        run(session, "COMMIT")
    database.execute("COMMIT PREPARED 'ddl'")
    database.execute("DROP TABLE p")
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    oracle.check_order(landed)
    assert [(of["command_tag"], of["object_name"], of["gd_seq"]) for of in landed.ddl] == [
        ("ALTER TABLE", "t", 1),
        ("ALTER TABLE", "t", 1),
        (None, None, 0),
        ("ALTER TABLE", "t", 4991),
        ("CREATE TABLE", "p", 0),
        ("DROP TABLE", "p", 0),
    ]
    assert [[column["name"] for column in of["columns"] or ()] for of in landed.ddl] == [
        ["id", "a"], ["id", "b"], [], ["id", "b"], ["id"], [],
    ]  # fmt: skip
    assert landed.ddl[2]["content"] == b"{"
    assert "ddl" in json.loads(layout.read_text())["capabilities"]
    assert Reader(daemon.root).advance().system["gd_ddl"] == landed.ddl
    assert main(["verify", str(daemon.root)]) == EX_OK


def test_targets_follow_commands(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """Columns, comments and history are those of the server, before a row has come."""
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, a int, v varchar(9))")
    database.execute(install_sql())
    database.create_slot()
    daemon = make_daemon(database)
    daemon.start()
    database.execute("INSERT INTO t VALUES (1, 10, 'x')")
    daemon.catch_up()  # while the catalogue still has the columns of the row
    for command in (
        'ALTER TABLE t ADD "B c" timestamptz, DROP v',
        "ALTER TABLE t RENAME a TO z",
        "COMMENT ON COLUMN t.\"B c\" IS 'It''s B'",
        "COMMENT ON TABLE t IS 'the table'",
        "ALTER TABLE t ADD n int NOT NULL DEFAULT 5",
        "ALTER TABLE t ALTER z TYPE bigint",
        "ALTER TABLE t ADD k int DEFAULT 7; ALTER TABLE t ALTER n TYPE bigint",
    ):
        database.execute(command)
        daemon.catch_up()
    assert daemon.stop() == 0
    assert apply_with(LocalEngine(), daemon.root, tmp_path / "target", Options()).stopped == {}
    store = Target(tmp_path / "target")
    found = store.log("public.t").comments("current")
    columns = {name: text for name, text in found.columns.items() if not name.startswith("gd_")}
    assert columns == {"id": "", "z": "", "B c": "It's B", "n": "", "k": ""}
    version = store.newest("public.t")
    assert version is not None
    (file,) = version.current
    (row,) = current_rows(store.table_root("public.t"), file).to_pylist()
    assert [row[name] for name in columns] == [1, 10, None, 5, 7]
    assert found.table.startswith("the table\n\n")
    history = read_schemas(Landing(daemon.root), "public.t").to_pylist()
    told = [[(of["kind"], of["name"]) for of in row["changes"] or ()] for row in history]
    assert told == [
        [],
        [("drop-column", "v"), ("add-column", "B c")],
        [("rename", "z")],
        [("add-column", "n")],
        [("retype", "z")],
        [("add-column", "k")],
        [("retype", "n")],
    ]


_WHILE_DOWN = """
ALTER TABLE anew DROP v, ADD v int; INSERT INTO anew VALUES (3, 3);
ALTER TABLE anew DROP v; ALTER TABLE anew ADD v int; INSERT INTO anew VALUES (4, 4);
BEGIN; INSERT INTO swapped VALUES (3, 1, 2); ALTER TABLE swapped RENAME a TO x;
ALTER TABLE swapped RENAME b TO a; ALTER TABLE swapped RENAME x TO b;
ALTER TABLE swapped DROP a, ADD a int; INSERT INTO swapped VALUES (4, 1, 2); COMMIT;
ALTER TABLE parted DROP v; ALTER TABLE parted ADD v int; INSERT INTO parted VALUES (3, 3);
ALTER TABLE gone DROP v, ADD v int; INSERT INTO gone VALUES (3, 3); DROP TABLE gone;
CREATE TABLE late (id int PRIMARY KEY, v int); INSERT INTO late VALUES (1, 1);
ALTER TABLE late DROP v, ADD v int; INSERT INTO late VALUES (2, 2); DROP TABLE late
"""


@pytest.mark.parametrize("postgres", [14, 18], indirect=True)
def test_columns_by_ddl(database: Database, make_daemon: MakeDaemon) -> None:
    """Rows of a daemon that was down have the columns of their time, and no table is suspect for it."""
    database.execute(
        "CREATE TABLE anew (id int PRIMARY KEY, v int); CREATE TABLE gone (LIKE anew INCLUDING ALL);"
        "CREATE TABLE swapped (id int PRIMARY KEY, a int, b int);"
        "CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY LIST (id);"
        "CREATE TABLE parted_d PARTITION OF parted DEFAULT"
    )
    database.execute(install_sql())
    database.create_slot()
    daemon = make_daemon(database)
    daemon.start()
    for name, values in {"anew": "1", "gone": "1", "swapped": "1, 1", "parted": "1"}.items():
        database.execute(f"INSERT INTO {name} VALUES (1, {values})")
    daemon.catch_up()
    for name, values in {"anew": "2", "gone": "2", "swapped": "1, 2", "parted": "2"}.items():
        database.execute(f"INSERT INTO {name} VALUES (2, {values})")
    daemon.catch_up()
    assert daemon.stop() == 0
    for name, values in {"anew": "0", "gone": "0", "swapped": "0, 0", "parted": "0"}.items():
        database.execute(f"INSERT INTO {name} VALUES (0, {values})")
    with database.connect() as session:
        for command in _WHILE_DOWN.split(";"):
            run(session, command)
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    numbers: dict[str, list[list[int | None]]] = {}
    for entry in landing.read_entries(daemon.root):
        for change in entry["schema_changes"]:
            path = daemon.root / "schemas" / change["table"] / f"{change['schema_id']}.json"
            columns = json.loads(path.read_text())["columns"]
            found = [column.get("attribute_number") for column in columns]
            told = numbers.setdefault(change["table"].removeprefix("public."), [])
            if change["table"].startswith("public.") and told[-1:] != [found]:
                told.append(found)
    assert {table: told for table, told in numbers.items() if told} == {
        "anew": [[1, 2], [1, 3], [1, 4]],
        "swapped": [[1, 2, 3], [1, 2, 4]],
        "parted_d": [[1, 2], [1, 3]],
        "gone": [[1, 2], [1, 3]],
        "late": [[1, 2], [1, 3]],
    }
