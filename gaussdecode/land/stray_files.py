"""Compare files below the root with the commit log, in little memory.

A landing may hold millions of files, so their names are not kept. Per block of entries there are two sums: of
the files on disk, and of the files that entries name. Each is a count and a sum of hashes of the paths. A block
whose sums agree has exactly the files that it names. Where they differ, the names are compared, one block
at a time, with the files that are there then. So a file that came or went in between is no finding.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Item
from gaussdecode.land.names import data_number
from gaussdecode.land.tree import TREE, Kind, Place

_BLOCK: Final = 1000
"""Entries that are summed up together; arbitrary, and need not be those of a checkpoint."""

_BITS: Final = 128
_MOST_BLOCKS: Final = 32
"""Maximum number of blocks whose names are compared; arbitrary. More are reported as one damage."""


class Sums:
    """Counts and sums of hashes of paths, per block of entries.

    Attributes:
        blocks: blocks by the number of the block.
    """

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))

    def add(self, n: int, path: str) -> None:
        """Take in a path that belongs to entry `n`."""
        count, total = self.blocks[n // _BLOCK]
        digest = hashlib.blake2b(path.encode(), digest_size=_BITS // 8).digest()
        total = (total + int.from_bytes(digest, "big")) % (1 << _BITS)
        self.blocks[n // _BLOCK] = count + 1, total

    def unlike(self, other: "Sums") -> list[range]:
        """Entries of the blocks that two sums do not agree about, at most so many."""
        blocks = sorted(self.blocks.keys() | other.blocks.keys())
        none = (0, 0)
        unlike = (
            range(block * _BLOCK, (block + 1) * _BLOCK)
            for block in blocks
            if self.blocks.get(block, none) != other.blocks.get(block, none)
        )
        return [block for block, _ in zip(unlike, range(_MOST_BLOCKS), strict=False)]


def walk(disk: Disk, place: Place = TREE, path: str = "") -> Iterator[tuple[str, Item, Kind]]:
    """Everything below the root, in no order."""
    for item in disk.files.scan(path):
        below = f"{path}/{item.name}".lstrip("/")
        yield below, item, place.kind(item)
        step = place.step(item)
        if step is not None:
            yield from walk(disk, step, below)


def strays(disk: Disk, block: range, named: set[str]) -> Iterator[tuple[int, str]]:
    """Entry number and path of every file of a block of entries that is not among the named."""
    for path, item, kind in walk(disk):
        n = data_number(item.name)
        if kind is Kind.OURS and n is not None and n in block and path not in named:
            yield n, path
