"""Compute the state of the commit log: a fold over its entries.

Given entries in order. The state after entry *n* depends on nothing else, so that a checkpoint may hold it.
Knows no files.

Time. Entries carry the clock of the daemon, which may have been wrong: set back, or years
ahead for a while. What is deleted for its age goes by the time the log has *seen*: the sum of
the steps between one entry and the next, where a step back counts nothing and a step ahead an
hour at most. A leap of the clock, in any direction and by any amount, so makes nothing older
than an hour; a landing at rest, or a daemon that is down, only keeps things longer.
"""

import dataclasses
import datetime as dt
from typing import Final, Self

from gaussdecode.errors import LandingError
from gaussdecode.model.entry import FIRST_PREVIOUS, CheckpointHeader, CommitEntry
from gaussdecode.model.landing import EntryKind, PreparedFile, SourcePosition

LONGEST_STEP_MS: Final = 3_600_000
"""Arbitrary. With fewer entries than one in an hour a block, the least that is given up, lasts
for six weeks."""


@dataclasses.dataclass(slots=True)
class LogState:
    """State after the last entry.

    Attributes:
        next_n: number the next entry gets.
        last_hash: hash of the last entry.
        positions: per source, up to where everything is complete.
        schemas: schemas by `schema_key`, the schema_id its rows land under.
        floor: entries up to this number may be gone; -1 when none is.
        anchor: hash of entry `floor`.
        compacted: first entry number that no ``compact`` entry has looked at.
        mtime_ms: newest modification time given to a file.
        committed_time: when the last entry was written; None in an empty log.
        elapsed_ms: how much time the log has seen.
        prepared: files of prepared transactions that have not ended, by path.
    """

    next_n: int = 0
    last_hash: str = FIRST_PREVIOUS
    positions: dict[str, SourcePosition] = dataclasses.field(default_factory=dict)
    schemas: dict[str, str] = dataclasses.field(default_factory=dict)
    floor: int = -1
    anchor: str = FIRST_PREVIOUS
    compacted: int = 0
    mtime_ms: int = 0
    committed_time: dt.datetime | None = None
    elapsed_ms: int = 0
    prepared: dict[str, PreparedFile] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_header(cls, header: CheckpointHeader) -> Self:
        """Take the state a checkpoint holds."""
        return cls(
            next_n=header.last + 1,
            last_hash=header.hash,
            positions=dict(header.positions),
            schemas=dict(header.schemas),
            floor=header.floor,
            anchor=header.anchor,
            compacted=header.compacted,
            mtime_ms=header.mtime_ms,
            committed_time=header.committed_time,
            elapsed_ms=header.elapsed_ms,
            prepared=dict(header.prepared),
        )

    def to_header(self, first: int, previous: str, checksum: str) -> CheckpointHeader:
        """Make the header of the checkpoint that ends with the last entry."""
        if self.committed_time is None:
            raise ValueError("an empty log has no checkpoint")
        return CheckpointHeader(
            first=first,
            last=self.next_n - 1,
            previous=previous,
            hash=self.last_hash,
            positions=self.positions,
            schemas=self.schemas,
            floor=self.floor,
            anchor=self.anchor,
            compacted=self.compacted,
            mtime_ms=self.mtime_ms,
            committed_time=self.committed_time,
            checksum=checksum,
            elapsed_ms=self.elapsed_ms,
            prepared=dict(self.prepared),
        )

    def unlike(self, entry: CommitEntry) -> list[str]:
        """Name what this state, said to be the one after an entry, has otherwise than it."""
        pairs = {
            "hash": (self.last_hash, entry.hash),
            "numbers": (self.next_n, entry.n + 1),
            "positions": (self.positions, entry.positions),
            "committed_time": (self.committed_time, entry.committed_time),
            "mtime_ms": (self.mtime_ms, last_mtime_ms(entry)),
        }
        return [name for name, (mine, its) in pairs.items() if mine != its]

    def check_next(self, entry: CommitEntry) -> None:
        """Refuse an entry that does not follow the last one.

        Raises:
            LandingError: and the text says what does not fit.
        """
        if entry.n != self.next_n:
            raise LandingError(f"commit log: entry {self.next_n} expected, {entry.n} found")
        if entry.previous != self.last_hash:
            raise LandingError(
                f"commit log: entry {entry.n} does not follow entry {entry.n - 1}: "
                f"it names {entry.previous[:16]}..., that one is {self.last_hash[:16]}..."
            )
        if (entry.n == 0) != (entry.kind is EntryKind.GENESIS):
            raise LandingError(f"commit log: entry {entry.n} is of kind {entry.kind}")
        for source, position in self.positions.items():
            new = entry.positions.get(source)
            if new is None or (new.epoch, new.lsn) < (position.epoch, position.lsn):
                raise LandingError(f"commit log: entry {entry.n} goes back before {position}")
            if new.epoch == position.epoch and (new.csn or 0) < (position.csn or 0) and new.until:
                raise LandingError(f"commit log: entry {entry.n} goes back before {position}")

    def fold(self, entry: CommitEntry) -> None:
        """Take in the next entry.

        Raises:
            LandingError: it does not follow.
        """
        self.check_next(entry)
        self.next_n = entry.n + 1
        self.last_hash = entry.hash
        self.positions = dict(entry.positions)
        self.elapsed_ms += step_ms(self.committed_time, entry.committed_time)
        self.committed_time = entry.committed_time
        self.mtime_ms = max(self.mtime_ms, last_mtime_ms(entry))
        for change in entry.schema_changes:
            self.schemas[change.key] = change.schema_id
        for file in entry.prepared:
            self.prepared[file.path] = file
        for path in entry.ended:
            self.prepared.pop(path, None)
        if entry.floor is not None and entry.anchor is not None:
            self.floor, self.anchor = entry.floor, entry.anchor
        if entry.kind is EntryKind.COMPACT:
            self.compacted = int(entry.extra["through"]) + 1


def step_ms(before: dt.datetime | None, after: dt.datetime) -> int:
    """How much time an entry adds to what the log has seen."""
    if before is None:
        return 0
    return max(0, min((after - before) // dt.timedelta(milliseconds=1), LONGEST_STEP_MS))


def ranks(entry: CommitEntry) -> list[int]:
    """Number each file of an entry inside its table, from 0."""
    seen: dict[str, int] = {}
    result = []
    for file in entry.files:
        rank = seen.get(file.table, 0)
        seen[file.table] = rank + 1
        result.append(rank)
    return result


def last_mtime_ms(entry: CommitEntry) -> int:
    """Newest modification time given to a file of an entry."""
    return entry.mtime_ms + max(ranks(entry), default=0)
