"""Tests for `gaussdecode.commands.ddl`: the event triggers, and what they write, on real servers."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kit.commands import Configure, Run
from kit.postgres import Database
from kit.postgres import run as execute

from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.source.postgresql.ddl import VERSION, install_sql, remove_sql

pytestmark = pytest.mark.integration

Json = dict[str, Any]  # Any: JSON
_OURS = (
    "SELECT (SELECT count(*) FROM pg_event_trigger), (SELECT count(*) FROM pg_namespace WHERE nspname = "
    "'gaussdecode'), (SELECT count(*) FROM pg_proc WHERE proname = 'ddl_event')"
)


def _messages(database: Database) -> list[Json]:
    """Contents of the DDL messages since the last call."""
    rows = database.execute("SELECT data FROM pg_logical_slot_get_changes('ddl', NULL, NULL)")
    head = "message: transactional: 1 prefix: gaussdecode.ddl,"
    return [json.loads(data.partition("content:")[2]) for (data,) in rows if data.startswith(head)]


@pytest.fixture
def captured(database: Database) -> Iterator[Database]:
    """A database with the triggers, and with a slot that reads their messages."""
    database.create_slot("ddl", "test_decoding")
    database.execute(install_sql())
    yield database
    database.execute("SELECT pg_drop_replication_slot('ddl')")


def test_life(database: Database, configure: Configure, run: Run) -> None:
    """Installing is idempotent and repairs; status names differences; removing leaves nothing behind."""
    path = configure(database)
    assert run("ddl", "status", path).status == EX_CONFIG
    assert "are installed" in run("ddl", "install", path).out
    assert "already installed" in run("ddl", "install", path).out
    shown = run("ddl", "status", path)
    assert (shown.status, "sql_drop always" in shown.out) == (EX_OK, True), shown.out
    database.execute("ALTER EVENT TRIGGER gaussdecode_sql_drop DISABLE")
    database.execute("ALTER FUNCTION gaussdecode.ddl_event() SECURITY DEFINER")
    database.execute("COMMENT ON SCHEMA gaussdecode IS 'DDL capture of gaussdecode, version 0'")
    shown = run("ddl", "status", path)
    assert shown.status == EX_CONFIG
    for text in (
        "gaussdecode_sql_drop is enabled as disabled",
        "ddl_event is another",
        f"version {VERSION}",
    ):
        assert text in shown.out
    assert "are installed" in run("ddl", "install", path).out
    assert run("ddl", "status", path).status == EX_OK
    assert run("ddl", "remove", "--print", path).out == remove_sql()
    assert database.execute(_OURS) == [(3, 1, 1)]
    assert "are removed" in run("ddl", "remove", path).out
    assert "are not installed" in run("ddl", "remove", path).out
    assert database.execute(_OURS) == [(0, 0, 0)]


def test_refusals_say_which_right_is_missing(
    database_15: Database, configure: Configure, run: Run
) -> None:
    """A role that may not make event triggers changes nothing; others' objects are not dropped."""
    role = f"{database_15.name}_role"
    path = Path(configure(database_15))
    database_15.execute(
        f'CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE "{database_15.name}" TO {role}'
    )
    try:
        text = path.read_text()
        path.write_text(text.replace("sslmode=", f"user={role} sslmode="))
        refused = run("ddl", "install", str(path))
        assert refused.status == EX_CONFIG
        assert "CREATE EVENT TRIGGER" in refused.err
        assert "superusers" in refused.err
        assert "Nothing was changed" in refused.err
        assert database_15.execute(_OURS) == [(0, 0, 0)]
        path.write_text(text)
        database_15.execute(install_sql())
        database_15.execute("CREATE TABLE gaussdecode.others (id int)")
        refused = run("ddl", "remove", str(path))
        assert (refused.status, "other objects" in refused.err) == (EX_CONFIG, True)
        assert database_15.execute(_OURS) == [(3, 1, 1)]
    finally:
        database_15.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


