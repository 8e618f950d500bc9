"""Decide when an entry is due: by age, by size, or because the slot has to advance."""

import time
from typing import Final, Protocol

from gaussdecode.collect._assembler import Assembler

IDLE_SECONDS: Final = 10.0  # an idle slot advances at least so often ...
IDLE_BYTES: Final = 16 << 20  # ... or after so much WAL of others (both arbitrary)
SLICE_SECONDS: Final = 0.1  # arbitrary: how stale a timer may be
_LEAST_SECONDS: Final = 0.001  # arbitrary
_COMMIT_SHARE: Final = 4  # an entry costs at most one part in so many


class Load(Protocol):
    """The load of ``land.writer.Intake``."""

    @property
    def largest_file_bytes(self) -> int:
        """Size of the largest file that is not yet handed to an entry."""

    @property
    def is_crowded(self) -> bool:
        """More rows now would make more files than there are tables."""

    @property
    def commit_seconds(self) -> float:
        """Duration of the last commit."""

    @property
    def visible_seconds(self) -> float:
        """From the last request for an entry until it was to be seen."""


class EntryTiming:
    """Of one session.

    Args:
        writer: see `Load`.
        assembler: has the transactions that wait.
        interval: longest time in seconds that a transaction waits.
        target_bytes: size of a file that makes an entry due.
        is_first_due: the first transactions are due at once.
    """

    def __init__(
        self,
        writer: Load,
        assembler: Assembler,
        *,
        interval: float,
        target_bytes: int,
        is_first_due: bool,
    ) -> None:
        self._writer = writer
        self._assembler = assembler
        self._interval = interval
        self._target_bytes = target_bytes
        self._is_first_due = is_first_due
        self._committed_at = time.monotonic()

    def committed(self) -> None:
        """An entry was asked for."""
        self._committed_at = time.monotonic()
        self._is_first_due = False

    @property
    def slice_seconds(self) -> float:
        """How long to collect before the timers are looked at again."""
        slice_seconds = min(SLICE_SECONDS, self._interval / 8)
        if not self._assembler.waiting_count:
            return slice_seconds
        return min(slice_seconds, max(_LEAST_SECONDS, self.effective_interval - self.age))

    @property
    def age(self) -> float:
        """Seconds since the oldest transaction that is not committed was complete."""
        return (time.monotonic_ns() - self._assembler.waiting_since_ns) / 1e9

    def is_due(self, position_lsn: int) -> bool:
        """Whether an entry is due.

        Args:
            position_lsn: up to where entries were asked for.
        """
        waiting, writer = self._assembler, self._writer
        if waiting.keepalive_is_urgent:
            return True
        if not waiting.waiting_count:
            behind = waiting.boundary_lsn - position_lsn
            waited = time.monotonic() - self._committed_at
            return behind > 0 and (waited >= IDLE_SECONDS or behind >= IDLE_BYTES)
        if self._is_first_due:  # whoever started the daemon looks whether anything lands
            return True
        if writer.is_crowded or writer.largest_file_bytes >= self._target_bytes:
            return True
        return self.age >= self.effective_interval

    @property
    def effective_interval(self) -> float:
        """Seconds that a transaction waits before its entry begins.

        The entry begins so much before the configured interval is over as the last one
        took to become visible, yet entries cost at most a quarter of the time.
        """
        lead = min(self._writer.visible_seconds, self._interval / 2)
        return max(self._interval - lead, _COMMIT_SHARE * self._writer.commit_seconds)
