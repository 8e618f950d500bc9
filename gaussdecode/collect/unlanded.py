"""Keep the commit times of what was handed to the writer, until it is durable; for the lag in seconds."""

import dataclasses
import threading
from collections import deque
from typing import Final

_LENGTH: Final = 64  # entries; a session hands over one while one is committed


@dataclasses.dataclass(frozen=True, slots=True)
class Unlanded:
    """How far the commits of a session have come, at one moment. Times: seconds since 1970.

    Attributes:
        oldest_time: of the oldest commit that came and is not durable; None without one, or where
            the server does not say.
        landed_time: of the newest commit that is durable; None before there is one.
        complete_lsn: nothing that came up to here is left to land; 0 while something is.
    """

    oldest_time: float | None = None
    landed_time: float | None = None
    complete_lsn: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    lsn: int
    first_us: int
    last_us: int


class HandedOver:
    """Entries under way. Thread-safe: the collector adds, the status looks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: deque[_Part] = deque(maxlen=_LENGTH)
        self._landed_us = 0

    def add(self, lsn: int, first_us: int, last_us: int) -> None:
        """Note an entry.

        Args:
            lsn: its position.
            first_us: commit time of its oldest transaction, microseconds since 1970; 0 for unknown.
            last_us: that of the newest.
        """
        with self._lock:
            self._parts.append(_Part(lsn, first_us, last_us))

    def look(self, durable_lsn: int, coming_us: int, boundary_lsn: int) -> Unlanded:
        """See what is not durable.

        Args:
            durable_lsn: everything up to here is.
            coming_us: commit time of the oldest transaction that is not handed over; 0 for none.
            boundary_lsn: end of what came, where all of it was handed over; 0 for not all.
        """
        with self._lock:
            while self._parts and self._parts[0].lsn <= durable_lsn:
                self._landed_us = self._parts.popleft().last_us
            first_us = self._parts[0].first_us if self._parts else coming_us
            complete = 0 if self._parts else boundary_lsn
            return Unlanded(_seconds(first_us), _seconds(self._landed_us), complete)


def _seconds(time_us: int) -> float | None:
    return time_us / 1e6 if time_us else None
