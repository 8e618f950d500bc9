"""Create, list, drop and advance replication slots, on PostgreSQL and on GaussDB."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

from gaussdecode.console.signals import Interrupt
from gaussdecode.errors import ConfigError, SourceError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.connections import is_gaussdb, open_server, open_sql
from gaussdecode.settings.sections import Config
from gaussdecode.source.export import CANCELLED
from gaussdecode.source.gaussdb import server as gaussserver
from gaussdecode.source.gaussdb.connection import GaussConnection
from gaussdecode.source.postgresql import slot
from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.slot import SlotState
from gaussdecode.source.start import publication_problem

_SILENT_SECONDS: Final = 2.0  # arbitrary: what takes longer is explained
_OPEN: Final = (
    "SELECT pid::text AS pid_or_gid, xact_start AS since, query FROM pg_stat_activity WHERE {writes} "
    "UNION ALL SELECT gid, prepared, 'PREPARE TRANSACTION' FROM pg_prepared_xacts ORDER BY 2;"
)
_WAIT: Final = (
    "waiting for the transactions that were open on the server, running or prepared, to end (COMMIT or "
    f"ROLLBACK; of prepared ones ROLLBACK PREPARED); to see them: {_OPEN}"
)
_PRIMARY_WAIT: Final = _WAIT.format(writes="backend_xid IS NOT NULL")
_GAUSSDB_WAIT: Final = _WAIT.format(writes="xact_start IS NOT NULL")
_STANDBY_WAIT: Final = (
    "waiting: a standby makes a slot when its primary next logs the running transactions; to have it "
    "at once, on the primary: SELECT pg_log_standby_snapshot(); Then " + _PRIMARY_WAIT
)


@contextlib.contextmanager
def saying_why(reason: str) -> Iterator[None]:
    """Tell the user the reason of a wait, once it takes a while."""
    timer = threading.Timer(_SILENT_SECONDS, print, [reason], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _made(
    config: Config,
    connection: Connection | GaussConnection,
    interrupt: Interrupt,
    make: Callable[[], Lsn],
    drop: Callable[[], None],
) -> Lsn:
    """Create a slot; on a signal the server cancels that, or the new slot is dropped.

    Raises:
        KeyboardInterrupt: a signal came; no slot exists.
        SourceError: the server failed; or a signal came, and it is unknown whether the slot exists.
    """
    interrupt.hold()
    connection.should_stop = lambda: interrupt.is_set
    try:
        lsn = make()
        if not interrupt.is_set:
            return lsn
        connection.should_stop = lambda: False
        drop()
    except (SourceError, KeyboardInterrupt) as error:
        code = error.sqlstate if isinstance(error, SourceError) else None
        if not interrupt.is_set or code not in {None, CANCELLED}:
            raise
        if code is None:
            raise SourceError(
                f"stopped, and it is unknown whether slot {config.slot!r} was made; see "
                f"gaussdecode slot list {config.path}, and drop it where it is there"
            ) from None
    print(f"stopped; slot {config.slot!r} was not made", file=sys.stderr)
    raise KeyboardInterrupt


class Slots:
    """Operations on the slots of a PostgreSQL server; each call connects and disconnects."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def create(self, interrupt: Interrupt, *, failover: bool, is_landed: bool = True) -> Lsn:
        """Create the configured slot; return its consistent point.

        Args:
            interrupt: interrupts the creation; held once the slot exists, so that the caller can
                record it.
            failover: standbys keep the slot.
            is_landed: the slot is for a landing, not for peek and get.

        Raises:
            KeyboardInterrupt: a signal interrupted it, and no slot exists.
        """
        config = self._config
        with open_server(config) as connection:
            server = slot.read_server(connection, config.slot, config.source.publication)
            missing = publication_problem(server)
            if missing is not None:
                raise SourceRefusedError(missing)

            def make() -> Lsn:
                two_phase = config.source.two_phase
                return slot.create_slot(
                    connection, config.slot, failover=failover, two_phase=two_phase
                )

            with saying_why(_STANDBY_WAIT if server.is_standby else _PRIMARY_WAIT):
                return _made(
                    config,
                    connection,
                    interrupt,
                    make,
                    lambda: slot.drop_slot(connection, config.slot),
                )

    def list(self) -> list[SlotState]:
        """All slots of the server."""
        with open_server(self._config) as connection:
            return slot.list_slots(connection)

    def drop(self) -> None:
        """Drop the configured slot."""
        with open_server(self._config) as connection:
            slot.drop_slot(connection, self._config.slot)

    def advance(self, lsn: Lsn) -> Lsn:
        """Advance the configured slot; return its new position."""
        with open_server(self._config) as connection:
            return slot.advance_slot(connection, self._config.slot, lsn)


class _GaussSlots(Slots):
    """The same of a GaussDB or openGauss server, by ordinary SQL."""

    def create(self, interrupt: Interrupt, *, failover: bool, is_landed: bool = True) -> Lsn:
        if failover:
            raise ConfigError(
                f"{self._config.path.name}: --failover has no use with kind gaussdb: its standbys "
                "know the slot where enable_slot_log is on"
            )
        plugin = self._config.source.plugin
        is_by_csn = not is_landed and self._config.decoding.output_order == 1
        with open_sql(self._config) as sql:
            problem = gaussserver.coordinator_problem(gaussserver.is_coordinator(sql))
            if is_landed and problem is not None:
                raise SourceRefusedError(problem)
            name = self._config.slot
            with saying_why(_GAUSSDB_WAIT):
                return _made(
                    self._config,
                    sql,
                    interrupt,
                    lambda: gaussserver.create_slot(sql, name, plugin, is_by_csn=is_by_csn),
                    lambda: gaussserver.drop_slot(sql, name),
                )

    def list(self) -> list[SlotState]:
        with open_sql(self._config) as sql:
            return gaussserver.list_slots(sql)

    def drop(self) -> None:
        with open_sql(self._config) as sql:
            gaussserver.drop_slot(sql, self._config.slot)

    def advance(self, lsn: Lsn) -> Lsn:
        with open_sql(self._config) as sql:
            return gaussserver.advance_slot(sql, self._config.slot, lsn)


def slots_of(config: Config) -> Slots:
    """The slot operations for a configuration's server."""
    return _GaussSlots(config) if is_gaussdb(config) else Slots(config)
