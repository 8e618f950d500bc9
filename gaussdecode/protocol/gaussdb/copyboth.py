"""Read and write the CopyData messages that GaussDB lays out in its own way.

    XLogData      server  'w'  as PostgreSQL's, big-endian
    Keepalive     server  'k'  wal end u64, peer role i32, peer state i32, server time i64,
                               reply wanted u8, catch-up u8, and 6 bytes that may be garbage
    StatusUpdate  client  'r'  received u64, written u64, flushed u64, applied u64,
                               replayed u64, peer role i32, peer state i32, client time i64,
                               reply wanted u8, padding[3], flags u32

Keepalive and StatusUpdate are C structures in the byte order of the server, which is
little-endian on every machine it is built for; 33 and 65 bytes. PostgreSQL's forms, 18
and 34 bytes big-endian, end the session. Times in microseconds since 2000-01-01 UTC.

The server moves the slot to *flushed*. It does not check it: a position in the future
makes it skip transactions for ever, so `check_flush` stands before every status. A
keepalive's *wal end* may lie beyond transactions that were not sent yet; it serves to
know the lag, and is never confirmed.
"""

import dataclasses
import struct
from typing import Final, Self

from gaussdecode.errors import SequenceError, TruncatedError, WireError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import XLogData

_KEEPALIVE: Final = struct.Struct("<cQiiqBB6s")
_STATUS: Final = struct.Struct("<cQQQQQiiqB3xI")


@dataclasses.dataclass(frozen=True, slots=True)
class Keepalive:
    """The server says how far its reader is, and whether it wants an answer.

    Attributes:
        wal_end: WAL end of its reader; never to be confirmed.
        peer_role: 2 primary, 3 standby.
        peer_state: 1 normal.
        server_time_us: microseconds since 2000-01-01 UTC.
        reply_wanted: answer at once, or the server will end the connection.
        is_catching_up: the server reports that it is catching up.
        rest: bytes that mean nothing.
    """

    wal_end: Lsn
    peer_role: int
    peer_state: int
    server_time_us: int
    reply_wanted: bool
    is_catching_up: bool = False
    rest: bytes = bytes(6)

    def to_bytes(self) -> bytes:
        """Build the CopyData payload."""
        return _KEEPALIVE.pack(
            b"k",
            self.wal_end,
            self.peer_role,
            self.peer_state,
            self.server_time_us,
            self.reply_wanted,
            self.is_catching_up,
            self.rest,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse a CopyData payload that begins with ``k``.

        Raises:
            TruncatedError: it is cut off.
            WireError: it is longer.
        """
        _need(data, _KEEPALIVE.size)
        _, wal_end, role, state, time_us, reply, catchup, rest = _KEEPALIVE.unpack(data)
        return cls(Lsn(wal_end), role, state, time_us, reply != 0, catchup != 0, rest)


@dataclasses.dataclass(frozen=True, slots=True)
class StatusUpdate:
    """What the client has; the server may forget what is flushed.

    Attributes:
        received_lsn: the highest position received.
        written_lsn: the same.
        flushed_lsn: the durable position; 0 confirms nothing.
        applied_lsn: the durable position.
        replayed_lsn: the durable position.
        client_time_us: microseconds since 2000-01-01 UTC.
        reply_wanted: ask the server for a keepalive.
        peer_role: 0, we are no server.
        peer_state: 0.
        flags: 0; others would pause the server's log.
    """

    received_lsn: Lsn
    written_lsn: Lsn
    flushed_lsn: Lsn
    applied_lsn: Lsn
    replayed_lsn: Lsn
    client_time_us: int
    reply_wanted: bool
    peer_role: int = 0
    peer_state: int = 0
    flags: int = 0

    @classmethod
    def of(cls, written: Lsn, durable: Lsn, client_time_us: int, *, reply_wanted: bool) -> Self:
        """Make one from the two positions that we know."""
        return cls(written, written, durable, durable, durable, client_time_us, reply_wanted)

    def to_bytes(self) -> bytes:
        """Build the CopyData payload."""
        return _STATUS.pack(
            b"r",
            self.received_lsn,
            self.written_lsn,
            self.flushed_lsn,
            self.applied_lsn,
            self.replayed_lsn,
            self.peer_role,
            self.peer_state,
            self.client_time_us,
            self.reply_wanted,
            self.flags,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse a CopyData payload that begins with ``r``.

        Raises:
            TruncatedError: it is cut off.
            WireError: it is longer.
        """
        _need(data, _STATUS.size)
        _, received, written, flushed, applied, replayed, role, state, time_us, reply, flags = (
            _STATUS.unpack(data)
        )
        return cls(
            Lsn(received),
            Lsn(written),
            Lsn(flushed),
            Lsn(applied),
            Lsn(replayed),
            time_us,
            reply != 0,
            role,
            state,
            flags,
        )


def parse_server(data: bytes) -> XLogData | Keepalive:
    """Parse one CopyData payload from the server.

    Raises:
        WireError: it is empty or damaged, or begins with another letter than ``w`` and ``k``.
    """
    if not data:
        raise TruncatedError("need 1 bytes, have 0", 0)
    if data[:1] == b"w":
        return XLogData.from_bytes(data)
    if data[:1] == b"k":
        return Keepalive.from_bytes(data)
    raise WireError(f"unknown replication message type {data[0]:#04x}", 0)


def check_flush(flushed: int, reached: int) -> None:
    """Refuse to confirm what was not received whole.

    Args:
        flushed: about to be sent.
        reached: end of the last commit received, or where the stream was started.

    Raises:
        SequenceError: it lies behind.
    """
    if flushed > reached:
        raise SequenceError(
            f"position {Lsn(flushed)} must not be confirmed: the last commit received ends at "
            f"{Lsn(reached)}"
        )


def _need(data: bytes, size: int) -> None:
    if len(data) < size:
        raise TruncatedError(f"need {size} bytes, have {len(data)}", len(data))
    if len(data) > size:
        raise WireError(f"{len(data) - size} bytes follow the end of the message", size)
