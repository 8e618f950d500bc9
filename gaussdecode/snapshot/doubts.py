"""Order snapshots of the tables that suspect entries name (`landing.on-suspect: snapshot`).

Only one number is remembered: the last suspect entry that was handled. It is in the ledger, and is written
together with the orders. So orders follow from the commit log alone: no end of the process loses one, or
gives one twice.

A view that is taken after the order shows all that the suspect transactions did, because a server reports a
transaction when it has committed. So the table is complete from the snapshot on, wherever its position is.
"""

from typing import TYPE_CHECKING, Any, Final

from gaussdecode.collect.suspects import ONLY_THESE
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.quarantine import ended_by, epoch_of, oids_read_by
from gaussdecode.model.title import split_title, table_directory

if TYPE_CHECKING:  # the status page imports this module, and needs no Arrow
    from gaussdecode.land.commitlog import CommitLog
    from gaussdecode.land.snapshots import SnapshotStore

KEY: Final = "*suspects"  # in the ledger, beside the tables
_MAY_MISS: Final = frozenset(
    {EntryKind.GAP, EntryKind.FORK, EntryKind.SUSPECT, EntryKind.QUARANTINE}
)
ANY_TABLE: Final = "is_any_table"  # in a suspect entry: more tables than it names may be meant

Json = dict[str, Any]  # Any: JSON


def answered(n: int) -> dict[str, Json]:
    """What the ledger says once all that entries up to a number leave in doubt is ordered."""
    return {KEY: {"state": "listed", "n": n}}


def answered_n(ledger: Json) -> int:
    """Up to which entry all is ordered; -1 for none."""
    return int(ledger.get(KEY, {}).get("n", -1))


def read_again_n(ledger: Json) -> int:
    """Up to which entry all was ordered, and no order waits or has failed; -1 for none."""
    states = {of.get("state") for title, of in ledger.items() if "." in title}
    return -1 if states & {"asked", "failed"} else answered_n(ledger)


def names_all(entry: CommitEntry) -> bool:
    """Whether a suspect entry names every table that may lack changes."""
    is_of_named = entry.extra.get(ONLY_THESE) or not entry.extra.get(ANY_TABLE, True)
    return bool(entry.extra.get("tables")) and bool(is_of_named)


def read_again_by(entry: CommitEntry, suspect: CommitEntry) -> set[str]:
    """Tables that a suspect entry may mean, of which a later entry ends a snapshot taken after it.

    A snapshot of a table made anew is after the change. One of a renamed table has another name.
    """
    if entry.extra.get("source") != suspect.extra.get("source"):
        return set()
    snapshots = entry.extra.get("snapshot", {}).get("tables", {})
    changes = suspect.extra.get("changes", {})
    anew = {table: of["oid"] for table, of in changes.items() if of["oid"]}
    oids = oids_read_by(entry, epoch_of(suspect), suspect.n)
    own = {table for table, of in changes.items() if of.get("table_oid") in oids} - anew.keys()
    return own | {
        table
        for table in ended_by(entry)
        if int(snapshots.get(table, {}).get("since_n", -1)) >= suspect.n
        or (table in anew and snapshots.get(table, {}).get("oid") == anew[table])
    }


def may_miss(entry: CommitEntry, directory: str) -> bool:
    """Whether changes of a table may be missing behind an entry.

    Or what a view showed was never on this server.
    """
    if entry.kind is EntryKind.SUSPECT and names_all(entry):
        return directory in entry.extra["tables"]
    return entry.kind in _MAY_MISS


class Doubts:
    """Of one landing.

    Args:
        log: is read on, each entry once.
        store: its ledger.
        source: source whose tables they are, where there are several; else None.
    """

    def __init__(self, log: "CommitLog", store: "SnapshotStore", source: str | None = None) -> None:
        self._log = log
        self._store = store
        self._source = source
        self._seen_n = self._noted_n = answered_n(store.ledger())
        self._titles: set[str] = set()
        self._oids: set[int] = set()
        self._is_of_all = False
        self._has_begun = False

    def look(self) -> bool:
        """Read the log on; gives whether some table is in doubt.

        What was read and holds no doubt need not be read by the next start, but for less than
        a block of entries.
        """
        last = self._log.next_n - 1
        for entry in self._log.iterate(max(self._seen_n, self._log.floor) + 1, last):
            is_of_another = entry.extra.get("source", self._source) != self._source
            if entry.kind is EntryKind.SUSPECT and not is_of_another:
                self._take(entry)
        self._seen_n = max(self._seen_n, last)
        is_in_doubt = self._is_of_all or bool(self._titles)
        least = self._log.block if self._has_begun else 1
        if not is_in_doubt and self._seen_n - self._noted_n >= least:
            self._store.note(self.answered())
            self._noted_n = self._seen_n
        self._has_begun = True
        return is_in_doubt

    def _take(self, entry: CommitEntry) -> None:
        named = {str(table) for table in entry.extra.get("tables", ())}
        told = (of.get("table_oid") for of in entry.extra.get("changes", {}).values())
        known = (
            of.get("oid")
            for title, of in self._store.ledger().items()
            if "." in title and table_directory(*split_title(title)) in named
        )
        self._titles |= named
        self._oids |= {int(oid) for oid in (*told, *known) if oid}
        self._is_of_all |= not names_all(entry)

    def concerns(self, directory: str, oid: int = 0) -> bool:
        """Whether a table may lack changes, under its name or one that it had."""
        return self._is_of_all or directory in self._titles or oid in self._oids

    def answered(self) -> dict[str, Json]:
        """What the ledger says once everything that `look` saw has been ordered."""
        return answered(self._seen_n)

    def forget(self) -> None:
        """Forget the number that `answered` gave: it is durable."""
        self._noted_n = self._seen_n
        self._titles.clear()
        self._oids.clear()
        self._is_of_all = False
