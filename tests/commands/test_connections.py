"""Tests for `gaussdecode.operations.connections`, on a real server."""

import pytest
from kit.commands import Configure
from kit.postgres import Database

from gaussdecode.errors import ConfigError
from gaussdecode.operations.connections import address_of, open_server
from gaussdecode.settings.load import load

pytestmark = pytest.mark.integration


def test_sender_timeout_is_passed_to_the_server(database: Database, configure: Configure) -> None:
    """The option sets wal_sender_timeout of our connection, and of no other."""
    config = load(configure(database, "decoding: {sender-timeout: 5000}"))
    with open_server(config) as connection:
        assert connection.query("SHOW wal_sender_timeout") == [("5s",)]
    config = load(configure(database))
    with open_server(config) as connection:
        assert connection.query("SHOW wal_sender_timeout") == [("1min",)]


def test_a_recording_is_no_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands that need a server say so."""
    path = tmp_path_factory.mktemp("config") / "c.yaml"
    path.write_text("slot: s\nsource: {kind: capture, file: /c}\nlanding: {root: /l}\n")
    with pytest.raises(ConfigError, match="capture is no server"):
        address_of(load(path))
