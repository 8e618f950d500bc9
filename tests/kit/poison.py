"""A proxy that damages rows on their way from the server, and may swallow confirmations."""

import re
from typing import Final

from kit.postgres import Database
from kit.proxy import Proxy

POISON: Final = "poison"  # as a value
_VALUE: Final = POISON.encode()
_SENT: Final = b"t\0\0\0\x06" + _VALUE
_DAMAGED: Final = b"?\0\0\0\x06" + _VALUE
_STATUS: Final = re.compile(rb"d\0\0\0\x26r.{33}", re.DOTALL)


class Poisoner(Proxy):
    """Damages the row that holds the value, in its kind and not in its length."""

    is_poisoning = True
    is_forgetting = False  # the server hears of no confirmation

    def dsn(self, database: Database) -> str:
        """How to come to a database of the server after it."""
        return database.dsn.replace(f"port={database.server.port}", f"port={self.port}")

    def _spoil(self, data: bytes, *others: object) -> bytes:
        if self.is_forgetting:
            data = _STATUS.sub(b"", data)
        return data.replace(_SENT, _DAMAGED) if self.is_poisoning else data
