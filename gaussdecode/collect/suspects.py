"""Keep transactions that the server reports as possibly incomplete, until the commit log names them.

GaussDB drops rows that follow DDL in their transaction. It reports this once, in a notice beside the
stream, with the transactions and their first dropped position. The notice names no tables. It also lists
transactions that lost nothing or are of other databases, and does not mark them.

Where the server can be asked (`source.gaussdb.area`), each transaction is *settled*. One that lost nothing
is closed and only counted. For the others the tables are known that may lack rows.

Bounded: more than `LIMIT` transactions must be described in an entry and forgotten. They must also be
described before the position passes them. Otherwise they may wait and share an entry: the server repeats
notices of changes that are not confirmed. After an entry that describes some, others wait `QUIET_SECONDS`
where nothing else is committed. So a server that keeps sending notices causes no more entries.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final
from urllib.parse import unquote

from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb.notices import LostChanges, lost_changes

LIMIT: Final = 1000  # transactions in one entry; arbitrary
QUIET_SECONDS: Final = 600.0  # arbitrary
_MOST_TOLD: Final = 5  # transactions in a message; arbitrary
REASON: Final = "ddl_in_transaction"
ONLY_THESE: Final = "only_these"  # no table may lack rows but those that the entry names
STOPPED: Final = (
    "landing.on-suspect is stop. Set record to continue with a suspect entry, or snapshot to "
    "also read the affected tables again"
)
_TEXT: Final = (
    "the server may have left out rows that follow DDL in the same transaction; compare the "
    "tables these transactions changed, and take a new snapshot of those that differ"
)
_TEXT_OF_TABLES: Final = (
    "the server left rows out that follow DDL in the same transaction; compare these tables, which are "
    "all that may lack rows, or have them read again"
)

Settle = Callable[[LostChanges], AbstractSet[str] | None]
"""Directories of the tables that may lack rows of a transaction; None where that cannot be found out."""


def nobody_tells(_: LostChanges) -> None:
    """The answer where there is no server to ask."""
    return


class Suspects:
    """Collects notices.

    Args:
        clock: monotonic seconds.
        settle: asks the server.

    Attributes:
        count: number of the transactions that were ever named.
        settled: number of those that lost nothing.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, settle: Settle = nobody_tells
    ) -> None:
        self._clock = clock
        self._settle = settle
        self._tables: dict[
            tuple[int, int], AbstractSet[str] | None
        ] = {}  # of those that were asked for
        self.settled = 0
        self._named: dict[tuple[int, int], LostChanges] = {}
        self._has_unread = False
        self._lsn = 0
        self._since: float | None = None
        self._described_at: float | None = None
        self.count = 0

    def add(self, text: str, lsn: int) -> None:
        """Take a notice.

        Args:
            text: text of the server.
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

    def settle(self, on_each: Callable[[], None] = lambda: None) -> None:
        """Ask what each transaction lost that was not asked for yet, and forget those that lost nothing.

        Args:
            on_each: called after each answer.
        """
        for key, changes in list(self._named.items()):
            if key in self._tables:
                continue
            tables = self._settle(changes)
            on_each()
            if tables is None or tables:
                self._tables[key] = tables
                continue
            del self._named[key]
            self.settled += 1
        if not self._named and not self._has_unread:
            self._since = None

    def describe(self) -> dict[str, Any] | None:  # Any: JSON
        """Give what a suspect entry says; None when there is nothing.

        A notice that names nobody (another version may word it otherwise) still gives an
        entry: nothing is sure from the position before this entry on.
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
        found = [self._tables.get(key) for key in self._named]
        known = [tables for tables in found if tables is not None]
        extra["tables"] = sorted(set().union(*known))
        if len(known) == len(found) and not self._has_unread:
            extra |= {ONLY_THESE: True, "text": _TEXT_OF_TABLES}
        if named and not self._has_unread:
            extra["from_lsn"] = min(int(changes.skip_start_lsn) for changes in named)
            extra["until_lsn"] = max(int(changes.final_lsn) for changes in named)
        else:
            extra["from_lsn"] = int(extra["from_lsn"])
            extra["is_open"] = True
        return extra

    def forget(self) -> None:
        """Forget the described transactions: they are in the commit log."""
        self._named.clear()
        self._tables.clear()
        self._has_unread, self._since = False, None
        self._described_at = self._clock()


def refusal(extra: Mapping[str, Any]) -> str:  # Any: JSON
    """Say why nothing may go on after a notice, and how it can.

    Args:
        extra: result of `Suspects.describe`.
    """
    named = extra["transactions"]
    told = [
        f"{of['xid']} from {Lsn(of['skip_start_lsn'])} to {Lsn(of['final_lsn'])}"
        for of in named[:_MOST_TOLD]
    ]
    more = f" and {len(named) - _MOST_TOLD} more" if len(named) > _MOST_TOLD else ""
    which = f" (transactions {', '.join(told)}{more})" if told else ""
    tables = [unquote(table, errors="replace") for table in extra["tables"]]
    where = f" of {', '.join(tables)}" if ONLY_THESE in extra else ""
    return (
        f"the server may have left out rows{where} that follow DDL in the same transaction{which}. Nothing "
        f"after {Lsn(extra['from_lsn'])} is confirmed beyond what had landed, and it comes again. {STOPPED}"
    )
