"""Merge rows of a table without a key: equal rows are counted, and the oldest is removed first.

Given the events of a bucket in order of row and position; finds the current rows, the ended rows, and
the event that ended each. A removal of a row that does not exist (it is older than the slot) removes
nothing and is counted.
"""

from collections import deque

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def match(code: Ints, era: Ints, action: Ints, resets: int) -> tuple[Ints, Ints, Ints, int]:
    """Pair removals with rows.

    Args:
        code: number of the row's content; equal rows are adjacent.
        era: number of the first reset after the event, ascending within a content.
        action: 0 removes one row, any other value adds one.
        resets: number of resets.

    Returns:
        Positions of the current rows, of the ended rows, per ended row the position of the
        removal (-1: the reset after its era), and the number of removals of nothing.
    """
    alive: list[int] = []
    ended: list[tuple[int, int]] = []
    unmatched = 0
    waiting: deque[int] = deque()
    at: tuple[int, int] | None = None

    def leave(where: tuple[int, int] | None) -> None:
        if where is not None and where[1] == resets:
            alive.extend(waiting)
        else:
            ended.extend((row, -1) for row in waiting)
        waiting.clear()

    for row, group in enumerate(zip(code.tolist(), era.tolist(), strict=True)):
        if group != at:
            leave(at)
            at = group
        if action[row]:
            waiting.append(row)
        elif waiting:
            ended.append((waiting.popleft(), row))
        else:
            unmatched += 1
    leave(at)
    pairs = np.array(sorted(ended), dtype=np.int64).reshape(-1, 2)
    return np.array(sorted(alive), dtype=np.int64), pairs[:, 0], pairs[:, 1], unmatched
