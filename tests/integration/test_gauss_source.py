"""The daemon over a simulated GaussDB server: every style and version, faults, exactly once."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest
from kit import gausscheck, gausscompare, landing, oracle
from kit.daemon import Daemon, Keeper, wait_until
from kit.gaussbridge import Bridge, leave_out_ddl
from kit.gaussdaemon import GaussDaemon, GaussDatabase, lands
from kit.gaussprofile import PROFILES, V3_0_0, V6_0_0
from kit.gaussserver import Behaviour, GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store
from kit.gaussworkload import Workload
from kit.postgres import Database, Postgres
from kit.workload import Workload as PostgresWorkload

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
BINARY: Mapping[str, object] = {"parallel_decode_num": 2, "decode_style": "b", "sending_batch": 1}
STYLES: Mapping[str, Mapping[str, object]] = {
    "binary": {**BINARY, "sending_batch": 0},
    "batched": BINARY,
    "text": {"parallel_decode_num": 2, "decode_style": "t", "sending_batch": 1},
    "json": {"parallel_decode_num": 2, "decode_style": "j", "sending_batch": 1},
    "serial": {"parallel_decode_num": 1},
}


def test_every_style_through_upgrades(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """A slot of each style but the usual one, read through upgrades of its server, lands every version's rows once."""
    server = make_gauss(V3_0_0)
    workload = Workload(server.store, 1)
    databases = {name: GaussDatabase(server, name) for name in STYLES if name != "batched"}
    daemons = [lands(one, tmp_path / name, **STYLES[name]) for name, one in databases.items()]
    with contextlib.ExitStack() as stack:
        for daemon in daemons:
            stack.enter_context(daemon)
        for profile in PROFILES.values():
            server.stop()
            server.profile = profile
            server.start()
            workload.run(15)
            for daemon in daemons:
                daemon.catch_up()
        for daemon in daemons:
            assert daemon.stop() == 0
    for daemon, database in zip(daemons, databases.values(), strict=True):
        gausscheck.check(daemon.root, server)
        assert server.slots[database.slot].confirmed_lsn >= database.last_end()


# --- faults -------------------------------------------------------------------------------


class Writer:
    """Runs a workload in a thread, in small pieces, until it is told to stop."""

    def __init__(self, server: GaussServer, seed: int) -> None:
        self._workload = Workload(server.store, seed)
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.1):
                self._workload.run(3)
        except BaseException as error:  # noqa: BLE001 - `finish` raises it
            self._failures.append(error)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def finish(self) -> None:
        """Stop writing."""
        self._stop.set()
        self._thread.join()
        if self._failures:
            raise self._failures[0]


def _kill(daemon: Daemon, victim: str, rng: Random) -> None:
    """Kill one of the daemon's children, if it is there just now."""
    names = [name for name in daemon.children() if name.startswith(victim)]
    if names:
        os.kill(daemon.children()[rng.choice(names)], signal.SIGKILL)
        assert daemon.wait() == os.EX_SOFTWARE, "a dead child must end the daemon"


def _check_confirmed(daemon: Daemon) -> None:
    """The server was never told more than what is in the log."""
    confirmed = daemon.database.slot_positions()[1]
    entries = daemon.entries()
    if entries:
        assert confirmed <= landing.position(entries[-1]), "confirmed before it was durable"


@pytest.mark.parametrize("victim", ["reader", "worker"])
def test_kill_under_load(make_gauss: MakeGauss, tmp_path: Path, victim: str) -> None:
    """A kill -9 of a child costs nothing but time, even when the server forgets as well."""
    server = make_gauss()
    rng = Random(victim)
    writer = Writer(server, 20)
    daemon = lands(GaussDatabase(server), tmp_path, **BINARY)
    keeper = Keeper(daemon)
    with daemon:
        writer.start()
        for _ in range(2):
            keeper.keep()
            daemon.wait_for_state("streaming")
            time.sleep(rng.uniform(0.1, 0.6))
            _kill(daemon, victim, rng)
            _check_confirmed(daemon)
            server.slots["s"].load()
        writer.finish()
        keeper.catch_up()
        assert daemon.stop() == 0
    gausscheck.check(daemon.root, server)


