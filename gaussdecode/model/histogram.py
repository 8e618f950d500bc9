"""Count durations in a histogram.

Counts only ever rise, in buckets that are the same everywhere. So histograms of several stages and processes
can be added and compared. A commit time in the future counts as 0, in the lowest bucket: a sum that could
fall would not be a counter.
"""

import bisect
import dataclasses
import threading
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

BOUNDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
"""Largest duration of each bucket but the last, in seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """What a histogram holds at one moment.

    Attributes:
        counts: durations per bucket; one more than there are bounds.
        seconds: sum of all durations.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    seconds: float = 0.0

    def __add__(self, other: Self) -> Self:
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return dataclasses.replace(self, counts=counts, seconds=self.seconds + other.seconds)


class Histogram:
    """Counts durations. Thread-safe.

    Attributes:
        counted: all so far; replaced whole.
    """

    def __init__(self) -> None:
        self.counted = Counted()
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """Count one duration; less than nothing counts as nothing."""
        span = max(seconds, 0.0)
        bucket = bisect.bisect_left(BOUNDS, span)  # a span equal to a bound is within it
        with self._lock:
            counts = list(self.counted.counts)
            counts[bucket] += 1
            self.counted = Counted(tuple(counts), self.counted.seconds + span)

    def add_all(
        self, seconds: npt.NDArray[np.float64], weights: npt.NDArray[np.signedinteger[Any]]
    ) -> None:
        """Count many, each as often as its weight says; less than nothing counts as nothing."""
        spans = np.maximum(seconds, 0.0)
        buckets = np.searchsorted(BOUNDS, spans)  # a span equal to a bound is within it
        counts = np.bincount(buckets, weights, len(BOUNDS) + 1)
        more = Counted(tuple(int(count) for count in counts), float(spans @ weights))
        with self._lock:
            self.counted += more
