"""Remove the files and entries at or below the floor of the log.

Given the committed floor. Files go before the entries that name them. So a crash in between leaves work for
the next start, and never a file that no entry names.
"""

from collections.abc import Iterable

from gaussdecode.errors import GaussDecodeError
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import Entries
from gaussdecode.land.failpoints import Step
from gaussdecode.land.names import (
    CHECKPOINTS,
    COMMITS,
    COMPACT,
    DATA,
    data_number,
    entry_path,
    parent,
    unfinished_number,
)
from gaussdecode.land.state import LogState
from gaussdecode.model.entry import CommitEntry


class FloorWatch:
    """The floor of the log at any moment: a daemon beside the reader may raise it."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._seen = -1
        self.floor = LogState().floor
        self.anchor = LogState().anchor

    def look(self) -> int:
        """Last entry number that is given up now."""
        try:
            self._look()
        except (GaussDecodeError, FileNotFoundError):
            pass  # the chain says what is wrong; what vanishes meanwhile is seen the next time
        return self.floor

    def _look(self) -> None:
        held = self._entries.checkpoints()
        if held and held[-1][1] > self._seen:
            header = self._entries.header(held[-1][2])
            self._take(header.floor, header.anchor)
            self._seen = held[-1][1]
        for n in self._entries.numbers():
            if n > self._seen:
                entry = self._entries.one(n)
                self._take(entry.floor, entry.anchor)
                self._seen = n

    def _take(self, floor: int | None, anchor: str | None) -> None:
        if floor is not None and anchor is not None and floor > self.floor:
            self.floor, self.anchor = floor, anchor


def apply_floor(disk: Disk, entries: Entries, floor: int) -> None:
    """Remove files, then entries, of every block at or below the floor.

    Args:
        disk: the landing.
        entries: reads committed entries.
        floor: last entry number that is given up; already durable in the log.
    """
    for first, last, checkpoint in entries.checkpoints():
        if last > floor:
            break
        _remove_files(disk, entries.iterate(first, last))
        _remove_compacted(disk, f"{COMPACT}/{first:020d}")
        disk.files.reach(Step.FILES_DELETED)
        for n in range(first, last + 1):
            if disk.size(entry_path(n)) is not None:
                disk.remove(entry_path(n))
        disk.sync_directories(COMMITS)
        disk.remove(checkpoint)
        disk.sync_directories(CHECKPOINTS)


def _remove_files(disk: Disk, entries: Iterable[CommitEntry]) -> None:
    touched = set()
    for entry in entries:
        for file in entry.files:
            disk.remove(file.path)
            touched.add(parent(file.path))
    present = {path for path in touched if disk.files.has_directory(path)}
    disk.sync_directories(*present)
    for path in sorted(present):
        if path.startswith(f"{DATA}/"):
            disk.remove_directory(path)


def _remove_compacted(disk: Disk, block: str) -> None:
    """Remove the merged files of a block; what others put beside them stays."""
    for table in disk.items(block):
        directory = f"{block}/{table.name}"
        for item in disk.items(directory) if table.is_directory else ():
            is_ours = data_number(item.name) is not None or unfinished_number(item.name) is not None
            if item.is_file and is_ours:
                disk.remove(f"{directory}/{item.name}")
        if table.is_directory:
            disk.sync_directories(directory)
            disk.remove_directory(directory)
    disk.remove_directory(block)
