"""Measure how far the landing is behind the server, in bytes and in seconds.

It notes the server's end of WAL now and then. The lag in seconds is the age of the oldest noted end that is
not yet durable. A busy server is always some bytes ahead; the landing is late only when that lasts.
Thread-safe and bounded.

WAL without changes for us is no lag. When everything that was sent has landed, a position up to which the
server has nothing more to send counts as landed too (`reached`).
"""

import dataclasses
import threading
from typing import Final

_LENGTH: Final = 1024  # marks; when there are more, every second one goes


def reached(durable: int, received: int, idle: int) -> int:
    """Up to where nothing is left to land.

    Args:
        durable: the landing is complete up to here.
        received: end of the last commit that was received.
        idle: the server has nothing more to send up to here; 0 when it does not say.
    """
    return max(durable, idle) if durable >= received else durable


@dataclasses.dataclass(frozen=True, slots=True)
class _Mark:
    at: float
    end: int


class Lag:
    """Notes ends of WAL and compares them with the durable position."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: list[_Mark] = []

    def note(self, at: float, end: int, durable: int) -> None:
        """Note where the WAL ends.

        Args:
            at: monotonic seconds.
            end: newest end that is known; 0 for unknown.
            durable: up to here everything has landed.
        """
        with self._lock:
            self._marks = [mark for mark in self._marks if mark.end > durable]
            last = self._marks[-1].end if self._marks else durable
            if end > last:
                self._marks.append(_Mark(at, end))
            if len(self._marks) > _LENGTH:
                self._marks = self._marks[::2]

    def seconds(self, now: float, durable: int) -> float:
        """Age of the oldest end that is not yet durable; 0 when all are."""
        with self._lock:
            ages = (now - mark.at for mark in self._marks if mark.end > durable)
            return max(0.0, next(ages, 0.0))
