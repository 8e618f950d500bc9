"""Acts on a running daemon under load: pause, resume, reload, reconnect, rotate, snapshot."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
from kit import landing, oracle
from kit.beside import repeating
from kit.certificates import sign
from kit.daemon import Daemon, wait_until
from kit.gausscluster import GaussCluster
from kit.gaussseveral import several
from kit.postgres import Database, Postgres, make_certificates

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK, EX_UNAVAILABLE
from gaussdecode.operations.ask_daemon import ask_act
from gaussdecode.settings.load import load

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
Capture = pytest.CaptureFixture[str]


@contextmanager
def _load(database: Database) -> Iterator[None]:
    """Insert, update and delete beside the test."""
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    database.create_slot()

    def write(number: int) -> None:
        first = 10 * (number + 1)
        database.execute(
            f"INSERT INTO t SELECT g, 'new' FROM generate_series({first}, {first + 9}) g;"
            f"UPDATE t SET v = 'changed' WHERE id % 7 = 0 AND id > {first - 40};"
            f"DELETE FROM t WHERE id = {first - 5}"
        )

    with repeating(write, 0.05):
        yield


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
    oracle.check_snapshots(landed)
    oracle.check_tables(landed, daemon.database)
    assert main(["verify", str(daemon.root)]) == EX_OK
    assert "is not of this landing" not in daemon.log.read_text()


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
        assert "already" in _does(daemon, capsys, "rotate")
        assert daemon.durable_lsn() == stands
        assert daemon.children()["reader"] == process, "the connection is the same"
        assert "goes on" in _does(daemon, capsys, "resume")

        sessions = daemon.log.read_text().count('"source_connected"')
        _does(daemon, capsys, "reconnect")
        assert daemon.log.read_text().count('"source_connected"') == sessions + 1

        daemon.write_config(
            landing={"max-commit-interval": "300ms"}, monitoring={"log-level": "info"}
        )
        config = load(daemon.config_path)
        with repeating(lambda _: ask_act(config, "resume", None), 0.02):  # each has an answer
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


def test_the_certificate_of_the_port_is_rotated(
    database_15: Database, make_daemon: MakeDaemon, capsys: Capture, tmp_path: Path
) -> None:
    """`rotate` and `reload` take it; one that cannot be used leaves the former, and is refused at a start."""
    database_15.create_slot()
    files = tmp_path / "tls"
    files.mkdir()
    authority = make_certificates(files)
    sign(files, "renewed")
    sign(files, "expired", begin_days=-9, end_days=-2)
    names = {"tls-certificate-file": "port.pem", "tls-key-file": "port.key"}

    def use(name: str) -> None:
        for suffix in ("pem", "key"):
            shutil.copy(files / f"{name}.{suffix}", files / f"port.{suffix}")

    use("server")
    tls = {key: str(files / name) for key, name in names.items()}
    daemon = make_daemon(database_15, config={"monitoring": tls})
    daemon.authority = authority
    with daemon:
        daemon.wait_for_state("streaming")
        assert main(["status", str(daemon.config_path)]) == EX_OK
        use("renewed")
        assert "monitoring.tls-certificate-file: valid from" in _does(daemon, capsys, "rotate")
        assert daemon.get("/livez")[0] == HTTPStatus.OK
        use("expired")
        told = _is_refused(daemon, capsys, "rotate")
        assert "has expired" in told
        assert "the former certificate stays in use" in told
        daemon.write_config(monitoring={"tls-client-ca-file": str(authority)})
        assert "has expired" in _is_refused(daemon, capsys, "reload")
        daemon.wait_for_state("streaming")
        use("server")
        assert "tls-client-ca-file" in _does(daemon, capsys, "reload")
        assert daemon.record()["state"] == "streaming"
        daemon.stop()
        use("expired")
        assert daemon.start().wait() == EX_CONFIG
        assert "monitoring.tls-certificate-file" in daemon.log_tail(2)


def test_the_connection_is_cut_in_a_pause(
    database_15: Database, make_daemon: MakeDaemon, capsys: Capture
) -> None:
    """What was received lands with its session; the next one is paused too, until it is resumed."""
    daemon = make_daemon(database_15)
    with _load(database_15):
        daemon.start()
        daemon.wait_for_state("streaming")
        _does(daemon, capsys, "pause")
        sessions = daemon.log.read_text().count('"source_connected"')
        database_15.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            f"WHERE slot_name = '{database_15.slot}'"
        )
        wait_until(
            lambda: daemon.log.read_text().count('"source_connected"') > sessions, "a new session"
        )
        daemon.wait_for_state("paused")
        stands, row = daemon.durable_lsn(), "INSERT INTO t VALUES (-2, 'while paused')"
        database_15.execute(row)
        entries = len(daemon.entries())
        for _ in range(2):
            assert "asked for" in _does(daemon, capsys, "snapshot", "public.t")
        time.sleep(2.5)
        assert daemon.durable_lsn() == stands
        assert len(daemon.entries()) == entries, "no snapshot lands either"
        assert "goes on" in _does(daemon, capsys, "resume")
        requests = daemon.root / "snapshots" / "requests"
        wait_until(lambda: not list(requests.iterdir()), "both are taken up")
    _is_equal(daemon)


def test_tables_come_and_go(
    database_15: Database, make_daemon: MakeDaemon, capsys: Capture
) -> None:
    """A table is added under load with all of its rows, and dropped; a role that may not gets the SQL."""
    name = database_15.publication
    database_15.execute("CREATE TABLE public.first (id int4 PRIMARY KEY)")
    database_15.execute(f'DROP PUBLICATION "{name}"; CREATE PUBLICATION "{name}" FOR TABLE first')
    daemon = make_daemon(database_15)
    with _load(database_15):
        daemon.start()
        daemon.wait_for_state("streaming")
        assert "added to publication" in _does(daemon, capsys, "add", "public.t")
        wait_until(lambda: '"snapshot_landed"' in daemon.log.read_text(), "the existing rows")
        assert "has it already" in _does(daemon, capsys, "add", "public.t")
        told = _is_refused(daemon, capsys, "add", "public.nothing")
        assert "does not exist" in told
        assert "have somebody" not in told
        assert "no configured publication" in _is_refused(daemon, capsys, "drop", "public.nothing")
        role = f"role_{database_15.name}"
        database_15.execute(
            f"CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON t, first TO {role}"
        )
        dsn = database_15.dsn.replace("user=postgres", f"user={role}")
        daemon.write_config(source={"dsn": f"{dsn} sslmode=disable"})
        assert "taken: source.dsn" in _does(daemon, capsys, "reload")
        told = _is_refused(daemon, capsys, "drop", "public.t")
        assert f'ALTER PUBLICATION "{name}" DROP TABLE "public"."t";' in told
        assert "REPLICATION" not in told, "no advice about the stream"
        dsn = database_15.dsn
        daemon.write_config(
            source={"dsn": f"{dsn} sslmode=disable"},
            decoding={"white-table-list": "public.first,public.t"},
        )
        assert "white-table-list" in _does(daemon, capsys, "reload")
        told = _is_refused(daemon, capsys, "add", "public.other")
        assert "white-table-list: public.first,public.t,public.other" in told
    daemon.catch_up()
    oracle.check_tables(landing.read(daemon.root), database_15)
    assert "taken out" in _does(daemon, capsys, "drop", "public.t")
    database_15.execute("INSERT INTO t VALUES (-5, 'not published'); INSERT INTO first VALUES (1)")
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    landed = landing.read(daemon.root)
    assert -5 not in {change.new["id"] for change in landed.changes if change.new}
    suspects = [entry["extra"]["text"] for entry in landed.entries if entry["kind"] == "suspect"]
    assert "table public.t was taken out of publication" in suspects[-1]


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


def test_several_sources_by_csn(
    servers: Callable[[int], Postgres], tmp_path: Path, capsys: Capture
) -> None:
    """An entry on request ends at a mark over all sources; in a pause nothing of any of them lands."""
    with GaussCluster(("dn1", "dn2"), postgres=servers(15)) as cluster:
        tables = cluster.create_table("public", "t", {"id": "int8"}, key=["id"])
        with several(cluster, tmp_path) as daemon:
            daemon.wait_for_state("streaming")
            daemon.write_config(landing={"max-commit-interval": "1h"})
            assert "landing.max-commit-interval" in _does(daemon, capsys, "reload")

            def insert(number: int) -> None:
                transaction = cluster.begin()
                for name, table in tables.items():
                    transaction.on(name).insert(table, {"id": str(number)})
                transaction.commit()

            def landed() -> int:
                return len(landing.read(daemon.root).changes)

            insert(1)
            wait_until(lambda: bool(_does(daemon, capsys, "rotate")) and landed() == 2, "an entry")
            _does(daemon, capsys, "pause")
            insert(2)
            _does(daemon, capsys, "rotate")
            assert landed() == 2
            _does(daemon, capsys, "resume")
            wait_until(lambda: bool(_does(daemon, capsys, "rotate")) and landed() == 4, "the rest")
            assert daemon.stop() == EX_OK
