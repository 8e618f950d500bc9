"""`slot create` while a transaction is open: it says what it waits for, and a signal ends it."""

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.commands import Configure
from kit.daemon import Daemon, wait_until
from kit.gaussserver import GaussServer
from kit.postgres import Database, Postgres
from kit.proxy import Fault, Proxy

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
INTERRUPTED = 130
SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
QUERY = re.compile(r"to see them: (SELECT .*?;)", re.DOTALL)


class Command:
    """A command in a process of its own; what it says is read from a file."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._said = directory / "said"
        with self._said.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gaussdecode", *arguments], stdout=file, stderr=file
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait_for(self, text: str) -> None:
        """Wait until it has said something."""

        def is_said() -> bool:
            assert self._process.poll() is None, self.said
            return text in self.said

        wait_until(is_said, text)

    def stop(self, number: int, seconds: float = 60) -> int:
        """Send a signal; gives the exit status, whatever the server still waits for."""
        self._process.send_signal(number)
        return self._process.wait(seconds)

    def wait(self) -> int:
        """Wait for its end; gives the exit status."""
        return self._process.wait(60)

    def close(self) -> None:
        """See that it has ended."""
        self._process.kill()
        self._process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start commands; they end with the test."""
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str) -> Command:
            command = Command(tmp_path, *arguments)
            stack.callback(command.close)
            return command

        yield begin


@contextlib.contextmanager
def prepared(database: Database, gid: str = "payment-4711") -> Iterator[None]:
    """A prepared transaction, which is rolled back afterwards."""
    with database.connect() as session:
        session.execute("BEGIN")
        session.execute("CREATE TABLE IF NOT EXISTS public.forgotten (id int4)")
        session.execute(f"PREPARE TRANSACTION '{gid}'")
    try:
        yield
    finally:
        database.execute(f"ROLLBACK PREPARED '{gid}'")


def slots(database: Database) -> list[str]:
    """Slots of the database, also those that are being made."""
    found = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    return [name for (name,) in database.execute(found)]


@SIGNALS
def test_a_signal_ends_it(
    number: int,
    database: Database,
    configure: Configure,
    start: Callable[..., Command],
    tmp_path: Path,
) -> None:
    """At once, and the server has neither a slot nor a session that makes one; then it works."""
    path = configure(database)
    with prepared(database):
        command = start("slot", "create", path)
        command.wait_for("pg_prepared_xacts")
        (query,) = QUERY.findall(command.said)
        assert "payment-4711" in str(database.execute(query))
        assert command.stop(number) == INTERRUPTED
        assert slots(database) == []
        senders = (
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' "
            "AND datname = current_database()"
        )
        wait_until(lambda: database.execute(senders) == [(0,)], "no session makes a slot")
    assert "was not made" in command.said
    assert "Traceback" not in command.said
    assert slots(database) == []
    assert not (tmp_path / "landing" / "layout.json").exists()
    assert main(["slot", "create", path]) == EX_OK


def test_a_running_transaction_is_shown(
    database_15: Database, configure: Configure, start: Callable[..., Command]
) -> None:
    """By the same query, with what tells its session; those that hold nothing up are not in it."""
    with database_15.connect() as writer, database_15.connect() as reader:
        writer.execute("BEGIN; SELECT txid_current()")
        reader.execute("BEGIN; SELECT 1")
        command = start("slot", "create", "--no-landing", configure(database_15))
        command.wait_for("to see them")
        (query,) = QUERY.findall(command.said)
        shown = str(database_15.execute(query))
        assert str(writer.info.backend_pid) in shown
        assert str(reader.info.backend_pid) not in shown
        writer.execute("COMMIT")
        assert command.wait() == EX_OK


