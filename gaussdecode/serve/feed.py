"""Give entries and blocks of one landing to many clients.

A block that was read is kept for the other clients at the same position, and so are its messages, framed, for those
with the same options; both up to one bound in bytes. What reads on in an entry is kept too, so that each client
continues where it, or another one, stopped. One task looks for the next entry, and only while a client waits for
it. What reads files and writes messages runs in threads. A store is asked once a second.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from gaussdecode.errors import GaussDecodeError, MirrorError
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.lsn import Lsn
from gaussdecode.serve._framing import xlog_data
from gaussdecode.serve.block import Block, Messages, Output
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.messages import EPOCH_2000_US
from gaussdecode.serve.reader import LandingReader, ReadPosition, Wanted, every_table
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.place import Place

_POLL_SECONDS: Final = 0.02
_LIST_SECONDS: Final = 1.0  # between two listings of the log, beside the looks for its next entry
_STORE_POLL_SECONDS: Final = 1.0  # of a store; a request each, while a client waits
_STORE_LIST_SECONDS: Final = 30.0
_CURSORS: Final = 64  # arbitrary: entries that are partly read, each with open files
_ENTRIES: Final = 256  # arbitrary
_KEPT_BYTES: Final = 1024  # what is kept besides rows and messages; about
_PART_BYTES: Final = 1 << 20  # of messages; what is sent of a block at once
_WHOLE: Final = ReadPosition(-1, 0, 0)
_Result = TypeVar("_Result")
_Key = tuple[int, int]
_log = get_logger("serve")


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Whole messages of a block, framed as CopyData. The server's time in them is that at which they were framed.

    Attributes:
        data: the bytes.
        messages: how many.
        sent: the highest LSN that a client may confirm after them.
        held: messages of the block from here on, their transactions and bytes.
    """

    data: bytes
    messages: int
    sent: int
    held: tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """All messages of a block.

    Attributes:
        parts: in order.
        state: of the output that wrote them.
    """

    parts: tuple[Part, ...]
    state: Hashable


def framed(written: Messages) -> tuple[Part, ...]:
    """Frame messages for clients that stream."""
    count = len(written.ends)
    time_us = time.time_ns() // 1000 - EPOCH_2000_US
    parts = []
    first = 0
    while first < count:
        begin = int(written.ends[first - 1]) if first else 0
        last = int(np.searchsorted(written.ends, begin + _PART_BYTES, "right"))
        last = max(last, first + 1)
        of = (written.content, written.ends, written.start_lsn, written.end_lsn)
        transactions = int(written.transaction[-1] - written.transaction[first]) + 1
        parts.append(
            Part(
                xlog_data(*of, first, last, time_us),
                last - first,
                int(written.end_lsn[first:last].max()),
                (count - first, transactions, len(written.content) - begin),
            )
        )
        first = last
    return tuple(parts)


def block_bytes(block: Block) -> int:
    """Memory of a block."""
    arrays: tuple[np.ndarray[Any, Any], ...] = (
        block.row_table, block.row_index, block.change_lsn,
    )  # fmt: skip
    of = block.transactions
    arrays += (of.xid, of.end_lsn, of.commit_lsn, of.first_lsn, of.csn, of.time_us, of.row_ends)
    size = sum(int(rows.rows.nbytes) for rows in block.tables)
    return size + sum(array.nbytes for array in arrays)


