"""Tests for `gaussdecode.commands.peek` and its styles, on real servers."""

import json
import re

import pytest
from kit.commands import Configure, Run
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG, EX_OK, EX_UNAVAILABLE

pytestmark = pytest.mark.integration

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?\+00"
BEGIN = re.compile(rf"BEGIN first_lsn: [0-9A-F]+/[0-9A-F]+ xid: (\d+) commit_time: {TIME}")
COMMIT = re.compile(rf"commit xid: (\d+) \(at {TIME}\)")

SETUP = """
    CREATE TABLE t1 (a int PRIMARY KEY, b text, c numeric, d boolean, e bit(3), f date);
    CREATE TABLE "Odd Name" ("Id" bigint PRIMARY KEY, v text);
    ALTER TABLE "Odd Name" REPLICA IDENTITY FULL;
    CREATE TABLE plain (x int);
    CREATE TABLE big (id int PRIMARY KEY, v text, n int);
    ALTER TABLE big ALTER v SET STORAGE EXTERNAL;
"""


@pytest.fixture
def prepared(database: Database) -> Database:
    """Tables, then a slot."""
    database.execute(SETUP)
    database.create_slot()
    return database


def body(out: str) -> list[str]:
    """The lines between BEGIN and COMMIT, which are checked for their form."""
    changes = []
    xid = ""
    for line in out.splitlines():
        begin, commit = BEGIN.fullmatch(line), COMMIT.fullmatch(line)
        if begin is not None:
            xid = begin[1]
        elif commit is not None:
            assert commit[1] == xid
        else:
            changes.append(line)
    return changes


def test_text_style(prepared: Database, configure: Configure, run: Run) -> None:
    """Literals, keys and names are spelled as the product does."""
    prepared.execute("INSERT INTO t1 VALUES (1, 'it''s', 1.50, true, '101', '2026-01-31')")
    prepared.execute("INSERT INTO t1 (a, b) VALUES (2, 'null')")
    prepared.execute("UPDATE t1 SET b = 'cde' WHERE a = 1")
    prepared.execute("UPDATE t1 SET a = 3 WHERE a = 2")
    prepared.execute("DELETE FROM t1 WHERE a = 3")
    prepared.execute("""INSERT INTO "Odd Name" VALUES (7, 'x')""")
    prepared.execute("""DELETE FROM "Odd Name" """)
    prepared.execute("INSERT INTO plain VALUES (NULL)")
    prepared.execute("TRUNCATE plain, t1 RESTART IDENTITY")
    prepared.execute("SELECT pg_logical_emit_message(true, 'p', 'hello')")
    result = run("peek", configure(prepared))
    assert result.status == EX_OK, result.err
    rest = "c[numeric]:null d[boolean]:null e[bit]:null f[date]:null"
    full = "c[numeric]:1.50 d[boolean]:true e[bit]:B'101' f[date]:'2026-01-31'"
    moved = "a[integer]:3 b[text]:'null'"
    lines = body(result.out)
    truncate = lines.pop(-2)
    assert lines == [
        f"table public t1 INSERT: a[integer]:1 b[text]:'it''s' {full}",
        f"table public t1 INSERT: a[integer]:2 b[text]:'null' {rest}",
        f"table public t1 UPDATE: a[integer]:1 b[text]:'cde' {full}",
        f"table public t1 UPDATE: old-key: a[integer]:2 new-tuple: {moved} {rest}",
        "table public t1 DELETE: a[integer]:3",
        "table public Odd Name INSERT: \"Id\"[bigint]:7 v[text]:'x'",
        "table public Odd Name DELETE: \"Id\"[bigint]:7 v[text]:'x'",
        "table public plain INSERT: x[integer]:null",
        "message: transactional: 1 prefix: p, sz: 5 content:hello",
    ]
    assert truncate in {
        "table public.plain, public.t1: TRUNCATE: restart_seqs",
        "table public.t1, public.plain: TRUNCATE: restart_seqs",
    }


