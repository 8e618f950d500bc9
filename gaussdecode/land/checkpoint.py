"""Write checkpoints: each holds one full block of entries in one file.

When a block is full, its exact bytes are written into one file, after a header with the state of the log
after the block. So a start reads one header and at most one block of entries. Entries that a checkpoint
holds and that are older than the newest block are then removed from ``commits/``. A reader looks into
``commits/`` first and into the checkpoints afterwards; in this order it never misses an entry.
"""

import hashlib
from typing import Final

from gaussdecode.errors import LandingError
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import Entries, parse_entry
from gaussdecode.land.failpoints import Step
from gaussdecode.land.names import CHECKPOINTS, entry_path
from gaussdecode.land.state import LogState
from gaussdecode.model.entry import checkpoint_name

BLOCK: Final = 1000
"""Entries in a checkpoint, and how many of the newest stay as files of their own."""


class Checkpoints:
    """Writes checkpoints and prunes what they hold."""

    def __init__(self, disk: Disk, entries: Entries, block: int = BLOCK) -> None:
        self._disk = disk
        self._entries = entries
        self.block = block

    def advance(self, state: LogState) -> None:
        """Write the checkpoint that ends with the last entry, if one ends there."""
        if state.next_n == 0 or state.next_n % self.block:
            return
        first, last = state.next_n - self.block, state.next_n - 1
        path = f"{CHECKPOINTS}/{checkpoint_name(first, last)}"
        if self._disk.size(path) is None:
            self._write(path, first, state)
        self.prune(last)

    def prune(self, last: int) -> None:
        """Remove the entries that are both older than the newest block and in a checkpoint.

        Args:
            last: number of the last entry of the newest checkpoint.
        """
        for n in self._entries.numbers():
            if n <= last - self.block:
                self._disk.remove(entry_path(n))

    def newest(self) -> LogState | None:
        """The state after the newest checkpoint; None where there is none.

        Raises:
            LandingError: its header is not the state after its entries.
        """
        held = self._entries.checkpoints()
        if not held:
            return None
        first, last, path = held[-1]
        header = self._entries.header(path)
        state = LogState.from_header(header)
        entry = self._entries.one(last)
        wrong = [] if (header.first, header.last) == (first, last) else ["numbers"]
        wrong += state.unlike(entry)
        if wrong:
            raise LandingError(
                f"{path}: its header differs from the state after entry {last} in {', '.join(wrong)}; "
                "restore it from a copy of this landing"
            )
        return state

    def _write(self, path: str, first: int, state: LogState) -> None:
        digest = hashlib.sha256()
        previous = parse_entry(self._line(first)[:-1], entry_path(first)).previous
        for n in range(first, state.next_n):
            digest.update(self._line(n))
        header = state.to_header(first, previous, digest.hexdigest()).to_line() + b"\n"
        hidden = self._disk.unfinished(CHECKPOINTS, state.next_n, "jsonl")
        files, space = self._disk.files, self._disk.space
        handle = space.run(f"create {hidden}", lambda: files.create(hidden))
        try:
            self._disk.write(handle, hidden, memoryview(header))
            for n in range(first, state.next_n):
                self._disk.write(handle, hidden, memoryview(self._line(n)))
            space.once(f"fsync {hidden}", lambda: files.sync(handle))
        finally:
            files.close_handle(handle)
        self._disk.rename(hidden, path)
        self._disk.sync_directories(CHECKPOINTS)
        files.reach(Step.CHECKPOINT_WRITTEN)

    def _line(self, n: int) -> bytes:
        raw = self._entries.raw(n)
        if raw is None:
            raise LandingError(f"{entry_path(n)}: missing; restore it from a copy of this landing")
        return raw + b"\n"
