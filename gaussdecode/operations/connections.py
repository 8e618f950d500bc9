"""Open connections for the commands, in the same way as the daemon."""

import dataclasses
from typing import Self

from gaussdecode.errors import ConfigError
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import SourceAddress, read_credentials, source_address
from gaussdecode.source.gaussdb import server as gaussserver
from gaussdecode.source.gaussdb.connection import GaussConnection
from gaussdecode.source.gaussdb.connection import connect as connect_gaussdb
from gaussdecode.source.gaussdb.server import GaussServerState
from gaussdecode.source.postgresql.connection import Connection, connect
from gaussdecode.source.slot import LandingPosition


def is_gaussdb(config: Config) -> bool:
    """Whether the source speaks GaussDB's protocol."""
    return config.source.kind is SourceKind.GAUSSDB


def address_of(config: Config) -> SourceAddress:
    """The address of a configuration's server.

    Raises:
        ConfigError: the source is not a server, or the password cannot be read.
    """
    if config.source.kind is SourceKind.CAPTURE:
        raise ConfigError(f"{config.path.name}: source.kind {config.source.kind} is no server")
    read_credentials(config)  # a command says at once what is wrong with them
    return source_address(config)


def open_server(config: Config) -> Connection:
    """Connect to PostgreSQL in replication mode.

    Raises:
        ConfigError: see `address_of`.
        SourceError: the server cannot be reached, or refuses.
    """
    return connect(address_of(config))


def open_sql(config: Config) -> GaussConnection:
    """Connect to GaussDB for ordinary SQL.

    Raises:
        ConfigError: see `address_of`.
        SourceError: the server cannot be reached, or refuses.
    """
    return connect_gaussdb(address_of(config), is_replication=False)


@dataclasses.dataclass(frozen=True, slots=True)
class GaussPair:
    """The two connections to a GaussDB server, and the server's state.

    Attributes:
        sql: connection for ordinary SQL.
        stream: replication connection, on the HA port; nothing was started on it.
        state: state of server and slot.
    """

    sql: GaussConnection
    stream: GaussConnection
    state: GaussServerState

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stream.close()
        self.sql.close()

    def check_start(self, config: Config, log: LandingPosition | None) -> Lsn:
        """Decide whether, and from where, a stream may start; see `source.gaussdb.server.check_start`."""
        plugins = () if config.decoding.is_parallel else (config.source.plugin,)
        return gaussserver.check_start(log, self.state, config.slot, plugins)


def open_pair(config: Config) -> GaussPair:
    """Connect to GaussDB twice, as the daemon does.

    Raises:
        ConfigError: see `address_of`.
        SourceError: the server cannot be reached, or refuses.
    """
    address = address_of(config)
    sql = connect_gaussdb(address, is_replication=False)
    try:
        place = gaussserver.stream_address(address, config.source.ha_port, sql)
        stream = connect_gaussdb(place, is_replication=True)
    except BaseException:
        sql.close()
        raise
    try:
        return GaussPair(sql, stream, gaussserver.read_server(sql, stream, config.slot))
    except BaseException:
        stream.close()
        sql.close()
        raise
