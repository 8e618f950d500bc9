"""Complete or remove unfinished work of a landing at its start.

Given a locked landing, gives the state after the last committed entry. Every decided entry is completed
and everything undecided is removed. A step that was cut off is repeated by the next start. The cases:

==============================================  ============================================
hidden entry that is shown already              removed (step 6)
next hidden entry, valid, its files all match   written again and completed from step 3
any other hidden entry, no file of it renamed   removed
any other hidden entry                          hard stop
hidden file that an entry names                 renamed
other unfinished name of our pattern            removed
Parquet file with a number not in the log       hard stop: the log was restored from a copy
entries or files at or below the floor          removed (retention)
anything else that has no place in `tree`       named in a finding, left alone
==============================================  ============================================

The hidden entry is written again because the fsync that failed before may have lost its
bytes while the page cache still shows them: only a new inode proves they are on disk.
"""

import dataclasses
import datetime as dt
import functools
from collections import deque
from collections.abc import Iterator
from typing import Final

from gaussdecode.errors import LandingError, unreadable
from gaussdecode.land import entry_steps
from gaussdecode.land.checkpoint import Checkpoints
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import Entries
from gaussdecode.land.expiry import apply_floor
from gaussdecode.land.files import Item
from gaussdecode.land.mirror.known import mirrored_only_until
from gaussdecode.land.names import (
    CHECKPOINTS,
    COMMITS,
    COMPACT,
    DATA_FILE,
    DIRECTORIES,
    MIRROR,
    data_number,
    hidden_entry_number,
    hidden_entry_path,
    parent,
    partition_date,
    unfinished_number,
)
from gaussdecode.land.snapshots import COLUMNS, FINGERPRINTS, LEDGER
from gaussdecode.land.snapshots import ROOT as SNAPSHOTS
from gaussdecode.land.state import LogState
from gaussdecode.land.tree import DATA_FILES, TREE, Kind, Place, is_vital, spell
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import LandingFile
from gaussdecode.model.seal import NewerFormatError
from gaussdecode.model.words import counted

_ENTRIES_BACK: Final = 8
_SLACK: Final = dt.timedelta(days=2)
"""Partitions this much older than the last entries hold nothing unfinished: files are begun
at most an entry ahead, and never in the partition of a day before the last entry's
(`entry_steps.partition_day`), whatever the clock says. Versions before went by the clock."""

_NAMED_FOREIGN: Final = 20
"""Foreign things that are named at a start; arbitrary. `verify` names more."""

_CHECKED_FILES: Final = 100
"""Files of the last entry whose size is compared at start; arbitrary."""


@dataclasses.dataclass(slots=True)
class Recovered:
    """What recovery found.

    Attributes:
        state: after the last committed entry.
        findings: sentences for the operator.
    """

    state: LogState
    findings: list[str] = dataclasses.field(default_factory=list)


def refuse_without_layout(disk: Disk) -> None:
    """Refuse to create a landing over the remains of another.

    What the other one knew of its tables, its mirror and its prepared transactions would be taken for
    the new one's: rows of a table that was read there would never be read here.

    Raises:
        LandingError: something of it is there but no ``layout.json``.
    """
    entries = Entries(disk)
    if entries.numbers() or entries.checkpoints():
        raise LandingError("layout.json is missing, but there are entries: restore it from a copy")
    kept = (f"{SNAPSHOTS}/{name}" for name in (LEDGER, FINGERPRINTS, COLUMNS))
    for path in (*kept, MIRROR):
        if disk.size(path) is not None:
            raise LandingError(
                f"layout.json is missing, but {path} of a landing is there: restore layout.json from a copy, "
                "or empty the directory for a new landing"
            )


def recover(disk: Disk, checkpoints: Checkpoints) -> Recovered:
    """Bring a landing into a state one can add to.

    Raises:
        LandingError: it is damaged in a way only an operator can judge.
        DiskError: the file system failed.
    """
    return _Recovery(disk, checkpoints).run()


