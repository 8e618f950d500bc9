"""Walk a landing for one client: blocks and positions in order, from a confirmed position on.

An entry of a snapshot stands before its position in the log: changes of other tables up to there follow it. So a
client that wants its rows gets them later, in a transaction of their own: after all that ends up to the position, and
before all that ends after it. Changes of these tables up to there are left out, since the rows have them. The
end of such a transaction is the position + 1, + 2 for a second snapshot there, and so on: no record of the log
ends there. So a confirmed LSN tells which ones a client has.
"""

import dataclasses
from collections.abc import Awaitable, Hashable
from typing import TypeVar

import numpy as np

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.serve.block import Block
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.feed import Feed
from gaussdecode.serve.reader import LEAST_RECORD, ReadPosition

_Result = TypeVar("_Result")


def after(block: Block, lsn: int) -> Block:
    """The transactions of a block that end after an LSN."""
    transactions = block.transactions
    first = int(np.searchsorted(transactions.end_lsn, np.uint64(lsn), "right"))
    if first == 0:
        return block
    row = int(transactions.row_ends[first - 1])
    return dataclasses.replace(
        block,
        transactions=dataclasses.replace(
            transactions,
            **{
                field.name: getattr(transactions, field.name)[first:]
                for field in dataclasses.fields(transactions)
                if field.name != "row_ends"
            },
            row_ends=transactions.row_ends[first:] - row,
        ),
        row_table=block.row_table[row:],
        row_index=block.row_index[row:],
        change_lsn=block.change_lsn[row:],
        is_continued=False,
        is_open=block.is_open and first < len(transactions.end_lsn),
    )


def until(block: Block, count: int) -> Block:
    """The first transactions of a block; not all of them."""
    transactions = block.transactions
    row = int(transactions.row_ends[count - 1])
    return dataclasses.replace(
        block,
        transactions=dataclasses.replace(
            transactions,
            **{
                field.name: getattr(transactions, field.name)[:count]
                for field in dataclasses.fields(transactions)
            },
        ),
        row_table=block.row_table[:row],
        row_index=block.row_index[:row],
        change_lsn=block.change_lsn[:row],
        is_open=False,
    )


def without(block: Block, tables: frozenset[tuple[str, str]], lsn: int) -> Block:
    """A block without the rows of some tables in transactions that end up to an LSN.

    Args:
        block: any.
        tables: schema and name of each.
        lsn: the last one that counts.
    """
    transactions = block.transactions
    count = int(np.searchsorted(transactions.end_lsn, np.uint64(lsn), "right"))
    is_of = np.array([(of.schema.schema, of.schema.name) in tables for of in block.tables], bool)
    if count == 0 or not is_of.any():
        return block
    row = int(transactions.row_ends[count - 1])
    is_kept = np.ones(len(block.row_table), bool)
    is_kept[:row] = ~is_of[block.row_table[:row]]
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_kept, dtype=np.int64)])
    return dataclasses.replace(
        block,
        transactions=dataclasses.replace(transactions, row_ends=before[transactions.row_ends]),
        row_table=block.row_table[is_kept],
        row_index=block.row_index[is_kept],
        change_lsn=block.change_lsn[is_kept],
    )


