"""Describe a gap in the landing, as a gap entry of the commit log records it.

The entry that records a loss does not raise the position: its position is the durable one, and everything up to
there is complete. Its ``extra`` says what is missing after it. The entry with which an operator accepts the gap
comes after the hole, in the next epoch: the changes after it are complete again.
"""

import dataclasses
import enum
from typing import Any, Self

from gaussdecode.model.lsn import Lsn


class GapReason(enum.StrEnum):
    """Why changes are missing."""

    SLOT_LOST = "slot_lost"
    SLOT_MISSING = "slot_missing"
    SLOT_ADVANCED = "slot_advanced"
    SLOT_DROPPED_BY_GUARD = "slot_dropped_by_guard"
    SKIPPED = "skipped"


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Changes that can never be landed.

    Attributes:
        reason: why.
        from_lsn: the durable position; every transaction that ends up to here has landed.
        until_lsn: transactions that end after `from_lsn` and up to here are missing.
        is_open: more may be missing after `until_lsn`, up to where a new slot begins.
        text: text for the operator, one sentence.
        is_accepted: an operator has let the daemon go on at `until_lsn`.
    """

    reason: GapReason
    from_lsn: Lsn
    until_lsn: Lsn
    is_open: bool
    text: str
    is_accepted: bool = False

    def to_extra(self) -> dict[str, Any]:  # Any: JSON
        """Make it fit for an entry."""
        return {
            "reason": str(self.reason),
            "from_lsn": int(self.from_lsn),
            "until_lsn": int(self.until_lsn),
            "is_open": self.is_open,
            "text": self.text,
            "is_accepted": self.is_accepted,
        }

    @classmethod
    def from_extra(cls, extra: dict[str, Any]) -> Self:  # Any: JSON
        """Read what `to_extra` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            return cls(
                GapReason(extra["reason"]),
                Lsn(extra["from_lsn"]),
                Lsn(extra["until_lsn"]),
                bool(extra["is_open"]),
                str(extra["text"]),
                bool(extra.get("is_accepted", False)),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a gap: {error}") from error
