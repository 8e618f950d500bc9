"""Existing rows in a landing by CSN: they stand at the CSN of a view, and all below it has landed before."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, Json, Keeper, wait_until
from kit.gausscluster import GaussCluster
from kit.gaussdaemon import GaussDaemon, GaussDatabase
from kit.gausshistory import History
from kit.gaussseveral import OPTIONS, SERIAL, ClusterDatabase, SeveralDaemon
from kit.gausstargets import check_targets
from kit.postgres import Postgres

from gaussdecode.cli import main
from gaussdecode.land.verify import verify

pytestmark = pytest.mark.integration
_TABLES = ("kit.orders", "kit.items", "kit.ledger")


def is_done(daemon: Daemon, count: int = 1) -> bool:
    """Every table of every source has landed."""
    tables = ((daemon.status() or {}).get("snapshot") or {}).values()
    return len(tables) >= count and all(table["state"] == "done" for table in tables)


def config_of(decoding: dict[str, object], **more: Json) -> dict[str, Json]:
    """Options of GaussDB, and existing rows as by default."""
    return {"decoding": decoding, "snapshot": {"mode": "initial"}, **more}


class Going:
    """A history that goes on in a thread, until it is finished."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.02):
            self._history.run(6)

    def finish(self) -> None:
        """End it, and every transaction."""
        self._is_over.set()
        self._thread.join()
        self._history.finish()


