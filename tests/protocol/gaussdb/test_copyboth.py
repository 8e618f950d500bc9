"""GaussDB's keepalive and status update: the vectors, truncation, and the check of a flush."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import gausswire as wire
from kit.vectors import meaning, vector, vector_bytes

from gaussdecode.errors import SequenceError, TruncatedError, WireError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive, XLogData
from gaussdecode.protocol.gaussdb.copyboth import check_flush, parse_server, status_update

LSN = st.integers(0, 2**64 - 1).map(Lsn)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_keepalive_vector() -> None:
    """K01."""
    expected = meaning("K01")
    message = parse_server(vector_bytes("K01"))
    assert isinstance(message, Keepalive)
    assert str(message.wal_end) == expected["wal_end"]
    assert message.reply_wanted is expected["reply_requested"]


def test_status_has_the_layout_of_the_vector() -> None:
    """R01: its length and its letter; its positions are those of another client."""
    status = status_update(Lsn(9), Lsn(5), 7, reply_wanted=True)
    assert len(status) == vector("R01")["length"]
    assert status[:1] == vector_bytes("R01")[:1]


@given(LSN, LSN, INT64, st.booleans())
def test_two_positions_fill_the_status(
    written: Lsn, durable: Lsn, time_us: int, wanted: bool
) -> None:
    """Flushed, applied and replayed are the durable position; role, state and flags are 0."""
    status = status_update(written, durable, time_us, reply_wanted=wanted)
    assert wire.Status(*wire.STATUS.unpack(status[1:])) == wire.Status(
        written, written, durable, durable, durable, 0, 0, time_us, wanted, 0
    )


@given(LSN, INT64, st.booleans(), st.booleans(), st.integers(2, 3))
def test_keepalive_is_read(lsn: Lsn, time_us: int, wanted: bool, catchup: bool, role: int) -> None:
    """Any values survive."""
    data = wire.keepalive(lsn, time_us, wants_reply=wanted, catchup=catchup, role=role)
    assert parse_server(data) == Keepalive(lsn, wanted)


@pytest.mark.parametrize("size", range(33))
def test_every_prefix_of_a_keepalive_is_truncated(size: int) -> None:
    """PostgreSQL's 18 bytes too."""
    with pytest.raises(TruncatedError):
        parse_server(vector_bytes("K01")[:size])


def test_longer_is_an_error() -> None:
    """Bytes that nobody sent for are not skipped."""
    with pytest.raises(WireError, match="1 bytes follow"):
        parse_server(vector_bytes("K01") + b"\0")


@pytest.mark.parametrize("name", ["N01", "N02", "N03", "P01", "X02", "S02"])
def test_data_has_postgresqls_header(name: str) -> None:
    """The 25 bytes before every payload."""
    data = vector_bytes(name)
    lsn = Lsn(int.from_bytes(data[1:9], "big"))
    assert parse_server(data) == XLogData(lsn, data[25:])


@given(st.binary(max_size=40))
def test_random_bytes_end_in_a_message_or_a_typed_error(data: bytes) -> None:
    """Nothing else comes out."""
    with contextlib.suppress(WireError):
        parse_server(data)


def test_only_what_was_received_is_confirmed() -> None:
    """The end of the last commit is the limit."""
    check_flush(0, 0)
    check_flush(16, 16)
    with pytest.raises(SequenceError, match="0/11 must not be confirmed"):
        check_flush(17, 16)
