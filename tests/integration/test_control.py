"""Acts on a running daemon under load: pause, resume, reload, reconnect, rotate, snapshot."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
Capture = pytest.CaptureFixture[str]


@contextmanager
def _load(database: Database) -> Iterator[None]:
    """Insert, update and delete beside the test."""
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    database.create_slot()
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            database.execute(
                f"INSERT INTO t SELECT g, 'new' FROM generate_series({10 * number}, {10 * number + 9}) g;"
                f"UPDATE t SET v = 'changed' WHERE id % 7 = 0 AND id > {10 * number - 40};"
                f"DELETE FROM t WHERE id = {10 * number - 5}"
            )
            time.sleep(0.05)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _does(daemon: Daemon, capsys: Capture, *words: str) -> str:
    """Carry an act out; what was answered."""
    capsys.readouterr()
    assert main(["ctl", str(daemon.config_path), *words]) == EX_OK, capsys.readouterr().err
    return capsys.readouterr().out


def _is_refused(daemon: Daemon, capsys: Capture, *words: str) -> str:
    capsys.readouterr()
    assert main(["ctl", str(daemon.config_path), *words]) == EX_UNAVAILABLE
    return capsys.readouterr().err


def _is_equal(daemon: Daemon) -> None:
    """End the daemon; the landing, replayed, is the source."""
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    landed = landing.read(daemon.root)
    oracle.check_log(landed.entries)
    oracle.check_tables(landed, daemon.database)


def test_acts_under_load(database_15: Database, make_daemon: MakeDaemon, capsys: Capture) -> None:
    """Each does what it says and is logged with its user; the rows are the source's at the end."""
    daemon = make_daemon(database_15, config={"landing": {"max-commit-interval": "1h"}})
    with _load(database_15):
        daemon.start()
        daemon.wait_for_state("streaming")
        before = len(daemon.entries())
        assert "has landed" in _does(daemon, capsys, "rotate")
        assert len(daemon.entries()) > before, "in an hour at the earliest, but for the act"

        assert "paused by" in _does(daemon, capsys, "pause")
        stands, process = daemon.durable_lsn(), daemon.children()["reader"]
        database_15.execute("INSERT INTO t VALUES (-1, 'while paused')")
        status = daemon.record()
        assert status["state"] == "paused"
        assert [cause["name"] for cause in status["causes"]] == ["paused"]
        assert "gaussdecode_daemon_paused" in daemon.get("/metrics")[1].decode()
        assert "Nothing lands" in daemon.get("/readyz")[1].decode()
        _does(daemon, capsys, "rotate")
        assert daemon.durable_lsn() == stands
        assert daemon.children()["reader"] == process, "the connection is the same"
        assert "goes on" in _does(daemon, capsys, "resume")

        sessions = daemon.log.read_text().count('"source_connected"')
        _does(daemon, capsys, "reconnect")
        assert daemon.log.read_text().count('"source_connected"') == sessions + 1

        daemon.write_config(
            landing={"max-commit-interval": "300ms"}, monitoring={"log-level": "info"}
        )
        told = _does(daemon, capsys, "reload")
        assert "taken: landing.max-commit-interval, monitoring.log-level" in told
        daemon.write_config(landing={"root": "/elsewhere"})
        os.kill(daemon.pid, signal.SIGHUP)
        told = "unchanged until a restart: landing.root"
        wait_until(lambda: told in daemon.log.read_text(), "SIGHUP is a reload")
        daemon.config_path.write_text("slot: [\n")
        os.kill(daemon.pid, signal.SIGHUP)
        wait_until(lambda: '"act_refused"' in daemon.log.read_text(), "a broken file")
        daemon.write_config(landing={"root": str(daemon.root)}, source={"publication": ["nowhere"]})
        assert "nothing has changed" in _is_refused(daemon, capsys, "reload")
        daemon.wait_for_state("streaming")
        daemon.write_config(source={"publication": [database_15.publication]})
        assert "nothing" in _does(daemon, capsys, "reload")

        assert "public.t" in _does(daemon, capsys, "snapshot", "public.t")
        wait_until(lambda: '"snapshot_landed"' in daemon.log.read_text(), "the snapshot")
        assert "(uid " in daemon.log.read_text()
    _is_equal(daemon)


def test_killed_within_acts(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A kill -9 at any moment of an act: the next start streams, is not paused, and misses nothing."""
    daemon = make_daemon(database_15)
    with _load(database_15):
        for number, act in enumerate(("pause", "reconnect", "reload")):
            daemon.start()
            daemon.wait_for_state("streaming")
            daemon.write_config(landing={"max-commit-interval": f"{200 + number}ms"})
            words = ["ctl", str(daemon.config_path), act]
            asked = threading.Thread(target=main, args=(words,))
            asked.start()
            time.sleep(0.1 * number)
            daemon.kill9()
            asked.join()
        daemon.start()
        daemon.wait_for_state("streaming")
    _is_equal(daemon)
