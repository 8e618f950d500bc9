"""Read entries of the commit log by number, from either place where they are kept.

An entry is in ``commits/<n>.json``, in the checkpoint of its block when it is old, or in both. Gives the exact
bytes, with their hash checked.
"""

from collections.abc import Iterator

from gaussdecode.errors import LandingError, unreadable
from gaussdecode.land.disk import Disk
from gaussdecode.land.names import (
    CHECKPOINTS,
    COMMITS,
    checkpoint_range,
    entry_number,
    entry_path,
)
from gaussdecode.model.entry import CheckpointHeader, CommitEntry


def parse_entry(raw: bytes, where: str) -> CommitEntry:
    """Read an entry.

    Args:
        raw: its exact bytes.
        where: the file, for the error.

    Raises:
        LandingError: it is torn or altered.
        ConfigError: it is of a newer program.
    """
    try:
        return CommitEntry.from_bytes(raw)
    except ValueError as error:
        raise unreadable(
            where, error, "restore it from a copy of this landing, do not edit it"
        ) from error


class Entries:
    """The committed entries of a landing."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def numbers(self) -> list[int]:
        """Numbers in ``commits/``, rising; the old ones are only in checkpoints."""
        names = (item.name for item in self._disk.items(COMMITS) if item.is_file)
        return [n for n in map(entry_number, names) if n is not None]

    def checkpoints(self) -> list[tuple[int, int, str]]:
        """First number, last number and path of each checkpoint, rising."""
        result = []
        for item in self._disk.items(CHECKPOINTS):
            found = checkpoint_range(item.name)
            if found is not None and item.is_file:
                result.append((*found, f"{CHECKPOINTS}/{item.name}"))
        return result

    def header(self, path: str) -> CheckpointHeader:
        """Read the header of a checkpoint, and no more."""
        with self._disk.files.open(path) as file:
            return self._parsed(path, file.readline())

    def _parsed(self, path: str, line: bytes) -> CheckpointHeader:
        try:
            return CheckpointHeader.from_line(line.rstrip(b"\n"))
        except ValueError as error:
            raise unreadable(path, error, "restore it from a copy") from error

    def block(self, path: str) -> tuple[CheckpointHeader, Iterator[bytes]]:
        """Header and exact bytes of the entries of a checkpoint, in one reading.

        Raises:
            FileNotFoundError: it is gone.
        """
        file = self._disk.files.open(path)
        try:
            header = self._parsed(path, file.readline())
        except BaseException:
            file.close()
            raise

        def lines() -> Iterator[bytes]:
            with file:
                for line in file:
                    yield line.rstrip(b"\n")

        return header, lines()

    def raw(self, n: int) -> bytes | None:
        """Exact bytes of an entry in ``commits/``; None if it is not there."""
        return self._disk.read(entry_path(n))

    def one(self, n: int) -> CommitEntry:
        """An entry, from its own file where that is still there.

        Raises:
            LandingError: missing or damaged.
        """
        raw = self.raw(n)
        if raw is not None:
            return parse_entry(raw, entry_path(n))
        (entry,) = self.iterate(n, n)
        return entry

    def last_of(self, first: int, last: int, path: str) -> CommitEntry:
        """The last entry of a checkpoint, as it is kept there."""
        *_, entry = self._lines(path, last - first, last - first + 1)
        return entry

    def iterate(self, first: int, last: int) -> Iterator[CommitEntry]:
        """Entries `first` to `last`, one at a time.

        Raises:
            LandingError: one of them is missing or damaged.
        """
        checkpoints = self.checkpoints()
        n = first
        while n <= last:
            held = next((c for c in checkpoints if c[0] <= n <= c[1]), None)
            if held is None:
                yield self._single(n)
                n += 1
            else:
                end = min(last, held[1])
                yield from self._lines(held[2], n - held[0], end - held[0] + 1)
                n = end + 1

    def _single(self, n: int) -> CommitEntry:
        raw = self.raw(n)
        if raw is None:
            raise LandingError(f"{entry_path(n)}: missing; restore it from a copy of this landing")
        return parse_entry(raw, entry_path(n))

    def _lines(self, path: str, start: int, stop: int) -> Iterator[CommitEntry]:
        with self._disk.files.open(path) as file:
            file.readline()
            for index in range(stop):
                line = file.readline().rstrip(b"\n")
                if index >= start:
                    yield parse_entry(line, f"{path}, entry {index}")
