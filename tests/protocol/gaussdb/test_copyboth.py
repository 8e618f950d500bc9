"""GaussDB's keepalive and status update: the vectors, truncation, and the check of a flush."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.vectors import meaning, vector, vector_bytes

from gaussdecode.errors import SequenceError, TruncatedError, WireError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import XLogData
from gaussdecode.protocol.gaussdb.copyboth import (
    Keepalive,
    StatusUpdate,
    check_flush,
    parse_server,
)

LSN = st.integers(0, 2**64 - 1).map(Lsn)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_keepalive_vector() -> None:
    """K01, both ways."""
    data, expected = vector_bytes("K01"), meaning("K01")
    message = parse_server(data)
    assert isinstance(message, Keepalive)
    assert str(message.wal_end) == expected["wal_end"]
    assert f"{message.peer_role} (PRIMARY)" == expected["peer_role"]
    assert f"{message.peer_state} (NORMAL)" == expected["peer_state"]
    assert message.server_time_us == expected["send_time_us_since_2000"]
    assert message.reply_wanted is expected["reply_requested"]
    assert message.is_catching_up is expected["catchup"]
    assert message.to_bytes() == data
    assert len(data) == vector("K01")["length"]


def test_status_vector() -> None:
    """R01, both ways."""
    data, expected = vector_bytes("R01"), meaning("R01")
    update = StatusUpdate.from_bytes(data)
    names = ("received", "written", "flushed", "applied", "replayed")
    keys = ("receive", "write", "flush", "apply", "apply_read")
    for name, key in zip(names, keys, strict=True):
        assert str(getattr(update, f"{name}_lsn")) == expected[key]
    assert update.client_time_us == expected["send_time_us_since_2000"]
    assert update.reply_wanted is expected["reply_requested"]
    assert (update.peer_role, update.peer_state, update.flags) == (0, 0, 0)
    assert update.to_bytes() == data
    assert len(data) == vector("R01")["length"]


def test_two_positions_fill_the_status() -> None:
    """Flushed, applied and replayed are the durable position."""
    update = StatusUpdate.of(Lsn(9), Lsn(5), 7, reply_wanted=True)
    assert (update.received_lsn, update.written_lsn) == (9, 9)
    assert (update.flushed_lsn, update.applied_lsn, update.replayed_lsn) == (5, 5, 5)
    assert (update.client_time_us, update.reply_wanted) == (7, True)


@given(LSN, LSN, INT64, st.booleans())
def test_status_comes_back(written: Lsn, durable: Lsn, time_us: int, wanted: bool) -> None:
    """Any positions survive the wire."""
    update = StatusUpdate.of(written, durable, time_us, reply_wanted=wanted)
    assert StatusUpdate.from_bytes(update.to_bytes()) == update


@given(LSN, INT32, INT32, INT64, st.booleans(), st.booleans(), st.binary(min_size=6, max_size=6))
def test_keepalive_comes_back(
    lsn: Lsn, role: int, state: int, time_us: int, wanted: bool, catchup: bool, rest: bytes
) -> None:
    """Any values survive, garbage in the padding included."""
    message = Keepalive(lsn, role, state, time_us, wanted, catchup, rest)
    assert parse_server(message.to_bytes()) == message


@pytest.mark.parametrize("size", range(33))
def test_every_prefix_of_a_keepalive_is_truncated(size: int) -> None:
    """PostgreSQL's 18 bytes too."""
    with pytest.raises(TruncatedError):
        parse_server(vector_bytes("K01")[:size])


@pytest.mark.parametrize("size", range(65))
def test_every_prefix_of_a_status_is_truncated(size: int) -> None:
    """PostgreSQL's 34 bytes too."""
    with pytest.raises(TruncatedError):
        StatusUpdate.from_bytes(vector_bytes("R01")[:size])


def test_longer_is_an_error() -> None:
    """Bytes that nobody sent for are not skipped."""
    with pytest.raises(WireError, match="1 bytes follow"):
        parse_server(vector_bytes("K01") + b"\0")
    with pytest.raises(WireError, match="1 bytes follow"):
        StatusUpdate.from_bytes(vector_bytes("R01") + b"\0")


@pytest.mark.parametrize("name", ["N01", "N02", "N03", "P01", "X02", "S02"])
def test_data_has_postgresqls_header(name: str) -> None:
    """The 25 bytes before every payload, both ways."""
    data = vector_bytes(name)
    message = parse_server(data)
    assert isinstance(message, XLogData)
    assert message.start_lsn == message.end_lsn
    assert message.to_bytes() == data


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
