"""The three messages of streaming replication."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.errors import TruncatedError, WireError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive, StatusUpdate, XLogData, parse_server

LSNS = st.integers(0, 2**64 - 1).map(Lsn)
TIMES = st.integers(-(2**63), 2**63 - 1)
KEEPALIVE = Keepalive(Lsn(0x16B374D848), 1, True)
STATUS = StatusUpdate(Lsn(3), Lsn(2), Lsn(2), 5, False)
DATA = XLogData(Lsn(7), Lsn(7), 9, b"B")


@given(LSNS, LSNS, TIMES, st.binary(max_size=64))
def test_data_survives(start: Lsn, end: Lsn, time_us: int, payload: bytes) -> None:
    """Whatever is built is parsed to the same."""
    message = XLogData(start, end, time_us, payload)
    assert parse_server(message.to_bytes()) == message


@given(LSNS, TIMES, st.booleans())
def test_keepalive_survives(wal_end: Lsn, time_us: int, reply: bool) -> None:
    """Whatever is built is parsed to the same."""
    message = Keepalive(wal_end, time_us, reply)
    assert parse_server(message.to_bytes()) == message


@given(LSNS, LSNS, LSNS, TIMES, st.booleans())
def test_status_survives(
    written: Lsn, flushed: Lsn, applied: Lsn, time_us: int, reply: bool
) -> None:
    """Whatever is built is parsed to the same."""
    message = StatusUpdate(written, flushed, applied, time_us, reply)
    assert StatusUpdate.from_bytes(message.to_bytes()) == message


def test_layouts_are_those_of_the_manual() -> None:
    """Fields stand where the protocol puts them."""
    assert KEEPALIVE.to_bytes() == b"k" + struct.pack(">QqB", 0x16B374D848, 1, 1)
    assert STATUS.to_bytes() == b"r" + struct.pack(">QQQqB", 3, 2, 2, 5, 0)
    assert DATA.to_bytes() == b"w" + struct.pack(">QQq", 7, 7, 9) + b"B"


@pytest.mark.parametrize("size", range(25))
def test_every_prefix_of_data_is_truncated(size: int) -> None:
    """Cut inside its header, a message raises instead of reading on."""
    with pytest.raises(TruncatedError):
        parse_server(DATA.to_bytes()[:size])


@pytest.mark.parametrize("size", range(18))
def test_every_prefix_of_a_keepalive_is_truncated(size: int) -> None:
    """Cut anywhere, a message raises instead of reading on."""
    with pytest.raises(TruncatedError):
        parse_server(KEEPALIVE.to_bytes()[:size])


@pytest.mark.parametrize("size", range(34))
def test_every_prefix_of_a_status_is_truncated(size: int) -> None:
    """Cut anywhere, a message raises instead of reading on."""
    with pytest.raises(TruncatedError):
        StatusUpdate.from_bytes(STATUS.to_bytes()[:size])


def test_bytes_after_the_end_are_refused() -> None:
    """A longer message is another message."""
    with pytest.raises(WireError, match="follow the end"):
        parse_server(KEEPALIVE.to_bytes() + b"\0")
    with pytest.raises(WireError, match="follow the end"):
        StatusUpdate.from_bytes(STATUS.to_bytes() + b"\0")


def test_another_letter_is_refused() -> None:
    """Only w and k come from a server."""
    with pytest.raises(WireError, match="0x78"):
        parse_server(b"x")
