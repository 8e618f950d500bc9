"""Read the one notice of GaussDB that reports possible loss.

In parallel mode the server drops the rows that follow a catalogue change inside the same
transaction, and says so in a NoticeResponse between the data:

    Due to DDL in the same top transaction, partial modification may be lost for
    <XID, FIRST_LSN, FINAL_LSN, SKIP_START_LSN> = { <7, 0/1, 0/2, 0/3>, <8, ...> }

It names every transaction with such a change, also those that lost nothing, belong to
other databases, or are parts of others: *possibly* incomplete is all it says.
"""

import dataclasses
import re
from typing import Final

from gaussdecode.model.lsn import Lsn

MARK: Final = "partial modification may be lost"
_POSITION: Final = r"([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})"
_ITEM: Final = re.compile(
    rf"<\s*(\d{{1,20}})\s*,\s*{_POSITION}\s*,\s*{_POSITION}\s*,\s*{_POSITION}\s*>"
)
_MAX_XID: Final = 2**64 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class LostChanges:
    """A transaction that may be incomplete.

    Attributes:
        xid: XID of the transaction, or of a part of it.
        first_lsn: its first change.
        final_lsn: its commit record.
        skip_start_lsn: rows from here on were dropped.
    """

    xid: int
    first_lsn: Lsn
    final_lsn: Lsn
    skip_start_lsn: Lsn


def is_loss(text: str) -> bool:
    """Whether a notice says that rows may be missing."""
    return MARK in text


def lost_changes(text: str) -> tuple[LostChanges, ...]:
    """Read the transactions that a notice names; empty for any other notice."""
    if not is_loss(text):
        return ()
    return tuple(
        LostChanges(int(xid), *(Lsn.parse(lsn) for lsn in positions))
        for xid, *positions in _ITEM.findall(text)
        if int(xid) <= _MAX_XID
    )