_COMMANDS = (
    ("CREATE SCHEMA s CREATE TABLE q (x int)", "CREATE SCHEMA", "schema", None, "s"),
    ('CREATE TABLE "O ""d" (a int PRIMARY KEY, b serial)', "CREATE TABLE", "table", "public", 'O "d'),
    ('ALTER TABLE "O ""d" RENAME TO t', "ALTER TABLE", "table", "public", "t"),
    ("ALTER TABLE t RENAME a TO c", "ALTER TABLE", "table column", "public", "t"),
    ("COMMENT ON TABLE t IS 'a'", "COMMENT", "table", "public", "t"),
    ("GRANT SELECT ON t TO PUBLIC", "GRANT", "TABLE", None, None),
    ("CREATE INDEX CONCURRENTLY i ON t (c)", "CREATE INDEX", "index", "public", "i"),
    ("DROP INDEX CONCURRENTLY i", "DROP INDEX", "index", "public", "i"),
    ("CREATE VIEW v AS SELECT * FROM t", "CREATE VIEW", "view", "public", "v"),
    ("CREATE TABLE c AS SELECT 1 AS one", "CREATE TABLE AS", "table", "public", "c"),
    ("SELECT 1 AS one INTO d", "SELECT INTO", "table", "public", "d"),
    ("CREATE TYPE e AS ENUM ('a')", "CREATE TYPE", "type", "public", "e"),
    ("ALTER TYPE e ADD VALUE 'b'", "ALTER TYPE", "type", "public", "e"),
    ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE FUNCTION", "function",
     "public", None),
    ("DO $$ BEGIN EXECUTE 'CREATE TABLE dyn (x int)'; END $$", "CREATE TABLE", "table", "public", "dyn"),
    ("CREATE EXTENSION pg_trgm", "CREATE EXTENSION", "extension", None, "pg_trgm"),
    ("DROP EXTENSION pg_trgm", "DROP EXTENSION", "extension", None, "pg_trgm"),
    ("DROP TABLE t CASCADE", "DROP TABLE", "table", "public", "t"),
    ("DROP SCHEMA s CASCADE", "DROP SCHEMA", "schema", None, "s"),
)  # fmt: skip


def test_common_commands(captured: Database) -> None:
    """Each command is one message with tag, type, names and text of what it did; others are none."""
    with captured.connect() as session:
        for command, *_ in _COMMANDS:
            execute(session, command)
        execute(
            session,
            "CREATE TEMP TABLE t (x serial); ALTER TABLE pg_temp.t ADD y int; DROP TABLE pg_temp.t",
        )
        execute(session, "CREATE TABLE IF NOT EXISTS c (x int)")
        with pytest.raises(psycopg.Error):
            execute(session, "CREATE TABLE new (x int); SELECT 1 / 0")
    found = _messages(captured)
    names = ("statement", "command_tag", "object_type", "schema_name", "object_name")
    assert [tuple(of[name] for name in names) for of in found] == list(_COMMANDS)
    assert found[0]["objects"][1]["columns"][0]["name"] == "x"
    assert [
        of["object_identity"] for of in found[-2]["dropped"] if of["object_type"] == "view"
    ] == ["public.v"]


def test_columns_after(captured: Database) -> None:
    """A table's columns come as they are after the command, with what was dropped and rewritten."""
    captured.execute(
        "CREATE TABLE t (id bigint GENERATED BY DEFAULT AS IDENTITY, gone int, g int GENERATED ALWAYS AS "
        "(n * 2) STORED, n int NOT NULL DEFAULT 7, PRIMARY KEY (n, id))"
    )
    captured.execute("ALTER TABLE t DROP gone, ADD z numeric(10,2), ALTER id TYPE int")
    first, second = _messages(captured)
    assert first["replica_identity"] == "d"
    by_name = {of["name"]: of for of in first["columns"]}
    xids = {of.pop("row_xid") for message in (first, second) for of in message["columns"]}
    assert len(xids) == 2, "ALTER wrote the row of one column, and added another"
    assert by_name["n"] == {
        "attribute_number": 4, "name": "n", "type": "integer", "type_oid": 23, "type_modifier": -1,
        "not_null": True, "default": "7", "generated": None, "identity": None, "key_position": 1,
    }  # fmt: skip
    assert (by_name["id"]["identity"], by_name["id"]["key_position"]) == ("d", 2)
    assert (by_name["g"]["generated"], by_name["g"]["default"]) == ("s", "(n * 2)")
    assert [(of["attribute_number"], of["type"]) for of in second["columns"]] == [
        (1, "integer"), (3, "integer"), (4, "integer"), (5, "numeric(10,2)"),
    ]  # fmt: skip
    assert [of["object_identity"] for of in second["dropped"]] == ["public.t.gone"]
    assert [of["object_identity"] for of in second["rewritten"]] == ["public.t"]


