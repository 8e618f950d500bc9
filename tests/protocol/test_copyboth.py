"""The three messages of streaming replication."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import wire

from gaussdecode.errors import TruncatedError, WireError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive, XLogData, parse_server, status_update

LSNS = st.integers(0, 2**64 - 1).map(Lsn)
TIMES = st.integers(-(2**63), 2**63 - 1)
KEEPALIVE = wire.keepalive(0x16B374D848, wants_reply=True)
DATA = wire.xlog_data(7, b"B")


@given(LSNS, LSNS, TIMES, st.binary(max_size=64))
def test_data_is_read(start: Lsn, end: Lsn, time_us: int, payload: bytes) -> None:
    """Fields stand where the protocol puts them."""
    data = b"w" + struct.pack(">QQq", start, end, time_us) + payload
    assert parse_server(data) == XLogData(start, payload)


@given(LSNS, TIMES, st.booleans())
def test_keepalive_is_read(wal_end: Lsn, time_us: int, reply: bool) -> None:
    """Fields stand where the protocol puts them."""
    data = b"k" + struct.pack(">QqB", wal_end, time_us, reply)
    assert parse_server(data) == Keepalive(wal_end, reply)


@given(LSNS, LSNS, TIMES, st.booleans())
def test_status_is_written(written: Lsn, durable: Lsn, time_us: int, reply: bool) -> None:
    """What is flushed and what is applied are the durable position."""
    status = status_update(written, durable, time_us, reply_wanted=reply)
    assert status == b"r" + struct.pack(">QQQqB", written, durable, durable, time_us, reply)


@pytest.mark.parametrize("size", range(25))
def test_every_prefix_of_data_is_truncated(size: int) -> None:
    """Cut inside its header, a message raises instead of reading on."""
    with pytest.raises(TruncatedError):
        parse_server(DATA[:size])


@pytest.mark.parametrize("size", range(18))
def test_every_prefix_of_a_keepalive_is_truncated(size: int) -> None:
    """Cut anywhere, a message raises instead of reading on."""
    with pytest.raises(TruncatedError):
        parse_server(KEEPALIVE[:size])


def test_bytes_after_the_end_are_refused() -> None:
    """A longer message is another message."""
    with pytest.raises(WireError, match="follow the end"):
        parse_server(KEEPALIVE + b"\0")


def test_another_letter_is_refused() -> None:
    """Only w and k come from a server."""
    with pytest.raises(WireError, match="0x78"):
        parse_server(b"x")
