"""Clients of `gaussdecode serve` over a landing that grows: what they end with is what the server's own plug-in sends."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest
from kit.beside import repeating
from kit.daemon import Daemon, wait_until
from kit.postgres import Database
from kit.served import Served

from gaussdecode.cli import main
from gaussdecode.demo.ports import free_port
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.log.landing import Landing

pytestmark = pytest.mark.integration

_TRANSACTION = re.compile(r"BEGIN (\d+)\n((?:(?!BEGIN).*\n)*?)COMMIT \1\n")


class Serving:
    """`gaussdecode serve` in a process of its own, that can be killed and started again."""

    def __init__(self, root: Path, log: Path) -> None:
        self.port = free_port()
        self._log = log
        words = ["serve", str(root), "--listen", f"127.0.0.1:{self.port}"]
        self._command = [sys.executable, "-m", "gaussdecode", *words]

    def start(self) -> None:
        """Start it, and wait for its port."""
        with self._log.open("ab") as log:
            before = self._log.stat().st_size
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

        def is_there() -> bool:
            assert self.process.poll() is None, self._log.read_text()
            return b'"serve_started"' in self._log.read_bytes()[before:]

        wait_until(is_there, "the port of serve")

    def kill(self) -> None:
        """Kill it as the kernel would."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def daemon(database: Database, make_daemon: Callable[..., Daemon]) -> Iterator[Daemon]:
    """A daemon that lands two tables; what both slots have is the same."""
    database.execute("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int, v text)")
    database.execute("ALTER TABLE b REPLICA IDENTITY FULL")
    database.create_slot()
    database.copy_slot(f"{database.name}_plain", "test_decoding")
    with make_daemon(database) as daemon:
        yield daemon


def _change(database: Database, random: Random, run: int) -> None:
    """Some transactions of both tables, one of them large."""
    first = run * 10_000
    for number in range(random.randrange(3, 9)):
        at = first + 10 * number
        database.execute(
            f"INSERT INTO a SELECT i, repeat('x', i % 50) FROM generate_series({at}, {at + 7}) i;"
            f"INSERT INTO b VALUES ({at}, NULL); UPDATE a SET v = 'it''s' WHERE id = {at};"
            f"DELETE FROM b WHERE id = {at - 10}"
        )
    database.execute(f"INSERT INTO b SELECT i, 'large' FROM generate_series(1, {run * 400}) i")


def _received(path: Path) -> dict[int, str]:
    """Whole transactions of a file that a killed client wrote, by xid."""
    return {int(m[1]): m[2] for m in _TRANSACTION.finditer(path.read_text())}


def test_pg_recvlogical_under_kills(database: Database, daemon: Daemon, tmp_path: Path) -> None:
    """Client and server are killed at any moment; every transaction comes, whole and in order."""
    random = Random(11)
    serving = Serving(daemon.root, tmp_path / "serve.log")
    program = str(database.server.program("pg_recvlogical"))
    where = f"host=127.0.0.1 port={serving.port} dbname={database.name} user=me sslmode=disable"
    client = [program, "-d", where, "-S", "copy", "--no-loop"]
    received = tmp_path / "received"
    _change(database, random, 1)
    daemon.catch_up()
    serving.start()
    subprocess.run(
        [*client, "--create-slot", "-P", "test_decoding"],
        env={**os.environ, "PGOPTIONS": "-c gaussdecode.start_lsn=earliest"},
        check=True,
    )
    parts: list[Path] = []
    for run in range(2, 6):
        parts.append(tmp_path / f"received-{run}")
        start = [*client, "--start", "-f", str(parts[-1]), "-F", "1", "-s", "1"]
        reading = subprocess.Popen([*start, "-o", "skip-empty-xacts=1"], stderr=subprocess.DEVNULL)
        _change(database, random, run)
        time.sleep(random.random())
        if run % 2:
            serving.kill()
            reading.wait()
            serving.start()
        else:
            reading.send_signal(signal.SIGKILL)
            reading.wait()
    _change(database, random, 6)
    daemon.catch_up()
    end = database.wal_end()
    parts.append(received)
    start = [*client, "--start", "-f", str(received), "-E", str(end)]
    reading = subprocess.Popen([*start, "-o", "skip-empty-xacts=1"], stderr=subprocess.DEVNULL)
    own = "".join(
        f"{data}\n"
        for (data,) in database.execute(
            f"SELECT data FROM pg_logical_slot_peek_changes('{database.name}_plain', NULL, NULL, "
            "'skip-empty-xacts', '1')"
        )
    )
    expected = {int(m[1]): m[2] for m in _TRANSACTION.finditer(own)}
    last = max(expected)
    wait_until(lambda: received.exists() and last in _received(received), "the last transaction")
    reading.terminate()
    reading.wait()
    found: dict[int, str] = {}
    for part in parts:
        if part.exists():
            for xid, text in _received(part).items():
                assert found.setdefault(xid, text) == text
    if database.server.major < 17:  # which show a message without its transaction, with this option
        found = {xid: text for xid, text in found.items() if not text.startswith("message:")}
    assert list(found.items()) == list(expected.items())
    (slot,) = daemon.record()["virtual_slots"]
    told = (slot["name"], slot["plugin"], slot["is_lost"])
    assert told == ("copy", "test_decoding", False)
    serving.kill()

    def is_away() -> bool:
        (slot,) = daemon.record()["virtual_slots"]
        return slot["is_connected"] is False and slot["behind_seconds"] is not None

    wait_until(is_away, "the daemon says that no client is connected")


