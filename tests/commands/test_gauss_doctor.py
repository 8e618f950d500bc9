"""Tests for the doctor of GaussDB: its rules alone, then on a simulated server."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from kit.commands import Configure, Run
from kit.gausspassword import User
from kit.gaussserver import GaussServer

from gaussdecode.errors import EX_OK, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.check.doctor_gaussdb import GaussCheckInput, examine_gaussdb
from gaussdecode.protocol.gaussdb.profile import VersionProfile
from gaussdecode.settings.landing_sections import SnapshotConfig
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config
from gaussdecode.source.gaussdb import inspection
from gaussdecode.source.gaussdb.inspection import GaussInspection
from gaussdecode.source.gaussdb.server import GaussServerState
from gaussdecode.source.slot import SlotState

MakeGauss = Callable[..., GaussServer]
SLOT = SlotState(
    name="orders", plugin="mppdb_decoding", slot_type="logical", database="shop",
    is_temporary=False, is_active=False, active_pid=None, restart_lsn=Lsn(90),
    confirmed_flush_lsn=Lsn(100), wal_status=None, safe_wal_size=None, is_two_phase=False,
    invalidation_reason=None, is_failover=False,
)  # fmt: skip
SERVER = GaussServerState(
    60000, "7", 1, Lsn(500), "shop", SLOT, 30000, "UTF8",
    profile=VersionProfile("openGauss", (6, 0, 0)),
)  # fmt: skip
WELL = GaussInspection(
    role="gd", has_all_rights=False, extra_rights=(), connection_limit=-1,
    settings={"max_wal_senders": "16", "max_replication_slots": "8", "enable_slot_log": "on"},
    slots=1, active_slots=0, is_encrypted=True, clock_offset=0.01, oldest_transaction=2.0,
    prepared_transactions=0,
)  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A configuration over TCP, with four decoders."""
    path = tmp_path / "orders.yaml"
    path.write_text(
        "slot: orders\nsource: {kind: gaussdb, dsn: host=dn1 dbname=shop user=gd}\n"
        "decoding: {parallel-decode-num: 4}\n"
        f"landing: {{root: {tmp_path / 'landing'}}}\n"
    )
    path.chmod(0o600)
    return load(path)


def found(
    config: Config, seen: GaussInspection = WELL, server: GaussServerState = SERVER
) -> list[str]:
    """What the doctor finds; each finding says why and what to do."""
    findings = examine_gaussdb(GaussCheckInput(config, server, seen))
    assert all(finding.why and finding.remedy for finding in findings)
    return [finding.what for finding in findings]


def of_version(product: str, *version: int, is_candidate: bool = False) -> GaussServerState:
    """The server in another version."""
    major, minor, patch = version
    profile = VersionProfile(product, (major, minor, patch), is_candidate=is_candidate)
    return dataclasses.replace(SERVER, profile=profile)


def test_nothing_is_found_where_all_is_well(config: Config) -> None:
    """A server as the guide describes it; settings that are hidden are no finding."""
    assert found(config) == []
    assert found(config, dataclasses.replace(WELL, settings={}, prepared_transactions=None)) == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"has_all_rights": True}, "role gd is the initial user"),
        ({"extra_rights": ("SYSADMIN", "CREATEDB")}, "more than it needs: SYSADMIN, CREATEDB"),
        ({"connection_limit": 3}, "may open 3 connections"),
        ({"settings": {**WELL.settings, "enable_slot_log": "off"}}, "enable_slot_log is off"),
        ({"active_slots": 8}, "8 slots are being read"),
        ({"oldest_transaction": 7200.0}, "open for 2.0 hours"),
        ({"prepared_transactions": 2}, "2 prepared transactions"),
        ({"clock_offset": -90.0}, "clock is 90 seconds behind"),
        ({"is_encrypted": False}, "is not encrypted"),
        ({"unreadable": (("s", "t"),)}, "role gd may not read s.t"),
    ],
)
def test_each_illness_is_found_alone(config: Config, changes: dict[str, object], what: str) -> None:
    """One cause, one finding."""
    (only,) = found(config, dataclasses.replace(WELL, **changes))  # type: ignore[arg-type]  # as given
    assert what in only


