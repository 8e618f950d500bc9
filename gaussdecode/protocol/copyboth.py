"""Read and write the three messages of streaming replication, inside CopyData.

    XLogData      server  'w'  start lsn u64, end lsn u64, server time i64, payload
    Keepalive     server  'k'  wal end u64, server time i64, reply wanted u8
    StatusUpdate  client  'r'  written u64, flushed u64, applied u64, client time i64,
                               reply wanted u8

All integers big-endian, times in microseconds since 2000-01-01 UTC. Bytes in, values
out, and back: no socket, no clock. The receive loop in ``source._receive`` does the
same in C; its tests compare the two.
"""

import dataclasses
import struct
from typing import Final

from gaussdecode.errors import TruncatedError, WireError
from gaussdecode.model.lsn import Lsn

EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01 UTC in microseconds since 1970

_XLOG_DATA: Final = struct.Struct(">cQQq")
_KEEPALIVE: Final = struct.Struct(">cQqB")
_STATUS: Final = struct.Struct(">cQQQqB")


@dataclasses.dataclass(frozen=True, slots=True)
class XLogData:
    """A piece of the stream.

    Attributes:
        start_lsn: WAL position of what the payload describes; 0 where there is none.
        payload: one message of the output plug-in.
    """

    start_lsn: Lsn
    payload: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Keepalive:
    """The server says how far it has read, and whether it wants an answer.

    Attributes:
        wal_end: the WAL is decoded and sent up to here; of GaussDB: end of what its reader has read.
        reply_wanted: answer at once, or the server will end the connection.
    """

    wal_end: Lsn
    reply_wanted: bool


def status_update(written: Lsn, durable: Lsn, time_us: int, *, reply_wanted: bool) -> bytes:
    """Say what the client has; the server may forget what is durable.

    Args:
        written: the highest position received.
        durable: the durable position; 0 confirms nothing.
        time_us: microseconds since 2000-01-01 UTC.
        reply_wanted: ask the server for a keepalive.
    """
    return _STATUS.pack(b"r", written, durable, durable, time_us, reply_wanted)


def parse_server(data: bytes) -> XLogData | Keepalive:
    """Parse one CopyData payload from the server.

    Raises:
        WireError: it is empty or damaged, or begins with another letter than ``w`` and ``k``.
    """
    if data[:1] != b"k":
        return parse_data(data)
    check_size(data, _KEEPALIVE.size)
    _, wal_end, _, reply = _KEEPALIVE.unpack(data)
    return Keepalive(Lsn(wal_end), reply != 0)


def parse_data(data: bytes) -> XLogData:
    """Parse an XLogData, which both products lay out alike.

    Raises:
        WireError: it is cut off, or begins with another letter.
    """
    if data[:1] not in (b"", b"w"):
        raise WireError(f"unknown replication message type {data[0]:#04x}", 0)
    if len(data) < _XLOG_DATA.size:
        raise TruncatedError(f"need {_XLOG_DATA.size} bytes, have {len(data)}", len(data))
    _, start_lsn, _, _ = _XLOG_DATA.unpack_from(data)
    return XLogData(Lsn(start_lsn), data[_XLOG_DATA.size :])


def check_size(data: bytes, size: int) -> None:
    """See that a message has its length.

    Raises:
        TruncatedError: it is cut off.
        WireError: bytes follow its end.
    """
    if len(data) < size:
        raise TruncatedError(f"need {size} bytes, have {len(data)}", len(data))
    if len(data) > size:
        raise WireError(f"{len(data) - size} bytes follow the end of the message", size)
