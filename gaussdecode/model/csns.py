"""Keep the least and the greatest commit sequence number of an entry's transactions.

Transactions land in the order of their commit records, which is not that of their CSNs: those of
one entry may reach into those of the next.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

MOST_CSN: Final = (1 << 62) - 1
"""The bits above it are flags in the server, and no CSN that it gives has them."""


class Csns(NamedTuple):
    """Least and greatest CSN of some transactions; of one, twice the same.

    Attributes:
        least: least CSN, at least 1.
        greatest: greatest CSN, not below `least`.
    """

    least: int
    greatest: int

    def joined(self, other: "Csns | None") -> "Csns":
        """Those of both."""
        if other is None:
            return self
        return Csns(min(self.least, other.least), max(self.greatest, other.greatest))

    def __str__(self) -> str:
        if self.least == self.greatest:
            return f"CSN {self.least}"
        return f"CSNs {self.least} to {self.greatest}"

    def to_record(self) -> dict[str, int]:
        """Make them fit for JSON."""
        return self._asdict()

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:  # Any: decoded JSON
        """Read what `to_record` wrote.

        Raises:
            ValueError: it did not write that.
        """
        found = cls(**record)
        is_whole = all(type(number) is int for number in found)
        if not is_whole or not 0 < found.least <= found.greatest:
            raise ValueError(f"not a range of CSNs: {record!r}")
        return found


class Cut(NamedTuple):
    """Where a log is cut by a CSN.

    Attributes:
        below: number of the last entry up to which nothing is above the CSN; one less than the first
            entry's where that has some already.
        complete: number of the first entry up to which nothing is missing that is not above it;
            one less than the first where nothing is.
        held_below: CSNs of all entries up to `below`; None for none.
        held_complete: CSNs of all entries up to `complete`; None for none.
    """

    below: int
    complete: int
    held_below: Csns | None
    held_complete: Csns | None

    @property
    def n(self) -> int | None:
        """The entry up to which is exactly all that is not above it; None where there is none."""
        return self.below if self.complete <= self.below else None


def cut_at(csn: int, first: int, entries: Iterable[Csns | None]) -> Cut:
    """Find where a log is cut by a CSN; pure, in one pass.

    Args:
        csn: wanted.
        first: number of the first entry.
        entries: entries of each entry, in order; None for one without transactions.
    """
    below, complete = None, first - 1
    held: Csns | None = None
    held_below: Csns | None = None
    held_complete: Csns | None = None
    n = first - 1
    for n, of in enumerate(entries, first):
        if of is None:
            continue
        if of.greatest > csn and below is None:
            below, held_below = n - 1, held
        held = of.joined(held)
        if of.least <= csn:
            complete, held_complete = n, held
    if below is None:
        below, held_below = n, held
    return Cut(below, complete, held_below, held_complete)
