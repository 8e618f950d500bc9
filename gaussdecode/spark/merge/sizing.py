"""Choose sizes: bytes per task, numbers of buckets, and the task of each group of rows.

Pure. The sizes are one record, so that tests reach with ten rows the limits that others reach with
gigabytes.
"""

import dataclasses
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

MIB: Final = 1 << 20
MAX_BUCKETS: Final = 4096
_SEED: Final = 42


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes in bytes of compressed files. Arbitrary; a task needs about ten times as much memory.

    Attributes:
        read: landed bytes that one task reads; a larger file is cut by row groups.
        reduce: bytes, stored and new, that one task merges if its buckets are smaller.
        first_bucket: bytes per bucket of a new table.
        bucket: bytes per bucket when a table gets more buckets.
        full_bucket: average bytes per bucket above which a table gets more buckets.
        small_bucket: a bucket below this size is always written whole when it changes.
        share: share of a bucket's rows that may have changed since it was written whole.
        gathered: bytes in memory that one task gathers from all buckets of a table.
        added: size of a file of added rows.
    """

    read: int = 32 * MIB
    reduce: int = 4 * MIB
    first_bucket: int = 8 * MIB
    bucket: int = 32 * MIB
    full_bucket: int = 96 * MIB
    small_bucket: int = MIB // 4
    share: float = 0.2
    gathered: int = 256 * MIB
    added: int = 64 * MIB


def power_of_two(wanted: float) -> int:
    """The next power of two, from 1 to `MAX_BUCKETS`."""
    count = 1
    while count < wanted and count < MAX_BUCKETS:
        count *= 2
    return count


def shared_out(weights: Iterable[tuple[int, int]], size: int) -> dict[int, int]:
    """Distribute groups over tasks.

    Args:
        weights: groups and their bytes.
        size: bytes of a task; a larger group gets a task of its own.

    Returns:
        The task number of each group, from 0. Every task has at least half of `size`, except the last
        one and those next to a large group.
    """
    tasks: dict[int, int] = {}
    task, held = 0, 0
    for group, weight in weights:
        if held and held + weight > size:
            task, held = task + 1, 0
        tasks[group] = task
        held += max(weight, 1)
    return tasks


def labels(count: int) -> tuple[int, ...]:
    """Numbers that Spark's hash partitioning puts into one partition each.

    Spark spreads rows by a hash of a column, which leaves a third of the partitions empty and gives
    others two or three. Were its hash another one, rows would be spread as unevenly as without this.
    """
    found: dict[int, int] = {}
    start = 0
    while len(found) < count:
        numbers = np.arange(start, start + 4 * count, dtype=np.int64)
        for number, part in zip(
            numbers.tolist(), (_murmur3(numbers) % count).tolist(), strict=True
        ):
            found.setdefault(part, number)
        start += 4 * count
    return tuple(found[part] for part in range(count))


def _murmur3(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Spark's hash of a column of type bigint: Murmur3_x86_32 of both halves."""
    bits = numbers.astype(np.uint64)
    state = np.full(len(numbers), _SEED, dtype=np.uint32)
    for half in (bits & np.uint64(0xFFFFFFFF), bits >> np.uint64(32)):
        mixed = half.astype(np.uint32) * np.uint32(0xCC9E2D51)
        mixed = (mixed << np.uint32(15) | mixed >> np.uint32(17)) * np.uint32(0x1B873593)
        state = state ^ mixed
        state = state << np.uint32(13) | state >> np.uint32(19)
        state = state * np.uint32(5) + np.uint32(0xE6546B64)
    state = state ^ np.uint32(8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> np.uint32(shift)) * np.uint32(factor)
    return state.astype(np.int32).astype(np.int64)
