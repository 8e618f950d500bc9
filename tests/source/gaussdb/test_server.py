"""What servers of every version say of themselves, and what becomes of it."""

import dataclasses
from collections.abc import Iterator

import pytest
from kit.gaussprofile import COMMERCIAL, PROFILES, V3_0_0, V3_0_3, V6_0_0, Profile
from kit.gaussserver import GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store
from kit.postgres import Postgres
from kit.vectors import meaning

from gaussdecode.errors import ConfigError, IdentityError, SourceError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb import facts
from gaussdecode.protocol.gaussdb.profile import parse_version
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb import server as gaussserver
from gaussdecode.source.gaussdb.connection import GaussConnection, connect
from gaussdecode.source.gaussdb.server import GaussServerState
from gaussdecode.source.slot import LandingPosition, SlotState

GOOD_STYLES = {"DateStyle": "ISO, YMD", "IntervalStyle": "postgres", "bytea_output": "hex"}
SLOT = SlotState(
    name="orders",
    plugin="mppdb_decoding",
    slot_type="logical",
    database="shop",
    is_temporary=False,
    is_active=False,
    active_pid=None,
    restart_lsn=Lsn(0x100),
    confirmed_flush_lsn=Lsn(0x200),
    wal_status=None,
    safe_wal_size=None,
    is_two_phase=False,
    invalidation_reason=None,
    is_failover=False,
)
SERVER = GaussServerState(
    version=60000,
    system_identifier="77",
    timeline=1,
    wal_end=Lsn(0x900),
    database="shop",
    slot=SLOT,
    sender_timeout_ms=30_000,
    encoding="UTF8",
    profile=parse_version("(openGauss 6.0.0 build 1)"),
    settings={**GOOD_STYLES, "wal_level": "logical", "TimeZone": "Asia/Shanghai"},
)
LOG = LandingPosition("77", 1, "shop", "orders", "mppdb_decoding", Lsn(0x300))


def reach(server: GaussServer, *, is_replication: bool = False) -> GaussConnection:
    """Connect to a simulated server."""
    dsn = f"host=127.0.0.1 port={server.port} dbname=shop user=replica sslmode=disable"
    return connect(SourceAddress(dsn, "Gauss@123", True), is_replication=is_replication)


@pytest.fixture
def catalogue(postgres_15: Postgres) -> Iterator[Catalogue]:
    """What the simulated server answers SQL with."""
    made = Catalogue(postgres_15)
    yield made
    made.close()


@pytest.mark.integration
@pytest.mark.parametrize("name", PROFILES)
def test_every_version_is_read(name: str, catalogue: Catalogue) -> None:
    """Identity, profile, slot and settings, whichever columns there are."""
    profile: Profile = PROFILES[name]
    with GaussServer(Store(), profile, catalogue=catalogue) as server:
        created = server.create_slot("orders")
        with reach(server) as sql, reach(server, is_replication=True) as stream:
            state = gaussserver.read_server(sql, stream, "orders")
            missing = gaussserver.read_server(sql, stream, "other")
        assert server.violations == []
        assert server.unknown_queries == []
    assert missing.slot is None
    assert (state.database, state.timeline, state.encoding) == ("shop", 1, "UTF8")
    assert state.system_identifier == str(server.system_identifier)
    assert state.sender_timeout_ms == 30_000
    assert state.wal_end == server.wal_end
    assert state.profile.is_commercial is profile.is_commercial
    assert state.profile.has(facts.BEGIN_XID) is profile.begin_has_xid
    assert state.profile.has(facts.MEMORY_OPTIONS) is profile.has_memory_options
    assert state.profile.has_origins is profile.has_originid
    assert state.profile.sends_truncate is (profile.sends_truncate and not profile.is_commercial)
    assert state.slot is not None
    assert (state.slot.plugin, state.slot.database) == ("mppdb_decoding", "shop")
    shown = Lsn(created.confirmed_lsn) if profile.has_confirmed_flush else None
    assert state.slot.confirmed_flush_lsn == shown
    assert gaussserver.check_start(None, state, "orders") == (shown or 0)
    assert state.is_standby is False


