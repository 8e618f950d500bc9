"""Read the state of our slot on a GaussDB or openGauss, and of the server's own parallel decoding.

As `probe`, on an ordinary connection of its own. These servers have no limit of WAL per slot
and do not tell what they spill; instead they tell the lengths of their decoding queues. A
version that has no gs_get_parallel_decode_status(), or hides it from the role, tells less. Their
transaction numbers have 64 bits: no wraparound is watched for.
"""

from typing import Final

from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb.connection import GaussConnection, connect
from gaussdecode.source.gaussdb.server import (
    DecodeStatus,
    is_standby,
    list_slots,
    read_decode_status,
)
from gaussdecode.source.probe import SlotView

_PRIMARY_END: Final = ("pg_current_xlog_location",)
_STANDBY_ENDS: Final = ("pg_last_xlog_receive_location", "pg_last_xlog_replay_location")
"""The first is NULL until a standby that was started has reached its primary, and may begin before the second."""


class GaussProbe:
    """Looks at a slot of a GaussDB; connects when it has to.

    Args:
        address: address of the server's SQL port.
        slot: name.
    """

    def __init__(self, address: SourceAddress, slot: str) -> None:
        self._address = address
        self._slot = slot
        self._connection: GaussConnection | None = None
        self._has_status = True

    def look(self) -> SlotView:
        """See `probe.SlotProbe`."""
        try:
            if self._connection is None:
                self._connection = connect(self._address, is_replication=False)
            return self._look(self._connection)
        except SourceError:
            self.close()
            raise

    def _look(self, connection: GaussConnection) -> SlotView:
        functions = _STANDBY_ENDS if is_standby(connection) else _PRIMARY_END
        calls = ", ".join(f"pg_catalog.{name}()" for name in functions)
        (ends,) = connection.query(f"SELECT {calls}")
        wal_end = max(Lsn.parse(text or "0/0") for text in ends)
        slot = next((s for s in list_slots(connection) if s.name == self._slot), None)
        status = self._status(connection)
        if slot is None:
            return SlotView(wal_end=wal_end)
        restart = slot.restart_lsn
        return SlotView(
            wal_end=wal_end,
            retained_bytes=None if restart is None else max(0, wal_end - restart),
            confirmed_lsn=slot.confirmed_flush_lsn,
            wal_status="lost" if restart is None else "reserved",
            is_active=slot.is_active,
            read_queues=() if status is None else status.read_queues,
            decode_queues=() if status is None else status.decode_queues,
        )

    def _status(self, connection: GaussConnection) -> DecodeStatus | None:
        if not self._has_status:
            return None
        try:
            streams = read_decode_status(connection)
        except SourceRefusedError:
            self._has_status = False
            return None
        return next((status for status in streams if status.slot == self._slot), None)

    def close(self) -> None:
        """See `probe.SlotProbe`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
