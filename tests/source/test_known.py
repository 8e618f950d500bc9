"""Telling repeats from news."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.source._known import KnownMessages


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


def test_many_are_kept() -> None:
    """The table grows and forgets nothing."""
    known = KnownMessages()
    messages = [b"R" + struct.pack(">I", oid) for oid in range(5000)]
    assert not any(known.seen(message, oid) for oid, message in enumerate(messages))
    assert all(known.seen(message, oid) for oid, message in enumerate(messages))
