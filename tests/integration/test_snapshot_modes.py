"""Which rows land by themselves: how landings begin, single tables, and tables added later."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_ENDED = {"done", "failed", "ignored"}


def _create(database: Database, *names: str, rows: int = 50) -> None:
    """Make tables with rows."""
    database.execute("CREATE SCHEMA IF NOT EXISTS kit")
    for name in names:
        database.execute(
            f"CREATE TABLE kit.{name} (id int4 PRIMARY KEY, v text);"
            f"INSERT INTO kit.{name} SELECT g, 'first ' || g FROM generate_series(1, {rows}) g"
        )


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gaussdecode", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _snapshot(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _command("snapshot", str(daemon.config_path), *arguments)


def _progress(daemon: Daemon) -> dict[str, Any]:
    return dict((daemon.status() or {}).get("snapshot") or {})


def _wait(daemon: Daemon, *titles: str) -> None:
    """Wait until tables have landed or failed."""
    daemon.wait_while_running(
        lambda: all(_progress(daemon).get(title, {}).get("state") in _ENDED for title in titles),
        f"snapshots of {titles}",
    )


def _landed(daemon: Daemon) -> dict[str, int]:
    """Rows of snapshots by table, from the commit log."""
    found: dict[str, int] = {}
    for entry in daemon.entries():
        for record in entry["extra"].get("snapshot", {}).get("tables", {}).values():
            found[record["name"]] = record["rows"]
    return found


def _check(daemon: Daemon, *names: str) -> None:
    """Tables replayed from the log are those of the source."""
    landed = landing.read(daemon.root)
    oracle.check_snapshots(landed)
    wanted = {("kit", name) for name in names}
    states = oracle.replay(of for of in landed.effective() if of.schema.table in wanted)
    with daemon.database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for name in names:
            table = ("kit", name)
            oracle.compare(table, states[table], oracle.source_rows(session, table))


def test_single_tables_and_tables_added_later(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Rows land of all tables but those that are left out; an added table is noticed."""
    _create(database_15, "wanted", "log_a", "log_b", "special")
    database_15.create_slot()
    tables = {"kit.*": "initial", "kit.log_a": "none", "*.log_b": "initial", "*.*": "none"}
    config = {"snapshot": {"mode": "initial", "tables": tables}}
    daemon = make_daemon(database_15, config=config).start()
    _wait(daemon, "kit.wanted", "kit.log_b", "kit.special")
    _create(database_15, "added", "log_c")
    database_15.execute("UPDATE kit.log_a SET v = 'changed' WHERE id = 1")
    _wait(daemon, "kit.added", "kit.log_c")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert set(_landed(daemon)) == {"wanted", "log_b", "special", "added", "log_c"}
    _check(daemon, "wanted", "log_b", "special", "added", "log_c")


