"""Lines of COPY out of the messages that carry them, and their spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.gaussmessage import message

from gaussdecode.errors import WireError
from gaussdecode.source.export import Spelling
from gaussdecode.source.gaussdb._copylines import respell, take_lines

LINES = st.lists(st.binary(max_size=40), max_size=6)


@given(LINES, st.integers(0, 300))
def test_any_piece_gives_whole_messages(lines: list[bytes], size: int) -> None:
    """However the bytes are cut, what was taken and what is left are all there was."""
    data = b"".join(message(b"d", line) for line in lines)
    taken, used = take_lines(data[:size], 100)
    rest, end = take_lines(data[used:], 100)
    assert taken + rest == b"".join(lines)
    assert used + end == len(data)


def test_stops_before_another_message() -> None:
    """What is no copied line stays with the caller."""
    data = message(b"d", b"a\n") + message(b"N", b"notice") + message(b"d", b"b\n")
    assert take_lines(bytearray(data), 100) == (b"a\n", 7)
    assert take_lines(data[7:], 100) == (b"", 0)
    assert take_lines(b"", 100) == (b"", 0)


@pytest.mark.parametrize(("size", "is_allowed"), [(3, False), (4, True), (100, True), (101, False)])
def test_length_is_bounded(size: int, is_allowed: bool) -> None:
    """A length below its own size, or above the limit, is an error before anything is stored."""
    data = b"d" + size.to_bytes(4, "big") + bytes(max(size - 4, 0))
    if is_allowed:
        assert take_lines(data, 100) == (bytes(size - 4), size + 1)
    else:
        with pytest.raises(WireError, match="copied row"):
            take_lines(data, 100)


def test_values_are_spelled_as_the_stream_spells_them() -> None:
    """Hex gets its head, numbers one form; NULL and everything else stay."""
    forms = bytes([Spelling.HEX, Spelling.NUMBER, Spelling.SAME])
    lines = b"71\t.5\t.5\n\\N\t\\N\t\\N\n\t{-.25,Nan,Inf}\tInf\n"
    assert respell(lines, forms) == (
        b"\\\\x71\t0.5\t.5\n\\N\t\\N\t\\N\n\\\\x\t{-0.25,NaN,Infinity}\tInf\n"
    )
    assert respell(b"", forms) == b""


@given(st.lists(st.lists(st.sampled_from(["", "a", "\\N", "\\\\", "\\t"]), min_size=3, max_size=3)))
def test_same_spelling_changes_nothing(rows: list[list[str]]) -> None:
    """Without a column to respell the lines come out as they are."""
    lines = "".join("\t".join(row) + "\n" for row in rows).encode()
    assert respell(lines, bytes(3)) == lines
