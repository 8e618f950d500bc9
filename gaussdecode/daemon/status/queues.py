"""Measure how full the queues between the stages are, against the limit that applies.

A queue is limited in batches (``parallel-queue-size``) and in bytes (``ring.*-bytes``). Batches of large
rows fill the bytes first. GaussDB's queues have only the first limit, and its guide compares their lengths:
read queues short, reading is the limit; decode queues short, decoding is; both long, sending is. So the
columns with these names show `length`: a queue that is full by either limit has the length
``parallel-queue-size``. Batches and bytes are shown beside it.
"""

import dataclasses
from collections.abc import Sequence

from gaussdecode.ipc.ring import Ring


@dataclasses.dataclass(frozen=True, slots=True)
class Fill:
    """One queue at one moment.

    Attributes:
        entries: entries that wait.
        max_entries: bound of these.
        bytes: bytes that they take.
        max_bytes: bound of these.
    """

    entries: int
    max_entries: int
    bytes: int
    max_bytes: int

    @classmethod
    def of(cls, queue: Ring) -> "Fill":
        """Look at a queue."""
        return cls(queue.length(), queue.max_entries, queue.used_bytes(), queue.capacity_bytes)

    @property
    def share(self) -> float:
        """Of the bound that is nearer, 0 to 1."""
        return max(self.entries / self.max_entries, self.bytes / self.max_bytes)

    @property
    def length(self) -> int:
        """In entries, of `max_entries`, as if these were the only bound; at least 1 when not empty."""
        return max(self.entries, -(-self.bytes * self.max_entries // self.max_bytes))


def mean_share(fills: Sequence[Fill]) -> float:
    """Of several queues; 0 for none."""
    return sum(fill.share for fill in fills) / len(fills) if fills else 0.0
