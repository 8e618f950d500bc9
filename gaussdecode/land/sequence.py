"""Check that the rows of each transaction are numbered 0, 1, 2 ... without gap or repetition, and are in order.

Given positions in any order and from any number of files. Keeps three numbers per transaction: the row
count, the highest `gd_seq`, and a sum of 64-bit hashes of all of them. A gap or a repetition changes one of the
three; two different sets of numbers agree in all three by chance once in 2**64.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.land.names import MESSAGES
from gaussdecode.model.csns import Csns
from gaussdecode.model.landing import Position, SourcePosition

_STEP: Final = 1 << 16
_ORDER: Final = ("gd_epoch", "gd_csn", "gd_lsn", "gd_seq")  # of them those that are read

_Numbers = np.ndarray[Any, np.dtype[np.uint64]]  # Any: the shape
_Places = np.ndarray[Any, np.dtype[np.int64]]  # same


@dataclasses.dataclass(slots=True)
class Transaction:
    """What is known of one transaction's numbers."""

    rows: int = 0
    last_seq: int = -1
    digest: int = 0


class RowOrder:
    """Do the rows of a table stand in order, file after file?

    Attributes:
        first: position of the first row of the present file; None before it.
        last: last of the last one so far.
        is_kept: none so far stands before the one that it follows.
    """

    def __init__(self) -> None:
        self.first: Position | None = None
        self.last: Position | None = None
        self.is_kept = True
        self._before: dict[str, _Places] = {}  # of the last row

    def begin(self) -> None:
        """Another file comes."""
        self.first = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the positions of a batch."""
        if not batch.num_rows:
            return
        rows = {
            name: pc.fill_null(batch.column(name), 0)
            .to_numpy(zero_copy_only=False)
            .astype(np.int64)
            for name in _ORDER
            if name in batch.schema.names
        }
        first, last = (
            Position(int(rows["gd_lsn"][at]), int(rows["gd_seq"][at]) if "gd_seq" in rows else 0)
            for at in (0, -1)
        )
        self.first, self.last = self.first or first, last
        places = [np.append(self._before.get(name, row[:0]), row) for name, row in rows.items()]
        is_later = np.zeros(len(places[0]) - 1, dtype=bool)
        for place in reversed(places):
            is_later = (place[1:] > place[:-1]) | ((place[1:] == place[:-1]) & is_later)
        self.is_kept = self.is_kept and bool(is_later.all())
        self._before = {name: row[-1:] for name, row in rows.items()}


class SequenceCheck:
    """Takes in rows in any order and says which transactions are not whole.

    Attributes:
        seen: numbers by commit position.
        csns: least and greatest CSN of the rows; None where they have none.
    """

    def __init__(self) -> None:
        self.seen: dict[int, Transaction] = {}
        self.csns: Csns | None = None

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Take in the positions of a batch; messages outside a transaction have none."""
        lsn, seq = batch.column("gd_lsn"), batch.column("gd_seq")
        if table == MESSAGES:
            present = pc.is_valid(seq)
            lsn, seq = lsn.filter(present), seq.filter(present)
        if not len(lsn):
            return
        lsns = lsn.to_numpy(zero_copy_only=False).astype(np.uint64)
        seqs = seq.to_numpy(zero_copy_only=False).astype(np.uint64)
        hashes = _mixed(seqs)
        values, inverse = np.unique(lsns, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        starts = np.searchsorted(inverse[order], np.arange(len(values)))
        counts = np.bincount(inverse, minlength=len(values))
        sums = np.add.reduceat(hashes[order], starts, dtype=np.uint64)
        highest = np.maximum.reduceat(seqs[order], starts)
        found = zip(values.tolist(), counts.tolist(), sums.tolist(), highest.tolist(), strict=True)
        for value, count, total, last in found:
            one = self.seen.setdefault(value, Transaction())
            one.rows += count
            one.last_seq = max(one.last_seq, last)
            one.digest = (one.digest + total) % 2**64

    def add_csns(self, csns: pa.Array) -> None:
        """Take in the CSNs of rows."""
        both = pc.min_max(csns)
        if both["min"].is_valid:
            self.csns = Csns(both["min"].as_py(), both["max"].as_py()).joined(self.csns)

    def findings(
        self, after: SourcePosition | None, until: SourcePosition, *, is_by_csn: bool = False
    ) -> Iterator[str]:
        """Say what is wrong with the transactions of an entry.

        Args:
            after: position of the entry before, or None.
            until: position of the entry.
            is_by_csn: the CSNs of positions are its bounds, and not the LSNs.
        """
        is_going_on = after is not None and after.epoch == until.epoch
        low = after.lsn if after is not None and is_going_on else -1
        if is_by_csn:
            yield from self._late(after.csn or 0 if after and is_going_on else 0, until.csn or 0)
        for lsn, one in sorted(self.seen.items()):
            if not is_by_csn and not low < lsn <= until.lsn:
                yield f"rows at {lsn}, outside of its positions ({low} to {until.lsn}]"
            if one.rows != one.last_seq + 1 or one.digest != _whole_digest(one.rows):
                yield (
                    f"transaction at {lsn} has {one.rows} rows up to gd_seq {one.last_seq}: "
                    "numbers are missing or repeated"
                )

    def _late(self, low: int, until: int) -> Iterator[str]:
        if self.csns is not None and not low < self.csns.least <= self.csns.greatest <= until:
            yield f"rows with {self.csns}, outside of its CSNs ({low} to {until}]"


def _mixed(numbers: _Numbers) -> _Numbers:
    """Hash each number (splitmix64, its public constants)."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _whole_digest(rows: int) -> int:
    """Hash sum of the numbers 0 to rows - 1."""
    total = 0
    for start in range(0, rows, _STEP):
        numbers = np.arange(start, min(start + _STEP, rows), dtype=np.uint64)
        total += int(_mixed(numbers).sum(dtype=np.uint64))
    return total % 2**64
