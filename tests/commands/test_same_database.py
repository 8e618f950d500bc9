"""One database named as two sources would land each of its rows twice: refused wherever it is asked for."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.commands import Run
from kit.daemon import Daemon
from kit.gausscluster import GaussCluster
from kit.gaussdaemon import GaussDatabase
from kit.gaussprofile import COMMERCIAL
from kit.gaussseveral import SeveralDaemon, several
from kit.postgres import Database, Postgres
from kit.shards import ShardsDaemon, prepared

from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.land.layout import Layout

pytestmark = pytest.mark.integration
_SAID = "'east' and 'west' are one database"


@pytest.fixture
def shards(servers: Callable[[int], Postgres]) -> Iterator[dict[str, Database]]:
    """Two databases of one server."""
    made = {name: Database(servers(15), f"same_{name}") for name in ("east", "west")}
    prepared(made)
    yield made
    for shard in made.values():
        shard.drop()


def _sources(daemon: Daemon, database: Database) -> None:
    """Have the other source lead to a database too, by another address and another slot."""
    dsn = f"{database.dsn} sslmode=disable application_name=other"
    sources = {**daemon._config["sources"], "west": {"dsn": dsn, "slot": "same_second"}}
    daemon.write_config_value("sources", sources)


def test_two_sources_of_one_database_are_refused(
    shards: dict[str, Database], tmp_path: Path, run: Run
) -> None:
    """By every command, before anything is made; two databases of one server are two."""
    daemon = ShardsDaemon(shards, tmp_path)
    path = str(daemon.config_path)
    assert run("slot", "create", path).status == EX_OK
    assert "are one database" not in run("check", path).out
    assert run("slot", "drop", "--yes", path).status == EX_OK
    _sources(daemon, shards["east"])
    daemon.write_config(landing={"root": str(tmp_path / "other")})
    made = run("slot", "create", path)
    assert made.status == EX_CONFIG
    assert _SAID in made.err
    assert shards["east"].execute("SELECT slot_name FROM pg_replication_slots") == []
    assert not (tmp_path / "other" / "layout.json").exists()
    for name in ("same_east", "same_second"):
        shards["east"].create_slot(name)
    adopted = run("slot", "adopt", path)
    assert adopted.status == EX_CONFIG
    assert _SAID in adopted.err
    checked = run("check", path)
    assert checked.status == EX_CONFIG
    assert _SAID in " ".join(checked.out.split())


def test_the_daemon_refuses_them_too(shards: dict[str, Database], tmp_path: Path) -> None:
    """Where a landing of such has begun: an earlier version began it."""
    shards["east"].create_slot("same_second")
    for shard in shards.values():
        shard.create_slot()
    with ShardsDaemon(shards, tmp_path) as daemon:
        daemon.wait_for_state("streaming")
        assert daemon.stop() == 0
        _sources(daemon, shards["east"])
        path = daemon.root / "layout.json"
        layout = Layout.from_bytes(path.read_bytes())
        first = layout.sources["east"]
        layout.sources["west"] = dataclasses.replace(first, slot="same_second")
        path.write_bytes(layout.to_bytes())
        before = len(daemon.entries())
        assert daemon.start().wait() == EX_CONFIG, daemon.log_tail()
        assert _SAID in daemon.log_tail(2)
        # Which of the two comes first may say that its tables are others than before.
        later = daemon.entries()[before:]
        assert {entry["kind"] for entry in later} <= {"suspect"}


@pytest.fixture
def cluster(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """Two nodes of GaussDB that have one system identifier."""
    with GaussCluster(("dn1", "dn2"), profile=COMMERCIAL, postgres=servers(15)) as made:
        identifiers = {server.system_identifier for server in made.servers.values()}
        for server in made.servers.values():
            server.system_identifier = min(identifiers)
        yield made


def test_nodes_are_told_apart_by_their_names(
    cluster: GaussCluster, tmp_path: Path, run: Run
) -> None:
    """Nodes of one system identifier are two; two slots of one node are one."""
    daemon: SeveralDaemon = several(cluster, tmp_path)
    path = str(daemon.config_path)
    checked = run("check", path)
    assert "are one database" not in checked.out
    first = cluster.servers["dn1"]
    node = GaussDatabase(first, "second")
    sources = {
        **daemon._config["sources"],
        "dn2": {"dsn": f"{node.dsn} sslmode=disable", "slot": node.slot},
    }
    daemon.write_config_value("sources", sources)
    for command in (("slot", "adopt"), ("check",)):
        refused = run(*command, path)
        assert refused.status == EX_CONFIG
        said = " ".join((refused.out + refused.err).split())
        assert "'dn1' and 'dn2' are one database" in said
