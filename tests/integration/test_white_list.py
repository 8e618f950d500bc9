"""Tables that are published and not listed, and listed and not published: nothing goes unsaid."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_TABLES = """
CREATE SCHEMA kit;
CREATE TABLE kit.listed (id int4 PRIMARY KEY, v text);
CREATE TABLE kit.other (id int4 PRIMARY KEY, v text);
INSERT INTO kit.listed SELECT g, 'before' FROM generate_series(1, 20) g;
INSERT INTO kit.other SELECT g, 'before' FROM generate_series(1, 20) g;
"""


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gaussdecode", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _wait(daemon: Daemon, *titles: str) -> None:
    def is_done() -> bool:
        tables: dict[str, Any] = dict((daemon.status() or {}).get("snapshot") or {})
        return all(tables.get(title, {}).get("state") == "done" for title in titles)

    daemon.wait_while_running(is_done, f"snapshots of {titles}")


def _configured(daemon: Daemon, listed: str) -> Daemon:
    daemon.write_config(decoding={"parallel-decode-num": 2, "white-table-list": listed})
    return daemon


def test_differences_are_said_everywhere(database_15: Database, make_daemon: MakeDaemon) -> None:
    """By check, in the log, in the status, by metrics; a snapshot of such a table is refused."""
    database_15.execute(_TABLES)
    database_15.create_slot()
    daemon = _configured(
        make_daemon(database_15, config={"snapshot": {"mode": "initial"}}), "kit.listed,kit.absent"
    )
    checked = _command("check", str(daemon.config_path)).stdout
    assert "published, but not on white-table-list: kit.other" in checked
    assert "on white-table-list, but in no configured publication: kit.absent" in checked
    daemon.start()
    _wait(daemon, "kit.listed")
    log = daemon.log.read_text()
    assert log.count('"event": "tables_not_listed"') == 1
    assert log.count('"event": "tables_not_published"') == 1
    assert daemon.record()["coverage"] == {
        "unlisted": ["kit.other"], "unlisted_count": 1,
        "unpublished": ["kit.absent"], "unpublished_count": 1, "unsent": [], "unsent_count": 0,
    }  # fmt: skip
    metrics = daemon.get("/metrics")[1].decode()
    for name in ("unlisted_tables", "unpublished_items"):
        assert any(
            line.startswith(f"gaussdecode_source_{name}{{") and line.endswith(" 1")
            for line in metrics.splitlines()
        )
    refused = _command("snapshot", str(daemon.config_path), "--table", "kit.other")
    assert refused.returncode == EX_CONFIG
    assert "put it on the list, restart the daemon, and ask again" in refused.stderr
    daemon.catch_up()
    assert daemon.stop() == 0
    assert {change.schema.table for change in landing.read(daemon.root).changes} == {
        ("kit", "listed")
    }


def test_table_that_was_off_the_list_is_read_anew(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Changes made meanwhile are missing; the rows are landed again when it is back."""
    database_15.execute(_TABLES)
    database_15.create_slot()
    daemon = make_daemon(database_15, config={"snapshot": {"mode": "initial"}})
    _configured(daemon, "kit.*").start()
    _wait(daemon, "kit.listed", "kit.other")
    assert daemon.stop() == 0
    _configured(daemon, "kit.listed").start()
    daemon.wait_for_state("streaming")
    database_15.execute(
        "UPDATE kit.other SET v = 'missed' WHERE id <= 5; DELETE FROM kit.other WHERE id > 15"
    )
    daemon.catch_up()
    ledger = daemon.root / "snapshots" / "ledger.json"
    daemon.wait_while_running(lambda: '"missed"' in ledger.read_text(), "it is written down")
    assert daemon.stop() == 0
    _configured(daemon, "kit.*").start()
    _wait(daemon, "kit.other")
    daemon.catch_up()
    assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    oracle.check_snapshots(landed)
    state = oracle.replay(landed.effective())
    with database_15.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for table in (("kit", "listed"), ("kit", "other")):
            oracle.compare(table, state[table], oracle.source_rows(session, table))
