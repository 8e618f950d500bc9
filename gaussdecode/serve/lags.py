"""Tell how far virtual slots are behind the end of their landing.

Given a way to read the log. Promises that what is not known is NaN, and never 0. Entries that were looked at are not
read again.
"""

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from gaussdecode.errors import GaussDecodeError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.serve.kept import KeptSlot

_MOST: Final = 1000  # arbitrary: entries that one look reads for one slot
_UNKNOWN: Final = math.nan


@dataclasses.dataclass(frozen=True, slots=True)
class Lag:
    """How far a slot is behind.

    Attributes:
        bytes: of WAL between the confirmed position and the end of the landing.
        seconds: age of the oldest transaction that is not confirmed, as of the newest of its entry; 0 for none.
        is_lost: retention has removed an entry that it needs.
    """

    bytes: float = _UNKNOWN
    seconds: float = _UNKNOWN
    is_lost: bool = False


def slot_record(slot: KeptSlot, lag: Lag) -> dict[str, Any]:  # Any: JSON
    """A slot, fit for JSON; null for what is not known."""
    is_read = slot.n is not None
    return {
        "name": slot.name,
        "plugin": slot.plugin if is_read else None,
        "owner": slot.owner or None,
        "confirmed_lsn": str(Lsn(slot.lsn)) if is_read else None,
        "behind_bytes": None if math.isnan(lag.bytes) else int(lag.bytes),
        "behind_seconds": None if math.isnan(lag.seconds) else round(lag.seconds, 1),
        "is_connected": slot.is_connected,
        "is_lost": lag.is_lost if is_read else None,
    }


@dataclasses.dataclass(slots=True)
class _Found:
    """The oldest entry with a transaction that a slot has not confirmed, as far as was looked."""

    epoch: int
    lsn: int
    n: int
    seconds: float | None = None  # since 1970; None while there is none


class Lags:
    """Looks at a log for slots. Thread-safe.

    Args:
        span: gives the numbers of the oldest and of the newest entry; the newest is before the oldest in an empty log.
        entries: reads entries, both numbers included.
        is_by_csn: the landing is in the order of CSNs, and so are slots.
    """

    def __init__(
        self,
        span: Callable[[], tuple[int, int]],
        entries: Callable[[int, int], Iterator[CommitEntry]],
        *,
        is_by_csn: bool = False,
    ) -> None:
        self._is_by_csn = is_by_csn
        self._span = span
        self._entries = entries
        self._lock = threading.Lock()
        self._end: CommitEntry | None = None
        self._found: dict[str, _Found] = {}

    def look(self, slots: list[KeptSlot]) -> dict[str, Lag]:
        """How far each slot is behind now, by name."""
        with self._lock:
            try:
                first, last = self._span()
                if last >= first and (self._end is None or self._end.n != last):
                    self._end = next(self._entries(last, last))
            except (GaussDecodeError, OSError):
                return {slot.name: Lag() for slot in slots}
            self._found = {
                slot.name: self._found[slot.name] for slot in slots if slot.name in self._found
            }
            return {slot.name: self._lag(slot, first, last) for slot in slots}

    def _lag(self, slot: KeptSlot, first: int, last: int) -> Lag:
        if slot.n is None or self._end is None:
            return Lag()
        position = self._position(self._end, slot)
        # 0: before everything that was kept; a CSN counts no bytes
        is_known = position.epoch == slot.epoch and slot.lsn > 0 and not self._is_by_csn
        behind = float(max(0, position.lsn - slot.lsn)) if is_known else _UNKNOWN
        if slot.n < first:
            return Lag(behind, _UNKNOWN, is_lost=True)
        try:
            return Lag(behind, self._seconds(slot, slot.n, last))
        except (GaussDecodeError, OSError):  # retention went on meanwhile
            return Lag(behind)

    def _seconds(self, slot: KeptSlot, n: int, last: int) -> float:
        found = self._found.get(slot.name)
        if found is None or (found.epoch, found.lsn) != (slot.epoch, slot.lsn) or found.n < n:
            found = self._found[slot.name] = _Found(slot.epoch, slot.lsn, n)
        if found.seconds is None:
            self._search(found, slot, last)
        if found.seconds is not None:
            return max(0.0, time.time() - found.seconds)
        return 0.0 if found.n > last else _UNKNOWN

    def _search(self, found: _Found, slot: KeptSlot, last: int) -> None:
        for entry in self._entries(found.n, min(last, found.n + _MOST)):
            position = self._position(entry, slot)
            is_new = (position.epoch, position.lsn) > (found.epoch, found.lsn)
            if is_new and entry.commit_time is not None:
                found.seconds = entry.commit_time.timestamp()
                return
            found.n = entry.n + 1

    def _position(self, entry: CommitEntry, slot: KeptSlot) -> SourcePosition:
        """What an entry reaches of the source of a slot; its LSN is a CSN where that is the order."""
        only = next(iter(entry.positions.values()))
        position = only if len(entry.positions) == 1 else entry.positions.get(slot.database, only)
        if not self._is_by_csn:
            return position
        return dataclasses.replace(position, lsn=position.csn or 0)