@pytest.mark.integration
@pytest.mark.parametrize("profile", [V3_0_0, V6_0_0, COMMERCIAL], ids=lambda p: p.name)
def test_slots_are_made_listed_moved_and_dropped(profile: Profile, catalogue: Catalogue) -> None:
    """With every plug-in of the product."""
    store = Store()
    with GaussServer(store, profile, catalogue=catalogue) as server, reach(server) as sql:
        points = {}
        for index, plugin in enumerate(sql.profile.plugins):
            points[f"s{index}"] = gaussserver.create_slot(sql, f"s{index}", plugin)
        listed = gaussserver.list_slots(sql)
        assert [(one.name, one.plugin) for one in listed] == list(
            zip(points, sql.profile.plugins, strict=True)
        )
        store.write(4096)
        assert gaussserver.advance_slot(sql, "s0", Lsn(server.wal_end)) == server.wal_end
        gaussserver.drop_slot(sql, "s1")
        assert "s1" not in [one.name for one in gaussserver.list_slots(sql)]
        with pytest.raises(SourceRefusedError, match="slot create"):
            gaussserver.drop_slot(sql, "s1")
        with pytest.raises(SourceRefusedError, match="another name"):
            gaussserver.create_slot(sql, "s0", "mppdb_decoding")
        with pytest.raises(SourceRefusedError, match=r"no plug-in 'pgoutput'; allowed: mppdb"):
            gaussserver.create_slot(sql, "x", "pgoutput")
        with pytest.raises(ConfigError, match="must be 1 to 63"):
            gaussserver.create_slot(sql, "X", "mppdb_decoding")
        assert server.violations == []


@pytest.mark.integration
def test_standby_makes_no_slots(catalogue: Catalogue) -> None:
    """It says so, and the advice names the primary."""
    with GaussServer(Store(), V6_0_0, catalogue=catalogue) as server, reach(server) as sql:
        server.behaviour.is_standby = True
        assert gaussserver.is_standby(sql)
        with pytest.raises(SourceRefusedError, match="primary"):
            gaussserver.create_slot(sql, "x", "mppdb_decoding")


@pytest.mark.integration
@pytest.mark.parametrize("profile", [V3_0_0, V3_0_3, COMMERCIAL], ids=lambda p: p.name)
def test_nothing_streams_no_status(profile: Profile, catalogue: Catalogue) -> None:
    """The function exists with any number of columns."""
    with GaussServer(Store(), profile, catalogue=catalogue) as server, reach(server) as sql:
        assert gaussserver.read_decode_status(sql) == []


def test_status_vector() -> None:
    """M01, with all columns and with the first four."""
    row = {name: str(value) for name, value in meaning("M01").items()}
    status = gaussserver.decode_status(row)
    assert status.slot == "slot1"
    assert status.read_queues == (33, 36, 1017)
    assert status.decode_queues == (1011, 1008, 27)
    assert gaussserver.decode_status(dict(list(row.items())[:4])) == status


def test_status_without_queues_is_empty() -> None:
    """Rows are incomplete while a stream starts."""
    status = gaussserver.decode_status({"slot_name": "a", "read_change_queue_length": None})
    assert (status.read_queues, status.decode_queues) == ((), ())


def test_position_that_is_none_is_an_error() -> None:
    """It is not guessed."""
    with pytest.raises(SourceError, match="spells a position"):
        gaussserver._slot_state({"slot_name": "a", "restart_lsn": "soon"})


# ---- judging -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding", ["UTF8", "GBK", "GB18030", "GB18030_2022", "LATIN1", "SQL_ASCII"]
)
def test_known_encodings(encoding: str) -> None:
    """They are transcoded."""
    assert gaussserver.problems(dataclasses.replace(SERVER, encoding=encoding)) == []


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"encoding": "EUC_JP"}, "encoding is EUC_JP"),
        ({"encoding": ""}, "encoding is unknown"),
        ({"settings": {**GOOD_STYLES, "wal_level": "hot_standby"}}, "wal_level = logical"),
        ({"settings": {**GOOD_STYLES, "DateStyle": "SQL, DMY"}}, "SET DateStyle = 'ISO'"),
        ({"settings": {**GOOD_STYLES, "IntervalStyle": "iso_8601"}}, "IntervalStyle = 'postgres'"),
        ({"settings": {**GOOD_STYLES, "bytea_output": "escape"}}, "bytea_output = 'hex'"),
        ({"settings": {}}, "'unknown'"),
    ],
)
def test_what_would_be_misread_is_refused(changes: dict[str, object], part: str) -> None:
    """With the statement that puts it right."""
    state = dataclasses.replace(SERVER, **changes)  # type: ignore[arg-type]  # names are checked
    with pytest.raises(SourceRefusedError) as caught:
        gaussserver.check_start(None, state, "orders")
    assert any(part in problem for problem in gaussserver.problems(state))
    assert str(caught.value) in gaussserver.problems(state)