class LogEnd:
    """The number of the newest entry, and a way to wait for the next one.

    Args:
        root: of the landing.
        last_n: lists the log.
        pool: threads that ask a store.
    """

    def __init__(
        self, root: Place, last_n: Callable[[], int], pool: concurrent.futures.Executor
    ) -> None:
        self._commits = root / "commits"
        self._is_local = isinstance(root, Path)
        self._list = last_n
        self._last = self._told = last_n()
        self._listed = self._asked = time.monotonic()
        self._pool = pool
        self._asking: asyncio.Future[None] | None = None
        self._has_failed = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def last(self) -> int:
        """Number of the newest entry that was seen; -1 for none."""
        return self._last

    def look(self) -> int:
        """Look for newer entries in a directory; gives the newest. A store is not asked: see `see`."""
        if self._is_local:
            with contextlib.suppress(OSError):  # what was seen is the end
                self._search(_LIST_SECONDS)
        return self._last

    async def see(self) -> int:
        """Look for newer entries, in a store once a second; gives the newest that was seen."""
        if self._is_local:
            return self.look()
        if self._asking is None and time.monotonic() - self._asked >= _STORE_POLL_SECONDS:
            loop = asyncio.get_running_loop()
            self._asking = loop.run_in_executor(self._pool, self._ask)
        asking = self._asking
        if asking is not None:
            await asyncio.shield(asking)
            if self._asking is asking:
                self._asking = None
        return self._last

    def _ask(self) -> None:
        """Ask the store; while it is away, what was seen is the end."""
        try:
            self._search(_STORE_LIST_SECONDS)
        except (GaussDecodeError, OSError) as error:
            if not self._has_failed:
                _log.error(Event.ERROR, reason=f"{error}; it is asked again every second")
            self._has_failed = True
        else:
            self._has_failed = False
        self._asked = time.monotonic()

    def _search(self, list_seconds: float) -> None:
        while (self._commits / f"{self._last + 1:020d}.json").exists():
            self._last += 1
        if time.monotonic() - self._listed > list_seconds:
            self._last = max(self._last, self._list())
            self._listed = time.monotonic()

    async def wait(self, n: int, seconds: float) -> bool:
        """Wait until entry `n` is shown; False if it is not within so many seconds."""
        if self.look() >= n:
            return True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        deadline = time.monotonic() + seconds
        while self._last < n:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(moved)
            try:
                await asyncio.wait_for(moved, left)
            except TimeoutError:
                return False
            finally:
                self._waiting.discard(moved)
        return True

    async def _watch(self) -> None:
        while True:
            seen = await self.see()
            if seen != self._told:  # others look too: it may have moved before
                self._told = seen
                for moved in self._waiting:
                    if not moved.done():
                        moved.set_result(None)
            await asyncio.sleep(_POLL_SECONDS)
            if not self._waiting:
                return


