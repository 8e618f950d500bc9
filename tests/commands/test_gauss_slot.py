"""Tests for `gaussdecode.commands.slot` on a simulated openGauss."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.gausscluster import GaussCluster
from kit.gaussprofile import COMMERCIAL, V3_0_0, V6_0_0, Profile
from kit.gaussserver import GaussServer
from kit.postgres import Postgres

from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
BY_CSN = "decoding: {output-order: 1}"


@pytest.mark.parametrize("profile", [V3_0_0, V6_0_0, COMMERCIAL], ids=lambda p: p.name)
def test_a_slot_from_birth_to_death(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, profile: Profile
) -> None:
    """Created, listed, moved and dropped by ordinary SQL, in every version."""
    server = make_gauss(profile)
    path = configure_gauss(server)
    made = run("slot", "create", path)
    assert made.status == EX_OK, made.err
    slot = server.slots["orders"]
    assert slot.plugin == "mppdb_decoding"
    server.store.write(1000)
    moved = run("slot", "advance", "--upto-lsn", str(Lsn(server.wal_end)), path)
    assert moved.status == EX_OK, moved.err
    assert slot.confirmed_lsn == server.wal_end
    (line,) = run("slot", "list", "--json", path).out.splitlines()
    record = json.loads(line)
    assert (record["slot_name"], record["plugin"]) == ("orders", "mppdb_decoding")
    assert (record["database"], record["active"]) == ("shop", False)
    shown = str(Lsn(server.wal_end)) if profile.has_confirmed_flush else None
    assert record["confirmed_flush"] == shown
    assert run("slot", "drop", path).status == EX_OK
    assert server.slots == {}


def test_the_plugin_is_the_configurations(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """One that the product lacks is refused with the list of those it has."""
    server = make_gauss()
    assert run("slot", "create", configure_gauss(server, source="plugin: sql_decoding")).status == 0
    assert server.slots["orders"].plugin == "sql_decoding"
    path = configure_gauss(
        server,
        "decoding: {parallel-decode-num: 2}",
        source="plugin: parallel_json_decoding",
        slot="other",
    )
    refused = run("slot", "create", "--no-landing", path)
    assert refused.status == EX_CONFIG
    assert "allowed: mppdb_decoding, sql_decoding" in refused.err
    commercial = make_gauss(COMMERCIAL)
    path = configure_gauss(
        commercial,
        "decoding: {parallel-decode-num: 2}",
        source="plugin: parallel_json_decoding",
    )
    foreign = run("slot", "create", path)  # the landing of the first one is there
    assert foreign.status == EX_CONFIG
    assert "belongs to another source" in foreign.err
    assert commercial.slots == {}
    assert run("slot", "create", "--no-landing", path).status == EX_OK


def test_what_the_server_refuses_is_said(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """Twice the same name, none to drop, a standby, and PostgreSQL's own failover slots."""
    server = make_gauss()
    path = configure_gauss(server)
    assert "does not exist" in run("slot", "drop", path).err
    assert run("slot", "create", path).status == EX_OK
    again = run("slot", "create", path)
    assert again.status == EX_CONFIG
    assert "already exists" in again.err
    assert "--failover has no use" in run("slot", "create", "--failover", path).err
    standby = make_gauss(is_standby=True)
    assert run("slot", "create", configure_gauss(standby)).status != EX_OK


def configure_nodes(directory: Path, cluster: GaussCluster, *lines: str) -> str:
    """Write a configuration with all nodes of a cluster."""
    password = directory / "password"
    password.write_text("Gauss@123\n")
    password.chmod(0o600)
    path = directory / "orders.yaml"
    text = ["sources:"]
    for name, server in cluster.servers.items():
        dsn = f"host=127.0.0.1 port={server.port} dbname=shop user=replica sslmode=disable"
        text += [f"  {name}:", f"    dsn: {dsn}", "    slot: orders"]
        text += [f"    ha-port: {server.ha_port}"]
    text += ["source:", "  kind: gaussdb", f"  password-file: {password}", "  allow-insecure: true"]
    text += ["snapshot: {mode: none}", "landing:", f"  root: {directory / 'landing'}", *lines]
    path.write_text("\n".join([*text, *([] if lines else [BY_CSN])]) + "\n")
    return str(path)