@pytest.mark.integration
@pytest.mark.parametrize(("name", "value"), [("DateStyle", "SQL, DMY"), ("bytea_output", "escape")])
def test_settings_of_the_role_are_seen(catalogue: Catalogue, name: str, value: str) -> None:
    """Our own session must not cover them."""
    with GaussServer(Store(), V6_0_0, catalogue=catalogue) as server:
        server.behaviour.settings[name.lower()] = value
        with reach(server) as sql:
            settings = gaussserver.read_settings(sql)
    assert settings[name] == value
    assert [problem.partition(" ")[0] for problem in gaussserver.value_problems(settings)] == [name]


def test_any_time_zone_will_do() -> None:
    """The offset is printed with every time."""
    for zone in ("UTC", "Asia/Shanghai", "PRC", "+08"):
        assert gaussserver.value_problems({**GOOD_STYLES, "TimeZone": zone}) == []


def test_start_is_where_the_slot_stands() -> None:
    """What is sent again up to the log's position is compared with what landed."""
    assert gaussserver.check_start(LOG, SERVER, "orders") == 0x200
    assert gaussserver.check_start(None, SERVER, "orders") == 0x200


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"slot": None}, "does not exist"),
        ({"system_identifier": "78"}, "cluster 78"),
        ({"database": "other"}, "'other'"),
        ({"wal_end": Lsn(0x200)}, "WAL ends at 0/200"),
        ({"timeline": 0}, "older copy"),
    ],
)
def test_rules_of_the_start_hold_for_gaussdb(changes: dict[str, object], part: str) -> None:
    """The same as for PostgreSQL."""
    state = dataclasses.replace(SERVER, **changes)  # type: ignore[arg-type]  # names are checked
    with pytest.raises(IdentityError, match=part):
        gaussserver.check_start(LOG, state, "orders")


def test_slot_read_by_somebody_else_is_refused() -> None:
    """Its confirmed position is beyond the log's."""
    ahead = dataclasses.replace(SLOT, confirmed_flush_lsn=Lsn(0x400))
    with pytest.raises(IdentityError, match="another client"):
        gaussserver.check_start(LOG, dataclasses.replace(SERVER, slot=ahead), "orders")


def test_plugin_counts_in_serial_mode_only() -> None:
    """In parallel mode the server does not load it."""
    gaussserver.check_start(None, SERVER, "orders", ("mppdb_decoding",))
    with pytest.raises(IdentityError, match="sql_decoding is needed"):
        gaussserver.check_start(None, SERVER, "orders", ("sql_decoding",))
    physical = dataclasses.replace(SLOT, slot_type="physical", plugin=None)
    with pytest.raises(IdentityError, match="a logical one is needed"):
        gaussserver.check_start(None, dataclasses.replace(SERVER, slot=physical), "orders")


def test_old_versions_are_warned_of() -> None:
    """Silent loss, and a slot that hides its position."""
    assert gaussserver.warnings(SERVER, is_parallel=True) == []
    hidden = dataclasses.replace(SLOT, confirmed_flush_lsn=None)
    old = dataclasses.replace(
        SERVER,
        profile=parse_version("(openGauss 3.0.0 build 1)"),
        slot=hidden,
        encoding="GB18030_2022",
    )
    found = " ".join(gaussserver.warnings(old, is_parallel=True))
    assert all(
        part in found for part in ("without a word", "confirmed position", "read as GB18030")
    )


@pytest.mark.parametrize(
    ("version", "in_parallel", "serially"),
    [
        ("2.1.0", False, True),  # which has no parallel decoding
        ("3.0.0", True, True),
        ("5.1.0", True, True),
        ("6.0.0-RC1", True, False),
        ("6.0.0", True, False),
        ("7.0.0-RC1", True, False),
    ],
)
def test_serial_decoding_is_no_cure_before_it_is_one(
    version: str, in_parallel: bool, serially: bool
) -> None:
    """Rows after DDL in their transaction are dropped in both modes up to 5.1.0."""
    profile = parse_version(f"(openGauss {version} build 1)")
    assert profile.drops_after_ddl(is_parallel=True) is in_parallel
    assert profile.drops_after_ddl(is_parallel=False) is serially


def test_timeout_falls_back_to_the_servers_default() -> None:
    """A server that does not tell has 30 seconds."""
    assert gaussserver._sender_timeout_ms({}) == 30_000
    assert gaussserver._sender_timeout_ms({"wal_sender_timeout": "6000"}) == 6000
    both = {"logical_sender_timeout": "0", "wal_sender_timeout": "6000"}
    assert gaussserver._sender_timeout_ms(both) == 0
