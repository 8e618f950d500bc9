"""Filling raw batches, without a server."""

import json
import struct
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.decoded import read_entry
from kit.wire import RAW_HEADER, begin, commit, section_of

from gaussdecode._wire import BatchDecoder
from gaussdecode.ipc.ring import Ring
from gaussdecode.source._dispatch import Dispatcher

HEADER_BYTES = RAW_HEADER.size


class Pipe:
    """Rings with both ends here."""

    def __init__(self, count: int, capacity: int = 1 << 20) -> None:
        self.rings = [Ring.create(capacity, 128) for _ in range(count)]

    def take(self, index: int) -> bytes | None:
        """What lies in a ring."""
        return self.rings[index].get_bytes(0)

    def close(self) -> None:
        """Free the rings."""
        for ring in self.rings:
            ring.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Three rings."""
    made = Pipe(3)
    yield made
    made.close()


def messages_of(entry: bytes) -> list[bytes]:
    """The message section of a raw batch."""
    fields = RAW_HEADER.unpack_from(entry)
    found, end = section_of(entry)
    assert end == fields[6] == len(entry)
    return [message for _, message in found]


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=60), st.integers(1, 4))
def test_messages_arrive_in_turn_and_in_order(messages: list[bytes], count: int) -> None:
    """Batch k lies in ring k mod N; together they hold everything once."""
    pipe = Pipe(count)
    dispatcher = Dispatcher(pipe.rings, 128)
    entries: list[bytes] = []
    for message in messages:
        dispatcher.add_message(message)
        assert dispatcher.try_flush()
    dispatcher.close_batch()
    assert dispatcher.try_flush()
    while (entry := pipe.take(len(entries) % count)) is not None:
        assert RAW_HEADER.unpack_from(entry)[2] == len(entries)
        entries.append(entry)
    assert [m for entry in entries for m in messages_of(entry)] == messages
    for entry in entries:
        held = messages_of(entry)
        assert len(held) == 1 or sum(4 + len(m) for m in held) <= 128
    pipe.close()


def test_versions_are_told_once_to_each_decoder(pipe: Pipe) -> None:
    """A decoder learns all versions it missed, in order, at its next batch."""
    dispatcher = Dispatcher(pipe.rings)
    told: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for number in range(1, 8):
        dispatcher.add_relation(struct.pack("=IIIIHHI", 24, number, number, 0, 0, 0, 0))
        dispatcher.add_message(b"x")
        dispatcher.close_batch()
        assert dispatcher.try_flush()
        index = (number - 1) % 3
        entry = pipe.take(index)
        assert entry is not None
        count = RAW_HEADER.unpack_from(entry)[3]
        told[index] += [
            struct.unpack_from("=III", entry, HEADER_BYTES + 24 * i)[2] for i in range(count)
        ]
        assert told[index] == list(range(1, number + 1))
    assert dispatcher.version_count == 7


def test_no_version_inside_a_batch(pipe: Pipe) -> None:
    """The mapping of a decoder must not change inside a message section."""
    dispatcher = Dispatcher(pipe.rings)
    dispatcher.add_message(b"x")
    with pytest.raises(ValueError, match="inside a batch"):
        dispatcher.add_relation(b"y")


def test_full_ring_is_no_error() -> None:
    """A put that finds no room is tried again, with the same entry."""
    pipe = Pipe(1, 65536)
    dispatcher = Dispatcher(pipe.rings)
    message = b"x" * 200_000
    dispatcher.add_message(message)
    dispatcher.close_batch()
    assert not dispatcher.try_flush()
    assert dispatcher.is_waiting
    got = None
    while got is None:
        got = pipe.take(0)
        dispatcher.try_flush()
    assert messages_of(got) == [message]
    pipe.close()


def test_end_reaches_every_ring(pipe: Pipe) -> None:
    """The open batch first, then one end entry for each ring, numbered on."""
    dispatcher = Dispatcher(pipe.rings)
    dispatcher.add_message(b"last")
    dispatcher.begin_end()
    dispatcher.begin_end()
    assert dispatcher.try_flush()
    kinds = []
    for number in range(4):
        entry = pipe.take(number % 3)
        assert entry is not None
        kinds.append(RAW_HEADER.unpack_from(entry)[1:3])
    assert kinds == [(0, 0), (1, 1), (1, 2), (1, 3)]
    assert not any(pipe.take(index) for index in range(3))


def test_reader_gone_is_told() -> None:
    """Nobody will ever make room."""
    pipe = Pipe(1)
    dispatcher = Dispatcher(pipe.rings)
    pipe.rings[0].close_consumer_side()
    dispatcher.add_message(b"x")
    dispatcher.close_batch()
    with pytest.raises(BrokenPipeError):
        dispatcher.try_flush()
    pipe.close()


def test_serial_error_takes_the_place_of_a_batch() -> None:
    """The payload says why; it is JSON after the header of a decoded entry."""
    pipe = Pipe(1)
    dispatcher = Dispatcher(pipe.rings, decoder=BatchDecoder())
    dispatcher.add_message(b"?")
    with pytest.raises(Exception, match="unknown"):
        dispatcher.close_batch()
    assert dispatcher.has_failed
    dispatcher.put_error(json.dumps({"class": "WireError"}).encode())
    assert dispatcher.try_flush()
    entry = pipe.take(0)
    assert entry is not None
    assert struct.unpack_from("=II", entry) == (0x42444447, 2)
    assert entry.endswith(b'{"class": "WireError"}')
    pipe.close()


@pytest.mark.parametrize("is_serial", [False, True])
def test_a_batch_says_when_it_was_opened(is_serial: bool) -> None:
    """That is, when its first message came; in serial mode also when it was decoded."""
    pipe = Pipe(1)
    dispatcher = Dispatcher(pipe.rings, decoder=BatchDecoder() if is_serial else None)
    before = time.monotonic_ns()
    dispatcher.add_message(begin())
    first = time.monotonic_ns()
    dispatcher.add_message(commit())
    dispatcher.close_batch()
    dispatcher.try_flush()
    batch = pipe.take(0)
    assert batch is not None
    if is_serial:
        opened, taken, decoded = read_entry(batch, {}).moments
        assert first < taken < decoded < time.monotonic_ns()
    else:
        opened = RAW_HEADER.unpack_from(batch)[12]
    assert before < opened < first
    pipe.close()
