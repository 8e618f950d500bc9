"""Put a server's notices into the stream, as messages among its changes."""

from dataclasses import dataclass
from typing import Final

from gaussdecode.wire.letters import Letter

ROWS_MAY_BE_MISSING: Final = 1
"""Code of a `Notice`."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What the server says beside the changes; code 1: rows may be missing."""

    code: int
    text: bytes

    def to_bytes(self) -> bytes:
        """Give the message."""
        return Letter.NOTICE + bytes([self.code]) + len(self.text).to_bytes(4, "big") + self.text
