"""Walk a landing for one client: blocks and positions in order, from a confirmed position on."""

import dataclasses
from collections.abc import Awaitable
from typing import TypeVar

import numpy as np

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.serve.block import Block
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.feed import Feed
from gaussdecode.serve.reader import ReadPosition

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


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A step of a walk.

    Attributes:
        block: transactions to send; None at the end of an entry.
        reached: the position after the entry; None inside of it.
    """

    block: Block | None
    reached: ReadPosition | None


class Walk:
    """Steps through the log.

    Args:
        feed: of the tables that the client gets.
        start: the entry to begin with; transactions that end up to its LSN are left out.
        slot: name of the slot, for errors; None where the client has none.

    Attributes:
        n: number of the entry that is read next, or read now.
        epoch: of the LSNs.
    """

    def __init__(self, feed: Feed, start: ReadPosition, slot: str | None) -> None:
        self._feed = feed
        self._start = self._at = start
        self._slot = slot
        self.n = start.n
        self.epoch = start.epoch
        self._entry: CommitEntry | None = None
        self._previous: CommitEntry | None = None
        self._index = 0

    async def check_start(self) -> None:
        """Refuse to begin where rows of a table do not land.

        Raises:
            ServeError: it says which.
        """
        await self._feed.call(lambda: self._feed.reader.check_start(self._start))

    async def next(self) -> Found | None:
        """Go one step on; None at the end of the log.

        Raises:
            ServeError: rows are missing, or may be; a file is damaged; or retention removed the entry.
        """
        entry = self._entry
        if entry is None:
            if self._feed.end.look() < self.n:
                return None
            entry = await self._begin()
        block = None
        if not self._is_confirmed(entry):
            block = await self._kept(self._feed.block(entry, self._index))
        if block is None:
            self._previous, self._entry, self._index = entry, None, 0
            self.n = entry.n + 1
            self._at = self._feed.position_after(entry)
            return Found(None, self._at)
        self._index += 1
        if len(block.transactions.end_lsn) and block.transactions.end_lsn[0] <= self._start.lsn:
            block = after(block, self._start.lsn)
        return Found(block, None)

    async def _kept(self, work: Awaitable[_Result]) -> _Result:
        """What was read of the present entry; where retention removed it, the slot is lost."""
        try:
            return await work
        except ServeError as problem:
            first = await self._feed.call(lambda: self._feed.reader.landing.first_n)
            if self.n >= first or self._slot is None:
                raise
            raise self._feed.lost(self._slot, self._at, self.n, first) from problem

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
        self._entry = entry
        return entry

    def _is_confirmed(self, entry: CommitEntry) -> bool:
        """All transactions of an entry end before the start."""
        if entry.kind is not EntryKind.DATA:
            return entry.kind is not EntryKind.SNAPSHOT
        position = self._feed.position_after(entry)
        return (position.epoch, position.lsn) <= (self.epoch, self._start.lsn)
