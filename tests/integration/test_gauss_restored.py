"""By CSN too a server that was restored to the past is refused, and one that only forgot is followed."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import landing
from kit.daemon import wait_until
from kit.gausscluster import GaussCluster
from kit.gaussdaemon import GaussDaemon, GaussDatabase, lands
from kit.gausshistory import SCHEMA
from kit.gaussseveral import SeveralDaemon, check_several, several
from kit.gaussstore import Table
from kit.postgres import Postgres

from gaussdecode.errors import EX_CONFIG

pytestmark = pytest.mark.integration
CSN: dict[str, object] = {
    "parallel_decode_num": 2, "decode_style": "b", "sending_batch": 1, "skip_empty_xacts": True,
    "output_order": 1,
}  # fmt: skip
MakeCluster = Callable[..., GaussCluster]


@pytest.fixture
def cluster(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """Two nodes."""
    with GaussCluster(("dn1", "dn2"), postgres=servers(15)) as made:
        yield made


def _table(cluster: GaussCluster) -> dict[str, Table]:
    return cluster.create_table(SCHEMA, "kept", {"id": "int8"}, key=["id"])


def _insert(cluster: GaussCluster, tables: dict[str, Table], *ids: int) -> None:
    """Commit a row with each id, by turns on the nodes."""
    nodes = list(cluster.servers)
    for id_ in ids:
        made = cluster.begin()
        node = nodes[id_ % len(nodes)]
        made.on(node).insert(tables[node], {"id": str(id_)})
        made.commit()


def _land(daemon: SeveralDaemon) -> None:
    daemon.start()
    daemon.wait_for_state("streaming")
    daemon.catch_up_csn()


def _refused(daemon: SeveralDaemon) -> None:
    assert daemon.start().wait() == EX_CONFIG, daemon.log_tail()
    assert "restored to the past" in daemon.log_tail()
    assert "dn2" in daemon.log_tail(2)


def test_a_restored_node_is_refused_however_often_it_is_tried(
    cluster: GaussCluster, tmp_path: Path
) -> None:
    """Also once its log is longer than what has landed: nothing landed, nothing confirmed."""
    tables = _table(cluster)
    daemon = several(cluster, tmp_path)
    with daemon:
        daemon.wait_for_state("streaming")
        _insert(cluster, tables, *range(1, 21))
        daemon.catch_up_csn()
        assert daemon.stop() == 0
        second = cluster.servers["dn2"]
        saved = second.copy()
        _land(daemon) if not daemon.is_running else None
        _insert(cluster, tables, *range(21, 41))
        daemon.catch_up_csn()
        assert daemon.stop() == 0
        before = landing.read_entries(daemon.root)
        second.restore(saved)
        _refused(daemon)
        end = before[-1]["positions"]["dn2"]["until"]
        number = 1001
        while second.wal_end <= end:
            _insert(cluster, tables, number)
            number += 2
        _insert(cluster, tables, *range(number, number + 10))
        confirmed = second.slots["s"].confirmed_lsn
        for _ in range(2):
            _refused(daemon)
            assert landing.read_entries(daemon.root) == before
            assert second.slots["s"].confirmed_lsn == confirmed


def test_a_restored_node_that_sends_nothing_again_is_refused(
    cluster: GaussCluster, tmp_path: Path
) -> None:
    """What landed of it is missing there."""
    tables = _table(cluster)
    with several(cluster, tmp_path) as daemon:
        daemon.wait_for_state("streaming")
        _insert(cluster, tables, *range(1, 5))
        daemon.catch_up_csn()
        assert daemon.stop() == 0
        second = cluster.servers["dn2"]
        saved = second.copy()
        _land(daemon)
        _insert(cluster, tables, 5)
        daemon.catch_up_csn()
        assert daemon.stop() == 0
        before = landing.read_entries(daemon.root)
        second.restore(saved)
        while second.wal_end <= before[-1]["positions"]["dn2"]["until"]:
            second.store.write(1000)
        _insert(cluster, tables, 7)
        _refused(daemon)
        assert landing.read_entries(daemon.root) == before


def test_nodes_that_forgot_confirmations_are_followed(
    cluster: GaussCluster, tmp_path: Path
) -> None:
    """What they send again is compared, found equal, and landed once."""
    tables = _table(cluster)
    with several(cluster, tmp_path) as daemon:
        daemon.wait_for_state("streaming")
        begun = {name: server.slots["s"].confirmed_lsn for name, server in cluster.servers.items()}
        _insert(cluster, tables, *range(1, 41))
        daemon.catch_up_csn()
        assert daemon.stop() == 0
        for name, server in cluster.servers.items():
            server.slots["s"].confirmed_lsn = begun[name]
        _land(daemon)
        _insert(cluster, tables, *range(41, 61))
        daemon.catch_up_csn()
        newest = landing.read_entries(daemon.root)[-1]["positions"]
        wait_until(
            lambda: all(
                server.slots["s"].confirmed_lsn >= begun[name] + 1
                for name, server in cluster.servers.items()
            ),
            f"confirmations towards {newest}",
        )
        assert daemon.stop() == 0
    check_several(daemon.root, cluster)
    assert '"resent_compared"' in daemon.log.read_text()


def _newest(daemon: GaussDaemon) -> dict[str, int]:
    """Position of the last source in the newest entry."""
    newest: dict[str, int] = list(landing.read_entries(daemon.root)[-1]["positions"].values())[-1]
    return newest


def _held_seconds(daemon: GaussDaemon) -> float:
    """How long the present mark has waited."""
    told = daemon.get("/metrics")[1].decode()
    return max(map(float, re.findall(r"collect_turn_held_seconds\{.*\} (\S+)", told)))


def _land_beyond_the_mark(cluster: GaussCluster, daemon: GaussDaemon) -> int:
    """Have a transaction land whose commit record stands between a mark's positions; give its begin."""
    tables = _table(cluster)
    node = list(cluster.servers)[-1]
    daemon.wait_for_state("streaming")
    first, held = cluster.begin(), cluster.begin()
    for number, made in enumerate((first, held)):
        made.on(node).insert(tables[node], {"id": str(number)})
    first.draw_csn()
    csn = held.draw_csn()
    first.commit()
    # The mark has its low position, and waits for the other.
    daemon.wait_while_running(lambda: _held_seconds(daemon) > 0.5, "a mark that waits")
    (record,) = held.commit().values()
    wait_until(lambda: (_newest(daemon)["csn"] or 0) >= csn, "the mark")
    assert daemon.stop() == 0
    assert _newest(daemon)["lsn"] <= record.commit_lsn < _newest(daemon)["until"]
    return record.commit_lsn