def test_json_style(prepared: Database, configure: Configure, run: Run) -> None:
    """Eight keys in the product's order; values are strings that hold SQL literals."""
    prepared.execute("""INSERT INTO "Odd Name" VALUES (7, 'it''s "x"')""")
    prepared.execute("""UPDATE "Odd Name" SET v = NULL""")
    first, second = body(run("peek", "--style", "j", configure(prepared)).out)
    assert first == (
        r'{"table_name":"public.\"Odd Name\"","op_type":"INSERT","columns_name":["\"Id\"","v"],'
        r'"columns_type":["bigint","text"],"columns_val":["7","'
        r"'it''s \"x\"'"
        r'"],"old_keys_name":[],"old_keys_type":[],"old_keys_val":[]}'
    )
    assert json.loads(second)["columns_val"] == ["7", "null"]
    assert json.loads(second)["old_keys_val"] == ["7", "'it''s \"x\"'"]


def test_binary_style(prepared: Database, configure: Configure, run: Run) -> None:
    """Spelled as the product prints its binary stream: new values first, types by OID."""
    prepared.execute("INSERT INTO t1 (a, b) VALUES (1, 'it''s')")
    prepared.execute("""UPDATE t1 SET a = 2, b = NULL""")
    prepared.execute("DELETE FROM t1")
    path = configure(prepared, "decoding: {parallel-decode-num: 2}")
    lines = run("peek", path).out.splitlines()
    assert lines == run("peek", "--style", "b", path).out.splitlines()
    position = r"current_lsn: [0-9A-F]+/[0-9A-F]+ "
    begin = rf"{position}BEGIN first_lsn: [0-9A-F]+/[0-9A-F]+ xid: \d+ commit_time: {TIME}"
    assert len([line for line in lines if re.fullmatch(begin, line)]) == 3
    commit = rf"{position}COMMIT xid: \d+ commit_time: {TIME}"
    assert len([line for line in lines if re.fullmatch(commit, line)]) == 3
    rest = ", ".join(
        f'{name}[typid = {oid}]: "NULL"'
        for name, oid in (("c", 1700), ("d", 16), ("e", 1560), ("f", 1082))
    )
    new = f'a[typid = 23]: "2", b[typid = 25]: "NULL", {rest}'
    assert [re.sub(position, "", line) for line in lines[1::3]] == [
        f'INSERT INTO public.t1 new_tuple: {{a[typid = 23]: "1", b[typid = 25]: "it\'s", {rest}}}',
        f'UPDATE public.t1 new_tuple: {{{new}}} old_value: {{a[typid = 23]: "1"}}',
        'DELETE FROM public.t1 old_value: {a[typid = 23]: "2"}',
    ]


def test_unchanged_toast_is_named(prepared: Database, configure: Configure, run: Run) -> None:
    """A value the server did not send is neither NULL nor empty."""
    prepared.execute("INSERT INTO big VALUES (1, repeat('x', 20000), 1)")
    prepared.execute("UPDATE big SET n = 2")
    update = body(run("peek", configure(prepared)).out)[1]
    assert update == (
        "table public big UPDATE: id[integer]:1 v[text]:unchanged-toast-datum n[integer]:2"
    )


def test_nothing_is_confirmed(prepared: Database, configure: Configure, run: Run) -> None:
    """The slot stands where it stood, and the same changes come again."""
    prepared.execute("INSERT INTO plain SELECT generate_series(1, 1000)")
    before = prepared.slot_positions()
    path = configure(prepared)
    first = run("peek", path).out
    assert len(body(first)) == 1000
    assert run("peek", path).out == first
    assert prepared.slot_positions() == before


