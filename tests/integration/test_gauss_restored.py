"""By CSN too a server that was restored to the past is refused, and one that only forgot is followed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import landing
from kit.daemon import wait_until
from kit.gausscluster import GaussCluster
from kit.gausshistory import SCHEMA
from kit.gaussseveral import SeveralDaemon, check_several, several
from kit.gaussstore import Table
from kit.postgres import Postgres

from gaussdecode.errors import EX_CONFIG

pytestmark = pytest.mark.integration
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
