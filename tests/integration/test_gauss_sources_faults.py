"""Several data nodes in one landing while processes die, connections break and nodes are away."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from kit import landing
from kit.daemon import Json, Keeper, command_line, wait_until
from kit.gaussclock import CsnClock
from kit.gausscluster import GaussCluster
from kit.gausshistory import SCHEMA, History
from kit.gaussseveral import SeveralDaemon, check_several, several, wanted
from kit.gaussstore import Table
from kit.postgres import Postgres

from gaussdecode.errors import EX_CONFIG, EX_IOERR, EX_PROTOCOL, EX_SOFTWARE
from gaussdecode.land.failpoints import VARIABLE, Step

pytestmark = pytest.mark.integration
MakeCluster = Callable[..., GaussCluster]
_READER, _DECODER = "gaussdecode.source.reader", "gaussdecode.decode.worker"
_STEPS = (Step.ENTRY_LINKED, Step.POSITION_CONFIRMED)


@pytest.fixture
def make_cluster(servers: Callable[[int], Postgres]) -> Iterator[MakeCluster]:
    """Make clusters of so many nodes."""
    made: list[GaussCluster] = []

    def make(count: int) -> GaussCluster:
        names = [f"dn{number + 1}" for number in range(count)]
        cluster = GaussCluster(names, postgres=servers(15))
        made.append(cluster)
        return cluster.__enter__()

    yield make
    for cluster in made:
        cluster.__exit__(None, None, None)


def _children(daemon: SeveralDaemon, module: str) -> list[int]:
    """Processes of all sessions that run a module."""
    found = []
    for listing in Path(f"/proc/{daemon.pid}/task").glob("*/children"):
        try:
            found += [int(text) for text in listing.read_text().split()]
        except OSError:  # the thread has just ended
            continue
    return [pid for pid in found if module in command_line(pid)]


def _kill_one(daemon: SeveralDaemon, module: str, rng: Random) -> None:
    """Kill a process of one source, if there is any now."""
    pids = _children(daemon, module)
    if pids:
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(rng.choice(pids), signal.SIGKILL)


def _insert(cluster: GaussCluster, tables: dict[str, Table], first: int, *nodes: str) -> int:
    """Commit a row on each of some nodes; give the CSN."""
    made = cluster.begin()
    for number, node in enumerate(nodes):
        made.on(node).insert(tables[node], {"id": str(first + number)})
    made.commit()
    assert made.csn is not None
    return made.csn


def _table(cluster: GaussCluster) -> dict[str, Table]:
    return cluster.create_table(SCHEMA, "kept", {"id": "int8"}, key=["id"])


def _finish(daemon: SeveralDaemon, cluster: GaussCluster) -> None:
    """Land the rest, end in order, and compare."""
    daemon.environment.clear()
    if not daemon.is_running:
        daemon.start()
    daemon.wait_for_state("streaming")
    daemon.catch_up_csn()
    assert daemon.stop() == 0, daemon.log_tail()
    check_several(daemon.root, cluster)


@pytest.mark.parametrize(("seed", "count"), [(1, 3), (2, 2)])
def test_random_faults_lose_and_double_nothing(
    make_cluster: MakeCluster, tmp_path: Path, seed: int, count: int
) -> None:
    """Processes are killed, connections cut, nodes restarted, and the daemon stopped, at any moment."""
    cluster, rng = make_cluster(count), Random(seed)
    history = History(cluster, seed, truncates=False, spread=0.5)
    with several(cluster, tmp_path) as daemon:
        keeper = Keeper(daemon)
        daemon.wait_for_state("streaming")
        for _ in range(9):
            history.run(40)
            time.sleep(rng.uniform(0.05, 0.6))
            node = rng.choice(list(cluster.servers))
            match rng.choice(("kill", "reader", "decoder", "cut", "crash", "stop", "none")):
                case "kill" if daemon.is_running:
                    daemon.kill9()
                case "stop" if (daemon.status() or {}).get("state") == "streaming":
                    status = daemon.stop()
                    assert status in {0, EX_SOFTWARE}, daemon.log_tail()
                case "reader" if daemon.is_running:
                    _kill_one(daemon, _READER, rng)
                case "decoder" if daemon.is_running:
                    _kill_one(daemon, _DECODER, rng)
                case "cut":
                    cluster.cut(node)
                case "crash":
                    cluster.away(node)
                    cluster.back(node)
            keeper.keep()
        history.finish()
        last = max(of.csn for of in wanted(cluster))

        def has_landed() -> bool:
            keeper.keep()
            return daemon.watermark() >= last

        wait_until(has_landed, f"CSN {last}")
        _finish(daemon, cluster)
    assert set(keeper.ends) <= {0, -signal.SIGKILL, EX_SOFTWARE}, keeper.ends


def test_a_daemon_killed_while_it_publishes_goes_on(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Whichever step of an entry of all sources it was at."""
    cluster = make_cluster(2)
    history = History(cluster, 7, truncates=False, spread=0.5)
    daemon = several(cluster, tmp_path)
    for step in _STEPS:
        daemon.environment = {VARIABLE: f"{step}:2=kill"}
        with daemon:

            def has_ended() -> bool:
                history.run(5)
                return not daemon.is_running

            wait_until(has_ended, f"the step {step}")
            assert daemon.wait() == -signal.SIGKILL, daemon.log_tail()
    history.finish()
    daemon.environment = {}
    with daemon:
        _finish(daemon, cluster)


