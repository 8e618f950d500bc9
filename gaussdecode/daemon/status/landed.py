"""Count what has landed since the daemon started, and keep the durable position.

Counts by table, of the last entries, and of all of them.

Bounded: past `TABLES` tables the rest is counted together, and only the newest `COMMITS`
entries are kept. Table names go to the status page, never to metrics.
"""

import dataclasses
import datetime
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile
from gaussdecode.snapshot.doubts import names_all, read_again_by

TABLES: Final = 2000
COMMITS: Final = 20
TOTALS: Final = ("land_entries_total", "land_files_total", "land_rows_total", "land_bytes_total")
OTHERS: Final = "(all others)"
_MOST_SUSPECTS: Final = 1000  # that are looked after; arbitrary
_ALARMING: Final = (EntryKind.GAP, EntryKind.SUSPECT, EntryKind.QUARANTINE)


@dataclasses.dataclass(slots=True)
class TableTally:
    """One table since the start.

    Attributes:
        name: table name as the server spells it.
        rows: landed.
        bytes: bytes of its files.
        files: how many.
        ops: rows by operation.
        entry: number of the newest entry with rows of it.
    """

    name: str
    rows: int = 0
    bytes: int = 0
    files: int = 0
    ops: Counter[str] = dataclasses.field(default_factory=Counter)
    entry: int = -1

    def add(self, n: int, file: LandingFile) -> None:
        """Count a file of an entry."""
        self.rows += file.rows
        self.bytes += file.bytes
        self.files += 1
        self.ops.update(file.ops)
        self.entry = n


@dataclasses.dataclass(frozen=True, slots=True)
class Commit:
    """One entry, in short."""

    n: int
    kind: str
    lsn: int
    committed_time: datetime.datetime
    commit_time: datetime.datetime | None
    tables: int
    files: int
    rows: int
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Durable:
    """How far the landing is.

    Attributes:
        lsn: everything of the stream up to here is durable.
        entry: number of the newest entry.
    """

    lsn: int = 0
    entry: int = -1


class Landed:
    """Takes in entries from the threads that commit, is read from others."""

    def __init__(self) -> None:
        self.durable = Durable()  # replaced whole
        self._lock = threading.Lock()
        # There from the start: a rate needs the zero that comes before the first entry.
        self._totals: Counter[str] = Counter(dict.fromkeys(TOTALS, 0))
        self._tables: dict[str, TableTally] = {}
        self._commits: deque[Commit] = deque(maxlen=COMMITS)
        self._alarms: Counter[EntryKind] = Counter()
        self._suspects: list[tuple[CommitEntry, set[str]]] = []  # and tables not read again
        self._unnamed: list[CommitEntry] = []  # suspect entries that may mean any table
        self._lasting = 0  # those beyond the number that is looked after

    def reach(self, entry: int, lsn: int | None = None) -> None:
        """An entry is durable.

        Args:
            entry: its number.
            lsn: durable position of the stream; None for an entry that does not come from the stream.
        """
        with self._lock:
            known = self.durable
            self.durable = Durable(known.lsn if lsn is None else lsn, max(known.entry, entry))

    def add(self, entry: CommitEntry) -> None:
        """Count what an entry brought."""
        position = next(iter(entry.positions.values()))
        commit = Commit(
            entry.n,
            str(entry.kind),
            position.lsn,
            entry.committed_time,
            entry.commit_time,
            len({file.table for file in entry.files}),
            len(entry.files),
            sum(file.rows for file in entry.files),
            sum(file.bytes for file in entry.files),
        )
        with self._lock:
            self._totals.update(
                dict(zip(TOTALS, (1, commit.files, commit.rows, commit.bytes), strict=True))
            )
            self._commits.append(commit)
            if entry.kind in _ALARMING:
                self._alarms[entry.kind] += 1
            self._look_after_suspects(entry)
            if entry.kind is not EntryKind.COMPACT:
                for file in entry.files:
                    self._tally(file.table).add(entry.n, file)

    def _tally(self, table: str) -> TableTally:
        if table not in self._tables and len(self._tables) >= TABLES:
            table = OTHERS
        if table not in self._tables:
            self._tables[table] = TableTally(unquote(table, errors="replace"))
        return self._tables[table]

    def tables(self) -> list[TableTally]:
        """Copies of all tallies, most rows first."""
        with self._lock:
            tallies = [dataclasses.replace(t, ops=Counter(t.ops)) for t in self._tables.values()]
        return sorted(tallies, key=lambda tally: (-tally.rows, tally.name))

    def commits(self) -> list[Commit]:
        """The last entries, newest first."""
        with self._lock:
            return list(self._commits)[::-1]

    def totals(self) -> dict[str, float]:
        """Entries, files, rows and bytes, by metric without its prefix."""
        with self._lock:
            return dict(self._totals)

    def _look_after_suspects(self, entry: CommitEntry) -> None:
        left = [(of, tables - read_again_by(entry, of)) for of, tables in self._suspects]
        self._suspects = [(of, tables) for of, tables in left if tables]
        if entry.kind is not EntryKind.SUSPECT:
            return
        if len(self._suspects) + len(self._unnamed) >= _MOST_SUSPECTS:
            self._lasting += 1
        elif names_all(entry):
            self._suspects.append((entry, set(entry.extra["tables"])))
        else:
            self._unnamed.append(entry)

    def unread_suspects(self, read_n: Callable[[str | None], int]) -> int:
        """Suspect entries since the start that may mean tables which were not read again.

        Args:
            read_n: up to which entry all tables of a source were read again, or of all sources: None.
        """
        with self._lock:
            unnamed = [of for of in self._unnamed if of.n > read_n(of.extra.get("source"))]
            self._unnamed = unnamed
            return len(self._suspects) + len(unnamed) + self._lasting

    def count(self, kind: EntryKind) -> int:
        """Entries of kind gap, suspect or quarantine since the start."""
        with self._lock:
            return self._alarms[kind]
