"""Write the output of peek and get, and decide when it ends.

Given lines of whole transactions, writes them to standard output as bytes, counts them, and tells when
a limit is reached. It ends only after a whole transaction, so that the printed changes can be
confirmed.
"""

import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Final

from gaussdecode.model.lsn import Lsn

_HELD_BYTES: Final = 16 << 20  # of a transaction, above which it waits on disk; arbitrary


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the output; None for no limit.

    Attributes:
        upto: end before a transaction that commits after this position.
        changes: end after the transaction that reaches this number of changes.
        seconds: end after this time.
        data_bytes: end after the transaction that reaches this output size.
    """

    upto: Lsn | None = None
    changes: int | None = None
    seconds: float | None = None
    data_bytes: int | None = None


class Output:
    """Prints lines, and flushes them by the line or by the batch.

    Args:
        limits: limits to end at.
        batch_bytes: flush the output when this much waits; 0 to flush after every line.
        is_held: hold a transaction back until its commit position is known.

    Attributes:
        last_end: end of the last transaction that was printed whole; 0 for none.
        confirmed: the same, when it was confirmed last.
        is_full: a limit is reached.
    """

    def __init__(self, limits: Limits, batch_bytes: int, *, is_held: bool = False) -> None:
        self._limits = limits
        self._batch_bytes = batch_bytes
        self._deadline = None if limits.seconds is None else time.monotonic() + limits.seconds
        self._waiting = 0
        self._changes = 0
        self._bytes = 0
        self._held = (
            tempfile.SpooledTemporaryFile(_HELD_BYTES)  # noqa: SIM115 - see close()
            if is_held
            else None
        )
        self.last_end = Lsn(0)
        self.confirmed = Lsn(0)
        self.is_full = False

    def must_end(self) -> bool:
        """Whether a limit is reached, or the time is up."""
        is_late = self._deadline is not None and time.monotonic() >= self._deadline
        return self.is_full or is_late

    def line(self, line: bytes, *, is_change: bool = False) -> None:
        """Print a line of the open transaction."""
        self._changes += is_change
        self._bytes += len(line) + 1
        if self._held is not None:
            self._held.write(line + b"\n")
            return
        sys.stdout.buffer.write(line + b"\n")
        self._waiting += len(line) + 1
        if self._waiting > self._batch_bytes:
            self.flush()

    def commit(self, end_lsn: Lsn | None) -> None:
        """Record that the open transaction is complete.

        Args:
            end_lsn: end of its commit record; None if the format does not tell.
        """
        limits = self._limits
        if end_lsn is not None and limits.upto is not None and end_lsn > limits.upto:
            self._forget()
            self.is_full = True
            return
        self._release()
        if end_lsn is not None:
            self.last_end = max(self.last_end, end_lsn)
        self.is_full = (limits.changes is not None and self._changes >= limits.changes) or (
            limits.data_bytes is not None and self._bytes >= limits.data_bytes
        )

    def _forget(self) -> None:
        if self._held is not None:
            self._held.seek(0)
            self._held.truncate()

    def _release(self) -> None:
        if self._held is not None:
            self._held.seek(0)
            shutil.copyfileobj(self._held, sys.stdout.buffer)
            self._forget()

    def flush(self) -> None:
        """Flush the output."""
        self._waiting = 0
        sys.stdout.buffer.flush()

    def sync(self) -> None:
        """Flush the output, and sync it if it is a file."""
        self.flush()
        with contextlib.suppress(OSError, ValueError):  # a pipe or terminal has no disk
            os.fsync(sys.stdout.fileno())

    def give_out(self, confirm: Callable[[Lsn], None] | None) -> None:
        """Flush the output; what is complete is then confirmed, with `confirm`."""
        if confirm is None:
            self.flush()
        elif self.last_end > self.confirmed:
            self.sync()
            self.confirmed = self.last_end
            confirm(self.confirmed)

    def close(self) -> None:
        """Drop lines that are held back."""
        if self._held is not None:
            self._held.close()
