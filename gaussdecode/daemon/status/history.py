"""Keep the last half hour of metrics, for the status page and for naming the limit.

A ring with a fixed number of metric readings. So its memory does not depend on how long the daemon runs or
how much it lands. The caller gives readings and their times; there is no clock here. Counters only rise
within one daemon, so the difference of two readings is the work between them.
"""

import dataclasses
import itertools
import math
import threading
from collections import deque
from collections.abc import Mapping
from typing import Final

from gaussdecode.metrics.metric import Labels

INTERVAL_SECONDS: Final = 2.0
LENGTH: Final = 900  # half an hour; about 400 bytes each
_GAP_STEPS: Final = 3.0  # samples missing before there is a gap; arbitrary
_PREFIX: Final = "gaussdecode_"

Values = Mapping[str, Mapping[Labels, float]]


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One reading; the fields but the time are metrics, summed over their labels.

    Attributes:
        at: monotonic seconds.
    """

    at: float
    source_received_bytes_total: float = 0.0
    source_busy_seconds_total: float = 0.0
    source_stalled_seconds_total: float = 0.0
    source_waited_seconds_total: float = 0.0
    source_lag_bytes: float = 0.0
    source_lag_seconds: float = 0.0
    source_server_spilled_bytes_total: float = 0.0
    read_change_queue_entries: float = 0.0
    decode_change_queue_entries: float = 0.0
    decode_rows_total: float = 0.0
    decode_busy_seconds_total: float = 0.0
    decode_waited_input_seconds_total: float = 0.0
    decode_waited_output_seconds_total: float = 0.0
    collect_busy_seconds_total: float = 0.0
    collect_waited_seconds_total: float = 0.0
    collect_blocked_seconds_total: float = 0.0
    land_rows_total: float = 0.0
    land_bytes_total: float = 0.0
    land_encoded_seconds_total: float = 0.0
    land_synced_seconds_total: float = 0.0
    land_synced_beside_seconds_total: float = 0.0
    land_published_seconds_total: float = 0.0

    @classmethod
    def of(cls, at: float, values: Values) -> "Sample":
        """Take what is kept out of a reading of all metrics."""
        return cls(at, *(sum(values.get(_PREFIX + name, {}).values()) for name in METRIC_FIELDS))


METRIC_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Sample))[1:]


class History:
    """Keeps the newest samples. Thread-safe.

    Args:
        length: most samples kept.
    """

    def __init__(self, length: int = LENGTH) -> None:
        self._samples: deque[Sample] = deque(maxlen=length)
        self._lock = threading.Lock()

    def is_due(self, now: float) -> bool:
        """Whether the newest sample is old enough for another."""
        with self._lock:
            return not self._samples or now - self._samples[-1].at >= INTERVAL_SECONDS

    def add(self, sample: Sample) -> None:
        """Keep a sample; the oldest goes when there are too many."""
        with self._lock:
            self._samples.append(sample)

    def samples(self) -> list[Sample]:
        """All samples, oldest first."""
        with self._lock:
            return list(self._samples)

    def rates(self, seconds: float) -> Sample | None:
        """Change per second over the last so many seconds; gauges are the newest.

        Args:
            seconds: seconds of the window; shorter while there is not so much history.

        Returns:
            A sample of rates whose `at` is the length of the window, or None before
            there are two samples.
        """
        samples = self.samples()
        if len(samples) < 2:
            return None
        new = samples[-1]
        old = next(sample for sample in samples if new.at - sample.at <= seconds)
        if old is new:
            old = samples[-2]
        return _per_second(old, new)


def _per_second(old: Sample, new: Sample) -> Sample:
    span = new.at - old.at
    changes = {
        name: max(0.0, getattr(new, name) - getattr(old, name)) / span
        for name in METRIC_FIELDS
        if name.endswith("_total")
    }
    return dataclasses.replace(new, at=span, **changes)


def series(
    samples: list[Sample], name: str, points: int, seconds: float = 0.0
) -> list[tuple[float, float]]:
    """A metric over time, as (seconds before the newest, value), thinned out.

    Where samples are missing, because the process or the machine stood still, there is one point that is NaN.

    Args:
        samples: oldest first.
        name: a field of `Sample`; of a counter each point is a rate, as `History.rates` gives it.
        points: most points, those of gaps apart.
        seconds: seconds of the window of a rate; 0 for the time between two points.
    """
    step = max(1, -(-len(samples) // points))
    kept = samples[::-1][::step][::-1]
    if not kept:
        return []
    is_counter = name.endswith("_total")
    end = kept[-1].at
    found = [] if is_counter else [(end - kept[0].at, float(getattr(kept[0], name)))]
    first = 0  # of the window
    for index, (old, new) in enumerate(itertools.pairwise(kept)):
        is_gap = new.at - old.at > _GAP_STEPS * step * INTERVAL_SECONDS
        if is_gap:
            first = index + 1
            found.append((end - (old.at + new.at) / 2, math.nan))
        while first < index and new.at - kept[first].at > seconds:
            first += 1
        if not is_counter:
            found.append((end - new.at, getattr(new, name)))
        elif not is_gap:
            found.append((end - new.at, getattr(_per_second(kept[first], new), name)))
    return found
