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

import pytest
from kit.daemon import Daemon, wait_until
from kit.postgres import Database

from gaussdecode.demo.ports import free_port

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
