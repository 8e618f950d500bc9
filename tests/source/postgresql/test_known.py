"""Telling repeats from news."""

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.source.postgresql._known import KnownMessages


@given(st.lists(st.tuples(st.sampled_from(b"RY"), st.integers(0, 40), st.binary(max_size=3))))
def test_only_the_last_of_letter_and_oid_counts(messages: list[tuple[int, int, bytes]]) -> None:
    """Like a dictionary from letter and OID to the last bytes."""
    known = KnownMessages()
    last: dict[tuple[int, int], bytes] = {}
    for tag, oid, rest in messages:
        message = bytes([tag]) + struct.pack(">I", oid) + rest
        assert known.seen(message, oid) is (last.get((tag, oid)) == message)
        last[tag, oid] = message
    assert known.count == len(last)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=2)), max_size=200),
    st.integers(1, 12),
    st.sampled_from([0, 1, 30]),
)
def test_what_was_forgotten_is_news(
    messages: list[tuple[int, bytes]], most: int, limit: int
) -> None:
    """A bounded registry never takes news for a repeat, and knows again what comes at once."""
    known = KnownMessages(limit, None, most)
    last: dict[int, bytes] = {}
    for oid, rest in messages:
        message = b"R" + struct.pack(">I", oid) + rest
        assert not known.seen(message, oid) or last.get(oid) == message
        assert known.seen(message, oid)
        last[oid] = message
        assert known.count <= most


def test_more_messages_than_are_kept() -> None:
    """More tables than the registry keeps go on, in turn and for ever; those at work stay."""
    known = KnownMessages(0, None, 100)
    busy = b"R" + bytes(10)
    for turn in range(20):
        for oid in range(1, 300):
            message = b"R" + struct.pack(">I", oid)
            known.seen(message, oid)
            assert known.seen(message, oid)
            assert known.seen(busy, 0) or (turn, oid) == (0, 1)
    assert known.count == 100
    assert known.forgotten_count > 300


def test_the_file_does_not_grow_with_what_is_forgotten() -> None:
    """A message that is new takes the place of one that was forgotten."""
    known = KnownMessages(1, None, 10)
    for oid in range(1000):
        known.seen(b"R" + bytes(100), oid)
    assert known.file_bytes <= 20 * 101


def test_many_are_kept() -> None:
    """The table grows and forgets nothing."""
    known = KnownMessages()
    messages = [b"R" + struct.pack(">I", oid) for oid in range(5000)]
    assert not any(known.seen(message, oid) for oid, message in enumerate(messages))
    assert all(known.seen(message, oid) for oid, message in enumerate(messages))


@given(
    st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=40))),
    st.integers(1, 200),
)
def test_nothing_is_lost_above_the_limit(messages: list[tuple[int, bytes]], limit: int) -> None:
    """What went to disk is compared there: the answers are those of a dictionary."""
    known = KnownMessages(limit)
    last: dict[int, bytes] = {}
    for oid, rest in messages:
        message = b"R" + struct.pack(">I", oid) + rest
        assert known.seen(message, oid) is (last.get(oid) == message)
        last[oid] = message
        assert known.held_bytes <= limit
    assert all(known.seen(message, oid) for oid, message in last.items())


def test_long_descriptions_come_back_whole(tmp_path: Path) -> None:
    """A description of many chunks on disk differs when its last byte does."""
    known = KnownMessages(10_000, str(tmp_path))
    message = b"R" + bytes(20_000)
    assert not known.seen(message, 1)
    assert known.eviction_count == 1
    assert known.seen(message, 1)
    assert not known.seen(message[:-1] + b"x", 1)
    assert list(tmp_path.iterdir()) == []  # the file has no name


def test_quiet_tables_go_first() -> None:
    """A table that is described again and again stays in memory."""
    known = KnownMessages(3_000)
    busy = b"R" + bytes(999)
    for oid in range(1, 50):
        known.seen(busy, 0)
        known.seen(b"R" + bytes(499), oid)
    evicted = known.eviction_count
    assert evicted > 0
    assert known.seen(busy, 0)
    assert known.held_bytes <= 3_000


def test_a_directory_that_fails_costs_no_more_than_a_definition() -> None:
    """What cannot be written counts as news; the limit holds all the same."""
    known = KnownMessages(100, "/nonexistent/directory")
    message = b"R" + bytes(500)
    assert not known.seen(message, 1)
    assert not known.seen(message, 1)
    assert known.held_bytes <= 100
