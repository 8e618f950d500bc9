"""Measure how long threads have been at a task, including those still at it.

Threads report when they begin and end. The total never falls, and it grows while a thread is inside. So a stage
that stands still shows as working or waiting all the time, not as idle.
"""

import threading
import time
from collections.abc import Callable


class Stopwatch:
    """Time that is being spent; a context for those who spend it. Thread-safe.

    Args:
        clock: monotonic nanoseconds; whole numbers, so that sums are exact.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._inside = 0
        self._offset = 0  # with the clock times those inside, the sum
        self._any_offset = 0  # likewise, with the clock if anybody is inside

    @property
    def seconds(self) -> float:
        """All until now, summed over threads."""
        with self._lock:
            return (self._offset + self._inside * self._clock()) / 1e9

    @property
    def any_seconds(self) -> float:
        """Those until now in which anybody was at it: two at once count once."""
        with self._lock:
            return (self._any_offset + (self._inside > 0) * self._clock()) / 1e9

    def __enter__(self) -> None:
        self._change(1)

    def __exit__(self, *_exception: object) -> None:
        self._change(-1)

    def _change(self, by: int) -> None:
        with self._lock:
            now, before = self._clock(), self._inside > 0
            self._inside += by
            self._offset -= by * now
            self._any_offset -= ((self._inside > 0) - before) * now