def test_constants_of_added_columns(captured: Database) -> None:
    """What older rows have in a new column comes as the stream prints it, whatever the session prints."""
    captured.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    with captured.connect() as session:
        for setting in ("DateStyle = german", "TimeZone = 'Asia/Tokyo'", "bytea_output = escape",
                        "IntervalStyle = iso_8601", "extra_float_digits = -15"):  # fmt: skip
            execute(session, f"SET {setting}")
        execute(
            session,
            "ALTER TABLE t ADD n int NOT NULL DEFAULT 5, ADD d timestamptz DEFAULT '2026-01-31 12:00+00', "
            "ADD i interval DEFAULT '1 day 2 hours', ADD x bytea DEFAULT '\\x00ff', ADD f float8 DEFAULT 0.1, "
            "ADD e text, ADD q text DEFAULT '{a,\"b', ADD s text DEFAULT now()",
        )
        execute(session, "ALTER TABLE t ALTER n DROP DEFAULT, DROP q")
        execute(session, "ALTER TABLE t ADD r float8 DEFAULT random()")
        execute(session, "CREATE TABLE p (id int) PARTITION BY RANGE (id)")
    _, first, second, third, parted = _messages(captured)
    now = first["constants"].pop("9")
    assert now
    constants = {
        "2": "5", "3": "2026-01-31 12:00:00+00", "4": "1 day 02:00:00", "5": "\\x00ff", "6": "0.1",
    }  # fmt: skip
    assert first["constants"] == {**constants, "8": '{a,"b'}
    assert second["constants"] == {**constants, "9": now}
    assert (third["constants"], third["rewritten_count"]) == ({}, 1), "the rows have all of them"
    assert parted["constants"] is None


def test_size_is_bounded(captured: Database) -> None:
    """Long texts are cut and said to be; a text comes whole once for each query string; lists end."""
    text = "x" * 1_048_576
    captured.execute(f"CREATE TABLE a (x int); CREATE TABLE b (x int) /* {text} */")
    captured.execute(
        "CREATE TABLE p (x int) PARTITION BY RANGE (x); DO $$ BEGIN FOR n IN 1..1000 LOOP EXECUTE format("
        "'CREATE TABLE p%s PARTITION OF p FOR VALUES FROM (%s) TO (%s)', n, n, n + 1); END LOOP; END $$"
    )
    captured.execute("DROP TABLE p")
    first, second, *partitions, dropped = _messages(captured)
    assert (len(first["statement"]), len(second["statement"])) == (1_048_576, 1024)
    assert first["statement_is_cut"] is second["statement_is_cut"] is True
    assert len(partitions) == 1001
    assert not any(of["statement_is_cut"] for of in partitions)
    assert (len(dropped["dropped"]), dropped["dropped_count"]) == (1000, 1001)


def test_no_subtransaction_takes_a_number(captured: Database) -> None:
    """Many commands in one transaction slow nobody down; rolled back, they leave nothing."""
    with captured.connect() as session:
        execute(
            session,
            "BEGIN; DO $$ BEGIN FOR n IN 1..50 LOOP EXECUTE format('CREATE TABLE a%s (x int)', n); END LOOP; "
            "END $$; SAVEPOINT s; INSERT INTO a1 VALUES (1)",
        )
        taken = "SELECT xmin::text::int8 - pg_current_xact_id()::text::int8 FROM a1"
        assert execute(session, taken)[0][0] < 25, "one for the savepoint, and those of others"
        execute(session, "ROLLBACK")
    assert _messages(captured) == []


@pytest.mark.parametrize("postgres", [15, 18], indirect=True)  # that of 15, Debian's, can compile
def test_no_command_waits_for_a_compiler(captured: Database) -> None:
    """JIT, which is on as delivered, would take most of a second for each command."""
    with captured.connect() as session:
        execute(session, "SET jit = on; SET jit_above_cost = 0")
        execute(session, "CREATE TABLE compiled (x int DEFAULT 3); ALTER TABLE compiled ADD y int")
        execute(session, "SET jit = off")
        loaded = "SELECT pg_read_file('/proc/self/maps') LIKE '%llvmjit%'"
        assert session.execute(loaded).fetchone() == (False,)