def test_a_full_disk_passes(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """An entry of all sources that finds no room is made when there is some."""
    cluster = make_cluster(2)
    history = History(cluster, 8, truncates=False, spread=0.5)
    daemon = several(cluster, tmp_path)
    daemon.environment = {VARIABLE: "write:40=ENOSPC,link:4=ENOSPC"}
    with daemon:
        for _ in range(6):
            history.run(40)
            time.sleep(0.3)
        history.finish()
        _finish(daemon, cluster)


def test_a_node_that_is_away_is_named_and_waited_for(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """What the others commit meanwhile lands with it, and not before."""
    cluster = make_cluster(3)
    tables = _table(cluster)
    with several(cluster, tmp_path) as daemon:
        daemon.wait_for_state("streaming")
        _insert(cluster, tables, 1, "dn1", "dn2", "dn3")
        daemon.catch_up_csn()
        cluster.away("dn2")
        daemon.wait_for_state("retrying")
        later = _insert(cluster, tables, 10, "dn1", "dn3")
        time.sleep(1.5)
        daemon.wait_while_running(lambda: "dn2" in str(daemon.status()), "a reason that names it")
        assert daemon.watermark() < later
        cluster.back("dn2")
        _finish(daemon, cluster)
    said = [line for line in daemon.log.read_text().splitlines() if "session_retrying" in line]
    assert said, daemon.log_tail()
    assert all("dn2" in line for line in said), said


def test_a_stop_while_a_mark_is_open_is_in_order(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """A CSN is drawn and its commit records are still to come, on one node or on another."""
    cluster = make_cluster(2)
    tables = _table(cluster)
    with several(cluster, tmp_path) as daemon:
        for turn in range(2):
            daemon.wait_for_state("streaming")
            held = cluster.begin()
            for number, node in enumerate(("dn1", "dn2")):
                held.on(node).insert(tables[node], {"id": str(100 * turn + number)})
            held.draw_csn()
            if turn == 1:
                held.commit_on("dn1")
            later = _insert(cluster, tables, 100 * turn + 10, "dn1", "dn2")
            time.sleep(1.0)
            assert daemon.watermark() < later
            assert daemon.stop() == 0, daemon.log_tail()
            held.commit()
            daemon.start()
        _finish(daemon, cluster)


def test_nothing_passes_a_prepared_transaction(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """It may have drawn a CSN by then; its end lets all go on."""
    cluster = make_cluster(2)
    tables = _table(cluster)
    with several(cluster, tmp_path) as daemon:
        daemon.wait_for_state("streaming")
        held = cluster.begin()
        for number, node in enumerate(("dn1", "dn2")):
            held.on(node).insert(tables[node], {"id": str(number)})
        held.prepare()
        later = _insert(cluster, tables, 10, "dn1")
        time.sleep(1.0)
        assert daemon.watermark() < later
        cluster.cut("dn2")
        time.sleep(1.0)
        assert daemon.watermark() < later
        held.commit()
        _finish(daemon, cluster)


def test_what_a_node_refuses_names_it_and_is_not_tried_again(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """A right is missing, a standby is named, or another node answers at its address."""
    cluster = make_cluster(2)
    daemon, second = several(cluster, tmp_path), cluster.servers["dn2"]
    second.denied.add(("replica", "pg_get_running_xacts"))
    tables = _table(cluster)
    with daemon:
        _insert(cluster, tables, 1, "dn1")
        assert daemon.wait() == EX_CONFIG, daemon.log_tail()
    assert "dn2: " in _last(daemon)
    assert "pg_get_running_xacts" in _last(daemon)
    second.denied.clear()
    second.system_identifier += 100
    with daemon:
        assert daemon.wait() == EX_CONFIG, daemon.log_tail()
    assert "dn2" in _last(daemon)
    assert "the server is cluster" in _last(daemon)
    second.system_identifier -= 100
    second.behaviour.is_standby = True
    with daemon:
        assert daemon.wait() == EX_CONFIG, daemon.log_tail()
    assert "dn2" in _last(daemon)
    assert "standby" in _last(daemon)
    second.behaviour.is_standby = False
    second.unknown_queries.clear()  # the guard asks a standby what the simulator does not know
    with daemon:
        _finish(daemon, cluster)


def _last(daemon: SeveralDaemon) -> str:
    return daemon.log_tail(2)


def test_other_nodes_than_the_landing_s_are_refused(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """One is renamed, missing or new; and a second daemon of the same landing."""
    cluster = make_cluster(3)
    daemon = several(cluster, tmp_path)
    tables = _table(cluster)
    with daemon:
        daemon.wait_for_state("streaming")
        _insert(cluster, tables, 1, "dn1", "dn2", "dn3")
        daemon.catch_up_csn()
        other = several(cluster, tmp_path / "other")
        other.write_config(landing={"root": str(daemon.root)})
        other.root = daemon.root
        with other:
            assert other.wait() == EX_IOERR, other.log_tail()
        assert daemon.stop() == 0
    sources: Json = dict(daemon._config["sources"])
    for changed in (
        {"dn1": sources["dn1"], "dn2": sources["dn2"]},
        {"dn1": sources["dn1"], "dn2": sources["dn2"], "dn9": sources["dn3"]},
        {"dn1": sources["dn2"], "dn2": sources["dn1"], "dn3": sources["dn3"]},
    ):
        daemon.write_config_value("sources", changed)
        with daemon:
            assert daemon.wait() == EX_CONFIG, daemon.log_tail()
        assert "into a new root" in _last(daemon) or "use a new landing" in _last(daemon)
    daemon.write_config_value("sources", sources)
    with daemon:
        _finish(daemon, cluster)


def test_nodes_of_two_clocks_are_never_landed_as_one_order(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """The one whose clock is behind commits below what has landed, which ends it."""
    cluster = make_cluster(2)
    cluster.servers["dn2"].store.csn_clock = CsnClock(10_000_000)
    tables = _table(cluster)
    with several(cluster, tmp_path) as daemon:
        daemon.wait_for_state("streaming")
        high = _insert(cluster, tables, 1, "dn2")
        wait_until(lambda: daemon.watermark() >= high, "the CSN that is ahead")
        before = len(landing.read(daemon.root).entries)
        low = _insert(cluster, tables, 2, "dn1")
        assert low < high
        assert daemon.wait() == EX_PROTOCOL, daemon.log_tail()
    assert "dn1" in _last(daemon)
    landed = landing.read(daemon.root)
    assert low not in {row["gd_csn"] for row in landed.transactions}
    assert len(landed.entries) >= before


def test_a_node_that_knows_less_of_the_clock_lands_all(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Each tells what it has seen of the clock; the greatest answer counts."""
    cluster = make_cluster(3)
    for server in cluster.servers.values():
        server.behaviour.is_csn_local = True
    history = History(cluster, 9, truncates=False, spread=0.5)
    with several(cluster, tmp_path) as daemon:
        for _ in range(8):
            history.run(40)
            time.sleep(0.2)
        history.finish()
        _finish(daemon, cluster)
    assert wanted(cluster)
