"""Transactions that the server said may be incomplete, until the commit log says so too.

In parallel mode GaussDB drops rows that follow DDL in their transaction, and tells once, in a
notice beside the stream: which transactions, and from which position on. It names no
tables. Bounded: past `LIMIT` transactions they must be described and forgotten.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Final

from gaussdecode.protocol.gaussdb.notices import LostChanges, lost_changes

LIMIT: Final = 1000  # transactions in one entry; arbitrary
REASON: Final = "ddl_in_transaction"
_TEXT: Final = (
    "the server may have left out rows that follow DDL in the same transaction; compare the "
    "tables these transactions changed, and take a new snapshot of those that differ"
)


class Suspects:
    """Collects notices.

    Args:
        clock: monotonic seconds.

    Attributes:
        count: of the transactions that were ever named.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._named: dict[tuple[int, int], LostChanges] = {}
        self._has_unread = False
        self._lsn = 0
        self._since: float | None = None
        self.count = 0

    def add(self, text: str, lsn: int) -> None:
        """Take a notice.

        Args:
            text: of the server.
            lsn: the last position that is complete without doubt.
        """
        if self._since is None:
            self._since, self._lsn = self._clock(), lsn
        named = lost_changes(text)
        self._has_unread = self._has_unread or not named
        for changes in named:
            self._named[changes.xid, changes.final_lsn] = changes
        self.count += len(named)

    @property
    def is_full(self) -> bool:
        """No more should be gathered."""
        return len(self._named) >= LIMIT

    @property
    def age(self) -> float:
        """Seconds since the oldest notice; 0 without one."""
        return 0.0 if self._since is None else self._clock() - self._since

    def describe(self) -> dict[str, Any] | None:  # Any: JSON
        """Give what a suspect entry says; None when there is nothing.

        A notice that names nobody (another version may word it otherwise) still gives an
        entry: from the position before it on, nothing is sure.
        """
        if self._since is None:
            return None
        named = sorted(self._named.values(), key=dataclasses.astuple)
        extra: dict[str, Any] = {  # Any: JSON
            "reason": REASON,
            "text": _TEXT,
            "from_lsn": min([self._lsn, *(changes.skip_start_lsn for changes in named)]),
            "tables": [],
            "transactions": [
                {key: int(value) for key, value in dataclasses.asdict(changes).items()}
                for changes in named
            ],
        }
        if named and not self._has_unread:
            extra["from_lsn"] = min(int(changes.skip_start_lsn) for changes in named)
            extra["until_lsn"] = max(int(changes.final_lsn) for changes in named)
        else:
            extra["from_lsn"] = int(extra["from_lsn"])
            extra["is_open"] = True
        return extra

    def forget(self) -> None:
        """What was described is in the commit log."""
        self._named.clear()
        self._has_unread, self._since = False, None
