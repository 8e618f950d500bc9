"""What clients share: messages that are written once, and bytes that go out without a copy."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import errno
import os
from collections.abc import Awaitable, Callable, Hashable
from pathlib import Path
from typing import Self
from unittest.mock import Mock

import pyarrow as pa
import pytest
from kit import servedrows
from kit.served import Replication, Served, unpack_landing

from gaussdecode.serve import feed
from gaussdecode.serve.block import Block, Messages, TableRows
from gaussdecode.serve.connection import ClientGoneError, Connection
from gaussdecode.serve.feed import Feed, Part
from gaussdecode.serve.outputs.registry import PLUGINS, make_output
from gaussdecode.serve.reader import ReadPosition
from gaussdecode.serve.stream import Sent, Stream

PG: dict[str, str | None] = {"proto_version": "1", "publication_names": "p"}
OPTIONS: dict[str, dict[str, str | None]] = {
    "pgoutput": PG,
    "wal2json": {"format-version": "2"},
    "test_decoding": {"skip-empty-xacts": "1"},
    "parallel_text_decoding": {"sending-batch": "1", "skip-empty-xacts": "1"},
}


def _table(ops: str, version: str = "s1") -> TableRows:
    columns = [servedrows.column("x", "text", 25, is_key=True)]
    schema = dataclasses.replace(servedrows.schema(columns), schema_id=version)
    return TableRows(schema, servedrows.rows(ops, {"x": pa.array(["x"] * len(ops))}))


_OTHER = dataclasses.replace(_table("I").schema, name="u", oid=1)


def _blocks() -> list[Block]:
    """A transaction over two blocks, then others, and a table that changes in a block."""
    return [
        servedrows.block([_table("I")], [0, 1], is_open=True),
        servedrows.block([_table("II")], [1, 2], is_continued=True),
        servedrows.block([_table("I"), _table("I", "s2")], [1, 2]),
        servedrows.block([_table("I", "s2")], [1]),
    ]


def _shown(of: Messages) -> list[object]:
    arrays = (of.ends, of.start_lsn, of.end_lsn, of.transaction)
    return [of.content, *(array.tolist() for array in arrays)]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_an_output_goes_on_where_another_one_was(plugin: str) -> None:
    """By the other's state alone, after each block."""
    options = OPTIONS.get(plugin, {})
    seen: list[tuple[Block, Hashable]] = []
    one, other = make_output(plugin, options), make_output(plugin, options)
    for block in _blocks():
        assert other.state(block) == one.state(block)
        expected = _shown(one.write(block))
        third = make_output(plugin, options)
        for before in seen:
            third.resume(*before)
        assert _shown(third.write(block)) == expected
        other.resume(block, one.state(block))
        seen.append((block, one.state(block)))


def test_a_client_that_knows_less_is_told_more() -> None:
    """Its state differs, by the tables of the block alone."""
    early, late = make_output("pgoutput", PG), make_output("pgoutput", PG)
    block = servedrows.block([_table("I")], [1])
    changed = servedrows.block([_table("I", "s2")], [1])
    early.write(block)
    late.write(servedrows.block([dataclasses.replace(_table("I"), schema=_OTHER)], [1]))
    assert early.state(block) != late.state(block)
    assert early.state(changed) == late.state(changed)


def _run(limit: int, work: Callable[[Feed], Awaitable[None]]) -> None:
    async def run() -> None:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            await work(Feed(Mock(), Mock(), limit, pool))

    asyncio.run(run())


def test_messages_are_written_once_for_all() -> None:
    """At once or later, for clients with the same options and the same state."""
    block = servedrows.block([_table("I")], [1])

    async def work(feed: Feed) -> None:
        outputs = [make_output("pgoutput", PG) for _ in range(5)]
        writes = Mock(side_effect=outputs[0].write)
        for output in outputs:
            output.write = writes  # type: ignore[method-assign]  # counted
        found = await asyncio.gather(*(feed.write(of, block, "name") for of in outputs[:4]))
        found.append(await feed.write(outputs[4], block, "name"))
        assert all(parts is found[0] for parts in found)
        assert writes.call_count == 1
        again = await feed.write(outputs[4], block, "name")
        assert len(again[0].data) < len(found[0][0].data), "the table is known now"
        assert await feed.write(make_output("pgoutput", PG), block, None) is not found[0]
        assert await feed.write(make_output("pgoutput", PG), block, "other") is not found[0]

    _run(1 << 20, work)