class _Recovery:
    def __init__(self, disk: Disk, checkpoints: Checkpoints) -> None:
        self.disk = disk
        self.checkpoints = checkpoints
        self.entries = Entries(disk)
        self.state = LogState()
        self.result = Recovered(self.state)
        self.last: CommitEntry | None = None
        self.days: deque[dt.date] = deque(maxlen=_ENTRIES_BACK)
        self.foreign = 0

    def run(self) -> Recovered:
        self.trust()
        self.replay()
        rest = self.complete()
        hidden, orphans = self.survey()
        if self.foreign > _NAMED_FOREIGN:
            self.result.findings.append(
                f"{counted(self.foreign, 'thing')} below the root not made by gaussdecode"
            )
        if orphans:
            raise LandingError(
                f"{orphans[0]} and {len(orphans) - 1} more files belong to no entry of the log: "
                "the log is an older copy, or entries were deleted. Restore the newest copy of "
                f"{COMMITS}/; nothing was changed"
            )
        self.drop(rest)
        self.sweep(hidden)
        self.check_last()
        apply_floor(self.disk, self.entries, self.state.floor)
        return self.result

    def trust(self) -> None:
        """Make durable what is seen, before anything is built on it.

        The earlier process may have ended between a link and its fsync; a checkpoint made
        of an entry that a power cut then takes back would outlive it.
        """
        for directory in DIRECTORIES:
            self.disk.ensure_directory(directory)
        self.disk.sync_directories("", COMMITS, CHECKPOINTS)

    def replay(self) -> None:
        """Fold the entries after the newest checkpoint."""
        newest = self.checkpoints.newest()
        if newest is not None:
            self.state = self.result.state = newest
        behind = self.state.next_n - 1
        numbers = self.entries.numbers()
        if numbers and numbers[0] <= behind - self.checkpoints.block:
            self.checkpoints.prune(behind)
        for n in (n for n in numbers if n > behind):
            (entry,) = self.entries.iterate(n, n)
            self.fold(entry)

    def fold(self, entry: CommitEntry) -> None:
        self.state.fold(entry)
        self.last = entry
        self.days.append(entry.committed_time.date())
        self.checkpoints.advance(self.state)

    def complete(self) -> list[tuple[int, bytes]]:
        """Complete the hidden entry that is next; give the hidden entries that are not."""
        rest = []
        for n in sorted(self.hidden_numbers()):
            raw = self.disk.read(hidden_entry_path(n)) or b""
            if n < self.state.next_n and self.entries.raw(n) == raw:
                self.disk.remove(hidden_entry_path(n))
                continue
            entry = self.completable(n, raw)
            if entry is None:
                rest.append((n, raw))
            else:
                self.finish(entry)
        return rest

    def hidden_numbers(self) -> Iterator[int]:
        for item in self.disk.items(COMMITS):
            n = hidden_entry_number(item.name)
            if n is not None and item.is_file:
                yield n

    def completable(self, n: int, raw: bytes) -> CommitEntry | None:
        """Read a hidden entry; None unless it is next and all its files are there."""
        if n != self.state.next_n:
            return None
        try:
            entry = CommitEntry.from_bytes(raw)
            self.state.check_next(entry)
        except NewerFormatError as error:  # it may be decided, and whoever wrote it can tell
            raise unreadable(hidden_entry_path(n), error, "") from error
        except (ValueError, LandingError):
            return None
        pairs = zip(entry.files, entry.hidden, strict=True)
        return entry if all(self.is_there(file, hidden) for file, hidden in pairs) else None

    def is_there(self, file: LandingFile, hidden: str) -> bool:
        path = file.path
        if self.disk.size(path) is None:
            path = f"{parent(path)}/{hidden}"
        return self.disk.matches(path, file.bytes, file.checksum)

    def finish(self, entry: CommitEntry) -> None:
        again = self.disk.unfinished(COMMITS, entry.n, "entry")
        self.disk.write_file(again, entry.to_bytes())
        self.disk.replace(again, hidden_entry_path(entry.n))
        for file in entry.files:
            self.disk.ensure_directory(parent(file.path))
        self.disk.sync_directories(COMMITS)
        entry_steps.reveal(self.disk, entry)
        entry_steps.show(self.disk, entry)
        entry_steps.tidy(self.disk, entry)
        self.fold(entry)
        self.result.findings.append(
            f"entry {entry.n} was decided but not shown when the last process ended; completed"
        )

    def survey(self) -> tuple[dict[str, int], list[str]]:
        """List unfinished files with their lowest entry number, and files of no entry."""
        hidden: dict[str, int] = {}
        orphans = []
        for path, item, kind in self.walk(TREE, ""):
            number = data_number(item.name)
            if kind is Kind.FOREIGN:
                self.note_foreign(path, item)
            elif kind is Kind.UNFINISHED:
                number = unfinished_number(item.name)  # none: a spool's, which no entry names
                hidden[path] = self.state.next_n if number is None else number
            elif item.is_file and number is not None and number >= self.state.next_n:
                orphans.append(path)
        return hidden, orphans

    def walk(self, place: Place, path: str) -> Iterator[tuple[str, Item, Kind]]:
        """Everything in the directories that something unfinished can be in.

        But for the files of entries of the log, which may be a million.
        """
        for item in self.items(place, path):
            below = f"{path}/{item.name}".lstrip("/")
            yield below, item, place.kind(item)
            step = place.step(item)
            if step is not None and self.is_recent(path, item.name):
                yield from self.walk(step, below)

    def items(self, place: Place, path: str) -> list[Item]:
        if place is DATA_FILES:
            return self.disk.rest(path, DATA_FILE, f"{self.state.next_n:020d}")
        return self.disk.items(path)

    def is_recent(self, path: str, name: str) -> bool:
        """Whether a directory may hold something unfinished; old ones are many."""
        if path == COMPACT:
            return int(name) + 2 * self.checkpoints.block > self.state.compacted
        date = partition_date(name)
        return date is None or date >= self.oldest

    @functools.cached_property
    def oldest(self) -> dt.date:
        """Day of the first partition that may hold something unfinished."""
        days = list(self.days)
        behind = self.state.next_n - len(days)  # what was not read again is in a checkpoint
        first = max(behind - _ENTRIES_BACK + len(days), self.state.floor + 1)
        days += [self.entries.one(n).committed_time.date() for n in range(first, behind)]
        return max(min(days, default=dt.date.min), dt.date.min + _SLACK) - _SLACK

    def note_foreign(self, path: str, item: Item) -> None:
        """Name what is not ours; it is left alone, unless nobody could work beside it."""
        what = "a directory" if item.is_directory else "a file" if item.is_file else "no file"
        if not item.is_file and is_vital(item.name):
            raise LandingError(
                f"{spell(path)} is {what}, but an entry of the log belongs there; move it away"
            )
        self.foreign += 1
        if self.foreign <= _NAMED_FOREIGN:
            self.result.findings.append(
                f"{spell(path)} ({what}) is not of this landing; left alone. Nothing else may "
                "write below the root: move it away"
            )

    def drop(self, rest: list[tuple[int, bytes]]) -> None:
        """Remove hidden entries that cannot be completed and that nobody can have seen."""
        for n, raw in rest:
            try:
                entry = CommitEntry.from_bytes(raw)
            except ValueError:
                entry = None
            for file in entry.files if entry is not None else ():
                if not self.is_committed(n, file) and self.disk.size(file.path) is not None:
                    raise LandingError(
                        f"{hidden_entry_path(n)} cannot be completed, but its file {file.path} "
                        "has been renamed already; restore the missing files from a copy"
                    )
            self.disk.remove(hidden_entry_path(n))
            self.result.findings.append(f"hidden entry {n} was not decided; removed")

    def is_committed(self, n: int, file: LandingFile) -> bool:
        """Whether the committed entry of this number names the same path."""
        if n >= self.state.next_n or n <= self.state.floor:
            return False
        (entry,) = self.entries.iterate(n, n)
        return any(file.path == other.path for other in entry.files)

    def sweep(self, hidden: dict[str, int]) -> None:
        """Rename unfinished files that an entry names, remove the others."""
        named = self.named(min(hidden.values(), default=self.state.next_n))
        removed = 0
        for path in sorted(hidden):
            file = named.get(path)
            if file is None:
                self.disk.remove(path)
                removed += 1
            elif self.disk.size(file.path) is not None:
                self.disk.remove(path)
            else:
                self.restore(path, file)
        if removed:
            self.result.findings.append(f"{removed} unfinished files of an earlier process removed")

    def named(self, first: int) -> dict[str, LandingFile]:
        """Hidden path to file, for all entries that can name something unfinished."""
        result = {}
        for entry in self.entries.iterate(max(first, self.state.floor + 1), self.state.next_n - 1):
            for file, hidden in zip(entry.files, entry.hidden, strict=True):
                result[f"{parent(file.path)}/{hidden}"] = file
        return result

    def restore(self, path: str, file: LandingFile) -> None:
        """Give a file of a committed entry its name back."""
        if not self.disk.matches(path, file.bytes, file.checksum):
            raise LandingError(f"{file.path} is missing, and {path} has other content; restore it")
        self.disk.rename(path, file.path)
        self.disk.sync_directories(parent(file.path))
        self.result.findings.append(f"{file.path} had lost its name; renamed")

    def check_last(self) -> None:
        """Compare sizes of files of the last entry; report what differs."""
        if self.last is None or self.last.n <= mirrored_only_until(self.disk):
            return
        for file in self.last.files[:_CHECKED_FILES]:
            size = self.disk.size(file.path)
            if size != file.bytes:
                found = "missing" if size is None else f"{size} bytes, not {file.bytes}"
                self.result.findings.append(f"DAMAGED: {file.path} is {found}; run verify")