@pytest.mark.parametrize(
    ("server", "what"),
    [
        (of_version("openGauss", 3, 0, 0), "openGauss 3.0.0 loses rows silently"),
        (of_version("openGauss", 6, 0, 0, is_candidate=True), "is a release candidate"),
        (of_version("MogDB", 3, 0, 0), "MogDB 3.0.0 is not known here"),
        (dataclasses.replace(SERVER, sender_timeout_ms=5000), "logical_sender_timeout is 5000 ms"),
        (dataclasses.replace(SERVER, encoding="SQL_ASCII"), "encoding is SQL_ASCII"),
        (dataclasses.replace(SERVER, wal_end=Lsn(17 << 30)), "keeps 16 GiB of WAL for slot orders"),
        (dataclasses.replace(SERVER, slot=None, is_standby=True), "a standby and has no such slot"),
    ],
)  # fmt: skip
def test_the_server_and_its_slot_are_looked_at(
    config: Config, server: GaussServerState, what: str
) -> None:
    """Version, settings, WAL that is kept, and what a standby cannot do."""
    (only,) = found(config, server=server)
    assert what in only


def test_room_counts_only_where_it_is_needed(config: Config) -> None:
    """A slot that exists needs no other one, and a stream that runs no other walsender."""
    absent = dataclasses.replace(SERVER, slot=None)
    full = dataclasses.replace(WELL, slots=8)
    assert found(config, full) == []
    assert found(config, full, absent) == ["no replication slot of 8 is free"]
    busy = dataclasses.replace(WELL, active_slots=4, settings={"max_wal_senders": "4"})
    assert found(config, busy) == ["no walsender of 4 is free"]
    ours = dataclasses.replace(SERVER, slot=dataclasses.replace(SLOT, is_active=True))
    assert found(config, busy, ours) == []


def test_serial_decoding_of_old_servers_hides_truncate(config: Config) -> None:
    """With several decoders every version does, which the plan says."""
    serial = dataclasses.replace(
        config, decoding=dataclasses.replace(config.decoding, parallel_decode_num=1)
    )
    assert found(serial, server=of_version("openGauss", 5, 0, 1)) == [
        "openGauss 5.0.1 does not send TRUNCATE"
    ]
    assert found(config, server=of_version("openGauss", 5, 0, 1)) == []


def test_names_are_quoted_in_what_mends(config: Config) -> None:
    """A command can be copied, whatever a role is called."""
    seen = dataclasses.replace(WELL, role='a"b', extra_rights=("SYSADMIN",))
    (finding,) = examine_gaussdb(GaussCheckInput(config, SERVER, seen))
    assert finding.remedy == 'ALTER ROLE "a""b" NOSYSADMIN REPLICATION;'


@pytest.mark.parametrize("policy", ["record", "snapshot"])
def test_what_is_to_be_read_must_be_readable(config: Config, policy: str) -> None:
    """At the beginning what the mode wants, for suspects every table of the white list."""
    landing = dataclasses.replace(config.landing, on_suspect=policy)
    decoding = dataclasses.replace(config.decoding, white_table_list="s.*")
    wanted = SnapshotConfig(mode="none", tables=(("s.a", "initial"),))
    poor = dataclasses.replace(config, landing=landing, decoding=decoding, snapshot=wanted)
    seen = dataclasses.replace(WELL, unreadable=(("other", "t"), ("s", "a"), ("s", "b")))
    (finding,) = examine_gaussdb(GaussCheckInput(poor, SERVER, seen))
    names = "s.a, s.b" if policy == "snapshot" else "s.a"
    assert finding.what == f"role gd may not read {names}"
    assert ("suspect" in finding.why) is (policy == "snapshot")
    assert 'GRANT SELECT ON ALL TABLES IN SCHEMA "s" TO "gd"' in finding.remedy
    quiet = dataclasses.replace(poor, snapshot=SnapshotConfig(mode="none"))
    assert bool(found(quiet, seen)) is (policy == "snapshot")
    standby = dataclasses.replace(poor.decoding, standby_connection=True)
    assert found(dataclasses.replace(poor, decoding=standby), seen) == []


