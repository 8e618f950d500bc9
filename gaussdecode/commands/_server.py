"""Connections of the commands, as the daemon would make them."""

from gaussdecode.errors import ConfigError
from gaussdecode.options import SourceKind
from gaussdecode.settings import Config
from gaussdecode.source.postgresql import Connection, SourceAddress, connect
from gaussdecode.source.settings import source_address


def address_of(config: Config) -> SourceAddress:
    """Describe the server of a configuration, with the password.

    Raises:
        ConfigError: the source is no server, or the password cannot be read.
    """
    if config.source.kind is not SourceKind.POSTGRESQL:
        raise ConfigError(f"{config.path.name}: source.kind {config.source.kind} is no server")
    return source_address(config)


def open_server(config: Config) -> Connection:
    """Connect in replication mode.

    Raises:
        ConfigError: see `address_of`.
        SourceError: the server cannot be reached, or refuses.
    """
    return connect(address_of(config))
