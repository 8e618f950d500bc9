"""The ring with both ends in one process, beside a plain deque that does the same."""

import gc
import mmap
import os
import struct
from collections import deque
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gaussdecode.errors import ConfigError, GaussDecodeError
from gaussdecode.ipc.ring import Ring

PAGE = mmap.PAGESIZE
PIECE_HEADER = 64
SHARE = 4
# Places in the header page; see RingHeader in ring.pxd.
HEAD, TAIL, ENTRIES_OUT = 64, 128, 136
# Places in a piece; see Piece in ring.pxd.
MAGIC, KIND, ENTRY, SIZE, OFFSET, TOTAL = 0, 4, 8, 16, 24, 32


def room(size: int) -> int:
    """Bytes that a piece of `size` takes."""
    return PIECE_HEADER + -(-size // PIECE_HEADER) * PIECE_HEADER


class Twin:
    """A deque of pieces under the ring's two limits."""

    def __init__(self, capacity: int, max_entries: int) -> None:
        self.capacity = capacity
        self.max_entries = max_entries
        self.limit = capacity // SHARE // PIECE_HEADER * PIECE_HEADER - PIECE_HEADER
        self.pieces: deque[tuple[bytes, bool]] = deque()
        self.joined = b""
        self.done = 0

    @property
    def used(self) -> int:
        """Room that is taken."""
        return sum(room(len(data)) for data, _ in self.pieces)

    def put(self, message: bytes) -> bool:
        """Store the message, or as much of it as fits."""
        while True:
            part = message[self.done : self.done + self.limit]
            full = self.used + room(len(part)) > self.capacity
            if full or len(self.pieces) == self.max_entries:
                return False
            self.done += len(part)
            self.pieces.append((part, self.done == len(message)))
            if self.done == len(message):
                self.done = 0
                return True

    def get(self) -> bytes | None:
        """Take the next message, or as much of it as is there."""
        while self.pieces:
            part, is_last = self.pieces.popleft()
            self.joined += part
            if is_last:
                message, self.joined = self.joined, b""
                return message
        return None


class RingBesideDeque(RuleBasedStateMachine):
    """Whatever is put and taken, both give the same answers."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring.create(2 * PAGE, 4)
        self.twin = Twin(2 * PAGE, 4)
        self.unfinished: bytes | None = None
        self.number = 0

    def _put(self, message: bytes) -> None:
        stored = self.ring.put_bytes(message, 0)
        assert stored == self.twin.put(message)
        self.unfinished = None if stored else message

    @precondition(lambda self: self.unfinished is None)
    @rule(size=st.one_of(st.integers(0, 40), st.integers(1900, 2100), st.integers(0, 6 * PAGE)))
    def put(self, size: int) -> None:
        """Store a message that differs from the others."""
        self.number += 1
        self._put((self.number.to_bytes(4, "little") * (size // 4 + 1))[:size])

    @precondition(lambda self: self.unfinished is not None)
    @rule()
    def go_on(self) -> None:
        """Try again with the message that found no room."""
        assert self.unfinished is not None
        self._put(self.unfinished)

    @precondition(lambda self: self.unfinished is not None)
    @rule()
    def put_another(self) -> None:
        """A message cannot push in between the pieces of one that is under way."""
        with pytest.raises(GaussDecodeError, match="another message"):
            self.ring.put_bytes(b"?" * (len(self.unfinished or b"") + 1), 0)

    @rule()
    def get(self) -> None:
        """Take a message."""
        assert self.ring.get_bytes(0) == self.twin.get()

    @invariant()
    def same_size(self) -> None:
        """The numbers for monitoring are true, and both limits hold."""
        assert self.ring.length() == len(self.twin.pieces) <= self.ring.max_entries
        assert self.ring.used_bytes() == self.twin.used <= self.ring.capacity_bytes

    def teardown(self) -> None:
        """Give the memory back."""
        self.ring.close()


TestRingBesideDeque = RingBesideDeque.TestCase
TestRingBesideDeque.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def memory_of(ring: Ring) -> mmap.mmap:
    """Map a ring's memory a second time, to damage it."""
    return mmap.mmap(ring.memory_fd, PAGE + ring.capacity_bytes)


@pytest.mark.parametrize("size", range(4 * PAGE // SHARE - 130, 4 * PAGE // SHARE + 2))
def test_sizes_around_the_split(size: int) -> None:
    """A message at the limit is one piece, one byte more makes it two."""
    ring = Ring.create(4 * PAGE, 100)
    message = os.urandom(size)

    assert ring.put_bytes(message, 0)

    assert ring.length() == (1 if size <= PAGE - PIECE_HEADER else 2)
    assert ring.get_bytes(0) == message


def test_bytes_are_the_limit() -> None:
    """With entries to spare, the ring takes as many bytes as it has and no piece more."""
    ring = Ring.create(PAGE, 1000)
    message = b"x" * 64

    for _ in range(PAGE // 128):
        assert ring.put_bytes(message, 0)
    assert not ring.put_bytes(message, 0)

    assert ring.used_bytes() == PAGE == ring.stats()["peak_bytes"]


def test_entries_are_the_limit() -> None:
    """With bytes to spare, the ring takes max_entries messages and no more."""
    ring = Ring.create(16 * PAGE, 3)

    assert [ring.put_bytes(b"x", 0) for _ in range(4)] == [True, True, True, False]
    assert ring.stats()["full_count"] == 1

    assert ring.get_bytes(0) == b"x"
    assert ring.put_bytes(b"x", 0)


def test_waits_are_counted() -> None:
    """The time each end waited inside the ring shows who was slow."""
    ring = Ring.create(PAGE, 1)
    assert ring.get_bytes(0.001) is None
    assert ring.put_bytes(b"x", 0.001)
    assert not ring.put_bytes(b"x", 0.001)

    stats = ring.stats()
    assert stats["data_wait_ns"] > 0
    assert stats["space_wait_ns"] > 0
    assert stats["empty_count"] > 0


def test_long_message_through_one_entry() -> None:
    """One entry of a quarter page is enough for a message of many pages."""
    ring = Ring.create(1, 1)
    message = os.urandom(10 * PAGE)
    got = None

    while not ring.put_bytes(message, 0):
        got = ring.get_bytes(0)
        assert got is None

    assert ring.get_bytes(0) == message


def test_producer_end_closed_after_messages() -> None:
    """What was stored is handed out first, then the end is reported, for ever."""
    ring = Ring.create(PAGE, 8)
    ring.put_bytes(b"one")
    ring.put_bytes(b"")
    ring.close_producer_side()

    assert [ring.get_bytes(), ring.get_bytes()] == [b"one", b""]
    for _ in range(3):
        with pytest.raises(EOFError):
            ring.get_bytes()
    assert ring.producer_gone


def test_half_a_message_is_dropped() -> None:
    """A split message without its last piece does not exist."""
    ring = Ring.create(PAGE, 2)
    ring.put_bytes(b"whole")
    assert not ring.put_bytes(b"x" * PAGE, 0)
    ring.close_producer_side()

    assert ring.get_bytes() == b"whole"
    with pytest.raises(EOFError):
        ring.get_bytes()


def test_consumer_end_closed() -> None:
    """The producer is told, whether there is room or not."""
    ring = Ring.create(PAGE, 1)
    ring.close_consumer_side()

    for _ in range(2):
        with pytest.raises(BrokenPipeError):
            ring.put_bytes(b"x")
    assert ring.consumer_gone

    full = Ring.create(PAGE, 1)
    full.put_bytes(b"x")
    assert not full.put_bytes(b"x", 0)
    full.close_consumer_side()
    with pytest.raises(BrokenPipeError):
        full.put_bytes(b"x")


def test_wrong_end_is_refused() -> None:
    """An end that was given up, or a closed ring, raises and touches nothing."""
    ring = Ring.create(PAGE, 1)
    ring.close_producer_side()
    with pytest.raises(GaussDecodeError, match="producer's end"):
        ring.put_bytes(b"x")
    ring.close()
    with pytest.raises(GaussDecodeError, match="consumer's end"):
        ring.get_bytes()
    with pytest.raises(GaussDecodeError, match="after close"):
        ring.stats()
    assert ring.length() == ring.used_bytes() == 0
    ring.close()


@pytest.mark.parametrize("capacity", [0, -1, 1 << 41, 1 << 40])
def test_impossible_capacity(capacity: int) -> None:
    """A size that cannot be had is refused at the start, and the option is named."""
    with pytest.raises(ConfigError, match="ring-bytes"):
        Ring.create(capacity, 1)


def test_no_entries() -> None:
    """A ring that could never take anything is refused."""
    with pytest.raises(ConfigError, match="at least one entry"):
        Ring.create(PAGE, 0)


def test_memory_is_sealed() -> None:
    """Nobody can shrink the memory under a mapping, or add to it."""
    ring = Ring.create(PAGE, 1)
    for size in (0, PAGE, 100 * PAGE):
        with pytest.raises(PermissionError):
            os.ftruncate(ring.memory_fd, size)


def test_memory_is_allocated_at_the_start() -> None:
    """No store can meet a page that is not there."""
    ring = Ring.create(256 * PAGE, 1)
    assert os.fstat(ring.memory_fd).st_blocks * 512 >= 257 * PAGE


def test_memory_has_no_name() -> None:
    """Nothing of a ring lies in /dev/shm, so nothing can be left there."""
    before = set(Path("/dev/shm").iterdir())
    ring = Ring.create(PAGE, 1)
    assert set(Path("/dev/shm").iterdir()) == before
    assert Path(f"/proc/self/fd/{ring.memory_fd}").readlink().name.startswith("memfd:")


@pytest.mark.parametrize("is_closed", [True, False])
def test_nothing_is_left(is_closed: bool) -> None:
    """Many rings, closed or only dropped, leave no descriptor and no mapping."""

    def held() -> tuple[int, int]:
        gc.collect()
        maps = Path("/proc/self/maps").read_text().count("memfd:gaussdecode-ring")
        return len(list(Path("/proc/self/fd").iterdir())), maps

    fds, maps = held()
    for _ in range(300):
        ring = Ring.create(4 * PAGE, 2)
        ring.put_bytes(b"x" * 3000)
        ring.get_bytes()
        if is_closed:
            ring.close()
    del ring

    left = held()
    # Fewer, where another test's objects went at last.
    assert left[0] <= fds
    assert left[1] <= maps


def test_attach_to_something_else() -> None:
    """A descriptor that is no ring's is refused, and stays open."""
    reading, writing = os.pipe()
    plain = os.memfd_create("plain")
    os.truncate(plain, 4 * PAGE)
    with pytest.raises(GaussDecodeError, match="not the memory of a ring"):
        Ring.attach_consumer((plain, reading, writing))
    with pytest.raises(GaussDecodeError, match="not the memory of a ring"):
        Ring.attach_consumer((reading, reading, writing))
    for fd in (reading, writing, plain):
        os.close(fd)


DAMAGES = [
    (KIND, "<I", 4, "another message"),
    (KIND, "<I", 1, "longer than its message"),
    (KIND, "<I", 3, "another message"),
    (MAGIC, "<I", 0, "no piece begins"),
    (ENTRY, "<Q", 7, "no piece begins"),
    (SIZE, "<Q", 2**64 - 1, "longer than what was stored"),
    (SIZE, "<Q", 200, "longer than what was stored"),
    (SIZE, "<Q", 9, "too early or too late"),
    (OFFSET, "<Q", 1, "does not follow"),
    (TOTAL, "<Q", 2**63, "too early or too late"),
]


@pytest.mark.parametrize(("place", "form", "value", "reason"), DAMAGES)
def test_damaged_piece(place: int, form: str, value: int, reason: str) -> None:
    """Each field of a piece's header is checked before it is believed."""
    ring = Ring.create(PAGE, 8)
    ring.put_bytes(b"x" * 100)
    with memory_of(ring) as memory:
        struct.pack_into(form, memory, PAGE + place, value)
    with pytest.raises(GaussDecodeError, match=reason):
        ring.get_bytes(0)


@pytest.mark.parametrize("head", [1, 63, PAGE + 64, 2**64 - 64])
def test_damaged_head(head: int) -> None:
    """The consumer believes no head outside the ring."""
    ring = Ring.create(PAGE, 8)
    with memory_of(ring) as memory:
        struct.pack_into("<Q", memory, HEAD, head)
    with pytest.raises(GaussDecodeError, match="head is out of range"):
        ring.get_bytes(0)


@pytest.mark.parametrize(("place", "reason"), [(TAIL, "tail"), (ENTRIES_OUT, "taken entries")])
def test_damaged_tail(place: int, reason: str) -> None:
    """The producer believes no tail and no count ahead of its own."""
    ring = Ring.create(PAGE, 8)
    with memory_of(ring) as memory:
        struct.pack_into("<Q", memory, place, 2**40)
    with pytest.raises(GaussDecodeError, match=reason):
        ring.put_bytes(b"x", 0)


@settings(max_examples=300, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=4),
    hits=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 256), st.integers(PAGE, 2 * PAGE - 8)),
            st.one_of(st.integers(0, 8192), st.integers(0, 2**64 - 1)),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_any_damage_stays_inside(sizes: list[int], hits: list[tuple[int, int]]) -> None:
    """Whatever is written into the memory, both ends answer or raise."""
    ring = Ring.create(PAGE, 3)
    with memory_of(ring) as memory:
        for size in sizes:
            if not ring.put_bytes(b"x" * size, 0):
                break
        for place, value in hits:
            struct.pack_into("<Q", memory, place, value)
            try:
                ring.get_bytes(0)
                ring.put_bytes(b"y" * 300, 0)
            except (GaussDecodeError, MemoryError):
                continue
            finally:
                assert 0 <= ring.length() <= 3
                assert 0 <= ring.used_bytes() <= PAGE
    ring.close()
