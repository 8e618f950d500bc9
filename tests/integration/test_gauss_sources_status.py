"""What an operator sees of several data nodes when one of them keeps the others waiting."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.daemon import Json, wait_until
from kit.gausscluster import GaussCluster
from kit.gaussseveral import SeveralDaemon, check_several, several
from kit.postgres import Postgres

from gaussdecode.cli import main
from gaussdecode.errors import SourceRefusedError

pytestmark = pytest.mark.integration
NODES = ("dn1", "dn2")


@pytest.fixture
def cluster(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """Two nodes with a table."""
    with GaussCluster(NODES, postgres=servers(15)) as made:
        made.create_table("kit", "orders", {"id": "int8", "v": "text"}, key=["id"])
        yield made


def write(cluster: GaussCluster, number: int, *nodes: str) -> None:
    """Commit a row on some nodes."""
    done = cluster.begin()
    for node in nodes:
        table = cluster.servers[node].store.tables["kit", "orders"]
        done.on(node).insert(table, {"id": str(number), "v": "x"})
    done.commit()


def sources(daemon: SeveralDaemon) -> dict[str, Json]:
    """What is told of each; of none while nobody answers."""
    return {of["name"]: of for of in (daemon.status() or {}).get("sources", [])}


def test_a_transaction_that_holds_the_mark_is_named(
    cluster: GaussCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its node and number: prepared on both, committed on one of them."""
    with several(cluster, tmp_path) as daemon:
        write(cluster, 1, *NODES)
        daemon.catch_up_csn()
        held = cluster.begin()
        for node in NODES:
            table = cluster.servers[node].store.tables["kit", "orders"]
            held.on(node).insert(table, {"id": "2", "v": "x"})
        held.draw_csn()
        xid = held.parts["dn2"].xid
        held.commit_on("dn1")
        write(cluster, 3, "dn1")
        wait_until(lambda: sources(daemon).get("dn2", {}).get("is_late") is True, "dn2 is late")
        told = sources(daemon)
        assert told["dn2"]["held_by"] == [{"xid": xid, "pid": None}]
        assert told["dn1"]["is_late"] is False
        wait_until(lambda: sources(daemon)["dn1"]["waiting_transactions"] == 2, "both wait")
        metrics = daemon.get("/metrics")[1].decode()
        assert 'gaussdecode_collect_turn_held_seconds{slot="dn1,dn2",source="dn1"} 0\n' in metrics
        assert (
            'gaussdecode_collect_turn_waiting_transactions{slot="dn1,dn2",source="dn1"} 2\n'
            in metrics
        )
        main(["status", str(daemon.config_path)])
        assert f"for transaction {xid}, prepared" in capsys.readouterr().out
        held.commit()
        daemon.catch_up_csn()
        wait_until(lambda: not sources(daemon)["dn2"]["is_late"], "nobody is late")
        watermarks = {of["watermark_csn"] for of in sources(daemon).values()}
        assert watermarks == {daemon.watermark()}
        assert daemon.stop() == 0
    check_several(daemon.root, cluster)


def test_a_node_that_is_away_is_named(cluster: GaussCluster, tmp_path: Path) -> None:
    """While nothing lands of the others."""
    with several(cluster, tmp_path) as daemon:
        write(cluster, 1, *NODES)
        daemon.catch_up_csn()
        cluster.away("dn2")
        write(cluster, 2, "dn1")
        wait_until(
            lambda: "source dn2" in str((daemon.status() or {}).get("detail")), "dn2 is named"
        )
        assert set(sources(daemon)) == set(NODES)
        assert daemon.watermark() < cluster.history()[-1].csn
        assert daemon.stop() == 0


def test_a_slot_that_is_lost_ends_the_landing(cluster: GaussCluster, tmp_path: Path) -> None:
    """It says which source, and that a new landing is needed; no gap entry is written."""
    with several(cluster, tmp_path) as daemon:
        write(cluster, 1, *NODES)
        daemon.catch_up_csn()
        assert daemon.stop() == 0
        del cluster.servers["dn2"].slots["s"]
        daemon.start()
        assert daemon.wait() == SourceRefusedError.exit_status
        said = daemon.log_tail(3)
        assert "source dn2: slot 's' does not exist any more" in said
        assert "into a new landing.root" in said
        assert "source dn1" not in said
    assert [entry["kind"] for entry in daemon.entries()].count("gap") == 0
