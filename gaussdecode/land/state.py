"""What the commit log amounts to: a fold over its entries.

Given entries in order; promises that the state behind entry *n* depends on nothing else,
so that a checkpoint may hold it. Knows no files.
"""

import dataclasses
import datetime as dt
from typing import Self

from gaussdecode.errors import LandingError
from gaussdecode.model.entry import FIRST_PREVIOUS, CheckpointHeader, CommitEntry
from gaussdecode.model.landing import EntryKind, SourcePosition


@dataclasses.dataclass(slots=True)
class LogState:
    """State behind the last entry.

    Attributes:
        next_n: number the next entry gets.
        last_hash: hash of the last entry.
        positions: per source, up to where everything is complete.
        schemas: per table, the schema_id its rows land under.
        floor: entries up to this number may be gone; -1 when none is.
        anchor: hash of entry `floor`.
        compacted: first entry number that no ``compact`` entry has looked at.
        mtime_ms: newest modification time given to a file.
        published: when the last entry was written; None in an empty log.
    """

    next_n: int = 0
    last_hash: str = FIRST_PREVIOUS
    positions: dict[str, SourcePosition] = dataclasses.field(default_factory=dict)
    schemas: dict[str, str] = dataclasses.field(default_factory=dict)
    floor: int = -1
    anchor: str = FIRST_PREVIOUS
    compacted: int = 0
    mtime_ms: int = 0
    published: dt.datetime | None = None

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
            published=header.published,
        )

    def to_header(self, first: int, previous: str, checksum: str) -> CheckpointHeader:
        """Make the header of the checkpoint that ends with the last entry."""
        if self.published is None:
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
            published=self.published,
            checksum=checksum,
        )

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
                raise LandingError(f"commit log: entry {entry.n} goes back behind {position}")

    def fold(self, entry: CommitEntry) -> None:
        """Take in the next entry.

        Raises:
            LandingError: it does not follow.
        """
        self.check_next(entry)
        self.next_n = entry.n + 1
        self.last_hash = entry.hash
        self.positions = dict(entry.positions)
        self.published = entry.published
        self.mtime_ms = max(self.mtime_ms, last_mtime_ms(entry))
        for change in entry.schema_changes:
            self.schemas[change.table] = change.schema_id
        if entry.floor is not None and entry.anchor is not None:
            self.floor, self.anchor = entry.floor, entry.anchor
        if entry.kind is EntryKind.COMPACT:
            self.compacted = int(entry.extra["through"]) + 1


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
