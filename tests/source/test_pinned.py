"""Settings on which correctness hangs hold on every connection, whatever role and database say."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.settings.load import load
from gaussdecode.source import pinned
from gaussdecode.source.address import SourceAddress, source_address
from gaussdecode.source.export import TableReader
from gaussdecode.source.pinned import SETTINGS, Setting, Use
from gaussdecode.source.postgresql.catalog import Catalog
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.export import PgExporter, View
from gaussdecode.source.postgresql.probe import PostgresProbe

_HOSTILE = {
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Asia/Tokyo",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "search_path": "kit, public",
    "quote_all_identifiers": "on",
    "row_security": "on",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "xmloption": "document",
    "standard_conforming_strings": "off",
    "client_min_messages": "error",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "statement_timeout": "61s",
    "lock_timeout": "62s",
    "idle_in_transaction_session_timeout": "63s",
    "idle_session_timeout": "64s",
    "transaction_timeout": "65s",
    "exit_on_error": "on",
}
_OURS = [of for of in SETTINGS if Use.POSTGRESQL in of.use]
_OWN_LIMITS = {"statement_timeout", "lock_timeout"}  # what some connections set themselves


def _known(database: Database) -> list[Setting]:
    return [of for of in _OURS if of.since <= database.server.major * 10_000]


def _spoil(database: Database) -> None:
    """Give the database, and the role in it, the opposite of everything."""
    for of in _known(database):
        value = f"'{_HOSTILE[of.name]}'" if of.name != "search_path" else _HOSTILE[of.name]
        for whom in (f'DATABASE "{database.name}"', f'ROLE postgres IN DATABASE "{database.name}"'):
            database.server.execute(f"ALTER {whom} SET {of.name} = {value}")


def test_each_setting_has_an_opposite_and_a_reason() -> None:
    """The table of the tests names the settings of the table, and other values."""
    assert set(_HOSTILE) == {of.name for of in _OURS}
    assert all(of.value != _HOSTILE[of.name] and of.why for of in _OURS)


def test_gaussdb_prints_rows_as_role_and_database_say() -> None:
    """On its ordinary connections nothing is pinned that changes a value's text."""
    printed = {"DateStyle", "IntervalStyle", "TimeZone", "extra_float_digits", "bytea_output"}
    assert not printed & set(pinned.startup_parameters(Use.GAUSSDB_SQL))
    assert printed <= set(pinned.startup_parameters(Use.GAUSSDB_STREAM))


@pytest.fixture
def config_path(database: Database, make_daemon: Callable[..., Daemon]) -> Path:
    """A configuration over the database."""
    return make_daemon(database).config_path


def _connections(database: Database, path: Path) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Every connection that the product makes, and how to ask it for a setting."""
    config = load(path)
    address: SourceAddress = source_address(config)
    for is_replication in (True, False):
        with connect(address, is_replication=is_replication) as connection:
            yield (
                f"replication {is_replication}",
                lambda name: str(connection.query(f"SHOW {name}")[0][0]),
            )
    exporter = PgExporter(config)
    with exporter.open_view(60.0, lambda: False) as view:
        assert isinstance(view, View)
        reader: TableReader = exporter.open_reader(60.0, lambda: False)
        with reader:
            reader.begin(view)
            yield "reader in a view", lambda name: str(reader._command(f"SHOW {name}")[0][0])  # type: ignore[attr-defined]
    probing = contextlib.closing(PostgresProbe(address, database.slot))
    with Catalog(config) as catalog, probing as probe:
        session = catalog._connected(address)
        yield "catalogue", lambda name: str(session.query(f"SHOW {name}")[0][0])
        guard = probe._connect()
        with guard:
            yield "guard", lambda name: str(guard.query(f"SHOW {name}")[0][0])


@pytest.mark.integration
def test_settings_hold_on_every_connection(database: Database, config_path: Path) -> None:
    """Stream, commands, views, readers, catalogue and guard: all have what the table says."""
    _spoil(database)
    seen = []
    for title, ask in _connections(database, config_path):
        seen.append(title)
        for of in _known(database):
            found = ask(of.name)
            if of.name in _OWN_LIMITS and found != of.value:
                assert found != _HOSTILE[of.name], (title, of.name)
                continue
            shown = {"DateStyle": "ISO, YMD", "search_path": '""'}.get(of.name, of.value)
            assert found == shown or (of.name == "search_path" and not found), (title, of.name)
    assert len(seen) == 5
