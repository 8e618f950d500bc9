"""Slots of a server, whichever kind it is."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Final, Protocol

from gaussdecode.commands._server import is_gaussdb, open_server, open_sql
from gaussdecode.errors import ConfigError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.sections import Config
from gaussdecode.source.gaussdb import server as gaussserver
from gaussdecode.source.postgresql import slot
from gaussdecode.source.slot import SlotState
from gaussdecode.source.start import publication_problem

_SILENT_SECONDS: Final = 2.0  # arbitrary: what takes longer is explained
_PRIMARY_WAIT: Final = (
    "waiting for the transactions that were open on the server to end (SELECT pid, xact_start, query "
    "FROM pg_stat_activity ORDER BY xact_start LIMIT 5;)"
)
_STANDBY_WAIT: Final = (
    "waiting: a standby makes a slot when its primary next logs the running transactions; to have it "
    "at once, on the primary: SELECT pg_log_standby_snapshot();"
)


class Slots(Protocol):
    """What can be done with slots; each call connects, and closes again."""

    def create(self, *, failover: bool, is_landed: bool = True) -> Lsn:
        """Make the configured slot; gives its consistent point.

        Args:
            failover: standbys keep it.
            is_landed: for a landing, else for peek and get.
        """

    def list(self) -> list[SlotState]:
        """All slots of the server."""

    def drop(self) -> None:
        """Remove the configured slot."""

    def advance(self, lsn: Lsn) -> Lsn:
        """Move the configured slot; gives where it stands then."""


def slots_of(config: Config) -> Slots:
    """Find who talks to the server of a configuration."""
    return _GaussSlots(config) if is_gaussdb(config) else _PostgresSlots(config)


@contextlib.contextmanager
def saying_why(reason: str) -> Iterator[None]:
    """Tell a person at the terminal what is waited for, once it takes a while."""
    timer = threading.Timer(_SILENT_SECONDS, print, [reason], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _PostgresSlots:
    """Slots of a PostgreSQL."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def create(self, *, failover: bool, is_landed: bool = True) -> Lsn:
        config = self._config
        with open_server(config) as connection:
            server = slot.read_server(connection, config.slot, config.source.publication)
            missing = publication_problem(server)
            if missing is not None:
                raise SourceRefusedError(missing)
            with saying_why(_STANDBY_WAIT if server.is_standby else _PRIMARY_WAIT):
                return slot.create_slot(
                    connection,
                    config.slot,
                    failover=failover,
                    two_phase=config.source.two_phase,
                )

    def list(self) -> list[SlotState]:
        with open_server(self._config) as connection:
            return slot.list_slots(connection)

    def drop(self) -> None:
        with open_server(self._config) as connection:
            slot.drop_slot(connection, self._config.slot)

    def advance(self, lsn: Lsn) -> Lsn:
        with open_server(self._config) as connection:
            return slot.advance_slot(connection, self._config.slot, lsn)


class _GaussSlots:
    """Slots of a GaussDB or openGauss, by ordinary SQL."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def create(self, *, failover: bool, is_landed: bool = True) -> Lsn:
        if failover:
            raise ConfigError(
                f"{self._config.path.name}: --failover has no use with kind gaussdb: its standbys "
                "know the slot where enable_slot_log is on"
            )
        plugin = self._config.source.plugin
        is_by_csn = not is_landed and self._config.decoding.output_order == 1
        with open_sql(self._config) as sql:
            problem = gaussserver.coordinator_problem(
                is_coordinator=gaussserver.is_coordinator(sql),
                is_by_csn=is_landed and self._config.lands_by_csn,
            )
            if problem is not None:
                raise SourceRefusedError(problem)
            return gaussserver.create_slot(sql, self._config.slot, plugin, is_by_csn=is_by_csn)

    def list(self) -> list[SlotState]:
        with open_sql(self._config) as sql:
            return gaussserver.list_slots(sql)

    def drop(self) -> None:
        with open_sql(self._config) as sql:
            gaussserver.drop_slot(sql, self._config.slot)

    def advance(self, lsn: Lsn) -> Lsn:
        with open_sql(self._config) as sql:
            return gaussserver.advance_slot(sql, self._config.slot, lsn)
