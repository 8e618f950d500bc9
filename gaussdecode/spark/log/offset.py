"""How far somebody has read a landing, and which landing that was.

A number of an entry alone says nothing of the landing: one that was begun anew at the same path has the same
numbers. So whoever remembers a number keeps with it the landing's id and the hash of the entry, which
proves everything up to it: a copy that went on by itself has other hashes.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.landing import Landing


@dataclasses.dataclass(frozen=True, slots=True)
class Offset:
    """A number of an entry, with what tells it from one of another landing.

    Attributes:
        n: everything up to this entry was read; -1 for nothing.
        landing_id: of the landing; empty where a version kept it that knew of none.
        hash: of the entry; empty where it is not known.
    """

    n: int
    landing_id: str = ""
    hash: str = ""

    @classmethod
    def of(cls, landing: Landing, n: int) -> Self:
        """Of a landing as it is now."""
        return cls(n, landing.landing_id, landing.hash_at(n))

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:  # Any: JSON
        """Read what `to_record` gave; one of before has the number alone."""
        return cls(int(record["n"]), record.get("landing_id", ""), record.get("hash", ""))

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """Make it fit for JSON."""
        return dataclasses.asdict(self)

    def check(self, landing: Landing, anew: str) -> None:
        """See that a landing is the one that was read, as far as is known of it.

        Args:
            landing: as it is now.
            anew: what begins anew where it is another one, such as ``a new target``.

        Raises:
            LandingError: it is another one, or other entries stand in it.
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
                f"{landing.root}: entry {self.n} is another one than the one that was read. It is a copy that went "
                f"on by itself, or was restored from an older copy: read it with {anew}, or give the "
                "place of the one that was read"
            )

    def check_identity(self, landing: Landing, anew: str) -> None:
        """See that it has the id of the landing that was read; the same of the arguments and errors."""
        if self.landing_id not in ("", landing.landing_id):
            raise LandingError(
                f"{landing.root} holds another landing now ({landing.landing_id}) than the one that was read "
                f"up to entry {self.n} ({self.landing_id}): it was begun anew, and so do its numbers. Read "
                f"it with {anew}, or give the place of the one that was read"
            )