@pytest.fixture
def one(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """A server whose transactions draw CSNs in one order and write records in another."""
    with GaussCluster(("dn1",), postgres=servers(15)) as made:
        yield made


@pytest.fixture
def several(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """Three nodes of one clock."""
    with GaussCluster(("dn1", "dn2", "dn3"), postgres=servers(15)) as made:
        yield made


def caught_up(daemon: GaussDaemon, cluster: GaussCluster) -> None:
    """Everything that committed has landed."""
    last = max(of.csn for of in cluster.history())

    def is_there() -> bool:
        newest = landing.newest_entry(daemon.root)
        return newest is not None and all(
            (of["csn"] or 0) >= last for of in newest["positions"].values()
        )

    wait_until(is_there, f"CSN {last}")


def snapshots_of(daemon: GaussDaemon) -> list[Json]:
    """Entries of snapshots."""
    entries = landing.read_entries(daemon.root)
    return [entry for entry in entries if entry["kind"] == "snapshot"]


def check(daemon: GaussDaemon, cluster: GaussCluster, target: Path) -> list[Json]:
    """The log is whole, and readers have what the servers have; gives the entries of snapshots."""
    oracle.check_log(landing.read_entries(daemon.root))
    assert not verify(daemon.root).findings
    check_targets(daemon.root, target, cluster.servers)
    check_targets(daemon.root, target.with_name("at-once"), cluster.servers)
    for server in cluster.servers.values():
        assert not server.violations, server.violations
        assert not server.unknown_queries, server.unknown_queries
        assert not server.snapshots, "a view was left behind"
    return snapshots_of(daemon)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("style", ["parallel", "serial"])
def test_existing_rows_while_csns_invert(
    one: GaussCluster, tmp_path: Path, style: str, seed: int
) -> None:
    """At the beginning, and asked for again while changes go on and a target goes along."""
    history = History(one, seed, truncates=False)
    history.run(400)
    decoding = {**OPTIONS, "skip-empty-xacts": False} if style == "parallel" else SERIAL
    database = GaussDatabase(one.servers["dn1"])
    with GaussDaemon(database, tmp_path, config=config_of(decoding)) as daemon:
        going = Going(history)
        daemon.wait_while_running(lambda: is_done(daemon), "all tables")
        for title in _TABLES:
            before = len(snapshots_of(daemon))
            some = ["--where", "id > 20"] if title == "kit.items" else []
            asked = ["snapshot", str(daemon.config_path), "--table", title, "--no-wait", *some]
            assert main(asked) == 0
            wait_until(lambda n=before: len(snapshots_of(daemon)) > n, f"{title} again")  # type: ignore[misc]
        going.finish()
        caught_up(daemon, one)
        assert daemon.stop() == 0
    snapshots = check(daemon, one, tmp_path / "target")
    assert len(snapshots) > len(_TABLES)
    for entry in snapshots:
        said, (position,) = entry["extra"]["snapshot"], entry["positions"].values()
        assert said["csn"] == position["csn"], "all below the view has landed, and nothing above it"


@pytest.mark.parametrize("style", ["parallel", "serial"])
def test_existing_rows_of_every_node(several: GaussCluster, tmp_path: Path, style: str) -> None:
    """Each node's at a CSN of its own; transactions over nodes go on meanwhile.

    What is replicated to all of them is read from the first.
    """
    history = History(several, 4, truncates=False)
    history.run(500)
    columns = {"id": "int8", "name": "text"}
    copies = several.create_table("shop", "country", columns, key=["id"], is_replicated=True)
    for name, table in copies.items():
        made = several.servers[name].store.begin()
        made.insert(table, {"id": "1", "name": "NL"}, {"id": "2", "name": "PT"})
        made.commit()
    decoding = {**OPTIONS, "skip-empty-xacts": False} if style == "parallel" else SERIAL
    config = config_of(decoding, landing={"replicated-tables": "shop.country"})
    with SeveralDaemon(ClusterDatabase(several), tmp_path, config=config) as daemon:
        going = Going(history)
        daemon.wait_while_running(lambda: is_done(daemon, 10), "all tables of all nodes")
        going.finish()
        caught_up(daemon, several)
        assert daemon.stop() == 0
    for name in list(several.servers)[1:]:
        del several.servers[name].store.tables["shop", "country"]
    snapshots = check(daemon, several, tmp_path / "target")
    by_source = [(e["extra"]["source"], e["extra"]["snapshot"]["tables"]) for e in snapshots]
    assert {source for source, _ in by_source} == set(several.servers)
    assert [source for source, tables in by_source if "shop.country" in tables] == ["dn1"]


def test_killed_and_cut_at_any_time(several: GaussCluster, tmp_path: Path) -> None:
    """What was not an entry by then is read again; nothing is lost or there twice."""
    rng = Random(7)
    history = History(several, 5, truncates=False)
    history.run(300)
    decoding = {**OPTIONS, "skip-empty-xacts": False}
    with SeveralDaemon(ClusterDatabase(several), tmp_path, config=config_of(decoding)) as daemon:
        going, keeper = Going(history), Keeper(daemon)
        for turn in range(6):
            time.sleep(rng.uniform(0.3, 1.2))
            if turn % 2:
                rng.choice(list(several.servers.values())).reset_connections()
            elif daemon.is_running:
                daemon.kill9()
            keeper.keep()
        daemon.wait_while_running(lambda: is_done(daemon, 9), "all tables of all nodes")
        going.finish()
        caught_up(daemon, several)
        assert daemon.stop() == 0
    check(daemon, several, tmp_path / "target")


def test_a_suspect_is_read_again(one: GaussCluster, tmp_path: Path) -> None:
    """`on-suspect: snapshot` works by CSN too."""
    server = one.servers["dn1"]
    history = History(one, 9, truncates=False)
    history.run(200)
    history.finish()
    more = {"landing": {"on-suspect": "snapshot"}}
    decoding = {**OPTIONS, "skip-empty-xacts": False}
    config = config_of(decoding, **more)
    config["snapshot"] = {"mode": "initial", "suspect-interval": "1s"}
    with GaussDaemon(GaussDatabase(server), tmp_path, config=config) as daemon:
        daemon.wait_while_running(lambda: is_done(daemon), "all tables")
        table = next(of for of in server.store.tables.values() if of.name == "orders")
        made = server.store.begin()
        made.ddl()
        made.insert(table, {"id": "900001", "v": "lost", "n": "1.000"})
        made.commit()
        history.run(50)
        history.finish()
        caught_up(daemon, one)
        wait_until(lambda: main(["gaps", "--unaccepted", str(daemon.root)]) == 0, "all read again")
        assert daemon.stop() == 0
    check(daemon, one, tmp_path / "target")


def test_a_bounded_spool_and_a_long_statement(one: GaussCluster, tmp_path: Path) -> None:
    """A view waits for the mark, what comes has no room meanwhile: in the end all is there."""
    server = one.servers["dn1"]
    table = server.store.create_table("kit", "wide", {"id": "int8", "v": "text"}, key=["id"])

    def insert(number: int) -> None:
        made = server.store.begin()
        made.insert(table, {"id": str(number), "v": f"{number:06}" * 50_000})
        made.commit()

    for number in range(1, 31):
        insert(number)
    decoding = {**OPTIONS, "skip-empty-xacts": False, "max-txn-in-memory": 1}
    bounds = {"spool-bytes": "2MiB", "memory-bytes": "32MiB", "row-group-bytes": "1MiB"}
    config = config_of(decoding, landing=bounds)
    held = server.store.begin()
    held.insert(table, {"id": "0", "v": "x"})
    held.work("UPDATE kit.wide SET v = pg_sleep(3600)")
    with GaussDaemon(GaussDatabase(server), tmp_path, config=config) as daemon:
        wait_until(lambda: bool(server.snapshots), "a view")
        for number in range(31, 131):
            insert(number)
        waits = ["waiting for the transactions that run on the server"]

        def reasons() -> list[str | None]:
            return [of.get("reason") for of in daemon.record()["snapshot"].values()]

        daemon.wait_while_running(lambda: reasons() == waits, "it says what it waits for")
        time.sleep(3)
        assert reasons() == waits
        held.commit()
        daemon.wait_while_running(lambda: is_done(daemon), "the table")
        caught_up(daemon, one)
        assert daemon.stop() == 0
    check(daemon, one, tmp_path / "target")
