"""Tests for the doctor in `gaussdecode check`: its rules alone, then on a server."""

import dataclasses
import re
from pathlib import Path

import psycopg
import pytest
from kit.commands import Configure, Run
from kit.postgres import Database

from gaussdecode.daemon.status.states import STATES
from gaussdecode.errors import EX_OK
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.check.doctor import (
    CheckInput,
    examine_server,
)
from gaussdecode.operations.check.landing import examine_landing, examine_memory
from gaussdecode.operations.check.plan import doubtful_values
from gaussdecode.operations.unit import unit_memory_max, unit_of
from gaussdecode.settings.landing_sections import SnapshotConfig
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config
from gaussdecode.source.postgresql.inspection import Inspection
from gaussdecode.source.postgresql.slot import ListedTable
from gaussdecode.source.slot import ServerState, SlotState

SLOT = SlotState(
    name="orders", plugin="pgoutput", slot_type="logical", database="shop", is_temporary=False,
    is_active=False, active_pid=None, restart_lsn=Lsn(90), confirmed_flush_lsn=Lsn(100),
    wal_status="reserved", safe_wal_size=9, is_two_phase=False, invalidation_reason=None,
    is_failover=True,
)  # fmt: skip
SERVER = ServerState(180003, "7", 1, Lsn(500), "shop", SLOT, 60000, "UTF8")
WELL = Inspection(
    role="gd", is_superuser=False, has_replication=True, extra_rights=(), connection_limit=13,
    settings={
        "wal_level": "logical", "max_wal_senders": "10", "max_replication_slots": "10",
        "max_slot_wal_keep_size": "100GB", "idle_replication_slot_timeout": "0",
        "synchronized_standby_slots": "standby",
    },
    senders=1, slots=1, is_standby=False, is_encrypted=True,
    clock_offset=0.01, oldest_transaction=2.0, prepared_transactions=0,
)  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A configuration over TCP."""
    path = tmp_path / "orders.yaml"
    path.write_text(
        "slot: orders\nsource: {kind: postgresql, dsn: host=db dbname=shop user=gd, publication: [p]}\n"
        f"landing: {{root: {tmp_path / 'landing'}}}\n"
    )
    path.chmod(0o600)
    return load(path)


def settings(**changes: str) -> Inspection:
    """A healthy server with other settings."""
    return dataclasses.replace(WELL, settings={**WELL.settings, **changes})


def found(config: Config, seen: Inspection = WELL, server: ServerState = SERVER) -> list[str]:
    """What the doctor finds."""
    findings = examine_server(CheckInput(config, server, (), seen))
    assert all(finding.why and finding.remedy for finding in findings)
    assert {finding.state for finding in findings} <= {None, *(state.name for state in STATES)}
    return [finding.what for finding in findings]


def test_nothing_is_found_where_all_is_well(config: Config) -> None:
    """A server as the guide describes it."""
    assert found(config) == []


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (settings(wal_level="replica"), "wal_level is replica"),
        (settings(max_slot_wal_keep_size="-1"), "max_slot_wal_keep_size is not set"),
        (settings(idle_replication_slot_timeout="1h"), "idle_replication_slot_timeout is 1h"),
        (settings(synchronized_standby_slots=""), "synchronized_standby_slots is empty"),
        (settings(max_wal_senders="1"), "no walsender of 1 is free"),
        (dataclasses.replace(WELL, has_replication=False), "role gd may not replicate"),
        (dataclasses.replace(WELL, is_superuser=True), "role gd is a superuser"),
        (dataclasses.replace(WELL, extra_rights=("CREATEDB",)), "more than it needs: CREATEDB"),
        (dataclasses.replace(WELL, connection_limit=11), "may open 11 connections"),
        (
            dataclasses.replace(WELL, connection_limit=13, role_connections=2),
            "may open 13 connections (rolconnlimit), and 2 are in use",
        ),
        (
            dataclasses.replace(WELL, database="shop", database_limit=11),
            "database shop takes 11 connections (datconnlimit)",
        ),
        (
            dataclasses.replace(
                settings(max_connections="20", superuser_reserved_connections="3"),
                server_connections=6,
            ),
            "takes 17 connections (max_connections, less 3 reserved ones), and 6 are in use",
        ),
        (settings(max_replication_slots="1"), "no replication slot of 1 is free"),
        (dataclasses.replace(WELL, unreadable=(("s", "t"),)), "role gd may not read s.t"),
        (dataclasses.replace(WELL, clock_offset=-90.0), "clock is 90 seconds behind"),
        (dataclasses.replace(WELL, clock_offset=90.0), "clock is 90 seconds ahead of"),
        (dataclasses.replace(WELL, oldest_transaction=7200.0), "open for 2.0 hours"),
        (dataclasses.replace(WELL, prepared_transactions=2), "2 prepared transactions"),
        (dataclasses.replace(WELL, is_encrypted=False), "is not encrypted"),
        (dataclasses.replace(WELL, frozen_age=1_200_000_000), "1,200 million transactions old"),
        (
            dataclasses.replace(WELL, catalog_xmin_age=600_000_000),
            "The oldest that the slot keeps is 600 million old",
        ),
    ],
)
def test_each_illness_is_found_alone(config: Config, seen: Inspection, what: str) -> None:
    """One cause, one finding."""
    (only,) = found(config, seen)
    assert what in only


def test_ddl_that_does_not_land_is_found(config: Config) -> None:
    """Triggers write into the stream what nobody asks for."""
    recorded = dataclasses.replace(WELL, ddl_triggers=3)
    assert found(config, recorded) == []
    silent = dataclasses.replace(config, source=dataclasses.replace(config.source, messages=False))
    (only,) = found(silent, recorded)
    assert "source.messages is off" in only


def test_the_slot_and_its_server_are_looked_at(config: Config) -> None:
    """Failover, a short timeout, and no room for a slot that is still to be made."""
    lonely = dataclasses.replace(SERVER, slot=dataclasses.replace(SLOT, is_failover=False))
    assert found(config, server=lonely) == ["slot orders is not kept on standbys"]
    hasty = dataclasses.replace(SERVER, sender_timeout_ms=5000)
    assert found(config, server=hasty) == ["wal_sender_timeout is 5000 ms"]
    late = dataclasses.replace(SERVER, slot=dataclasses.replace(SLOT, wal_status="unreserved"))
    assert found(config, server=late) == [
        "slot orders needs WAL that the server may remove at its next checkpoint"
    ]
    full = settings(max_replication_slots="1")
    absent = dataclasses.replace(SERVER, slot=None)
    assert found(config, full, absent) == ["no replication slot of 1 is free"]


def test_names_are_quoted_in_what_mends(config: Config) -> None:
    """A command can be copied, whatever a role is called."""
    seen = dataclasses.replace(WELL, role='a"b', is_superuser=True)
    (finding,) = examine_server(CheckInput(config, SERVER, (), seen))
    assert 'ALTER ROLE "a""b" NOSUPERUSER' in finding.remedy
    table = ListedTable("s", "t", "n", has_primary_key=True)
    (finding,) = examine_server(CheckInput(config, SERVER, (table,), WELL))
    assert finding.remedy.startswith('ALTER TABLE "s"."t" REPLICA IDENTITY FULL')


def test_snapshots_need_more(config: Config) -> None:
    """A right to read, connections and a slot: of what is not wanted nothing is said."""
    tables = tuple(("s", f"t{n}") for n in range(5))
    seen = dataclasses.replace(settings(max_replication_slots="1"), unreadable=tables)
    poor = dataclasses.replace(seen, connection_limit=4)
    said = found(config, poor)
    assert "role gd may not read s.t0, s.t1, s.t2 and 2 more" in said
    assert len(said) == 3
    (finding,) = examine_server(
        CheckInput(config, SERVER, (), dataclasses.replace(WELL, unreadable=(('a"b', "t"),)))
    )
    assert finding.remedy.startswith('GRANT USAGE ON SCHEMA "a""b" TO "gd"; GRANT SELECT ON ALL')
    quiet = dataclasses.replace(config, snapshot=SnapshotConfig(mode="none"))
    assert found(quiet, poor) == []
    some = SnapshotConfig(tables=(("s.*", "none"), ("s.t3", "initial")))
    assert "role gd may not read s.t3" in found(dataclasses.replace(config, snapshot=some), poor)


def test_the_landing_is_tried_out(config: Config) -> None:
    """What a publication does works here, and nothing is left behind."""
    place = config.landing.root.parent
    before = sorted(place.iterdir())
    assert examine_landing(config) == []
    assert sorted(place.iterdir()) == before
    config.landing.root.mkdir(mode=0o700)
    config.landing.root.chmod(0o755)
    (finding,) = examine_landing(config)
    assert "open to everybody" in finding.what
    assert list(config.landing.root.iterdir()) == []


@pytest.mark.parametrize(
    ("bounds", "what"),
    [
        ({"min_free_bytes": 1 << 60}, f"0 MiB are free for .*, beside {1 << 40} MiB that are left"),
        (
            {"min_free_bytes": 0, "spool_bytes": 1 << 60},
            "landing.spool-bytes is 1048576TiB, and",
        ),
    ],
)
def test_bounds_of_the_disk_are_compared_with_it(
    config: Config, bounds: dict[str, int], what: str
) -> None:
    """What is left free is not there to be used, and open transactions may not have more than there is."""
    changed = dataclasses.replace(config.landing, **bounds)  # type: ignore[arg-type]  # sizes
    (finding,) = examine_landing(dataclasses.replace(config, landing=changed))
    assert re.search(what, finding.what)


@pytest.mark.integration
def test_a_plain_role_is_well(database: Database, configure: Configure, run: Run) -> None:
    """As the guide makes it: it may see all that the doctor asks for, and is not blamed."""
    role = f"plain_{database.name}"
    database.create_slot()
    database.execute(f"CREATE ROLE {role} LOGIN REPLICATION NOINHERIT CONNECTION LIMIT 3")
    try:
        path = Path(configure(database))
        parameters = psycopg.conninfo.conninfo_to_dict(database.dsn)
        path.write_text(path.read_text().replace(f"user={parameters['user']}", f"user={role}"))
        result = run("check", str(path))
        assert result.status == EX_OK, result.err
        assert f"- role {role} may open 3 connections" in result.out
        assert "superuser" not in result.out
        assert "may not read" not in result.out
        database.execute("CREATE TABLE closed (id int4 PRIMARY KEY)")
        assert f"- role {role} may not read public.closed" in run("check", str(path)).out
        assert "more than it needs" not in result.out
    finally:
        database.execute(f"DROP ROLE {role}")


def test_budget_above_the_unit_is_found(config: Config) -> None:
    """A limit below the sum of all buffers is a finding; the sum itself is enough."""
    total = sum(config.memory_budget().values())
    assert examine_memory(config, None, "nothing") == []
    assert examine_memory(config, total, "MemoryMax") == []
    (finding,) = examine_memory(config, total - 1, "MemoryMax of gaussdecode@orders.service")
    assert f"{total >> 20} MiB, MemoryMax of gaussdecode@orders.service" in finding.what


_SYSTEMCTL = """#!/bin/sh
case "$*" in
*gaussdecode@orders.service*) printf 'LoadState=loaded\nMemoryMax=3221225472\n';;
*gaussdecode@free.service*) printf 'LoadState=loaded\nMemoryMax=infinity\n';;
*) printf 'LoadState=not-found\nMemoryMax=infinity\n';;
esac
"""


def test_the_limit_of_the_unit_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit is the one that reads the file; without unit, limit or systemd there is none."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert unit_memory_max("gaussdecode@orders.service") is None
    program = tmp_path / "systemctl"
    program.write_text(_SYSTEMCTL)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert unit_memory_max(unit_of(Path("/etc/gaussdecode/orders.yaml"))) == 3 << 30
    assert unit_memory_max(unit_of(Path("free.yaml"))) is None
    assert unit_memory_max("gaussdecode@other.service") is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sender_timeout": 1}, "decoding.sender-timeout: 1 ms is too short"),
        (
            {"change_log_max_len": 100},
            "change-log-max-len (100) times max-decode-to-sender-cache-num",
        ),
        ({}, None),
        ({"sender_timeout": 0}, None),
    ],
)
def test_doubtful_values_get_a_word(
    config: Config, changes: dict[str, object], told: str | None
) -> None:
    """They are allowed, and too small to be useful."""
    decoding = dataclasses.replace(config.decoding, **changes)  # type: ignore[arg-type]  # ints
    notes = list(doubtful_values(dataclasses.replace(config, decoding=decoding)))
    assert len(notes) == (told is not None)
    assert told is None or told in notes[0]


def test_a_directory_of_others_is_no_landing(config: Config) -> None:
    """Nobody is told to change its mode."""
    config.landing.root.mkdir(mode=0o755)
    (config.landing.root / "hosts").touch()
    (finding,) = examine_landing(config)
    assert "holds other files, and no landing" in finding.what
    assert "chmod" not in finding.remedy
