"""Transactions that the server said may be incomplete, until the commit log says so too.

GaussDB drops rows that follow DDL in their transaction, and tells once, in a notice beside the
stream: which transactions, and from which position on. It names no tables, and also
transactions that lost nothing or are of other databases; which these are it does not say.

Bounded: past `LIMIT` transactions they must be described and forgotten. They must also be before the
position passes them, and else may wait for one another: what is not confirmed is told again.
After some were described, others wait `QUIET_SECONDS` where nothing else is committed, so
that a server that never stops telling makes no more entries than the others are.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Final

from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb.notices import LostChanges, lost_changes

LIMIT: Final = 1000  # transactions in one entry; arbitrary
QUIET_SECONDS: Final = 600.0  # arbitrary
_MOST_TOLD: Final = 5  # transactions in a message; arbitrary
REASON: Final = "ddl_in_transaction"
STOPPED: Final = (
    "landing.on-suspect is stop: set record to go on with an entry that says so, or snapshot to have "
    "the tables that may be meant read again too"
)
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
        self._described_at: float | None = None
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

    def is_due(self, interval: float) -> bool:
        """Whether they are to be described although nothing else is committed.

        Args:
            interval: seconds that a notice waits for others.
        """
        now = self._clock()
        if self._since is None or now - self._since < interval:
            return False
        return self._described_at is None or now - self._described_at >= QUIET_SECONDS

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
            "is_any_table": True,
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
        self._described_at = self._clock()


def refusal(text: str, lsn: int) -> str:
    """Say why nothing may go on after a notice, and how it can.

    Args:
        text: of the server.
        lsn: the last position that is complete without doubt.
    """
    named = lost_changes(text)
    told = [f"{of.xid} from {of.skip_start_lsn} to {of.final_lsn}" for of in named[:_MOST_TOLD]]
    more = f" and {len(named) - _MOST_TOLD} more" if len(named) > _MOST_TOLD else ""
    which = f" (transactions {', '.join(told)}{more})" if told else ""
    return (
        f"the server may have left out rows that follow DDL in the same transaction{which}. Nothing "
        f"after {Lsn(lsn)} is confirmed beyond what had landed, and it comes again. {STOPPED}"
    )
