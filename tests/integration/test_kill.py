"""Processes killed, stopped and cut off under load: nothing lost, nothing twice."""

import os
import signal
import time
from collections.abc import Callable
from random import Random

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, Keeper, wait_until
from kit.postgres import Database, Postgres
from kit.proxy import Fault, Proxy
from kit.workload import prepare

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _kill(daemon: Daemon, victim: str, rng: Random) -> None:
    """Kill the main process or one of its children, if it is there just now."""
    if victim == "main":
        daemon.kill9()
        return
    names = [name for name in daemon.children() if name.startswith(victim)]
    if names:
        os.kill(daemon.children()[rng.choice(names)], signal.SIGKILL)
        assert daemon.wait() == os.EX_SOFTWARE, "a dead child must end the daemon"
        assert "was killed by signal 9" in daemon.log_tail(), "and its error names it"


def _check_confirmed(daemon: Daemon) -> None:
    """The server was never told more than what is in the log."""
    confirmed = daemon.database.slot_positions()[1]
    entries = daemon.entries()
    if entries:
        assert confirmed <= landing.position(entries[-1]), "confirmed before it was durable"


@pytest.mark.parametrize("victim", ["main", "reader", "worker"])
def test_kill_under_load(database_15: Database, make_daemon: MakeDaemon, victim: str) -> None:
    """A kill -9 of any process at random times, several times, costs nothing but time."""
    rng = Random(victim)
    workload = prepare(database_15, 20)
    daemon = make_daemon(database_15)
    keeper = Keeper(daemon)
    workload.start(pause=0.05)
    for _ in range(2):
        keeper.keep()
        daemon.wait_for_state("streaming")
        time.sleep(rng.uniform(0.05, 1.2))
        _kill(daemon, victim, rng)
        _check_confirmed(daemon)
    workload.finish()
    keeper.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)


def test_kill_while_starting(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A kill -9 during start-up and recovery leaves a landing that the next start accepts."""
    rng = Random(1)
    workload = prepare(database_15, 21)
    daemon = make_daemon(database_15)
    workload.run(60)
    for _ in range(5):
        daemon.start()
        time.sleep(rng.uniform(0.2, 1.5))
        daemon.kill9()
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)


def test_stop_under_load(database_15: Database, make_daemon: MakeDaemon) -> None:
    """SIGTERM lands what was received, confirms it, and ends with status 0."""
    workload = prepare(database_15, 22)
    daemon = make_daemon(database_15)
    workload.start(pause=0.05)
    for _ in range(3):
        daemon.start()
        daemon.wait_for_state("streaming")
        time.sleep(0.7)
        assert daemon.stop() == 0
        entries = daemon.entries()
        assert database_15.slot_positions()[1] == landing.position(entries[-1])
    workload.finish()
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)


@pytest.mark.parametrize("victim", ["main", "reader", "worker 0"])
def test_frozen_process(own_server: Postgres, make_daemon: MakeDaemon, victim: str) -> None:
    """A process frozen longer than the server waits is followed by a new connection."""
    own_server.restart(settings={"wal_sender_timeout": "1500ms"})
    database = Database(own_server, "frozen")
    workload = prepare(database, 23)
    daemon = make_daemon(database)
    keeper = Keeper(daemon)
    keeper.keep()
    daemon.wait_for_state("streaming")
    workload.start(pause=0.05)
    pid = daemon.pid if victim == "main" else daemon.children()[victim]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(pid, signal.SIGCONT)
    workload.finish()
    keeper.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database)


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_server_restarts(own_server: Postgres, make_daemon: MakeDaemon, mode: str) -> None:
    """The server stops, crashes or is killed, and comes back: the daemon goes on."""
    database = Database(own_server, "restarted")
    workload = prepare(database, 24)
    daemon = make_daemon(database)
    keeper = Keeper(daemon)
    keeper.keep()
    workload.start(pause=0.05)
    for _ in range(3):
        keeper.keep()
        daemon.wait_for_state("streaming")
        time.sleep(0.6)
        own_server.restart(mode)
    workload.finish()
    keeper.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database)


def test_connection_cut_at_any_byte(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A connection that breaks in the middle of a message costs nothing but a reconnect."""
    rng = Random(25)
    workload = prepare(database_15, 25)
    with Proxy(database_15.server.port) as proxy:
        dsn = database_15.dsn.replace(f"port={database_15.server.port}", f"port={proxy.port}")
        daemon = make_daemon(database_15, dsn=dsn)
        keeper = Keeper(daemon)
        keeper.keep()
        for k in range(6):
            proxy.plan(Fault.CUT, rng.choice((1, 26, 1000, 70_000)) + rng.randint(0, 400) * k)
            workload.run(25)
        keeper.catch_up()
        assert proxy.faults > 0
        assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)


@pytest.mark.parametrize("fault", [Fault.STALL, Fault.BLACKHOLE])
def test_silent_connection(database_15: Database, make_daemon: MakeDaemon, fault: Fault) -> None:
    """A connection that only falls silent is given up, and another one is made."""
    workload = prepare(database_15, 26)
    with Proxy(database_15.server.port) as proxy:
        dsn = database_15.dsn.replace(f"port={database_15.server.port}", f"port={proxy.port}")
        config = {"source": {"receiver-timeout": "2s"}}
        daemon = make_daemon(database_15, dsn=dsn, config=config)
        keeper = Keeper(daemon)
        keeper.keep()
        daemon.wait_for_state("streaming")
        proxy.plan(fault, 5000)
        workload.run(40)
        wait_until(lambda: proxy.faults > 0, "the fault")
        before = proxy.connections
        wait_until(lambda: proxy.connections > before, "a new connection")
        # Until the old walsender notices, the slot is taken; the daemon waits for it.
        database_15.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
        )
        keeper.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)
