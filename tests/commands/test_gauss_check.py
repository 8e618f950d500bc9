"""Tests for `gaussdecode.commands.check` on a simulated openGauss or GaussDB."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.gaussprofile import COMMERCIAL, PROFILES, V3_0_0, V6_0_0, Profile
from kit.gaussserver import GaussServer

from gaussdecode.errors import EX_CONFIG, EX_OK, EX_UNAVAILABLE
from gaussdecode.settings.options import OPTIONS

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
PARALLEL = "decoding: {parallel-decode-num: 2}"


def table_rows(out: str) -> dict[str, list[str]]:
    """Rows of every printed table, by their first cell."""
    rows = [[cell.strip() for cell in line.split(" | ")] for line in out.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) > 1}


def offline(run: Run, path: str) -> dict[str, list[str]]:
    """The plan of a file alone."""
    result = run("check", "--offline", "--options", path)
    assert result.status == EX_OK, result.err
    return table_rows(result.out)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_plan(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, profile: Profile
) -> None:
    """Version, slot, tables, the command, and every option, in every version."""
    server = make_gauss(profile)
    slot = server.create_slot("orders")
    server.store.create_table(
        "public", "t1", {"id": "int8", "price": "numeric(10,2)", "b": "blob"}, key=["id"]
    )
    server.store.create_table("public", "plain", {"x": "int4"})
    undone = server.store.create_table("public", "undone", {"x": "int4"})
    server.store.put_table(dataclasses.replace(undone, is_ustore=True))  # sends its old rows
    path = configure_gauss(server, PARALLEL)
    result = run("check", "--tables", "--columns", "--options", path)
    assert result.status == EX_OK, result.err
    name = "GaussDB 505.1.0" if profile.is_commercial else f"openGauss {profile.name}"
    assert f"version      {name}, primary, encoding UTF8" in result.out
    assert "slot         orders: plug-in mppdb_decoding, database shop, not in use" in result.out
    assert 'command      START_REPLICATION SLOT "orders" LOGICAL 0/0 (' in result.out
    rows = table_rows(result.out)
    assert "public.plain" in rows
    assert rows["public.t1"] == ["b", "blob", "binary", "exact"]  # the last column
    assert "decimal128(10, 2)" in result.out
    assert {option.name for option in OPTIONS} <= rows.keys()
    assert "parallel decoding does not send TRUNCATE and DDL" in result.out
    assert "without replica identity: public.plain: UPDATE and DELETE come" in result.out
    if profile is V3_0_0:
        assert "drops rows that follow DDL" in result.out
    assert slot.is_active is False


def test_each_version_does_its_own_part(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """The column says who does it with the server that answers; offline it says both."""
    assert offline(run, configure_gauss(make_gauss()))["include-user"][1] == (
        "GaussDB: server; openGauss: refused"
    )
    for profile, expected in ((V3_0_0, "daemon"), (V6_0_0, "both"), (COMMERCIAL, "both")):
        server = make_gauss(profile)
        server.create_slot("orders")
        rows = table_rows(run("check", "--options", configure_gauss(server, PARALLEL)).out)
        assert rows["max-txn-in-memory"][1] == expected
        assert rows["include-user"][1] == ("server" if profile is COMMERCIAL else "refused")


def test_everything_wrong_is_shown(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """Options that the server lacks, a missing slot, a standby that is none."""
    server = make_gauss()
    path = configure_gauss(
        server, "decoding: {include-user: true, standby-connection: true, max-txn-in-memory: 7}"
    )
    result = run("check", "--options", path)
    assert result.status == EX_CONFIG
    assert "decoding.include-user: true is not possible on openGauss 6.0.0" in result.out
    assert "decoding.standby-connection: the server is the primary" in result.out
    assert "slot: slot 'orders' does not exist; create it with" in result.out
    assert "decoding options" in result.out


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"replication_hba": "reject"}, "pg_hba"),
        ({"settings": {"DateStyle": "SQL, DMY"}}, "DateStyle"),
        ({"settings": {"IntervalStyle": "iso_8601"}}, "IntervalStyle"),
        ({"settings": {"wal_level": "hot_standby"}}, "wal_level is hot_standby"),
    ],
    ids=["pg_hba", "DateStyle", "IntervalStyle", "wal_level"],
)
def test_servers_that_cannot_be_followed(
    make_gauss: MakeGauss,
    configure_gauss: Configure,
    run: Run,
    how: dict[str, object],
    expected: str,
) -> None:
    """What stands in the way is named, with what puts it right."""
    server = make_gauss(**how)
    server.create_slot("orders")
    path = configure_gauss(server, PARALLEL)
    result = run("check", path)
    assert result.status == EX_CONFIG
    assert expected in result.out


def test_the_ha_port_is_found(make_gauss: MakeGauss, configure_gauss: Configure, run: Run) -> None:
    """With a thread pool replication goes to the next port, unless the configuration names one."""
    server = make_gauss(thread_pool=True)
    server.create_slot("orders")
    path = Path(configure_gauss(server, PARALLEL))
    path.write_text(path.read_text().replace(f"  ha-port: {server.ha_port}\n", ""))
    assert server.ha_port == server.port + 1
    result = run("check", str(path))
    assert result.status == EX_OK, result.err
    assert "replication  the next port, because enable_thread_pool is on" in result.out


def test_defaults_of_the_server_are_told(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """logical_decode_options_default holds for what the configuration leaves open."""
    defaults = "parallel-decode-num=8,max-txn-in-memory=20"
    server = make_gauss(settings={"logical_decode_options_default": defaults})
    server.create_slot("orders")
    result = run("check", configure_gauss(server, PARALLEL))
    told = f"logical_decode_options_default is {defaults}: max-txn-in-memory 20 holds for this"
    assert told in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("options", "mode", "is_told"),
    [
        ("parallel-decode-num: 2, skip-empty-xacts: true, enable-heartbeat: true", "none", True),
        ("parallel-decode-num: 2", "none", False),
        ("parallel-decode-num: 1", "none", True),
        ("parallel-decode-num: 1", "initial", False),
        ("parallel-decode-num: 1, auto-advance: true", "none", False),
    ],
)
def test_a_slot_that_would_stand_still_is_told(
    make_gauss: MakeGauss,
    configure_gauss: Configure,
    run: Run,
    options: str,
    mode: str,
    *,
    is_told: bool,
) -> None:
    """Heartbeats move no slot; empty commits do, and in serial decoding auto-advance, or rows that are read."""
    server = make_gauss()
    server.create_slot("orders")
    result = run(
        "check", configure_gauss(server, f"decoding: {{{options}}}", f"snapshot: {{mode: {mode}}}")
    )
    assert ("an idle slot advances only when" in result.out + result.err) is is_told


def test_wrong_passwords_are_a_problem(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, tmp_path: Path
) -> None:
    """Said without the password; an absent server may come back."""
    server = make_gauss()
    path = configure_gauss(server)
    (tmp_path / "password").write_text("geheim-geheim\n")
    result = run("check", path)
    assert result.status == EX_CONFIG
    assert "geheim" not in result.out + result.err
    server.stop()
    assert run("check", path).status == EX_UNAVAILABLE


def test_quiet_modes_are_warned_of(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """Without empty commits an idle slot does not advance."""
    server = make_gauss()
    server.create_slot("orders")
    quiet = "decoding: {parallel-decode-num: 2, skip-empty-xacts: true}"
    result = run("check", configure_gauss(server, quiet, "snapshot: {mode: none}"))
    assert result.status == EX_OK, result.err
    assert "an idle slot advances only when a row" in result.out


def test_rounded_floats_are_said(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """sql_decoding rounds them, mppdb_decoding does not."""
    server = make_gauss(V6_0_0)
    server.store.create_table("public", "t1", {"id": "int8", "f": "float8"}, key=["id"])
    for plugin, expected in (
        ("sql_decoding", "rounded by the server"),
        ("mppdb_decoding", "exact"),
    ):
        server.create_slot(plugin, plugin)
        path = configure_gauss(
            server, "decoding: {parallel-decode-num: 1}", "snapshot: {mode: none}",
            source=f"plugin: {plugin}", slot=plugin,
        )  # fmt: skip
        result = run("check", "--columns", path)
        assert result.status == EX_OK, result.err
        assert table_rows(result.out)["public.t1"][-1].startswith(expected)
        assert ("rounds real to 6" in result.out) is (plugin == "sql_decoding")


def test_tables_stored_by_column_are_said(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """They are in no stream; what keeps their rows is no table of anybody's."""
    server = make_gauss(V6_0_0)
    server.create_slot("orders")
    sums = server.store.create_table("public", "sums", {"id": "int8"})
    server.store.put_table(dataclasses.replace(sums, options=("orientation=column",)))
    server.store.create_table("cstore", "pg_delta_16402", {"id": "int8"})
    server.store.create_table("public", "t1", {"id": "int8"}, key=["id"])
    result = run("check", "--tables", "--columns", configure_gauss(server, PARALLEL))
    assert result.status == EX_OK, result.err
    assert {"public.sums", "cstore.pg_delta_16402"}.isdisjoint(table_rows(result.out))
    assert "public.sums: stored by column" in result.out
    assert "cstore.pg_delta" not in result.out
    listed = "decoding: {parallel-decode-num: 2, white-table-list: public.t1}"
    assert "stored by column" not in run("check", configure_gauss(server, listed)).out
