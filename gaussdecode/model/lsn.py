"""WAL positions.

An LSN counts bytes from the start of the write-ahead log: unsigned, 64 bits, only
ever growing on one server. Servers print it as two hex halves, ``16/B374D848``.
"""

import re
from typing import Final, Self

_MAX: Final = 2**64 - 1
_HALF_BITS: Final = 32
_HALF_MASK: Final = 2**32 - 1
_TEXT: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class Lsn(int):
    """A WAL position; compares, hashes and packs like the integer it is.

    Arithmetic gives a plain ``int`` on purpose: the difference of two positions is a
    byte count, not a position.
    """

    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        """Check the range once, so no later code has to."""
        if not 0 <= value <= _MAX:
            raise ValueError(f"LSN out of range: {value}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the server's spelling.

        Args:
            text: two hex numbers of 1-8 digits joined by a slash: ``"16/B374D848"``.

        Returns:
            The position, in bytes from the start of the WAL.

        Raises:
            ValueError: ``text`` has another shape.

        References:
            PostgreSQL manual, "pg_lsn Type".
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not an LSN: {text!r}")
        high, low = match.groups()
        return cls(int(high, 16) << _HALF_BITS | int(low, 16))

    def __str__(self) -> str:
        return f"{self >> _HALF_BITS:X}/{self & _HALF_MASK:X}"

    def __repr__(self) -> str:
        return f"Lsn({str(self)!r})"
