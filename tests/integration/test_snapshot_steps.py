"""The daemon dies at every step of a snapshot, and what lands is the same."""

import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database

from gaussdecode.land.failpoints import VARIABLE, SnapshotStep

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_ROWS = 8000
_POINTS = (
    "beginning_noted",
    # the small tables, together
    "snapshot_held",
    "snapshot_written",
    "snapshot_committed",
    # the large one
    "snapshot_cut",
    "snapshot_chunk_read:3",
    "snapshot_read",
    "snapshot_held",
    "snapshot_written",
    "snapshot_committed",
)
_ALL_AGAIN = ("table_asked", "snapshot_noted", "snapshot_answered")


def _create(database: Database) -> None:
    database.execute(
        "CREATE SCHEMA kit;"
        "CREATE TABLE kit.big (id int8 PRIMARY KEY, v text);"
        f"INSERT INTO kit.big SELECT g, repeat(md5(g::text), 3) FROM generate_series(1, {_ROWS}) g;"
        "CREATE TABLE kit.small (id int4 PRIMARY KEY, v text);"
        "INSERT INTO kit.small SELECT g, 'v' || g FROM generate_series(1, 100) g;"
        "CREATE TABLE kit.bag (v text); ALTER TABLE kit.bag REPLICA IDENTITY FULL;"
        "INSERT INTO kit.bag SELECT 'v' || g % 7 FROM generate_series(1, 50) g;"
        "CREATE TABLE kit.empty (id int4 PRIMARY KEY)"
    )


def _churn(database: Database, rng: Random) -> None:
    low = rng.randint(1, _ROWS)
    database.execute(
        f"UPDATE kit.big SET v = 'churned' WHERE id BETWEEN {low} AND {low + 20};"
        f"DELETE FROM kit.big WHERE id = {low + 30};"
        f"UPDATE kit.big SET id = -id WHERE id BETWEEN {low + 40} AND {low + 42};"
        f"UPDATE kit.small SET v = 'again {low}' WHERE id % 9 = {low % 9};"
        f"INSERT INTO kit.bag VALUES ('new {low % 5}')"
    )


def _die(daemon: Daemon, point: str, rng: Random) -> None:
    """Start the daemon, change rows, and wait until it has died at a step."""
    daemon.environment = {VARIABLE: f"{point}=kill"}
    daemon.start()

    def is_dead() -> bool:
        _churn(daemon.database, rng)
        return not daemon.is_running

    wait_until(is_dead, f"dying at {point}\n{daemon.log_tail()}")


def _check(daemon: Daemon) -> None:
    landed = landing.read(daemon.root)
    oracle.check_snapshots(landed)
    oracle.check_order(landed)
    states = oracle.replay(landed.effective())
    with daemon.database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for name in ("big", "small", "bag", "empty"):
            table = ("kit", name)
            rows = oracle.source_rows(session, table)
            if rows or table in states:
                oracle.compare(table, states[table], rows)


def _finish(daemon: Daemon, entries: int) -> None:
    """Let the daemon do what is left, and compare."""
    daemon.environment = {}
    daemon.start()

    def is_done() -> bool:
        found = [entry for entry in daemon.entries() if entry["kind"] == "snapshot"]
        return len(found) >= entries and not list((daemon.root / "snapshots").glob("kit.*"))

    daemon.wait_while_running(is_done, "the snapshots")
    daemon.catch_up()
    assert daemon.stop() == 0
    _check(daemon)


def test_killed_at_every_step(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Killed at each step, also of a repair of all tables, nothing is missing and nothing double."""
    reached = {point.partition(":")[0] for point in (*_POINTS, *_ALL_AGAIN)}
    elsewhere = {  # tests of their own
        SnapshotStep.TABLE_IGNORED,
        SnapshotStep.TABLE_QUARANTINED,
        SnapshotStep.QUARANTINE_COMMITTED,
    }
    assert reached | elsewhere == set(SnapshotStep)
    rng = Random(7)
    _create(database_15)
    database_15.create_slot()
    config = {"snapshot": {"mode": "initial", "chunk-bytes": "256KiB", "workers": 1}}
    daemon = make_daemon(database_15, config=config)
    for point in _POINTS:
        _die(daemon, point, rng)
    _finish(daemon, entries=2)
    command = [sys.executable, "-m", "gaussdecode", "snapshot", str(daemon.config_path), "--all"]
    subprocess.run([*command, "--no-wait"], check=True)
    for point in _ALL_AGAIN:
        _die(daemon, point, rng)
    _finish(daemon, entries=4)
    tables = [
        set(entry["extra"]["snapshot"]["tables"])
        for entry in daemon.entries()
        if entry["kind"] == "snapshot"
    ]
    assert {"kit.big"} in tables[:2]
    assert {"kit.small", "kit.bag", "kit.empty"} in tables[:2]


def test_killed_while_a_table_is_ignored(database_15: Database, make_daemon: MakeDaemon) -> None:
    """An ignored table stays ignored; one that was asked for lands, and all changes since."""
    rng = Random(8)
    _create(database_15)
    database_15.create_slot()
    config = {
        "snapshot": {"mode": "initial", "on-new-table": "ignore", "tables": {"*.big": "none"}}
    }
    daemon = make_daemon(database_15, config=config).start()
    daemon.wait_for_state("streaming")
    assert daemon.stop() == 0
    database_15.execute(
        "CREATE TABLE kit.extra (id int4 PRIMARY KEY); INSERT INTO kit.extra VALUES (1)"
    )
    _die(daemon, "table_ignored", rng)
    daemon.write_config(snapshot={"on-new-table": "snapshot"})
    daemon.environment = {}
    daemon.start()
    daemon.wait_for_state("streaming")
    database_15.execute("INSERT INTO kit.extra VALUES (2)")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert not any(file["table"] == "kit.extra" for e in daemon.entries() for file in e["files"])
    command = [sys.executable, "-m", "gaussdecode", "snapshot", str(daemon.config_path)]
    subprocess.run([*command, "--table", "kit.extra", "--no-wait"], check=True)
    _die(daemon, "table_asked", rng)
    database_15.execute("INSERT INTO kit.extra VALUES (3)")
    daemon.environment = {}
    daemon.start()
    daemon.wait_while_running(
        lambda: any("kit.extra" in e["extra"].get("snapshot", {}).get("tables", ()) for e in daemon.entries()),
        "the snapshot",
    )  # fmt: skip
    database_15.execute("INSERT INTO kit.extra VALUES (4)")
    daemon.catch_up()
    assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    states = oracle.replay(of for of in landed.effective() if of.schema.table == ("kit", "extra"))
    with database_15.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        rows = oracle.source_rows(session, ("kit", "extra"))
    assert len(rows) == 4
    oracle.compare(("kit", "extra"), states["kit", "extra"], rows)
