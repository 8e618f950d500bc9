"""Look at the virtual slots of `gaussdecode serve` on disk, and how far they are behind."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gaussdecode.land.commitlog import ORDER_CSN, CommitLog
from gaussdecode.serve.kept import read_slots
from gaussdecode.serve.lags import Lags, slot_record

_SECONDS: Final = 1.0  # between two looks


class VirtualSlots:
    """Those of one landing.

    Args:
        root: root of the landing.
        log: gives its log; None while it is not open.
    """

    def __init__(self, root: Path, log: Callable[[], CommitLog | None]) -> None:
        self._root = root
        self._log = log
        self._lags: Lags | None = None
        self._seen_at = -_SECONDS
        self._seen: list[dict[str, Any]] = []  # Any: JSON

    def records(self) -> list[dict[str, Any]]:  # Any: JSON
        """Each slot, fit for JSON; not looked at more often than each second, nor before the log is open."""
        now, log = time.monotonic(), self._log()
        if log is None:
            return []
        if self._lags is None:
            self._lags = Lags(
                lambda: (log.floor + 1, log.next_n - 1),
                log.iterate,
                is_by_csn=log.layout.order == ORDER_CSN,
            )
        if now - self._seen_at > _SECONDS:
            slots = read_slots(self._root)
            found = self._lags.look(slots)
            self._seen = [slot_record(slot, found[slot.name]) for slot in slots]
            self._seen_at = now
        return self._seen
