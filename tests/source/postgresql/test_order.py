"""The order of messages: the receive loop and its twin, the table, through the same sequences."""

import itertools
import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from kit import wire
from twins.transaction import PREPARED, Tag, TransactionFraming

from gaussdecode.errors import SequenceError
from gaussdecode.ipc.control import Control
from gaussdecode.ipc.ring import Ring
from gaussdecode.model.lsn import Lsn
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import End
from gaussdecode.source._status import StatusClock
from gaussdecode.source.postgresql._receive import PostgresReceiver

Step = tuple[Tag, int]  # with the end of a commit
MESSAGES = {
    Tag.BEGIN: wire.begin(),
    Tag.ORIGIN: wire.origin(),
    Tag.INSERT: wire.insert(["1"]),
    Tag.UPDATE: wire.update(["1"]),
    Tag.DELETE: wire.delete(["1"]),
    Tag.TRUNCATE: wire.truncate(wire.OID),
    Tag.MESSAGE: wire.logical(),
    Tag.RELATION: wire.relation_message([(1, "id", 23, -1)]),
    Tag.TYPE: wire.type_message(90000, "public", "mood"),
    Tag.STREAM_START: wire.stream_start(),
    Tag.STREAM_STOP: b"E",
    Tag.STREAM_ABORT: wire.stream_abort(),
    Tag.PREPARE_BEGIN: wire.prepared(b"b"),
}


def frame(step: Step, *, is_in_block: bool = False) -> bytes:
    """One message as a capture holds it."""
    tag, end_lsn = step
    if tag is Tag.COMMIT:
        message = wire.commit(end_lsn=end_lsn)
    elif tag is Tag.STREAM_COMMIT:
        message = wire.stream_commit(end_lsn=end_lsn)
    elif tag in {*PREPARED, Tag.COMMIT_PREPARED}:
        message = wire.prepared(tag.value, end_lsn=end_lsn)
    else:
        message = MESSAGES[tag]
    if is_in_block and tag.value in b"RYIUDTM":
        message = wire.of_block(message)
    data = wire.xlog_data(end_lsn, message)
    return struct.pack("<I", len(data)) + data


def frames(steps: Sequence[Step]) -> bytes:
    """All of them; what stands in a block has the id of its transaction."""
    out, is_in_block = b"", False
    for step in steps:
        out += frame(step, is_in_block=is_in_block)
        is_in_block = (is_in_block or step[0] is Tag.STREAM_START) and step[
            0
        ] is not Tag.STREAM_STOP
    return out


def by_loop(steps: Sequence[Step]) -> tuple[bool, int]:
    """Run them through the loop: whether all are allowed, and where the last commit ends."""
    control, ring = Control.create(), Ring.create(1 << 16, 128)
    clock = StatusClock(0, time.monotonic_ns() // 1000, 0, 60_000_000)
    receiver = PostgresReceiver(control, Dispatcher([ring]), clock)
    receiver.attach_capture(frames(steps))
    try:
        while (end := receiver.run()) in {End.RELATION, End.TYPE}:
            receiver.define(wire.OID, None)
        assert end is End.COPY
        return True, receiver.end_lsn
    except SequenceError:
        return False, receiver.end_lsn
    finally:
        ring.close()
        control.close()


def by_table(steps: Sequence[Step]) -> tuple[bool, int]:
    """The same through the table."""
    framing = TransactionFraming()
    try:
        for tag, end_lsn in steps:
            framing.advance(tag, Lsn(end_lsn))
    except SequenceError:
        return False, framing.end_lsn
    return True, framing.end_lsn


ENDS = {
    Tag.BEGIN,
    Tag.COMMIT,
    Tag.STREAM_START,
    Tag.STREAM_STOP,
    Tag.STREAM_COMMIT,
    Tag.STREAM_ABORT,
    Tag.PREPARE_BEGIN,
    Tag.COMMIT_PREPARED,
    *PREPARED,
}
LIVES = [
    (Tag.BEGIN, Tag.COMMIT),
    (Tag.STREAM_START, Tag.STREAM_STOP, Tag.STREAM_COMMIT),
    (Tag.STREAM_START, Tag.STREAM_STOP, Tag.STREAM_ABORT),
    (Tag.STREAM_START, Tag.STREAM_STOP, Tag.STREAM_PREPARE),
    (Tag.PREPARE_BEGIN, Tag.PREPARE),
    (Tag.PREPARE_BEGIN, Tag.PREPARE, Tag.COMMIT_PREPARED),
    (Tag.PREPARE_BEGIN, Tag.PREPARE, Tag.ROLLBACK_PREPARED),
]


def short_ones() -> Iterator[tuple[Step, ...]]:
    """Every sequence of up to three messages."""
    for count in range(1, 4):
        for tags in itertools.product(Tag, repeat=count):
            yield tuple((tag, 0x100 + at) for at, tag in enumerate(tags))


def long_ones() -> Iterator[tuple[Step, ...]]:
    """Streams of several transactions, most of them with one message too many."""
    rng = random.Random(11)
    for _ in range(1500):
        steps: list[Step] = []
        for number in range(rng.randrange(1, 4)):
            inside = rng.choices([tag for tag in Tag if tag not in ENDS], k=3)
            end_lsn = 0x100 * (number + 1) - rng.choice([0, 0, 0, 0x100, 0x200])
            begin, *end = rng.choice(LIVES)
            steps += [(begin, 1), *((tag, 1) for tag in inside)]
            steps += [(tag, max(1, end_lsn)) for tag in end]
        if rng.random() < 0.5:
            steps.insert(rng.randrange(len(steps) + 1), (rng.choice(list(Tag)), 0x80))
        yield tuple(steps)


@pytest.mark.parametrize("sequences", [short_ones, long_ones])
def test_the_loop_and_the_table_allow_the_same(
    sequences: Callable[[], Iterator[tuple[Step, ...]]],
) -> None:
    """Each sequence is taken whole or refused at the same commit."""
    allowed = 0
    for steps in sequences():
        found = by_loop(steps)
        assert found == by_table(steps), [tag.name for tag, _ in steps]
        allowed += found[0]
    assert allowed > 50
