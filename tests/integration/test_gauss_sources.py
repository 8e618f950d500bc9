"""Several data nodes in one landing, in the order of their one clock of CSNs."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.daemon import wait_until
from kit.gausscluster import GaussCluster
from kit.gausshistory import History
from kit.gaussseveral import SERIAL, check_several, several
from kit.postgres import Postgres

pytestmark = pytest.mark.integration
NODES = ("dn1", "dn2", "dn3", "dn4")


@pytest.fixture
def cluster(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """Four nodes."""
    with GaussCluster(NODES, postgres=servers(15)) as made:
        yield made


def test_transactions_over_nodes_land_whole(cluster: GaussCluster, tmp_path: Path) -> None:
    """While CSNs and commit records invert within and between nodes."""
    history = History(cluster, 1, truncates=False)
    with several(cluster, tmp_path) as daemon:
        for _ in range(10):
            history.run(60)
            time.sleep(0.2)
        history.finish()
        daemon.catch_up_csn()
        assert daemon.stop() == 0
    check_several(daemon.root, cluster)
    assert any(len(of.parts) > 1 for of in cluster.history())


def test_serial_nodes_go_on_when_they_are_quiet(cluster: GaussCluster, tmp_path: Path) -> None:
    """Their streams show no transaction without rows: a keepalive says how far they are."""
    history = History(cluster, 3)
    with several(cluster, tmp_path, SERIAL) as daemon:
        history.run(1440)
        history.finish()
        last = max(of.csn for of in cluster.history())
        wait_until(lambda: daemon.watermark() >= last, f"CSN {last}")
        assert daemon.stop() == 0
