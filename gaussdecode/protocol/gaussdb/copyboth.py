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

import struct
from typing import Final

from gaussdecode.errors import SequenceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive, XLogData, check_size, parse_data

_KEEPALIVE: Final = struct.Struct("<cQiiqBB6s")
_STATUS: Final = struct.Struct("<cQQQQQiiqB3xI")


def status_update(written: Lsn, durable: Lsn, time_us: int, *, reply_wanted: bool) -> bytes:
    """Say what the client has; the server may forget what is durable.

    The role and state of a client are 0; other flags than 0 would pause the server's log.

    Args:
        written: the highest position received.
        durable: the durable position; 0 confirms nothing.
        time_us: microseconds since 2000-01-01 UTC.
        reply_wanted: ask the server for a keepalive.
    """
    positions = (written, written, durable, durable, durable)
    return _STATUS.pack(b"r", *positions, 0, 0, time_us, reply_wanted, 0)


def parse_server(data: bytes) -> XLogData | Keepalive:
    """Parse one CopyData payload from the server.

    Raises:
        WireError: it is empty or damaged, or begins with another letter than ``w`` and ``k``.
    """
    if data[:1] != b"k":
        return parse_data(data)
    check_size(data, _KEEPALIVE.size)
    _, wal_end, _, _, _, reply, _, _ = _KEEPALIVE.unpack(data)
    return Keepalive(Lsn(wal_end), reply != 0)


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