class Feed:
    """Gives what one set of tables is sent of; clients with the same set share it.

    Args:
        reader: reads the landing.
        end: end of the log.
        cache_bytes: bound of the blocks and messages that are kept.
        pool: threads that read.
        keep: `landing.max-slot-keep-size`, for errors; None where it is not known.
    """

    def __init__(
        self,
        reader: LandingReader,
        end: LogEnd,
        cache_bytes: int,
        pool: concurrent.futures.Executor,
        keep: int | None = None,
    ) -> None:
        self._keep_size = keep
        self.reader = reader
        self.end = end
        self._limit = cache_bytes
        self._pool = pool
        self._entries: collections.OrderedDict[int, CommitEntry] = collections.OrderedDict()
        self._kept: collections.OrderedDict[Hashable, tuple[Any, int]] = collections.OrderedDict()
        self._bytes = 0
        self._cursors: collections.OrderedDict[_Key, Iterator[Block]] = collections.OrderedDict()
        self._making: dict[Hashable, asyncio.Task[Any]] = {}

    async def call(self, work: Callable[[], _Result]) -> _Result:
        """Run what may block in a thread; errors of the landing become errors for the client."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except MirrorError as error:
            raise ServeError(
                "58030",
                f"the mirror cannot be read now: {error}",
                hint="Connect again; the slot keeps its position.",
            ) from error
        except GaussDecodeError as error:
            raise ServeError(
                "55000",
                f"the landing cannot be read on: {error}",
                hint="gaussdecode verify names what is damaged. Where retention removed an entry, drop the slot "
                "and create it anew.",
            ) from error

    async def position(self, lsn: int) -> ReadPosition:
        """The position after all transactions that end up to an LSN."""
        return await self.call(lambda: self.reader.at(lsn))

    async def advanced(self, position: ReadPosition, lsn: int) -> ReadPosition:
        """The position of a slot after all transactions that end up to an LSN."""
        return await self.call(lambda: self.reader.advanced(position, lsn))

    def lost(self, slot: str, at: ReadPosition, n: int, first: int) -> ServeError:
        """A slot that needs entries that retention removed."""
        size = "" if self._keep_size is None else f", {self._keep_size:,} bytes"
        return ServeError(
            "55000",
            f'replication slot "{slot}" is lost: it is at {Lsn(at.lsn)} and needs entry {n}, and retention removed the '
            f"entries before {first}",
            f"Slots hold back at most landing.max-slot-keep-size{size} of files.",
            "Drop the slot, set gaussdecode.start_lsn = 'earliest' and create it anew; then read the tables anew on the "
            "client's side. Raise landing.max-slot-keep-size if clients are away for longer.",
        )

    async def oldest(self) -> ReadPosition:
        """The position before everything that retention has left."""
        return await self.call(self.reader.beginning)

    async def newest(self) -> ReadPosition:
        """The position after everything that has landed."""
        return await self.call(self.reader.end)

    async def entry(self, n: int) -> CommitEntry:
        """An entry that is shown."""
        held = self._entries.get(n)
        if held is None:
            held = await self.call(lambda: self.reader.landing.entry(n))
            self._entries[n] = held
            if len(self._entries) > _ENTRIES:
                self._entries.popitem(last=False)
        return held

    def position_after(self, entry: CommitEntry) -> ReadPosition:
        """The position after an entry."""
        return self.reader.after(entry)

    async def check(self, entry: CommitEntry) -> None:
        """Refuse an entry after which rows are missing, or may be."""

        async def check() -> tuple[None, int]:
            await self.call(lambda: self.reader.check(entry))
            return None, 0

        await self._once(("check", entry.n), check)

    async def block(self, entry: CommitEntry, index: int) -> Block | None:
        """Block `index` of an entry; None after its last one."""
        return await self._once((entry.n, index), lambda: self._read(entry, index))

    async def write(self, output: Output, block: Block, name: Hashable) -> tuple[Part, ...]:
        """Messages of a block, framed; written once for all clients that get the same.

        Args:
            output: of the client; it has written the block afterwards.
            block: any.
            name: of the block, the plug-in and its options; None where nobody else gets this block.
        """
        if name is None:
            return await self.call(lambda: framed(output.write(block)))

        async def write() -> tuple[Written, int]:
            parts = await self.call(lambda: framed(output.write(block)))
            return Written(parts, output.state(block)), sum(len(part.data) for part in parts)

        written: Written = await self._once(("messages", name, output.state(block)), write)
        output.resume(block, written.state)
        return written.parts

    async def _once(
        self, key: Hashable, make: Callable[[], Awaitable[tuple[_Result, int]]]
    ) -> _Result:
        """What is kept under a key; else it is made, by one task for all that wait, and kept with its size."""
        if key in self._kept:
            self._kept.move_to_end(key)
            found: _Result = self._kept[key][0]
            return found
        task = self._making.get(key)
        if task is None:
            task = asyncio.create_task(self._make(key, make))
            self._making[key] = task
            task.add_done_callback(lambda _: self._making.pop(key, None))
        made: _Result = await asyncio.shield(task)
        return made

    async def _make(
        self, key: Hashable, make: Callable[[], Awaitable[tuple[_Result, int]]]
    ) -> _Result:
        made, size = await make()
        size += _KEPT_BYTES
        if size <= self._limit:
            self._kept[key] = made, size
            self._bytes += size
            while self._bytes > self._limit:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._bytes -= dropped
        return made

    async def _read(self, entry: CommitEntry, index: int) -> tuple[Block | None, int]:
        cursor = self._cursors.pop((entry.n, index), None)
        if cursor is None:
            blocks = self.reader.blocks(entry, _WHOLE)
            cursor = itertools.islice(blocks, index, None)
        block = await self.call(lambda: next(cursor, None))
        if block is None:
            return None, 0
        self._cursors[entry.n, index + 1] = cursor
        if len(self._cursors) > _CURSORS:
            self._cursors.popitem(last=False)
        return block, block_bytes(block)


class Feeds:
    """The feeds of a landing, by the tables that clients get.

    Args:
        root: of the landing, or of its mirror.
        cache_bytes: bound of the blocks and messages that each feed keeps.
        threads: that read and write messages.
        keep: `landing.max-slot-keep-size`, for errors; None where it is not known.
    """

    def __init__(
        self, root: Place, cache_bytes: int, threads: int, keep: int | None = None
    ) -> None:
        self._keep_size = keep
        self._cache_bytes = cache_bytes
        self.pool = concurrent.futures.ThreadPoolExecutor(threads, "serve")
        self.landing = Landing(root)
        self.end = LogEnd(root, lambda: self.landing.last_n, self.pool)
        self._feeds: dict[tuple[str | None, tuple[str, ...] | None], Feed] = {}

    def close(self) -> None:
        """End the threads; what they write is written."""
        self.pool.shutdown(wait=True, cancel_futures=True)

    def feed(
        self,
        tables: tuple[str, ...] | None,
        wanted: Wanted | None = None,
        source: str | None = None,
    ) -> Feed:
        """The feed of some tables, None for all; and of one source, where the landing has several."""
        held = self._feeds.get((source, tables))
        if held is None:
            reader = LandingReader(
                self.landing,  # it is open: nothing is read here, in the event loop
                source=source,
                wanted=wanted or every_table,
                include_snapshot=True,
                include_messages=wanted is None,  # a message is of no table: it may be about any
            )
            held = Feed(reader, self.end, self._cache_bytes, self.pool, self._keep_size)
            self._feeds[source, tables] = held
        return held