@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize("version", [(5, 0, 0), (6, 0, 2)])
def test_partitions_by_interval_lose_rows_where_ddl_does(
    config: Config, version: tuple[int, int, int], is_parallel: bool
) -> None:
    """In parallel decoding, and serially before 6.0.0; of tables that land."""
    server = of_version("openGauss", *version)
    decoding = dataclasses.replace(
        config.decoding, parallel_decode_num=4 if is_parallel else 1, white_table_list="s.*"
    )
    seen = dataclasses.replace(WELL, by_interval=(("other", "t"), ("s", "a"), ("s", "b")))
    ours = dataclasses.replace(config, decoding=decoding)
    what = "partitions are made by interval: s.a, s.b"
    assert (what in found(ours, seen, server)) is (is_parallel or version < (6, 0, 0))
    none = dataclasses.replace(decoding, white_table_list="x.*")
    assert what not in found(dataclasses.replace(config, decoding=none), seen, server)


@pytest.mark.integration
def test_a_server_is_asked(make_gauss: MakeGauss, configure_gauss: Configure, run: Run) -> None:
    """What it says of role and settings is found; a plain role over TCP lacks TLS only."""
    server = make_gauss(settings={"max_replication_slots": "1", "enable_slot_log": "off"})
    path = configure_gauss(server, "decoding: {parallel-decode-num: 2}")
    server.create_slot("other")
    rights = frozenset({"rolsystemadmin", "rolcreatedb"})
    server.add_user(User("replica", "Gauss@123", rights=rights, connection_limit=3))
    result = run("check", path)
    for text in (
        "- role replica may do more than it needs: SYSADMIN, CREATEDB",
        "- role replica may open 3 connections",
        "- no replication slot of 1 is free",
        "- enable_slot_log is off",
    ):
        assert text in result.out
    assert 'do:   ALTER ROLE "replica" NOSYSADMIN NOCREATEDB REPLICATION;' in result.out

    well = make_gauss()
    well.create_slot("orders")
    _, stored, _ = (
        well.store.create_table("public", name, {"a": "int4"}, key=["a"]) for name in "tcu"
    )
    well.store.put_table(dataclasses.replace(stored, options=("orientation=column",)))
    well.forbidden |= {("public", "t"), ("public", "c")}
    path = configure_gauss(well, "decoding: {parallel-decode-num: 2}")
    assert "- role replica may not read public.t\n" in run("check", path).out
    well.forbidden.clear()
    well.store.put_table(dataclasses.replace(stored, is_by_interval=True))
    path = configure_gauss(well, "decoding: {parallel-decode-num: 2}")
    assert "- partitions are made by interval: public.c\n" in run("check", path).out
    with pytest.MonkeyPatch.context() as patched:
        refused = SourceRefusedError("permission denied for relation pg_partition", "42501")
        patched.setattr(inspection, "read_by_interval", mock.Mock(side_effect=refused))
        result = run("check", path)
        assert result.status == EX_OK, result.err
        assert "by interval" not in result.out
    well.store.put_table(stored)
    path = configure_gauss(well, "decoding: {parallel-decode-num: 2}")
    result = run("check", path)
    assert result.status == EX_OK, result.err
    assert "findings: 1\n - the connection is not encrypted" in result.out
    assert server.unknown_queries == []
    assert well.unknown_queries == []
