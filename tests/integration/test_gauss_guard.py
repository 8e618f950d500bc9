"""The guard over a simulated GaussDB: its own decoding queues, a slot that goes or is given up."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.daemon import Json, wait_until
from kit.gaussdaemon import GaussDaemon, GaussDatabase
from kit.gaussprofile import V3_0_0, V6_0_0, Profile
from kit.gaussserver import GaussServer
from kit.gaussworkload import Workload

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.land.verify import verify
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
CONFIG: Json = {
    "decoding": {"parallel-decode-num": 3, "decode-style": "b", "sending-batch": 1},
    "guard": {"interval": "1s"},
}


def slot_of(daemon: GaussDaemon) -> Json:
    """What the guard last saw of the slot; empty before."""
    server = (daemon.status() or {}).get("server") or {}
    found: Json = server.get("slot") or {}
    return found


@pytest.mark.parametrize("profile", [V3_0_0, V6_0_0], ids=["3.0.0", "6.0.0"])
def test_the_servers_own_queues_are_seen(
    make_gauss: Callable[..., GaussServer], tmp_path: Path, profile: Profile
) -> None:
    """One length per decoder of the server, and how much of its log the slot holds back."""
    server = make_gauss(profile)
    workload = Workload(server.store, 1)
    daemon = GaussDaemon(GaussDatabase(server), tmp_path, config=CONFIG)
    with daemon:
        workload.run(10)
        daemon.catch_up()
        wait_until(lambda: len(slot_of(daemon).get("read_queues", ())) == 3, "the guard has looked")
        seen = slot_of(daemon)
        assert len(seen["decode_queues"]) == 3
        assert seen["is_active"]
        assert seen["wal_status"] == "reserved"
        assert 0 <= seen["retained_bytes"] <= seen["wal_end"]
        metrics = daemon.get("/metrics")[1].decode()
        assert 'gaussdecode_source_slot_lost{slot="s"} 0' in metrics
        assert 'gaussdecode_daemon_guard_failures_total{slot="s"} 0' in metrics
        assert b"Queues per decoder" in daemon.get("/")[1]
        assert daemon.stop() == 0


def test_a_slot_that_is_gone_ends_in_a_gap(
    make_gauss: Callable[..., GaussServer], tmp_path: Path
) -> None:
    """Dropped while the daemon was down: the gap begins at the durable position, once."""
    server = make_gauss(V6_0_0)
    workload = Workload(server.store, 1)
    daemon = GaussDaemon(GaussDatabase(server), tmp_path, config=CONFIG)
    with daemon:
        workload.run(10)
        daemon.catch_up()
        assert daemon.stop() == 0
        durable = daemon.durable_lsn()
        workload.run(10)
        server.drop_slot("s")
        for _ in range(2):
            daemon.start()
            assert daemon.wait() == EX_CONFIG
        (gap,) = [entry["extra"] for entry in daemon.entries() if entry["kind"] == "gap"]
        assert (gap["reason"], gap["from_lsn"]) == ("slot_missing", durable)
        assert durable < gap["until_lsn"] <= server.wal_end


def gaps(daemon: GaussDaemon) -> list[Json]:
    """Entries of kind gap."""
    return [entry for entry in daemon.entries() if entry["kind"] == "gap"]


def test_the_guard_drops_a_slot_and_an_operator_goes_on(
    make_gauss: Callable[..., GaussServer], tmp_path: Path
) -> None:
    """What came is landed, the slot goes, a gap is recorded once; accepted, a new slot is followed."""
    server = make_gauss(V6_0_0)
    workload = Workload(server.store, 1)
    guard = {"interval": "1s", "drop-slot-above": "24MiB"}
    daemon = GaussDaemon(GaussDatabase(server), tmp_path, config={**CONFIG, "guard": guard})
    with daemon:
        workload.run(10)
        daemon.catch_up()
        assert "s" in server.slots
        server.store.write(32 << 20)  # no row of it: the slot holds it back all the same
        assert daemon.wait() == EX_CONFIG
        assert server.slots == {}
        assert '"step": "drop"' in daemon.log.read_text()
        durable = daemon.durable_lsn()
        assert durable >= server.store.committed[-1].end_lsn
        assert daemon.start().wait() == EX_CONFIG
        (told,) = gaps(daemon)
        extra = told["extra"]
        assert (extra["reason"], extra["from_lsn"]) == ("slot_dropped_by_guard", durable)
        assert extra["is_open"]

        workload.run(5)
        begin = str(Lsn(durable))
        call = ("slot", "accept-gap", str(daemon.config_path), "--from-lsn", begin)
        assert main(call) == EX_OK
        _, accepted = gaps(daemon)
        (position,) = accepted["positions"].values()
        assert accepted["extra"]["reason"] == "slot_dropped_by_guard"
        assert (position["epoch"], position["lsn"]) == (2, server.slots["s"].confirmed_lsn)
        assert position["lsn"] >= server.store.committed[-1].end_lsn
        daemon.write_config(guard={"interval": "1s", "drop-slot-above": "1GiB"})
        daemon.start()
        workload.run(10)
        daemon.catch_up()
        assert daemon.stop() == EX_OK
        assert verify(daemon.root).is_clean
        assert daemon.durable_lsn() >= server.store.committed[-1].end_lsn
