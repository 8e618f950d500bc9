"""Install, remove and look at the event triggers that write DDL into the stream, on each source."""

from collections.abc import Callable, Iterator

from gaussdecode.errors import ConfigError
from gaussdecode.operations.connections import address_of
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.postgresql.connection import Connection, connect
from gaussdecode.source.postgresql.ddl import DdlTriggers, install, read_triggers, remove


def read_all(config: Config) -> dict[str, DdlTriggers]:
    """The triggers of each source, by its name."""
    return {name: read_triggers(connection) for name, connection in _connections(config)}


def install_all(config: Config) -> Iterator[tuple[str, bool]]:
    """Install the triggers on each source; gives its name, and whether anything was changed."""
    for name, connection in _connections(config):
        state = read_triggers(connection)
        yield name, _changed(connection, install, is_wanted=bool(state.differences))


def remove_all(config: Config) -> Iterator[tuple[str, bool]]:
    """Remove the triggers from each source; gives its name, and whether anything was there."""
    for name, connection in _connections(config):
        yield name, _changed(connection, remove, is_wanted=read_triggers(connection).is_there)


def refuse_others(config: Config) -> None:
    """Refuse a source without event triggers.

    Raises:
        ConfigError: it is no PostgreSQL server.
    """
    for member in config.members.values():
        if member.source.kind is not SourceKind.POSTGRESQL:
            raise ConfigError(
                f"{config.path.name}: source.kind {member.source.kind} has no event triggers; DDL is "
                "recorded by them on PostgreSQL only"
            )


def _connections(config: Config) -> Iterator[tuple[str, Connection]]:
    refuse_others(config)
    for name, member in config.members.items():
        with connect(address_of(member), is_replication=False) as connection:
            yield name, connection


def _changed(
    connection: Connection, change: Callable[[Connection], None], *, is_wanted: bool
) -> bool:
    if is_wanted:
        change(connection)
    return is_wanted