@pytest.mark.parametrize("fault", ["is_silent", "is_frozen"])
def test_silent_server(make_gauss: MakeGauss, tmp_path: Path, fault: str) -> None:
    """A server that only falls silent is given up, and another connection is made."""
    server = make_gauss()
    workload = Workload(server.store, 27)
    database = GaussDatabase(server)
    config: dict[str, landing.Json] = {
        "source": {"receiver-timeout": "1s", "connect-timeout": "2s"},
        "decoding": {name.replace("_", "-"): value for name, value in BINARY.items()},
    }
    daemon = GaussDaemon(database, tmp_path, config=config)
    with daemon:
        workload.run(10)
        daemon.catch_up()
        before = server.connections
        setattr(server.behaviour, fault, True)
        wait_until(lambda: server.connections > before, "a new connection")
        setattr(server.behaviour, fault, False)
        workload.run(10)
        daemon.catch_up()
        assert daemon.stop() == 0
    gausscheck.check(daemon.root, server)


# --- other encodings and settings ---------------------------------------------------------


def test_one_byte_encoding(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """Names and values of a LATIN1 database land as UTF-8."""
    server = make_gauss(V6_0_0, behaviour=Behaviour(flush_seconds=0.05, encoding="LATIN1"))
    table = server.store.create_table("café", "naïve ÿ", {"id": "int8", "é": "text"}, key=["id"])
    database = GaussDatabase(server)
    transaction = server.store.begin()
    transaction.insert(table, {"id": "1", "é": "ÀÿÞ"}, {"id": "2", "é": "plain"})
    transaction.commit()
    with lands(database, tmp_path, **BINARY) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    gausscheck.check(daemon.root, server)


def test_database_settings(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """TimeZone of the database and the spellings of numbers change no landed value."""
    behaviour = Behaviour(
        flush_seconds=0.05, zone_minutes=330, leading_zero=True, short_infinity=True
    )
    server = make_gauss(V6_0_0, behaviour=behaviour)
    workload, database = Workload(server.store, 31), GaussDatabase(server)
    workload.run(30)
    with lands(database, tmp_path, **BINARY) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    gausscheck.check(daemon.root, server)


# --- the second opinion -------------------------------------------------------------------


def test_same_rows_as_pgoutput(
    database_15: Database,
    servers: Callable[[int], Postgres],
    make_daemon: Callable[..., Daemon],
    tmp_path: Path,
) -> None:
    """The changes of a real PostgreSQL land equal, by pgoutput and by every style of GaussDB."""
    workload = PostgresWorkload(database_15, 40)
    workload.create()
    leave_out_ddl(workload)
    database_15.create_slot()
    copy = f"{database_15.slot}_bridge"
    database_15.copy_slot(copy)
    workload.run(60)
    with make_daemon(database_15) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    wanted = oracle.check(daemon.root, database_15)
    server = GaussServer(
        Store(),
        V6_0_0,
        catalogue=Catalogue(servers(15), types_of=database_15),
        behaviour=Behaviour(flush_seconds=0.05),
    )
    with server:
        daemons = {
            name: lands(GaussDatabase(server, f"s{at}"), tmp_path / f"s{at}", **style)
            for at, (name, style) in enumerate(STYLES.items())
        }
        assert Bridge(database_15, server.store, copy).pump() >= 50
        for gauss in daemons.values():
            with gauss:
                gauss.catch_up()
                assert gauss.stop() == 0
            gausscompare.assert_same(wanted, landing.read(gauss.root))
        assert not server.violations
    assert server.catalogue is not None
    server.catalogue.close()