def test_inside_the_daemon(database_15: Database, make_daemon: Callable[..., Daemon]) -> None:
    """A kill of the server ends no stream; it follows a reload of the daemon, and its stop."""
    database_15.execute("CREATE TABLE a (id int PRIMARY KEY, v text)")
    database_15.create_slot()
    ports = (free_port(), free_port())
    serve = {"in-daemon": True, "listen": f"127.0.0.1:{ports[0]}"}

    def connect(port: int) -> psycopg.Connection[tuple[str]]:
        where = f"host=127.0.0.1 port={port} dbname={database_15.name} user=me sslmode=disable"
        return psycopg.connect(where, autocommit=True)

    with make_daemon(database_15, config={"serve": serve}) as daemon:

        def serves(port: int, starts: int = 1) -> bool:
            told = daemon.record()["serve"]
            place = (told["state"], told["listen"])
            return place == ("serving", f"127.0.0.1:{port}") and told["starts"] >= starts

        daemon.wait_for_state("streaming")
        wait_until(lambda: serves(ports[0]), "clients are served")
        with connect(ports[0]) as session:
            session.execute("SELECT pg_create_logical_replication_slot('copy', 'test_decoding')")
        children = daemon.record()["children"]
        os.kill(children["serve"], signal.SIGKILL)
        database_15.execute("INSERT INTO a VALUES (1, 'while nobody served')")
        daemon.catch_up()
        wait_until(lambda: serves(ports[0], 2), "clients are served again")
        assert daemon.record()["children"]["reader"] == children["reader"]
        daemon.write_config(serve={"listen": f"127.0.0.1:{ports[1]}"})
        assert main(["ctl", str(daemon.config_path), "reload"]) == 0
        wait_until(lambda: serves(ports[1]), "clients are served at the new port")
        with connect(ports[1]) as session:
            sql = "SELECT data FROM pg_logical_slot_get_changes('copy', NULL, NULL)"
            found = [data for (data,) in session.execute(sql) if data.startswith("table")]
            assert found == ["table public.a: INSERT: id[integer]:1 v[text]:'while nobody served'"]
            assert daemon.stop() == 0
        with pytest.raises(psycopg.OperationalError):
            connect(ports[1])


_CHANGE = re.compile(
    r"table public\.(\w+): (\w+): (?:\(no-flags\)|id\[integer\]:(\d+)(?: v\[text\]:(.*))?)"
)


def _apply(tables: dict[str, dict[str, str]], whole: set[str], text: str) -> None:
    """Apply a change: strictly once the table is whole, since then the client has every row."""
    found = _CHANGE.fullmatch(text)
    assert found is not None, text
    name, act, key, value = found.groups()
    rows = tables.setdefault(name, {})
    if act == "TRUNCATE":
        rows.clear()
        whole.add(name)
        return
    assert name not in whole or (key in rows) == (act != "INSERT"), text
    if act == "DELETE":
        rows.pop(key, None)
    else:
        rows[key] = value


def test_snapshots_for_clients(database_15: Database, make_daemon: Callable[..., Daemon]) -> None:
    """A client that wants snapshots, and begins again and again, ends with the source's rows."""
    for name in ("a", "b"):
        database_15.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        database_15.execute(f"INSERT INTO {name} SELECT i, 'before' FROM generate_series(1, 300) i")
    database_15.create_slot()
    random = Random(5)

    def write(_: int) -> None:
        key, name = random.randrange(400), random.choice("ab")
        database_15.execute(
            f"DELETE FROM {name} WHERE id = {key}; INSERT INTO {name} VALUES ({key}, 'new');"
            f"UPDATE {name} SET v = 'later' WHERE id = {key + 1}"
        )

    with make_daemon(database_15, config={"snapshot": {"mode": "initial"}}) as daemon:

        def count() -> int:
            landing = Landing(daemon.root)
            entries = landing.entries(landing.first_n, landing.last_n)
            return sum(entry.kind is EntryKind.SNAPSHOT for entry in entries)

        with repeating(write, 0.01):
            wait_until(lambda: daemon.record()["is_snapshot_settled"], "the first snapshots")
            first = count()
            assert main(["snapshot", str(daemon.config_path), "--table", "public.a"]) == 0
            wait_until(lambda: count() > first, "another snapshot")
        daemon.catch_up()
        tables: dict[str, dict[str, str]] = {}
        whole: set[str] = set()
        for most in ("7", "40", "NULL"):
            with Served(daemon.root) as served, served.connect() as session:
                if not tables:
                    session.execute("SET gaussdecode.start_lsn = 'earliest'")
                    session.execute(
                        "SELECT pg_create_logical_replication_slot('all', 'test_decoding')"
                    )
                for _ in range(12):
                    found = session.execute(
                        f"SELECT data FROM pg_logical_slot_get_changes('all', NULL, {most}, "
                        "'include-snapshot', 'on')"
                    )
                    for (text,) in found:
                        if text.startswith("table"):
                            _apply(tables, whole, text)
        for name in ("a", "b"):
            rows = database_15.execute(f"SELECT id::text, quote_literal(v) FROM {name}")
            assert tables[name] == dict(rows)
        assert daemon.stop() == 0
