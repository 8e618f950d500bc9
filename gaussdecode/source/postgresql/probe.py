"""Read the state of our slot while another connection streams from it.

It has its own ordinary connection, so that neither the stream nor the catalogue waits for it. It reads only
views that any role may read. Details that the server hides from the role (of other processes, without
pg_read_all_stats) are None.
"""

from typing import Final

from gaussdecode.errors import GaussDecodeError, SourceError
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import Connection, Row, connect
from gaussdecode.source.probe import SlotView
from gaussdecode.source.quoting import literal

_CONNECT_SECONDS: Final = 3
_STATEMENT_MS: Final = 3000
_PATIENCE: Final = 10.0  # seconds; the server's own bound comes first where it answers

# In recovery there is no current position; what was received is the nearest to it. That is NULL until a standby
# that was started has reached its primary, and then begins at a segment, before what it has replayed.
_VIEW: Final = """
    WITH here AS (SELECT CASE WHEN pg_catalog.pg_is_in_recovery()
        THEN GREATEST(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn())
        ELSE pg_catalog.pg_current_wal_lsn() END AS wal_end)
    SELECT here.wal_end - '0/0', here.wal_end - s.restart_lsn, s.confirmed_flush_lsn - '0/0',
        s.wal_status, s.safe_wal_size, s.active, a.wait_event_type, a.wait_event,
        r.state, r.sent_lsn - '0/0', t.spill_bytes, t.spill_txns, t.total_bytes,
        pg_catalog.age(s.catalog_xmin),
        (SELECT max(pg_catalog.age(d.datfrozenxid)) FROM pg_catalog.pg_database d),
        (SELECT EXTRACT(epoch FROM pg_catalog.clock_timestamp() - min(o.xact_start))
            FROM pg_catalog.pg_stat_activity o WHERE o.backend_xid IS NOT NULL),
        (SELECT EXTRACT(epoch FROM pg_catalog.clock_timestamp() - min(o.prepared))
            FROM pg_catalog.pg_prepared_xacts o),
        pg_catalog.pg_is_in_recovery()
    FROM here
    LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = {slot}
    LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
    LEFT JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid
    LEFT JOIN pg_catalog.pg_stat_replication_slots t ON t.slot_name = s.slot_name
"""


class PostgresProbe:
    """Looks at a slot of a PostgreSQL server; connects when it has to.

    Args:
        address: address of the server.
        slot: name.
    """

    def __init__(self, address: SourceAddress, slot: str) -> None:
        self._address = address
        self._slot = slot
        self._connection: Connection | None = None

    def look(self) -> SlotView:
        """See `SlotProbe`."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            (row,) = self._connection.query(_VIEW.format(slot=literal(self._slot)))
        except SourceError as error:
            self.close()
            raise SourceError(f"looking at the slot: {error.reason}", error.sqlstate) from None
        except GaussDecodeError:
            self.close()
            raise
        return _view(row)

    def _connect(self) -> Connection:
        connection = connect(
            self._address,
            is_replication=False,
            patience=_PATIENCE,
            connect_timeout=str(_CONNECT_SECONDS),
            application_name="gaussdecode guard",
        )
        connection.query(f"SET statement_timeout = {_STATEMENT_MS}")
        return connection

    def close(self) -> None:
        """See `SlotProbe`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _view(row: Row) -> SlotView:
    wal_end, retained, confirmed, status, safe, active, wait_type, wait, *rest = row
    state, sent, spilled, spilled_txns, decoded, xmin_age, frozen_age, oldest, *rest = rest
    prepared, is_standby = rest
    return SlotView(
        wal_end=_whole(wal_end) or 0,
        retained_bytes=_whole(retained),
        confirmed_lsn=_whole(confirmed),
        wal_status=status,
        safe_bytes=_whole(safe),
        is_active=None if active is None else active == "t",
        wait_event_type=wait_type,
        wait_event=wait,
        sender_state=state,
        sent_lsn=_whole(sent),
        spilled_bytes=_whole(spilled),
        spilled_transactions=_whole(spilled_txns),
        decoded_bytes=_whole(decoded),
        catalog_xmin_age=_whole(xmin_age),
        frozen_age=_whole(frozen_age),
        transaction_seconds=_real(oldest),
        prepared_seconds=_real(prepared),
        is_standby=is_standby == "t",
    )


def _real(value: str | None) -> float | None:
    return None if value is None else float(value)


def _whole(value: str | None) -> int | None:
    return None if value is None else int(value)