def test_landing_of_an_earlier_version_is_left_alone(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """An upgrade brings no rows by itself; asked for all, all land, and tables added later."""
    _create(database_15, "old", "other")
    database_15.create_slot()
    daemon = make_daemon(database_15, config={"snapshot": {"mode": "none"}}).start()
    daemon.wait_for_state("streaming")
    database_15.execute("INSERT INTO kit.old VALUES (-1, 'streamed')")
    daemon.catch_up()
    assert daemon.stop() == 0
    (daemon.root / "snapshots" / "ledger.json").unlink()  # as a version without snapshots left it
    daemon.write_config(snapshot={"mode": "initial"})
    daemon.start()
    daemon.wait_while_running(
        lambda: "this landing began without snapshots" in daemon.log.read_text(), "the log line"
    )
    _create(database_15, "between")
    daemon.catch_up()
    assert _landed(daemon) == {}
    asked = _snapshot(daemon, "--all")
    assert asked.returncode == 0, asked.stderr
    assert set(asked.stdout.split("\n")) >= {
        f"kit.{name}: {rows} rows in entry {entry['n']}"
        for name, rows in (("old", 51), ("other", 50), ("between", 50))
        for entry in daemon.entries()
        if entry["kind"] == "snapshot"
    }
    _create(database_15, "later")
    _wait(daemon, "kit.later")
    daemon.catch_up()
    assert daemon.stop() == 0
    _check(daemon, "old", "other", "between", "later")


def test_switched_on(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A landing that was told none lands all rows when it is told initial."""
    _create(database_15, "early")
    database_15.create_slot()
    daemon = make_daemon(database_15, config={"snapshot": {"mode": "none"}}).start()
    daemon.wait_for_state("streaming")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert _landed(daemon) == {}
    daemon.write_config(snapshot={"mode": "initial", "on-new-table": "stream"})
    daemon.start()
    _wait(daemon, "kit.early")
    _create(database_15, "late")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert _landed(daemon) == {"early": 50}
    _check(daemon, "early", "late")


@pytest.mark.parametrize("is_bad", [False, True])
def test_mode_only_ends_the_daemon(
    database_15: Database, make_daemon: MakeDaemon, *, is_bad: bool
) -> None:
    """With only, the daemon ends when all tables are done; with 78 when one has failed."""
    _create(database_15, "one", "two")
    name = database_15.name
    database_15.execute(
        f"CREATE ROLE only_{name} LOGIN REPLICATION; GRANT USAGE ON SCHEMA kit TO only_{name};"
        f"GRANT SELECT ON kit.one TO only_{name}"
    )
    database_15.create_slot()
    dsn = f"{database_15.dsn} user=only_{name}" if is_bad else database_15.dsn
    daemon = make_daemon(database_15, dsn=dsn, config={"snapshot": {"mode": "only"}}).start()
    try:
        status = daemon.wait()
    finally:
        database_15.execute(f"DROP OWNED BY only_{name}; DROP ROLE only_{name}")
    assert status == (78 if is_bad else 0), daemon.log_tail()
    assert _landed(daemon) == ({"one": 50} if is_bad else {"one": 50, "two": 50})
    assert ("not all tables could be landed; failed: kit.two" in daemon.log_tail()) is is_bad


def test_ignored_until_asked_for(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Nothing of an added table lands, and all places say so; asked for, it lands whole."""
    _create(database_15, "known")
    database_15.create_slot()
    config = {"snapshot": {"mode": "initial", "on-new-table": "ignore"}}
    daemon = make_daemon(database_15, config=config).start()
    _wait(daemon, "kit.known")
    _create(database_15, "extra")
    database_15.execute("UPDATE kit.known SET v = 'changed' WHERE id < 10")
    database_15.execute("ALTER TABLE kit.known RENAME TO renamed")
    database_15.execute("UPDATE kit.renamed SET v = 'again' WHERE id < 5")
    daemon.catch_up()
    _wait(daemon, "kit.extra")
    assert _progress(daemon)["kit.extra"]["state"] == "ignored"
    assert "table_ignored" in daemon.log.read_text()
    _, metrics = daemon.get("/metrics")
    assert b"gaussdecode_land_snapshot_ignored_tables{" in metrics
    shown = _command("status", str(daemon.config_path)).stdout
    assert "snapshot of kit.extra: ignored" in shown
    assert not any(file["table"] == "kit.extra" for e in daemon.entries() for file in e["files"])
    assert daemon.stop() == 0
    daemon.write_config(snapshot={"on-new-table": "stream"})
    daemon.start()
    daemon.wait_for_state("streaming")
    database_15.execute("INSERT INTO kit.extra VALUES (1000, 'still left out')")
    daemon.catch_up()
    assert not any(file["table"] == "kit.extra" for e in daemon.entries() for file in e["files"])
    asked = _snapshot(daemon, "--table", "kit.extra")
    assert asked.returncode == 0, asked.stderr
    database_15.execute("UPDATE kit.extra SET v = 'lands' WHERE id > 40")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert _landed(daemon)["extra"] == 51
    _check(daemon, "extra", "renamed")


def test_where_lands_a_part(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A condition lands only its rows, in pieces and whole; a wrong one fails its table alone."""
    _create(database_15, "small")
    _create(database_15, "large", rows=20000)
    database_15.create_slot()
    config = {"snapshot": {"mode": "none", "chunk-bytes": "64KiB"}}
    daemon = make_daemon(database_15, config=config).start()
    daemon.wait_for_state("streaming")
    for name, kept in (("small", 25), ("large", 10000)):
        asked = _snapshot(daemon, "--table", f"kit.{name}", "--where", "id % 2 = 0")
        assert asked.returncode == 0, asked.stderr
        assert _landed(daemon)[name] == kept
    for condition, code in (("1 / (id - 7) > 0", "22012"), ("nosuch > 1", "42703")):
        asked = _snapshot(daemon, "--table", "kit.large", "--where", condition)
        assert asked.returncode == 69
        assert f"(SQLSTATE {code})" in asked.stderr
        assert f"--where {condition!r}" in daemon.log.read_text()
    asked = _snapshot(daemon, "--table", "kit.nosuch")
    assert (asked.returncode, asked.stderr) == (
        69, "kit.nosuch: no configured publication has this table\n",
    )  # fmt: skip
    assert _snapshot(daemon, "--table", "kit.large").returncode == 0
    daemon.catch_up()
    assert daemon.stop() == 0
    _check(daemon, "large")
    landed = landing.read(daemon.root)
    states = oracle.replay(landed.effective())
    with database_15.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        even = oracle.source_rows_of(session, "SELECT * FROM kit.small WHERE id % 2 = 0")
        oracle.compare(("kit", "small"), states["kit", "small"], even)


def test_rows_of_a_condition_are_put_by_key(database_15: Database, make_daemon: MakeDaemon) -> None:
    """The others stay as they are, none is removed; where no key tells which is which, it is refused."""
    _create(database_15, "keyed")
    database_15.execute("CREATE TABLE kit.bag (v text); INSERT INTO kit.bag VALUES ('x')")
    database_15.create_slot()
    daemon = make_daemon(database_15, config={"snapshot": {"mode": "initial"}}).start()
    _wait(daemon, "kit.keyed", "kit.bag")
    database_15.execute("UPDATE kit.keyed SET v = 'changed' WHERE id <= 20")
    for condition, rows in (("id % 2 = 0", 25), ("id > 1000", 0)):
        asked = _snapshot(daemon, "--table", "kit.keyed", "--where", condition)
        assert asked.returncode == 0, asked.stderr
        assert f"kit.keyed: {rows} rows" in asked.stdout
    refused = _snapshot(daemon, "--table", "kit.bag", "--where", "v = 'x'")
    assert refused.returncode == 69
    assert "run it without --where" in refused.stderr
    database_15.execute("DELETE FROM kit.keyed WHERE id > 40")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert _command("verify", str(daemon.root)).returncode == 0
    landed = landing.read(daemon.root)
    assert not [change for change in landed.changes if change.op == "T"]
    _check(daemon, "keyed")


def test_asked_before_the_daemon_runs(database_15: Database, make_daemon: MakeDaemon) -> None:
    """What is asked while no daemon runs is carried out when one does."""
    _create(database_15, "later")
    database_15.create_slot()
    daemon = make_daemon(database_15, config={"snapshot": {"mode": "none"}}).start()
    daemon.wait_for_state("streaming")
    assert daemon.stop() == 0
    assert _snapshot(daemon, "--table", "kit.later", "--no-wait").returncode == 0
    daemon.start()
    wait_until(lambda: _landed(daemon) == {"later": 50}, "the snapshot")
    assert daemon.stop() == 0
    _check(daemon, "later")
