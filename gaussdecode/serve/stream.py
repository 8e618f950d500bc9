"""Send a slot's changes to one client, until one of the two ends it.

Three tasks: one sends, one reads what the client says, one looks at the clock. All of what they write are whole
messages. The sender waits where the client is slow, so that a client holds a bounded number of bytes.
"""

import asyncio
import collections
import contextlib
import dataclasses
import time
from collections.abc import Coroutine, Hashable, Iterator
from typing import Any, Final

import numpy as np

from gaussdecode.model.lsn import Lsn
from gaussdecode.serve import messages
from gaussdecode.serve._framing import xlog_data
from gaussdecode.serve.block import Block, Output
from gaussdecode.serve.connection import ClientGoneError, Connection
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.feed import Feed
from gaussdecode.serve.messages import EPOCH_2000_US
from gaussdecode.serve.reader import ReadPosition
from gaussdecode.serve.slots import Slot
from gaussdecode.serve.walk import Walk

_IDLE_SECONDS: Final = 10.0  # most time without a word to a client
_TICKS: Final = 6.0  # looks at the clock in a timeout


class SenderTimeoutError(Exception):
    """The client has said nothing for as long as `sender-timeout` allows."""


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


@dataclasses.dataclass(slots=True)
class Sent:
    """What a slot has sent since the start of the server; temporary slots have one in common.

    Attributes:
        rows: changes.
        bytes: bytes of messages, and of rows that functions give.
    """

    rows: int = 0
    bytes: int = 0
    _wait: tuple[float, float, int] = (0.0, 0.0, 0)  # seconds up to a time, and how many wait since

    @property
    def waited_seconds(self) -> float:
        """Seconds in which senders waited for their clients, up to now; of several that wait at once the sum."""
        seconds, since, waiters = self._wait
        return seconds + waiters * (time.monotonic() - since)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A sender waits for its client."""
        self._count_waiter(1)
        try:
            yield
        finally:
            self._count_waiter(-1)

    def _count_waiter(self, more: int) -> None:
        self._wait = (self.waited_seconds, time.monotonic(), self._wait[2] + more)


class Stream:
    """One START_REPLICATION.

    Args:
        connection: of the client.
        feed: of the tables that it gets.
        slot: taken by its session.
        output: writes its messages.
        kind: the same for all outputs with the same plug-in and options.
        start: where to begin.
        total: counts what all streams of the slot send.
        timeout: seconds after which a silent client is cut off; 0 for never.
        is_opengauss: the client speaks openGauss' form of keepalives and statuses.
        include_snapshot: the client gets the rows of snapshots.

    Attributes:
        rows: changes that were sent.
        bytes: bytes of messages that were sent.
        messages: messages that were sent.
        sent: the highest LSN that the client may confirm.
        reached: everything up to here was sent.
        is_at_end: everything that has landed was sent.
        read_lsn: end of the last transaction that was read.
        read_changes: changes that were read and are not written by the plug-in.
        held: messages that the plug-in has written and that are not sent, their transactions and bytes.
    """

    def __init__(
        self,
        connection: Connection,
        feed: Feed,
        slot: Slot,
        output: Output,
        kind: Hashable,
        start: ReadPosition,
        total: Sent,
        timeout: float,
        *,
        is_opengauss: bool = False,
        include_snapshot: bool = False,
    ) -> None:
        self._connection = connection
        self._feed = feed
        self._slot = slot
        self._output = output
        self._kind = kind
        self._walk = Walk(feed, start, slot.name, include_snapshot=include_snapshot)
        self._total = total
        self._is_opengauss = is_opengauss
        self._timeout = timeout
        self._written = asyncio.get_running_loop().time()
        self._due: bool | None = (
            None  # a keepalive, once the client has room; whether it asks for a reply
        )
        self._entries: collections.deque[ReadPosition] = collections.deque()
        self.rows = self.bytes = self.messages = 0
        self.sent = self.reached = start.lsn
        self.is_at_end = False
        self.read_lsn = start.lsn
        self.read_changes = 0
        self.held = (0, 0, 0)

    async def run(self) -> None:
        """Stream until the client ends it by CopyDone.

        Raises:
            ServeError: it cannot go on.
            ClientGoneError: the client is gone.
            SenderTimeoutError: the client is silent.
        """
        await self._walk.check_start()
        self._connection.write(messages.copy_both())
        parts: list[Coroutine[Any, Any, None]] = [self._send(), self._listen(), self._watch()]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:  # of several that ended, an error is told first
            if task in done and task.exception() is not None:
                task.result()
        self._connection.write(messages.message(b"c"))

    # ---- out -------------------------------------------------------------------------------

    async def _send(self) -> None:
        while True:
            found = await self._walk.next()
            was_at_end, self.is_at_end = self.is_at_end, found is None
            if found is None:
                if not was_at_end and self._slot.lsn < self.reached:
                    await self._connection.drain()
                    self._keepalive(wants_reply=False)  # it may confirm what had no message
                await self._feed.end.wait(self._walk.n, _IDLE_SECONDS)
            elif found.block is not None:
                await self._send_block(found.block, found.name)
            elif found.reached is not None:
                self._reach(found.reached)

    async def _send_block(self, block: Block, name: Hashable) -> None:
        ends = block.transactions.end_lsn
        self.read_lsn = max(self.read_lsn, int(ends[-1]) if len(ends) else 0)
        self.read_changes = len(block.row_table)
        shared = None if name is None else (name, self._kind)
        parts = await self._feed.write(self._output, block, shared)
        self.read_changes = 0
        for part in parts:
            self.held = part.held
            self.sent = max(self.sent, part.sent)
            await self._connection.send(part.data, self._total.waiting)
            self._written = asyncio.get_running_loop().time()
            self._send_due()
            self.bytes += len(part.data)
            self._total.bytes += len(part.data)
            self.messages += part.messages
        self.held = (0, 0, 0)
        self.rows += len(block.row_table)
        self._total.rows += len(block.row_table)

    def _reach(self, position: ReadPosition) -> None:
        """All of an entry was sent: its position may be confirmed."""
        self._entries.append(position)
        self.reached = max(self.reached, position.lsn)
        self.read_lsn = max(self.read_lsn, position.lsn)
        self.sent = max(self.sent, position.lsn)

    def _keepalive(self, *, wants_reply: bool) -> None:
        beat = self._output.heartbeat(self.reached, self._slot.lsn, now_us())
        if beat is not None:
            ends = np.array([len(beat)], np.int64)
            lsn = np.array([self.reached], np.uint64)
            self._write(xlog_data(beat, ends, lsn, lsn, 0, 1, now_us() - EPOCH_2000_US))
        self._write(
            messages.keepalive(
                self.reached, now_us(), wants_reply=wants_reply, is_opengauss=self._is_opengauss
            )
        )

    def _send_due(self) -> None:
        """Send the keepalive that was due while bytes waited for the client."""
        if self._due is not None and not self._connection.is_clogged:
            wants_reply, self._due = self._due, None
            self._keepalive(wants_reply=wants_reply)

    def _write(self, data: bytes) -> None:
        self._connection.write(data)
        self._written = asyncio.get_running_loop().time()

    # ---- in --------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            tag, body = await self._connection.read_message()
            if tag == b"d":
                self._hear(body)
            elif tag == b"c":
                return
            elif tag == b"X":
                raise ClientGoneError
            elif tag == b"f":
                raise ServeError("57014", "COPY from the client failed")
            elif tag not in {b"H", b"S"}:
                raise ServeError("08P01", f"unexpected message type {tag[0]:#04x} during a stream")

    def _hear(self, body: bytes) -> None:
        status = messages.parse_feedback(body, is_opengauss=self._is_opengauss)
        if status is None:
            return
        if status.flushed:
            self._confirm(status.flushed)
        if status.wants_reply:
            self._due = self._due or False
            self._send_due()

    def _confirm(self, lsn: int) -> None:
        if lsn > self.sent:
            raise ServeError(
                "22023",
                f"the client confirms {Lsn(lsn)}, and was sent nothing after {Lsn(self.sent)}",
                hint="A client confirms only positions that it has received.",
            )
        slot = self._slot
        n = slot.n
        while self._entries and self._entries[0].lsn <= lsn:
            n = self._entries.popleft().n
        slot.confirm(n, self._walk.epoch, lsn)

    # ---- the clock -------------------------------------------------------------------------

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        limit = self._timeout
        half = limit / 2 if limit else _IDLE_SECONDS
        asked = 0.0
        while True:
            await asyncio.sleep(min(_IDLE_SECONDS, half * 2) / _TICKS)
            silent = loop.time() - self._connection.heard
            if limit and silent > limit:
                raise SenderTimeoutError
            if limit and silent > half and asked < self._connection.heard:
                asked = loop.time()
                self._due = True
                self._send_due()
            elif self._connection.is_clogged:
                continue
            elif loop.time() - self._written > min(half, _IDLE_SECONDS):
                self._keepalive(wants_reply=False)
