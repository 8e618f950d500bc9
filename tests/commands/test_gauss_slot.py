"""Tests for `gaussdecode.commands.slot` on a simulated openGauss."""

import json
from collections.abc import Callable

import pytest
from kit.commands import Configure, Run
from kit.gaussprofile import COMMERCIAL, V3_0_0, V6_0_0, Profile
from kit.gaussserver import GaussServer

from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]


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
