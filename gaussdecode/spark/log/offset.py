"""Remember how far a reader has read, and in which landing.

An entry number alone does not identify a landing: a landing that was begun again at the same path has
the same numbers. So a reader keeps, with the number, the landing's id and the hash of the entry. The
hash proves everything up to the entry: a copy that continued by itself has other hashes.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.landing import Landing


@dataclasses.dataclass(frozen=True, slots=True)
class Offset:
    """An entry number that identifies its landing.

    Attributes:
        n: number of the last entry read; -1 for nothing.
        landing_id: id of the landing; empty if an early version stored the offset.
        hash: hash of the entry; empty if unknown.
    """

    n: int
    landing_id: str = ""
    hash: str = ""

    @classmethod
    def of(cls, landing: Landing, n: int) -> Self:
        """The offset of entry `n` of a landing as it is now."""
        return cls(n, landing.landing_id, landing.hash_at(n))

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:  # Any: JSON
        """Read a record of `to_record`; older records have the number alone."""
        return cls(int(record["n"]), record.get("landing_id", ""), record.get("hash", ""))

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """Make a record for JSON."""
        return dataclasses.asdict(self)

    def check(self, landing: Landing, anew: str) -> None:
        """Check that a landing is the one that was read, as far as the offset can tell.

        Args:
            landing: the landing as it is now.
            anew: where to read another landing, such as ``a new target``; for the error text.

        Raises:
            LandingError: it is another landing, or its entries differ.
        """
        self.check_identity(landing, anew)
        last = landing.last_n
        if self.n > last:
            raise LandingError(
                f"{landing.root} ends with entry {last}, and was read up to entry {self.n}: it was restored "
                f"from an older copy, or is a mirror that is behind. Try again when it is further; if it "
                f"was restored, read it with {anew}"
            )
        found = landing.hash_at(self.n)
        if self.hash and found and found != self.hash:
            raise LandingError(
                f"{landing.root}: entry {self.n} differs from the entry that was read. It is a copy that went "
                f"on by itself, or was restored from an older copy: read it with {anew}, or give the "
                "place of the one that was read"
            )

    def check_identity(self, landing: Landing, anew: str) -> None:
        """Check only the id of the landing; arguments and errors as for `check`."""
        if self.landing_id not in ("", landing.landing_id):
            raise LandingError(
                f"{landing.root} holds another landing now ({landing.landing_id}) than the one that was read "
                f"up to entry {self.n} ({self.landing_id}): a new landing was begun there, and its entry numbers mean other entries. Read it with {anew}, or give the place of the one that was read"
            )