def test_what_is_kept_has_a_bound() -> None:
    """The oldest messages go; what is larger than the bound is not kept."""
    block = servedrows.block([_table("I" * 50)], [50])
    limit = 20_000

    async def work(feed: Feed) -> None:
        async def write(name: int, of: Block = block) -> tuple[Part, ...]:
            return await feed.write(make_output("test_decoding", {}), of, name)

        first = await write(0)
        assert await write(0) is first
        for name in range(1, 40):
            await write(name)
        last = await write(40)
        assert await write(40) is last
        assert await write(0) is not first
        large = servedrows.block([_table("I" * 1000)], [1000])
        assert await write(41, large) is not await write(41, large)
        assert 0 < feed._bytes <= limit

    _run(limit, work)


def test_streams_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second client has no block written again; one with other options has each."""
    counted = Mock(side_effect=feed.framed)
    monkeypatch.setattr(feed, "framed", counted)
    with Served(unpack_landing(tmp_path)) as served:
        found = []
        calls = []
        for slot, options in (("a", ""), ("b", ""), ("c", "(\"include-xids\" '0')")):
            served.add_slot(slot)
            client = Replication(served, slot, 0, options)
            found.append(client.until(served.end_lsn()))
            client.close()
            calls.append(counted.call_count)
    assert found[0] == found[1] != found[2]
    assert calls == [calls[0], calls[0], 2 * calls[0]]


class _Client:
    """A connection, and its other end."""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self.of = Connection(64 << 10)
        self._server = await loop.create_server(lambda: self.of, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        self._server.close()

    async def slow(self, data: bytes) -> asyncio.Task[None]:
        """Send what the client does not take at once."""
        sending = asyncio.create_task(self.of.send(data, contextlib.nullcontext))
        while not self.of.is_clogged:
            assert not sending.done()
            await asyncio.sleep(0.001)
        return sending


def test_bytes_stay_in_order() -> None:
    """Before and after others, also where the client is slow, and where sending is cancelled."""
    data = os.urandom(16 << 20)

    async def work() -> None:
        async with _Client() as client:
            client.of.write(data[:2048])
            sending = await client.slow(data)
            assert await client.reader.readexactly(2048 + len(data)) == data[:2048] + data
            await sending
            assert not client.of.is_clogged
            client.of.write(data)  # waits in the transport
            sending = await client.slow(b"next")
            assert await client.reader.readexactly(len(data) + 4) == data + b"next"
            await sending
            sending = await client.slow(data)
            sending.cancel()
            await asyncio.wait([sending])
            client.of.write(b"end")
            assert await client.reader.readexactly(len(data) + 3) == data + b"end"

    asyncio.run(asyncio.wait_for(work(), 60))


def test_what_is_cancelled_still_waits_for_the_client() -> None:
    """A keepalive waits in the transport when what follows it is cancelled: the next bytes wait for both."""
    data = os.urandom(4 << 20)

    async def work() -> None:
        async with _Client() as client:
            client.of.write(data)
            sending = asyncio.create_task(client.of.send(data, contextlib.nullcontext))
            await asyncio.sleep(0.01)  # it has begun
            sending.cancel()
            await asyncio.wait([sending])
            assert client.of.is_clogged
            sending = await client.slow(b"next")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.of.drain(), 0.05)
            assert await client.reader.readexactly(2 * len(data) + 4) == data + data + b"next"
            await sending
            await client.of.drain()
            assert not client.of.is_clogged

    asyncio.run(asyncio.wait_for(work(), 60))


def test_without_a_descriptor_bytes_go_through_the_transport(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second handle of the socket saves a copy, and is not needed."""

    async def work() -> None:
        async with _Client() as client:
            own = Mock()
            own.dup.side_effect = OSError(errno.EMFILE, "Too many open files")
            monkeypatch.setattr(client.of.transport, "get_extra_info", {"socket": own}.get)
            await client.of.send(b"whole", contextlib.nullcontext)
            assert await client.reader.readexactly(5) == b"whole"

    asyncio.run(asyncio.wait_for(work(), 60))


@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_client_that_goes_ends_the_wait(is_aborted: bool) -> None:
    """By its own will, or by the server's."""

    async def work() -> None:
        async with _Client() as client:
            sending = await client.slow(bytes(16 << 20))
            if is_aborted:
                client.of.abort()
            else:
                client.writer.transport.abort()
            with pytest.raises(ClientGoneError):
                await sending

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_reply_that_was_due_comes_after_the_part_on_its_way() -> None:
    """Nothing may be written in between, and a client that asks hears from the server."""
    status = b"r" + bytes(32) + b"\1"

    async def work() -> None:
        connection = Mock(is_clogged=True)
        output = Mock(heartbeat=Mock(return_value=None))
        stream = Stream(
            connection, Mock(), Mock(lsn=0), output, None, ReadPosition(0, 1, 0), Sent(), 0.0
        )
        stream._hear(status)
        stream._send_due()
        assert not connection.write.mock_calls
        connection.is_clogged = False
        stream._send_due()
        stream._send_due()
        (reply,) = connection.write.mock_calls
        assert reply.args[0][5:6] == b"k"

    asyncio.run(work())
