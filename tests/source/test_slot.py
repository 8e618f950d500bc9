"""Slots on real servers of each major."""

import pytest
from kit.postgres import Database

from gaussdecode.errors import ConfigError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.slot import (
    advance_slot,
    create_slot,
    drop_slot,
    list_slots,
    published_tables,
    read_server,
    start_stream,
    stream_options,
)
from gaussdecode.source.slot import LandingPosition
from gaussdecode.source.start import check_start

pytestmark = pytest.mark.integration


def address_of(database: Database) -> SourceAddress:
    """How the source reaches it."""
    return SourceAddress(database.dsn + " sslmode=disable", None, True)


def test_life_of_a_slot(database_of_each: Database) -> None:
    """Created, listed, advanced, dropped; on every major."""
    database = database_of_each
    name = f"{database.name}_x"
    with connect(address_of(database)) as connection:
        point = create_slot(connection, name)
        (state,) = [slot for slot in list_slots(connection) if slot.name == name]
        assert (state.plugin, state.database) == ("pgoutput", database.name)
        assert state.confirmed_flush_lsn == point
        assert not state.is_active
        assert not state.is_two_phase

        database.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
        target = database.wal_end()
        assert point < advance_slot(connection, name, target) <= target

        drop_slot(connection, name)
        assert name not in [slot.name for slot in list_slots(connection)]
        with pytest.raises(SourceRefusedError, match="42704"):
            drop_slot(connection, name)


def test_slots_of_prepared_transactions(database_of_each: Database) -> None:
    """From 15 on; one that standbys keep becomes such with its first stream."""
    database = database_of_each
    name = f"{database.name}_x"
    with connect(address_of(database)) as connection:
        if connection.server_version < 150000:
            with pytest.raises(SourceRefusedError, match="PostgreSQL 15 or newer"):
                create_slot(connection, name, two_phase=True)
            return
        create_slot(connection, name, two_phase=True)
        (state,) = [slot for slot in list_slots(connection) if slot.name == name]
        assert state.is_two_phase
        drop_slot(connection, name)
        if connection.server_version < 170000:
            return
        create_slot(connection, name, two_phase=True, failover=True)
        (state,) = [slot for slot in list_slots(connection) if slot.name == name]
        assert (state.is_failover, state.is_two_phase) == (True, False)
        options = stream_options(
            connection.server_version, [database.publication], messages=True, only_local=False,
            two_phase=True,
        )  # fmt: skip
        assert options["proto_version"] == "3"
        start_stream(connection, name, Lsn(0), options)
        connection.end_stream()
    with connect(address_of(database)) as connection:
        (state,) = [slot for slot in list_slots(connection) if slot.name == name]
        assert (state.is_failover, state.is_two_phase) == (True, True)
        drop_slot(connection, name)


def test_slot_twice_is_refused(database: Database, address: SourceAddress) -> None:
    """The code says so; nothing is changed."""
    with connect(address) as connection, pytest.raises(SourceRefusedError) as caught:
        create_slot(connection, database.slot)
    assert caught.value.sqlstate == "42710"


def test_wrong_names_do_not_reach_the_server(address: SourceAddress) -> None:
    """A name that is not one for a slot is a mistake here."""
    with connect(address) as connection:
        with pytest.raises(ConfigError):
            create_slot(connection, "No Such")
        with pytest.raises(ConfigError):
            advance_slot(connection, "x'", Lsn(1))


def test_facts_of_a_server(database_of_each: Database) -> None:
    """What the rules need is read, and a fresh slot may be started from."""
    database = database_of_each
    with connect(address_of(database)) as connection:
        server = read_server(connection, database.slot, [database.publication, "nowhere"])
        right = read_server(connection, database.slot, [database.publication])
    assert server.version // 10000 == database.server.major
    assert server.database == database.name
    assert server.encoding == "UTF8"
    assert server.sender_timeout_ms == 60_000
    assert server.missing_publications == ("nowhere",)
    assert server.slot is not None
    assert check_start(None, right, database.slot) == server.slot.confirmed_flush_lsn
    log = LandingPosition(
        server.system_identifier, server.timeline, database.name, database.slot, "pgoutput",
        server.slot.confirmed_flush_lsn or Lsn(0),
    )  # fmt: skip
    assert check_start(log, right, database.slot) == log.lsn


def test_published_tables_show_who_cannot_update(
    database: Database, address: SourceAddress
) -> None:
    """A table without identity is told apart before its first UPDATE fails."""
    database.execute(
        "CREATE TABLE keyed (id int PRIMARY KEY); CREATE TABLE bare (id int);"
        'CREATE TABLE "Full" (id int); ALTER TABLE "Full" REPLICA IDENTITY FULL;'
        """CREATE PUBLICATION "some, 'odd"" name" FOR TABLE "Full", keyed, bare"""
    )
    with connect(address) as connection:
        found = published_tables(connection, ["some, 'odd\" name"])
        assert published_tables(connection, []) == []
    assert {table.name: table.can_update for table in found} == {
        "keyed": True,
        "bare": False,
        "Full": True,
    }


@pytest.mark.parametrize(
    ("version", "wanted", "streaming", "protocol"),
    [
        (140000, "off", None, "1"),
        (180000, "off", None, "1"),
        (140000, "on", "on", "2"),
        (150018, "parallel", "on", "2"),
        (160000, "parallel", "parallel", "4"),
        (180000, "on", "on", "2"),
    ],
)
def test_streaming_fits_the_version(
    version: int, wanted: str, streaming: str | None, protocol: str
) -> None:
    """A server is asked for no more than it has."""
    options = stream_options(version, ["p"], messages=False, only_local=True, streaming=wanted)
    assert (options.get("streaming"), options["proto_version"]) == (streaming, protocol)


def test_what_has_an_origin_comes_with_its_preparation() -> None:
    """A server that is to leave it out leaves out a PREPARE, or an end, and sends the other."""
    options = stream_options(170000, ["p"], messages=False, only_local=True, two_phase=True)
    assert options["origin"] == "any"


@pytest.mark.parametrize(
    ("version", "only_local", "origin"),
    [(150018, True, None), (160000, True, "none"), (170000, False, "any")],
)
def test_options_fit_the_version(version: int, only_local: bool, origin: str | None) -> None:
    """An option that the server does not know would be refused."""
    options = stream_options(version, ["p"], messages=False, only_local=only_local)
    assert options.get("origin") == origin
    assert "messages" not in options
