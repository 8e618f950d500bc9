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
    ):
        database.execute(command)
    daemon.catch_up()
    assert daemon.stop() == 0
    apply_with(LocalEngine(), daemon.root, tmp_path / "target", Options())
    found = Target(tmp_path / "target").log("public.t").comments("current")
    columns = {name: text for name, text in found.columns.items() if not name.startswith("gd_")}
    assert columns == {"id": "", "z": "", "B c": "It's B"}
    assert found.table.startswith("the table\n\n")
    history = read_schemas(Landing(daemon.root), "public.t").to_pylist()
    told = [[(of["kind"], of["name"]) for of in row["changes"] or ()] for row in history]
    assert told == [[], [("drop-column", "v"), ("add-column", "B c")], [("rename", "z")]]