def test_limits(prepared: Database, configure: Configure, run: Run) -> None:
    """It ends by position, by number of changes, by time, or at the end of the WAL."""
    prepared.execute("INSERT INTO plain VALUES (1), (2)")
    middle = prepared.wal_end()
    prepared.execute("INSERT INTO plain VALUES (3)")
    path = configure(prepared)
    assert len(body(run("peek", path).out)) == 3
    assert len(body(run("peek", "--upto-lsn", str(middle), path).out)) == 2
    assert len(body(run("peek", "--limit", "1", path).out)) == 2
    assert len(body(run("peek", "--changes", "3", path).out)) == 3
    assert len(body(run("peek", "--follow", "--seconds", "0.5", path).out)) == 3


def test_options_shape_the_output(prepared: Database, configure: Configure, run: Run) -> None:
    """Names, ids, times and empty transactions follow the decoding options."""
    prepared.execute("INSERT INTO t1 (a) VALUES (1)")
    prepared.execute("INSERT INTO plain VALUES (1)")
    path = configure(
        prepared,
        "decoding:",
        "  white-table-list: public.plain",
        "  include-xids: false",
        "  include-timestamp: false",
        "  skip-empty-xacts: true",
    )
    lines = run("peek", path).out.splitlines()
    assert re.fullmatch(r"BEGIN first_lsn: [0-9A-F]+/[0-9A-F]+", lines.pop(0))
    assert lines == ["table public plain INSERT: x[integer]:1", "commit"]


def test_keepalives_are_shown_on_request(
    prepared: Database, configure: Configure, run: Run
) -> None:
    """enable-heartbeat prints how far an idle server is."""
    path = configure(prepared, "decoding: {enable-heartbeat: true}")
    lines = run("peek", "--follow", "--seconds", "1", path).out.splitlines()
    assert lines
    assert all(re.fullmatch(r"HeartBeat: [0-9A-F]+/[0-9A-F]+", line) for line in lines)


def test_output_ends_at_the_data_limit(
    prepared: Database, configure: Configure, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the transaction that reaches it; a gigabyte is made small here."""
    monkeypatch.setattr("gaussdecode.settings.source_sections.GIB", 60)
    prepared.execute("INSERT INTO plain VALUES (1), (2)")
    prepared.execute("INSERT INTO plain VALUES (3)")
    path = configure(prepared, "decoding: {data-limit: 1}")
    assert len(body(run("peek", path).out)) == 2
    path = configure(prepared, "decoding: {data-limit: 0}")
    assert len(body(run("peek", path).out)) == 3


def test_only_local_drops_replicated_transactions(
    prepared: Database, configure: Configure, run: Run
) -> None:
    """A transaction with an origin is shown only when it is asked for."""
    origin = f"origin_{prepared.name}"
    with prepared.connect() as session:
        session.execute(f"SELECT pg_replication_origin_create('{origin}')".encode())
        session.execute(f"SELECT pg_replication_origin_session_setup('{origin}')".encode())
        session.execute("BEGIN")
        session.execute("SELECT pg_replication_origin_xact_setup('0/1', now())")
        session.execute("INSERT INTO plain VALUES (1)")
        session.execute("COMMIT")
    assert body(run("peek", configure(prepared)).out) == []
    path = configure(prepared, "decoding: {only-local: false}")
    assert len(body(run("peek", path).out)) == 1
    prepared.execute(f"SELECT pg_replication_origin_drop('{origin}')")


def test_a_missing_slot_is_refused(database_15: Database, configure: Configure, run: Run) -> None:
    """The message says how to make one."""
    result = run("peek", configure(database_15))
    assert result.status == EX_CONFIG
    assert "gaussdecode slot create" in result.err


def test_an_unreachable_server_may_come_back(
    database_15: Database, configure: Configure, run: Run
) -> None:
    """Exit status 69, and no connection string in the message."""
    path = configure(database_15)
    with open(path) as file:
        text = re.sub(r"port=\d+", "port=1", file.read())
    with open(path, "w") as file:
        file.write(text)
    assert run("peek", path).status == EX_UNAVAILABLE
