"""Framing of many messages agrees with a simple twin, and refuses what lies outside."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.model.lsn import Lsn
from gaussdecode.serve._framing import data_rows, xlog_data

_MESSAGES = st.lists(
    st.tuples(st.binary(max_size=40), st.integers(0, 2**64 - 1), st.integers(0, 2**32)), max_size=9
)


@given(_MESSAGES, st.data(), st.lists(st.integers(0, 3), max_size=4))
def test_frames_are_those_of_the_twin(
    messages: list[tuple[bytes, int, int]], data: st.DataObject, columns: list[int]
) -> None:
    """Any range of any messages, as CopyData and as DataRow."""
    last = data.draw(st.integers(0, len(messages)))
    first = data.draw(st.integers(0, last))
    content = b"".join(text for text, _, _ in messages)
    ends = np.cumsum([len(text) for text, _, _ in messages], dtype=np.int64)
    lsns = np.array([lsn for _, lsn, _ in messages], np.uint64)
    xids = np.array([xid for _, _, xid in messages], np.int64)
    copies, rows = b"", b""
    for text, lsn, xid in messages[first:last]:
        copies += b"d" + struct.pack(">I", len(text) + 29) + b"w"
        copies += struct.pack(">QQq", lsn, lsn, -7) + text
        hexadecimal = b"\\x" + text.hex().encode()
        cells = [(str(Lsn(lsn)).encode(), str(xid).encode(), text, hexadecimal)[c] for c in columns]
        body = struct.pack(">h", len(cells))
        body += b"".join(struct.pack(">I", len(cell)) + cell for cell in cells)
        rows += b"D" + struct.pack(">I", len(body) + 4) + body
    assert xlog_data(content, ends, lsns, lsns, first, last, -7) == copies
    assert data_rows(content, ends, lsns, xids, bytes(columns), first, last) == rows


@pytest.mark.parametrize("ends", [[4], [-1, 2], [2, 1]])
def test_messages_outside_are_refused(ends: list[int]) -> None:
    """An end beyond the content, before it, or before the end of the message before."""
    lsns = np.zeros(len(ends), np.uint64)
    with pytest.raises(ValueError, match="content"):
        xlog_data(b"abc", np.array(ends, np.int64), lsns, lsns, 0, len(ends), 0)
    with pytest.raises(ValueError, match="range"):
        xlog_data(b"abc", np.array([3], np.int64), lsns[:1], lsns[:1], 0, 2, 0)