def test_ordinary_users(captured: Database) -> None:
    """Their DDL is recorded without any right on our schema; where they may not emit, they are warned."""
    role, emit = f"{captured.name}_user", "FUNCTION pg_logical_emit_message(bool, text, bytea"
    emit += ", bool)" if captured.execute("SHOW server_version_num")[0][0] >= "17" else ")"
    captured.execute(f"CREATE ROLE {role}; GRANT CREATE ON SCHEMA public TO {role}")
    _messages(captured)
    warnings: list[str | None] = []
    try:
        with captured.connect() as session:
            session.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
            execute(session, f"SET ROLE {role}")
            execute(session, "SET search_path = public")
            execute(session, "CREATE TABLE first (x int)")
            assert [of["object_name"] for of in _messages(captured)] == ["first"]
            captured.execute(f"REVOKE EXECUTE ON {emit} FROM PUBLIC")
            _messages(captured)
            assert warnings == []
            execute(session, "CREATE TABLE second (x int)")
        assert [text for text in warnings if text and role in text and "CREATE TABLE" in text]
        assert _messages(captured) == []
        assert captured.execute("SELECT count(*) FROM second") == [(0,)]
    finally:
        captured.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_secrets_and_replicas(captured: Database) -> None:
    """A connection string is left out; a session in the role of a replica is recorded too."""
    captured.execute(
        "CREATE SUBSCRIPTION s CONNECTION 'password=hidden' PUBLICATION p WITH (connect = false, slot_name = none)"
    )
    captured.execute("SET session_replication_role = replica; CREATE TABLE t (x int)")
    captured.execute("DROP SUBSCRIPTION s")
    found = _messages(captured)
    assert [of["command_tag"] for of in found] == [
        "CREATE SUBSCRIPTION", "CREATE TABLE", "DROP SUBSCRIPTION",
    ]  # fmt: skip
    assert found[0]["statement"] is None
    assert "hidden" not in json.dumps(found)


def test_what_cannot_be_described_says_so(captured: Database) -> None:
    """An error of the function is its SQLSTATE in the message, and none of the command."""
    server, name = captured.server, f"{captured.name}_ascii"
    other = Database(server, name, encoding="SQL_ASCII")
    try:
        other.create_slot("ddl_ascii", "test_decoding")
        other.execute(install_sql())
        with psycopg.connect(
            server.dsn(name), autocommit=True, client_encoding="SQL_ASCII"
        ) as session:
            session.execute(b"CREATE TABLE t (x int) /* \xff */")
        ((data,),) = other.execute(
            "SELECT data FROM pg_logical_slot_get_changes('ddl_ascii', NULL, NULL) WHERE data LIKE 'message%'"
        )
        content = json.loads(data.partition("content:")[2])
        assert content == {"version": 1, "command_tag": "CREATE TABLE", "error": "22021"}
    finally:
        other.drop()


def test_a_restored_database(captured: Database) -> None:
    """The triggers come with a dump, and neither fail nor write anything while it is restored."""
    server, name = captured.server, f"{captured.name}_copy"
    captured.execute("CREATE TABLE t (id serial PRIMARY KEY, b text); CREATE INDEX ON t (b)")
    dump = subprocess.run(
        [server.program("pg_dump"), captured.dsn], check=True, capture_output=True, text=True
    ).stdout
    copy = Database(server, name)
    try:
        copy.create_slot("ddl_copy", "test_decoding")
        psql: list[str | Path] = [
            server.program("psql"),
            "-X",
            "-v",
            "ON_ERROR_STOP=1",
            "-q",
            copy.dsn,
        ]
        copy.execute(f'DROP PUBLICATION "{name}"')
        restored = subprocess.run(psql, input=dump, capture_output=True, text=True, check=False)
        assert (restored.returncode, restored.stderr) == (0, "")
        found = copy.execute(
            "SELECT data FROM pg_logical_slot_get_changes('ddl_copy', NULL, NULL) WHERE data LIKE 'message%'"
        )
        assert found == []
        assert copy.execute(_OURS) == [(3, 1, 1)]
    finally:
        copy.drop()
