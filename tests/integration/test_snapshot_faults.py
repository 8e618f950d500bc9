"""One table goes wrong while it is read: it is marked or given up, and the others land."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _create(database: Database, name: str, rows: int) -> None:
    database.execute("CREATE SCHEMA IF NOT EXISTS kit")
    database.execute(
        f"CREATE TABLE kit.{name} (id int8 PRIMARY KEY, v text);"
        f"INSERT INTO kit.{name} SELECT g, repeat(md5(g::text), 3) FROM generate_series(1, {rows}) g"
    )


def _progress(daemon: Daemon, title: str) -> dict[str, Any]:
    tables = (daemon.status() or {}).get("snapshot") or {}
    return dict(tables.get(title) or {})


def _wait_for(daemon: Daemon, title: str, state: str) -> None:
    daemon.wait_while_running(
        lambda: _progress(daemon, title).get("state") == state, f"{title} to be {state}"
    )


def _check(daemon: Daemon, *names: str) -> None:
    landed = landing.read(daemon.root)
    oracle.check_snapshots(landed)
    states = oracle.replay(landed.effective())
    with daemon.database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for name in names:
            rows = oracle.source_rows(session, ("kit", name))
            oracle.compare(("kit", name), states["kit", name], rows)


def test_table_dropped_in_the_middle(database_15: Database, make_daemon: MakeDaemon) -> None:
    """What was read of a dropped table goes; another one of its name is read from the start."""
    _create(database_15, "big", 20000)
    _create(database_15, "other", 20000)
    _create(database_15, "small", 10)
    database_15.create_slot()
    config = {"snapshot": {"mode": "initial", "chunk-bytes": "64KiB", "rate-limit": "512KiB"}}
    daemon = make_daemon(database_15, config=config).start()
    chunks = daemon.root / "snapshots" / "kit.big"
    daemon.wait_while_running(lambda: len(list(chunks.glob("chunk-*"))) >= 2, "chunks")
    _, metrics = daemon.get("/metrics")
    lines = dict(line.rsplit(b" ", 1) for line in metrics.splitlines() if line[:1] != b"#")
    shown = {
        name: float(lines[f'gaussdecode_land_snapshot_{name}{{slot="{daemon.database.slot}"}}'.encode()])
        for name in ("chunks", "chunks_done", "rows_total", "bytes_total", "pending_tables")
    }  # fmt: skip
    assert 2 <= shown["chunks_done"] < shown["chunks"]
    assert shown["rows_total"] > 0
    assert shown["bytes_total"] > 0
    assert shown["pending_tables"] == 2
    command = [sys.executable, "-m", "gaussdecode", "status", str(daemon.config_path)]
    status = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "snapshot of kit.big: reading, " in status.stdout
    assert "snapshot of kit.other: waiting" in status.stdout
    database_15.execute("DROP TABLE kit.big")
    _wait_for(daemon, "kit.other", "reading")
    assert not chunks.exists()
    assert _progress(daemon, "kit.big")["state"] == "waiting"
    assert "42P01" in _progress(daemon, "kit.big")["reason"]
    assert daemon.stop() == 0
    daemon.write_config(snapshot={"rate-limit": None})
    daemon.start()
    _wait_for(daemon, "kit.other", "done")
    _create(database_15, "big", 300)
    _wait_for(daemon, "kit.big", "done")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert '"snapshot_failed"' not in daemon.log.read_text()
    _check(daemon, "big", "other", "small")


def test_long_transaction_on_the_server(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Rows wait for a transaction that locks a table, and say so; changes go on landing."""
    for name in ("first", "locked", "zlast"):
        _create(database_15, name, 10)
    database_15.create_slot()
    config = {"snapshot": {"mode": "initial", "hold-timeout": "1s"}}
    daemon = make_daemon(database_15, config=config)
    with database_15.connect() as session:
        session.execute("BEGIN")
        session.execute("LOCK TABLE kit.locked IN ACCESS EXCLUSIVE MODE")
        daemon.start()
        daemon.wait_while_running(
            lambda: "transactions that run" in str(_progress(daemon, "kit.first").get("reason")),
            "the reason",
        )
        database_15.execute("INSERT INTO kit.first VALUES (-1, 'streams on')")
        daemon.catch_up()
        session.execute("UPDATE kit.locked SET v = 'changed'")
        session.execute("COMMIT")
    for name in ("first", "locked", "zlast"):
        _wait_for(daemon, f"kit.{name}", "done")
    daemon.catch_up()
    assert daemon.stop() == 0
    _check(daemon, "first", "locked", "zlast")


def test_statement_too_long(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A piece whose statement takes too long fails its table, not the daemon and not the others."""
    _create(database_15, "slow", 10)
    _create(database_15, "quick", 10)
    database_15.execute(
        "CREATE FUNCTION kit.sleep() RETURNS bool LANGUAGE sql AS 'SELECT pg_sleep(9) IS NULL'"
    )
    database_15.create_slot()
    config = {"snapshot": {"mode": "none", "statement-timeout": "1s"}}
    daemon = make_daemon(database_15, config=config).start()
    daemon.wait_for_state("streaming")
    command = [sys.executable, "-m", "gaussdecode", "snapshot", str(daemon.config_path)]
    slow = subprocess.Popen(
        [*command, "--table", "kit.slow", "--where", "kit.sleep()"],
        stderr=subprocess.PIPE,
        text=True,
    )
    quick = subprocess.run([*command, "--table", "kit.quick"], check=False)
    assert quick.returncode == 0
    database_15.execute("UPDATE kit.quick SET v = 'later' WHERE id < 5")
    daemon.catch_up()
    _, said = slow.communicate()
    assert slow.returncode == 69
    assert "57014" in said
    assert daemon.stop() == 0
    _check(daemon, "quick")