@pytest.mark.parametrize("is_several", [False, True])
def test_a_failover_that_lost_the_tail_is_refused(
    cluster: GaussCluster, servers: Callable[[int], Postgres], tmp_path: Path, *, is_several: bool
) -> None:
    """While the log is shorter than what landed, and when other transactions have taken CSN and LSN."""
    with GaussCluster(("dn1",), postgres=servers(15)) as one:
        nodes = cluster if is_several else one
        server = list(nodes.servers.values())[-1]
        daemon: GaussDaemon = (
            several(nodes, tmp_path)
            if is_several
            else lands(GaussDatabase(server), tmp_path, **CSN)
        )
        with daemon:
            lost_lsn = _land_beyond_the_mark(nodes, daemon)
            before = landing.read_entries(daemon.root)
            server.crash()
            server.store.lose_tail(lost_lsn)
            server.start()
            assert daemon.start().wait() == EX_CONFIG, daemon.log_tail()
            assert "the server's WAL ends at" in daemon.log_tail(2)
            table = server.store.tables[SCHEMA, "kept"]
            for number in range(100, 110):
                made = server.store.begin()
                made.insert(table, {"id": str(number)})
                made.commit()
            assert server.wal_end > _newest(daemon)["until"]
            for _ in range(2):
                assert daemon.start().wait() == EX_CONFIG, daemon.log_tail()
                assert "restored to the past" in daemon.log_tail(2)
                assert landing.read_entries(daemon.root) == before


def test_a_failover_that_lost_nothing_that_landed_is_followed(
    servers: Callable[[int], Postgres], tmp_path: Path
) -> None:
    """The log's tail had no transaction; what others take its place with lands."""
    with GaussCluster(("dn1",), postgres=servers(15)) as one:
        server = one.servers["dn1"]
        with lands(GaussDatabase(server), tmp_path, **CSN) as daemon:
            _land_beyond_the_mark(one, daemon)
            last = server.store.committed[-1]
            server.store.write(100)
            server.crash()
            server.store.lose_tail(last.end_lsn)
            server.start()
            table = server.store.tables[SCHEMA, "kept"]
            for number in range(100, 110):
                made = server.store.begin()
                made.insert(table, {"id": str(number)})
                made.commit()
            daemon.start()
            wait_until(
                lambda: (_newest(daemon)["csn"] or 0) >= server.store.committed[-1].csn, "the rest"
            )
            assert daemon.stop() == 0
        rows = [row["gd_csn"] for row in landing.read(daemon.root).transactions if row["rows"]]
        assert rows == sorted(of.csn for of in server.store.committed if of.changes)
