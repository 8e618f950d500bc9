"""Tests for `gaussdecode.commands.ddl`: the event triggers, and what they write, on real servers."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

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


def test_commands_of_other_event_triggers(captured: Database) -> None:
    """A command that runs within another one takes nothing of what that one did."""
    captured.execute(
        "CREATE TABLE t (id int, k int); CREATE TABLE u (id int); INSERT INTO t VALUES (1, 2);"
        "CREATE FUNCTION others() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN "
        "GRANT SELECT ON u TO PUBLIC; COMMENT ON TABLE u IS 'x'; END $$;"
        "CREATE EVENT TRIGGER a_end ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION others();"
        "CREATE EVENT TRIGGER z_drop ON sql_drop WHEN TAG IN ('DROP TABLE') EXECUTE FUNCTION others()"
    )
    _messages(captured)
    captured.execute("ALTER TABLE t ALTER k TYPE int8 USING k * 2; DROP TABLE t")
    captured.execute("DROP EVENT TRIGGER a_end; DROP EVENT TRIGGER z_drop")
    names = ("command_tag", "object_identity", "rewritten_count", "dropped_count")
    found = [tuple(of.get(name) for name in names) for of in _messages(captured)]
    within = [("GRANT", None, None, None), ("COMMENT", "public.u", None, None)]
    assert found == [
        *within, ("ALTER TABLE", "public.t", 1, None), *within, ("DROP TABLE", "public.t", None, 1),
    ]  # fmt: skip


def test_a_snapshot_from_before_another_command(captured: Database) -> None:
    """REPEATABLE READ shows columns as they were: those of a table that others changed are not described."""
    captured.execute("CREATE TABLE t (id int); CREATE TABLE r (a int); CREATE TABLE u (id int)")
    captured.execute("CREATE TABLE p (id int); CREATE TABLE c (x int) INHERITS (p)")
    _messages(captured)
    with captured.connect() as session:
        execute(session, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        execute(session, "SELECT 1")  # takes the snapshot, and no lock
        for of in ("t ADD a int", "r RENAME a TO b", "c ADD y int"):
            captured.execute(f"ALTER TABLE {of}")
        execute(
            session,
            "ALTER TABLE t ADD b int; COMMENT ON COLUMN r.b IS 'x'; ALTER TABLE u ADD b int",
        )
        execute(session, "ALTER TABLE p ENABLE ROW LEVEL SECURITY; COMMIT")
    found = _messages(captured)[3:]
    assert [of["object_identity"] for of in found] == [
        "public.t",
        "public.r.b",
        "public.u",
        "public.p",
    ]
    assert [of["columns"] and len(of["columns"]) for of in found] == [None, None, 2, 1]
    assert found[-1]["descendants"] is None


def test_descendants_are_those_that_change(captured: Database) -> None:
    """Others are not read: a command on a table alone waits for no lock of a partition."""
    captured.execute(
        "CREATE TABLE p (id int DEFAULT 3) PARTITION BY LIST (id); CREATE TABLE a PARTITION OF p FOR VALUES IN (1);"
        "CREATE TABLE b (id int DEFAULT 4)"
    )
    _messages(captured)
    with captured.connect() as other, captured.connect() as session:
        execute(other, "BEGIN; LOCK TABLE a")
        execute(session, "SET statement_timeout = '60s'")
        execute(session, "ALTER TABLE p RENAME TO q")
        execute(session, "ALTER TABLE q ATTACH PARTITION b FOR VALUES IN (2)")
        execute(other, "ROLLBACK")
        execute(session, "BEGIN; SAVEPOINT s; ALTER TABLE q ADD c text; COMMIT")
    found = [of["descendants"] for of in _messages(captured)]
    ((a, b),) = captured.execute("SELECT 'a'::regclass::oid::int8, 'b'::regclass::oid::int8")
    assert [of and [table["oid"] for table in of] for of in found] == [None, [b], [a, b]]
    assert [column["name"] for column in found[2][0]["columns"]] == ["id", "c"]


@pytest.mark.parametrize("postgres", [18], indirect=True)
def test_a_locked_catalogue_holds_nobody_up_for_long(captured: Database) -> None:
    """The command ends, and its message has the reason."""
    with captured.connect() as other, captured.connect() as session:
        execute(session, "CREATE TABLE warm (id int)")
        _messages(captured)
        execute(other, "BEGIN; LOCK TABLE pg_catalog.pg_attrdef")
        execute(session, "SET statement_timeout = '60s'")
        execute(session, "CREATE TABLE t (id int)")
        execute(other, "ROLLBACK")
    assert [of["error"] for of in _messages(captured)] == ["55P03"]


_HOSTILE: Final = (
    "SET quote_all_identifiers = on",
    "SET plpgsql.extra_errors = 'all'",
    "SET default_transaction_isolation = serializable",
    "SET temp_file_limit = 0",
    "SET lock_timeout = 1",
    "SET work_mem = 64",
    "SET session_replication_role = replica",
    "SET gaussdecode.ddl = 5",
    "SET gaussdecode.ddl = '[1]'",
    """SET gaussdecode.ddl = '{"described_at": 5}'""",
    "SET search_path = hostile, public, pg_catalog",
    "CREATE TEMP TABLE pg_class (oid int)",
)


def test_hostile_sessions(captured: Database) -> None:
    """Settings and names of a session change neither that a command succeeds nor what is said of it."""
    captured.execute(
        "CREATE TYPE e AS ENUM ('a'); CREATE TABLE plain (id int DEFAULT 5, e e); CREATE SCHEMA hostile;"
        "CREATE FUNCTION hostile.current_query() RETURNS text LANGUAGE sql AS $$ SELECT (1 / 0)::text $$;"
        "CREATE FUNCTION hostile.hashtextextended(text, int) RETURNS int LANGUAGE sql AS 'SELECT 1 / 0'"
    )
    wanted = next(of["columns"] for of in _messages(captured) if of["object_name"] == "plain")
    for number, setting in enumerate(_HOSTILE):
        with captured.connect() as session:
            execute(session, setting)
            execute(session, f"CREATE TABLE public.t{number} (id int DEFAULT 5, e public.e)")
    found = _messages(captured)
    assert [of.get("object_identity") for of in found] == [
        f"public.t{n}" for n in range(len(_HOSTILE))
    ]
    for of in (of for columns in (wanted, *(m["columns"] for m in found)) for of in columns):
        del of["row_xid"]
    assert [of["columns"] for of in found] == [wanted] * len(_HOSTILE)


_ODD: Final = (
    """CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        BEGIN CREATE TABLE gone (x int); PERFORM 1 / 0;
        EXCEPTION WHEN division_by_zero THEN CREATE TABLE kept (x int); END;
    END $$""",
    "SET ROLE pg_monitor",
    "SELECT f()",
    "RESET ROLE",
    "CREATE MATERIALIZED VIEW v AS SELECT x FROM kept",
    "CREATE UNIQUE INDEX vi ON v (x)",
    "REFRESH MATERIALIZED VIEW CONCURRENTLY v",
    "REINDEX INDEX CONCURRENTLY vi",
    "CLUSTER v USING vi",
    "VACUUM FULL v",
    "BEGIN",
    "ALTER TABLE kept ADD y int",
    "PREPARE TRANSACTION 'ddl'",
    "COMMIT PREPARED 'ddl'",
    "SET default_transaction_read_only = on",
    "REINDEX TABLE v",
)
_SAID: Final = [
    "CREATE FUNCTION", "CREATE TABLE", "CREATE MATERIALIZED VIEW", "CREATE INDEX",
    "REFRESH MATERIALIZED VIEW", "REINDEX", "ALTER TABLE", "REINDEX",
]  # fmt: skip


def test_odd_commands(captured: Database) -> None:
    """Commands in handlers, in several transactions, prepared, and those that a read-only transaction may run."""
    with captured.connect() as session:
        for command in _ODD:
            execute(session, command)
    found = _messages(captured)
    assert not any("error" in of for of in found)
    fires = captured.server.major >= 17
    assert [of["command_tag"] for of in found] == [of for of in _SAID if fires or of != "REINDEX"]
    assert [of["object_name"] for of in found if of["command_tag"] == "CREATE TABLE"] == ["kept"]


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