@pytest.fixture
def cluster(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """Three nodes of GaussDB."""
    with GaussCluster(profile=COMMERCIAL, postgres=servers(15)) as made:
        yield made
    assert made.violations() == []


def test_slots_of_several_nodes(cluster: GaussCluster, tmp_path: Path, run: Run) -> None:
    """Made, listed and dropped on every node by one command."""
    path = configure_nodes(tmp_path, cluster)
    made = run("slot", "create", path)
    assert made.status == EX_OK, made.err
    assert [line.split(" | ")[0].strip() for line in made.out.splitlines()[-3:]] == [
        *cluster.servers
    ]
    slots = {name: server.slots["orders"] for name, server in cluster.servers.items()}
    assert [slot.confirmed_csn for slot in slots.values()] == [0, 0, 0]
    (entry,) = (tmp_path / "landing" / "commits").glob("*.json")
    positions = json.loads(entry.read_text())["positions"]
    begun = {name: slot.confirmed_lsn for name, slot in slots.items()}
    assert {name: of["lsn"] for name, of in positions.items()} == begun
    records = [json.loads(line) for line in run("slot", "list", "--json", path).out.splitlines()]
    assert [of["source"] for of in records] == [*cluster.servers]
    assert {of["confirmed_csn"] for of in records} == {None}
    dropped = run("slot", "drop", "--yes", path)
    assert dropped.status == EX_OK, dropped.err
    assert [server.slots for server in cluster.servers.values()] == [{}, {}, {}]


def test_check_looks_at_every_node(cluster: GaussCluster, tmp_path: Path, run: Run) -> None:
    """What is wrong names the node; before and after the landing has begun."""
    path = configure_nodes(tmp_path, cluster)
    for server in cluster.servers.values():
        server.store.create_table("shop", "orders", {"id": "int8"}, key=["id"])
    before = run("check", path)
    assert before.status == EX_CONFIG
    told = " ".join(before.out.split())
    for name in cluster.servers:
        assert f"{name}: slot: " in told
    assert run("slot", "create", path).status == EX_OK
    after = run("check", path)
    assert after.status == EX_OK, after.out
    for name in cluster.servers:
        assert f"{name}: starts at" in " ".join(after.out.split())
    cluster.servers["dn2"].slots.pop("orders")
    lost = run("check", path)
    assert lost.status == EX_CONFIG
    told = " ".join(lost.out.split())
    assert "dn2: slot: " in told
    assert "dn1: slot: slot" not in told
    cluster.away("dn3")
    away = run("check", path)
    assert "dn3" in " ".join(away.out.split())
    assert away.status != EX_OK


def test_a_slot_in_use_keeps_all(cluster: GaussCluster, tmp_path: Path, run: Run) -> None:
    """Before any of them is dropped, all are looked at."""
    path = configure_nodes(tmp_path, cluster)
    assert run("slot", "create", path).status == EX_OK
    cluster.servers["dn3"].slots["orders"].is_active = True
    refused = run("slot", "drop", "--yes", path)
    assert refused.status == EX_CONFIG
    assert "in use" in refused.err
    assert all("orders" in server.slots for server in cluster.servers.values())


@pytest.mark.parametrize("fault", ["away", "exists", "standby"])
def test_what_was_made_is_dropped_when_a_later_one_fails(
    cluster: GaussCluster, tmp_path: Path, run: Run, fault: str
) -> None:
    """No slot is left that nobody reads; one that somebody else made stays."""
    path = configure_nodes(tmp_path, cluster)
    last = cluster.servers["dn3"]
    if fault == "away":
        cluster.away("dn3")
    elif fault == "standby":
        last.behaviour.is_standby = True
    else:
        last.create_slot("orders")
    failed = run("slot", "create", path)
    assert failed.status != EX_OK
    for name in ("dn1", "dn2"):
        assert cluster.servers[name].slots == {}
        is_dropped = f"slot orders of {name} is dropped again" in failed.err
        assert is_dropped == (fault != "away")  # one that is away is missed before any is made
    assert list(last.slots) == (["orders"] if fault == "exists" else [])
    assert not list((tmp_path / "landing").glob("commits/*.json"))


def test_what_was_made_is_dropped_when_the_landing_cannot_begin(
    cluster: GaussCluster, tmp_path: Path, run: Run
) -> None:
    """The servers have made all, and one of them prints values that could not be read."""
    path = configure_nodes(tmp_path, cluster)
    cluster.servers["dn2"].behaviour.settings["bytea_output"] = "escape"
    failed = run("slot", "create", path)
    assert failed.status == EX_CONFIG
    assert "bytea_output" in failed.err
    assert [server.slots for server in cluster.servers.values()] == [{}, {}, {}]


def test_a_slot_by_csn_is_for_peek_only(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """GaussDB makes one with --no-landing; adopt and check refuse it, and say what to do."""
    server = make_gauss(COMMERCIAL)
    path = configure_gauss(server, BY_CSN, "snapshot: {mode: none}")
    made = run("slot", "create", "--no-landing", path)
    assert made.status == EX_OK, made.err
    csn = server.slots["orders"].confirmed_csn
    assert csn > 0
    (line,) = run("slot", "list", "--json", path).out.splitlines()
    assert json.loads(line)["confirmed_csn"] == csn
    assert str(csn) in run("slot", "list", path).out
    for command in (("slot", "adopt"), ("check",)):
        refused = run(*command, path)
        assert refused.status == EX_CONFIG
        said = " ".join((refused.out + refused.err).split())
        assert f"sends in the order of CSNs (confirmed_csn {csn})" in said
        assert "gaussdecode slot drop" in said
        assert "gaussdecode slot create" in said
    assert run("slot", "drop", path).status == EX_OK
    assert run("slot", "create", path).status == EX_OK
    assert server.slots["orders"].confirmed_csn == 0
    checked = run("check", path)
    assert checked.status == EX_OK, checked.out
    other = configure_gauss(make_gauss(), BY_CSN)
    refused = run("slot", "create", "--no-landing", other)
    assert refused.status == EX_CONFIG
    assert "has no slots in CSN order" in refused.err


@pytest.mark.parametrize("order", [BY_CSN, ""], ids=["by csn", "by lsn"])
def test_a_coordinator_is_refused(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, order: str
) -> None:
    """It merges by itself, whatever order a landing wants; a data node is followed."""
    server = make_gauss(COMMERCIAL, node_type="C")
    path = configure_gauss(server, *filter(None, [order]), "snapshot: {mode: none}")
    refused = run("slot", "create", path)
    assert refused.status == EX_CONFIG
    assert "the server is a coordinator" in refused.err
    assert "sources" in refused.err
    assert server.slots == {}
    server.create_slot("orders")
    for command in (("slot", "adopt"), ("check",)):
        refused = run(*command, path)
        assert refused.status == EX_CONFIG
        assert "the server is a coordinator" in " ".join((refused.out + refused.err).split())
    server.behaviour.node_type = "D"
    assert run("slot", "adopt", path).status == EX_OK
    server.behaviour.node_type = "C"
    assert "the server is a coordinator" in " ".join(run("check", path).out.split())


def test_what_does_not_say_its_kind_is_followed(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """The nodes' table may not be read by this role: nothing is known of the server."""
    server = make_gauss(COMMERCIAL, node_type="C")
    server.denied.add(("replica", "pgxc_node"))
    path = configure_gauss(server, BY_CSN, "snapshot: {mode: none}")
    assert run("slot", "create", path).status == EX_OK
    assert run("check", path).status == EX_OK