@dataclasses.dataclass(slots=True)
class _Snapshot:
    """A snapshot whose entry was read.

    Attributes:
        entry: its entry.
        lsn: position of its rows.
        end_lsn: of the transaction with its rows.
        whole: tables of which it has all rows, by schema and name.
        is_sent: the client has its rows.
    """

    entry: CommitEntry
    lsn: int
    end_lsn: int
    whole: frozenset[tuple[str, str]]
    is_sent: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A step of a walk.

    Attributes:
        block: transactions to send; None at the end of an entry.
        reached: the position after the entry; None inside of it. Its number is that of a snapshot before it
            whose rows are still to come.
        name: of the block, the same for each client that gets all of it; None for a part of one.
    """

    block: Block | None
    reached: ReadPosition | None
    name: Hashable = None


class Walk:
    """Steps through the log.

    Args:
        feed: of the tables that the client gets.
        start: the entry to begin with; transactions that end up to its LSN are left out.
        slot: name of the slot, for errors; None where the client has none.
        include_snapshot: the client gets the rows of snapshots.

    Attributes:
        n: number of the entry that is read next, or read now.
        epoch: of the LSNs.
    """

    def __init__(
        self, feed: Feed, start: ReadPosition, slot: str | None, *, include_snapshot: bool = False
    ) -> None:
        self._feed = feed
        self._start = self._at = start
        self._slot = slot
        self._include_snapshot = include_snapshot
        self.n = start.n
        self.epoch = start.epoch
        self._entry: CommitEntry | None = None
        self._previous: CommitEntry | None = None
        self._index = 0
        self._end = 0  # of the last transaction that was found
        self._rest: Block | None = None  # of the entry; what a snapshot comes before
        self._snapshots: list[_Snapshot] = []  # by position, then by entry
        self._sending: tuple[_Snapshot, int] | None = None  # and its next block

    @property
    def floor(self) -> int:
        """Number of the oldest entry that is needed after all that was found so far; never before the start."""
        ahead = (of.entry.n for of in self._snapshots if not of.is_sent)
        return max(self._start.n, min([self.n, *ahead]))

    async def check_start(self) -> None:
        """Refuse to begin where rows of a table do not land.

        Raises:
            ServeError: it says which.
        """
        reader = self._feed.reader
        await self._feed.call(lambda: reader.check_start(self._start))
        if self._include_snapshot:
            for n in await self._feed.call(lambda: reader.snapshots_ahead(self._start)):
                self._note(await self._feed.entry(n))

    async def next(self) -> Found | None:
        """Go one step on; None at the end of the log.

        Raises:
            ServeError: rows are missing, or may be; a file is damaged; or retention removed the entry.
        """
        found = await self._next()
        if found is not None and found.block is not None:
            self._end = max(self._end, int(found.block.transactions.end_lsn[-1]))
        return found

    async def _next(self) -> Found | None:
        while True:
            if self._sending is not None:
                of, index = self._sending
                block = await self._snapshot_block(of, index)
                if block is not None:
                    return Found(block, None, (of.entry.n, index, of.end_lsn))
                continue
            entry = self._entry
            if entry is None:
                if self._has_snapshot(self._at.lsn):
                    continue
                if self._feed.end.last < self.n and await self._feed.end.see() < self.n:
                    return None
                entry = await self._begin()
            block, self._rest = self._rest, None
            whole = None
            if block is None and not self._is_confirmed(entry):
                whole = block = await self._kept(self._feed.block(entry, self._index))
                if block is not None:
                    self._index += 1
                    block = self._cleared(block, entry)
                    if not len(block.transactions.end_lsn):
                        continue
            if block is not None:
                block = self._up_to_snapshot(block)
                if block is not None:
                    return Found(block, None, (entry.n, self._index) if block is whole else None)
                continue
            reached = self._feed.position_after(entry)
            if self._has_snapshot(reached.lsn):
                continue
            self._previous, self._entry, self._index = entry, None, 0
            self.n = entry.n + 1
            # Who confirms it has all of the entry: also what was moved a bit behind a snapshot.
            lsn = max(reached.lsn, self._end)
            self._at = dataclasses.replace(reached, n=self.floor, lsn=lsn)
            self._snapshots = [
                of
                for of in self._snapshots
                if not of.is_sent or of.lsn + LEAST_RECORD > reached.lsn
            ]
            return Found(None, self._at)

    # ---- snapshots -------------------------------------------------------------------------

    def _note(self, entry: CommitEntry) -> None:
        """Remember a snapshot, whose rows are to come at their position."""
        said = entry.extra["snapshot"]
        lsn = int(said["lsn"])
        same = sum(of.lsn == lsn for of in self._snapshots)
        end_lsn = lsn + min(same + 1, LEAST_RECORD - 1)
        # Those that have to share the last number come again, rather than be missing.
        is_exact = same + 1 < LEAST_RECORD - 1
        confirmed = self._start.lsn
        whole = frozenset(
            (of["schema"], of["name"]) for of in said["tables"].values() if of["where"] is None
        )
        is_sent = end_lsn < confirmed or (end_lsn == confirmed and is_exact)
        self._snapshots.append(_Snapshot(entry, lsn, end_lsn, whole, is_sent))
        self._snapshots.sort(key=lambda of: of.lsn)

    def _has_snapshot(self, lsn: int) -> bool:
        """Whether the rows of a snapshot at a position up to an LSN come now."""
        due = next((of for of in self._snapshots if not of.is_sent), None)
        if due is None or due.lsn > lsn:
            return False
        self._sending = (due, 0)
        return True

    async def _snapshot_block(self, of: _Snapshot, index: int) -> Block | None:
        block = await self._kept(self._feed.block(of.entry, index))
        if block is None:
            of.is_sent, self._sending = True, None
            return None
        self._sending = (of, index + 1)
        ends = np.array([of.end_lsn], np.uint64)
        return dataclasses.replace(
            block, transactions=dataclasses.replace(block.transactions, end_lsn=ends)
        )

    def _cleared(self, block: Block, entry: CommitEntry) -> Block:
        """What of a block the client has neither confirmed nor gets with a snapshot."""
        transactions = block.transactions
        ends = transactions.end_lsn
        if not len(ends):
            return block
        for of in self._snapshots:  # a message outside of transactions may begin at its position
            is_next = transactions.is_outside & (transactions.end_lsn == np.uint64(of.lsn + 1))
            ends = np.where(is_next, np.maximum(ends, np.uint64(of.end_lsn + 1)), ends)
        if self._snapshots:
            transactions = dataclasses.replace(transactions, end_lsn=ends)
            block = dataclasses.replace(block, transactions=transactions)
        if ends[0] <= self._start.lsn:
            block = after(block, self._start.lsn)
        for of in self._snapshots:
            if of.entry.n < entry.n and not of.is_sent:
                block = without(block, of.whole, of.lsn)
        return block

    def _up_to_snapshot(self, block: Block) -> Block | None:
        """What of a block comes before the next snapshot; the rest waits. None where the snapshot comes first."""
        ends = block.transactions.end_lsn
        if not len(ends) or not self._has_snapshot(int(ends[-1]) - 1):
            return block
        assert self._sending is not None
        lsn = self._sending[0].lsn
        count = int(np.searchsorted(ends, np.uint64(lsn), "right"))
        self._rest = block if count == 0 else after(block, lsn)
        return until(block, count) if count else None

    # ---- the log ---------------------------------------------------------------------------

    async def _kept(self, work: Awaitable[_Result]) -> _Result:
        """What was read of the present entry; where retention removed it, the slot is lost."""
        try:
            return await work
        except ServeError as problem:
            first = await self._feed.call(lambda: self._feed.reader.landing.first_n)
            needed = self.floor  # also a snapshot before the present entry
            if needed >= first or self._slot is None:
                raise
            raise self._feed.lost(self._slot, self._at, needed, first) from problem

    async def _begin(self) -> CommitEntry:
        entry = await self._kept(self._feed.entry(self.n))
        if self._previous is not None and entry.previous != self._previous.hash:
            raise ServeError(
                "XX001",
                f"entry {entry.n} of the landing does not follow entry {entry.n - 1}",
                hint="gaussdecode verify says more.",
            )
        await self._feed.check(entry)
        epoch = self._feed.position_after(entry).epoch
        if self.n == 0:
            self.epoch = epoch
        if epoch != self.epoch:
            raise self._feed.reader.new_epoch(entry, self._at)
        if self._include_snapshot and self._feed.reader.has_snapshot(entry):
            self._note(entry)
        self._entry = entry
        return entry

    def _is_confirmed(self, entry: CommitEntry) -> bool:
        """All transactions of an entry end before the start, or it has none."""
        if entry.kind is not EntryKind.DATA:
            return True
        position = self._feed.position_after(entry)
        # What a client confirmed of a snapshot there may be after what begins there.
        lsn = self._start.lsn - (LEAST_RECORD if self._snapshots else 0)
        return (position.epoch, position.lsn) <= (self.epoch, lsn)
