"""Role and database are given settings that would spoil the landing: it is the same."""

from collections.abc import Callable

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database

pytestmark = pytest.mark.integration

_TABLES = """
CREATE SCHEMA kit;
CREATE TABLE public.named (id int4 PRIMARY KEY);
CREATE TYPE public.mood AS ENUM ('glad', 'sad');
CREATE TABLE kit.t (id int4 PRIMARY KEY, d date, i interval, t timestamptz, f float8, b bytea,
    c regclass, y regtype, m public.mood, x xml);
"""
_ROWS = """
INSERT INTO kit.t SELECT g, '2026-03-04', '1 year 2 days', '2026-03-04 05:06:07+00', 1 / 3.0 + g,
    '\\x00ff', 'public.named', 'public.mood', 'sad', '<a/><b/>' FROM generate_series({0}, {0} + 9) g
"""
_SETTINGS = {
    "DateStyle": "'SQL, DMY'", "IntervalStyle": "iso_8601", "TimeZone": "'Asia/Tokyo'",
    "extra_float_digits": "-15", "bytea_output": "escape", "search_path": "public, kit",
    "quote_all_identifiers": "on", "standard_conforming_strings": "off",
    "default_transaction_isolation": "serializable", "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on", "statement_timeout": "'2s'",
    "idle_in_transaction_session_timeout": "'1s'", "idle_session_timeout": "'1s'",
    "client_min_messages": "error", "exit_on_error": "on", "xmloption": "document",
}  # fmt: skip


def test_rows_and_changes_are_spelled_alike(
    database: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """What a snapshot reads and what the stream brings agree with the source, and each other."""
    database.execute(_TABLES)
    database.execute(_ROWS.format(1))
    database.create_slot()
    for name, value in _SETTINGS.items():
        database.server.execute(f'ALTER DATABASE "{database.name}" SET {name} = {value}')
    daemon = make_daemon(database, config={"snapshot": {"mode": "initial"}}).start()
    daemon.wait_while_running(
        lambda: (
            ((daemon.status() or {}).get("snapshot") or {}).get("kit.t", {}).get("state") == "done"
        ),
        "the snapshot",
    )
    with database.connect() as session:
        session.execute("SET default_transaction_read_only = off")
        session.execute("SET standard_conforming_strings = on")
        session.execute("SET xmloption = content")
        session.execute(_ROWS.format(11))
        target = database.wal_end()
        session.execute("SELECT pg_logical_emit_message(true, 'kit mark', '1')")
    daemon.wait_while_running(lambda: daemon.durable_lsn() > target, "the changes")
    assert daemon.stop() == 0
    rows = [
        change.new
        for change in landing.read(daemon.root).changes
        if change.schema.table == ("kit", "t")
    ]
    assert len(rows) == 20
    spelled = {
        tuple(str(row[name]) for name in ("d", "i", "t", "b", "c", "y", "m", "x")) for row in rows
    }
    assert len(spelled) == 1
    ((*_, table, kind, _, _),) = spelled
    assert (table, kind) == ("public.named", "public.mood")
    assert {row["id"]: row["f"] for row in rows} == {g: 1 / 3.0 + g for g in range(1, 21)}
    oracle.check_snapshots(landing.read(daemon.root))