@SIGNALS
def test_slots_of_several_sources_are_taken_back(
    number: int,
    database_15: Database,
    servers: Callable[[int], Postgres],
    start: Callable[..., Command],
    tmp_path: Path,
) -> None:
    """What was made on one server, while another one waits, is dropped again."""
    waiting = Database(servers(16), "waiting")
    path = tmp_path / "several.yaml"
    text = [
        "source:",
        "  kind: postgresql",
        "  publication: [all_tables]",
        "  allow-insecure: true",
    ]
    text += ["sources:"]
    for name, database in (("a", database_15), ("b", waiting)):
        database.execute("CREATE PUBLICATION all_tables FOR ALL TABLES")
        text += [f"  {name}:", f"    dsn: {database.dsn} sslmode=disable"]
        text += [f"    slot: {database.slot}"]
    path.write_text("\n".join([*text, "landing:", f"  root: {tmp_path / 'landing'}", ""]))
    path.chmod(0o600)
    with prepared(waiting):
        command = start("slot", "create", str(path))
        command.wait_for("pg_prepared_xacts")
        assert slots(database_15) == [database_15.slot]
        assert command.stop(number) == INTERRUPTED
    assert f"slot {database_15.slot} of a is dropped again" in command.said
    assert slots(database_15) == slots(waiting) == []
    waiting.drop()


@SIGNALS
def test_accepting_a_gap_is_ended(
    number: int,
    database_15: Database,
    make_daemon: Callable[..., Daemon],
    start: Callable[..., Command],
) -> None:
    """Nothing is recorded, and the next attempt finds the same gap."""
    daemon = make_daemon(database_15)
    daemon.land_a_row()
    before = len(daemon.entries())
    position = str(database_15.slot_positions()[1])
    database_15.execute(f"SELECT pg_drop_replication_slot('{database_15.slot}')")
    accept = ("slot", "accept-gap", str(daemon.config_path), "--from-lsn", position)
    with prepared(database_15):
        command = start(*accept)
        command.wait_for("pg_prepared_xacts")
        assert command.stop(number) == INTERRUPTED
        assert slots(database_15) == []
    assert len(daemon.entries()) == before
    assert main([*accept]) == EX_OK
    assert slots(database_15) == [database_15.slot]


@pytest.mark.parametrize("signals", [1, 2])
def test_a_server_that_says_nothing_more(
    signals: int, database_15: Database, configure: Configure, start: Callable[..., Command]
) -> None:
    """Nobody knows then whether the slot was made, and that is said; after a second signal at once."""
    path = Path(configure(database_15))
    with prepared(database_15), Proxy(database_15.server.port) as proxy:
        path.write_text(
            path.read_text().replace(f"port={database_15.server.port}", f"port={proxy.port}")
        )
        command = start("slot", "create", "--no-landing", str(path))
        command.wait_for("pg_prepared_xacts")
        proxy.plan(Fault.STALL, 0)
        for _ in range(signals - 1):
            with pytest.raises(subprocess.TimeoutExpired):
                command.stop(signal.SIGINT, 1)
        assert command.stop(signal.SIGINT, 60 if signals == 1 else 5) == EX_UNAVAILABLE
    assert "slot list" in command.said
    assert "Traceback" not in command.said


@SIGNALS
@pytest.mark.parametrize("is_prepared", [False, True], ids=["running", "prepared"])
def test_of_a_gaussdb(
    number: int,
    is_prepared: bool,
    make_gauss: MakeGauss,
    configure_gauss: Configure,
    start: Callable[..., Command],
) -> None:
    """The same by ordinary SQL, which is cancelled at the server."""
    server = make_gauss()
    transaction = server.store.begin()
    if is_prepared:
        transaction.prepare("payment-4711")
    else:
        transaction.backend.xid = transaction.xid
    path = configure_gauss(server)
    command = start("slot", "create", path)
    command.wait_for("pg_prepared_xacts")
    assert command.stop(number) == INTERRUPTED
    assert "was not made" in command.said
    assert server.slots == {}
    transaction.rollback()
    time.sleep(0.5)
    assert server.slots == {}
    assert main(["slot", "create", path]) == EX_OK
