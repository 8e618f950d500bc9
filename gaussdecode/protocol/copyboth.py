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
from typing import Final, Self

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
        end_lsn: the same number, for logical slots.
        server_time_us: microseconds since 2000-01-01 UTC.
        payload: one message of the output plug-in.
    """

    start_lsn: Lsn
    end_lsn: Lsn
    server_time_us: int
    payload: bytes

    def to_bytes(self) -> bytes:
        """Build the CopyData payload."""
        return (
            _XLOG_DATA.pack(b"w", self.start_lsn, self.end_lsn, self.server_time_us) + self.payload
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse a CopyData payload that begins with ``w``.

        Raises:
            TruncatedError: the header is cut off.
        """
        _need(data, _XLOG_DATA.size)
        _, start_lsn, end_lsn, time_us = _XLOG_DATA.unpack_from(data)
        return cls(Lsn(start_lsn), Lsn(end_lsn), time_us, data[_XLOG_DATA.size :])


@dataclasses.dataclass(frozen=True, slots=True)
class Keepalive:
    """The server says how far it has read, and whether it wants an answer.

    Attributes:
        wal_end: the WAL is decoded and sent up to here.
        server_time_us: microseconds since 2000-01-01 UTC.
        reply_wanted: answer at once, or the server will end the connection.
    """

    wal_end: Lsn
    server_time_us: int
    reply_wanted: bool

    def to_bytes(self) -> bytes:
        """Build the CopyData payload."""
        return _KEEPALIVE.pack(b"k", self.wal_end, self.server_time_us, self.reply_wanted)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse a CopyData payload that begins with ``k``.

        Raises:
            TruncatedError: it is cut off.
            WireError: bytes follow its end.
        """
        _need(data, _KEEPALIVE.size)
        _end(data, _KEEPALIVE.size)
        _, wal_end, time_us, reply = _KEEPALIVE.unpack(data)
        return cls(Lsn(wal_end), time_us, reply != 0)


@dataclasses.dataclass(frozen=True, slots=True)
class StatusUpdate:
    """What the client has; the server may forget what is flushed.

    Attributes:
        written_lsn: the highest position received.
        flushed_lsn: the durable position; 0 confirms nothing.
        applied_lsn: we always send the durable position.
        client_time_us: microseconds since 2000-01-01 UTC.
        reply_wanted: ask the server for a keepalive.
    """

    written_lsn: Lsn
    flushed_lsn: Lsn
    applied_lsn: Lsn
    client_time_us: int
    reply_wanted: bool

    def to_bytes(self) -> bytes:
        """Build the CopyData payload."""
        return _STATUS.pack(
            b"r",
            self.written_lsn,
            self.flushed_lsn,
            self.applied_lsn,
            self.client_time_us,
            self.reply_wanted,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse a CopyData payload that begins with ``r``.

        Raises:
            TruncatedError: it is cut off.
            WireError: bytes follow its end.
        """
        _need(data, _STATUS.size)
        _end(data, _STATUS.size)
        _, written, flushed, applied, time_us, reply = _STATUS.unpack(data)
        return cls(Lsn(written), Lsn(flushed), Lsn(applied), time_us, reply != 0)


def parse_server(data: bytes) -> XLogData | Keepalive:
    """Parse one CopyData payload from the server.

    Raises:
        WireError: it is empty, or begins with another letter than ``w`` and ``k``.
    """
    _need(data, 1)
    if data[:1] == b"w":
        return XLogData.from_bytes(data)
    if data[:1] == b"k":
        return Keepalive.from_bytes(data)
    raise WireError(f"unknown replication message type {data[0]:#04x}", 0)


def _need(data: bytes, size: int) -> None:
    if len(data) < size:
        raise TruncatedError(f"need {size} bytes, have {len(data)}", len(data))


def _end(data: bytes, size: int) -> None:
    if len(data) > size:
        raise WireError(f"{len(data) - size} bytes follow the end of the message", size)
