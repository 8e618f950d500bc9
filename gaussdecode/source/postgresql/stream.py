"""A stream read message by message in plain Python, for the commands that look at few.

`capture` and `peek` use it; the daemon has its own loop in C. Feedback follows the same
rules. Unless told to confirm, nothing is confirmed: the flushed position stays 0, which
servers take as "no news".
"""

import select
import time
from collections.abc import Iterator

from gaussdecode.errors import SourceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import EPOCH_US, Keepalive, StatusUpdate, XLogData, parse_server
from gaussdecode.protocol.feedback import Feedback
from gaussdecode.source.postgresql.connection import Connection


class Stream:
    """Frames of a connection that has started streaming.

    Args:
        connection: in CopyBoth.
        start_lsn: what was asked for.
        sender_timeout_ms: the server's ``wal_sender_timeout``.
        receiver_timeout_seconds: silence after which the connection is given up.
    """

    def __init__(
        self,
        connection: Connection,
        start_lsn: Lsn,
        sender_timeout_ms: int,
        receiver_timeout_seconds: float = 60.0,
    ) -> None:
        self._connection = connection
        self._feedback = Feedback(
            start_lsn, _now_us(), sender_timeout_ms * 1000, int(receiver_timeout_seconds * 1e6)
        )
        self._confirmed = Lsn(0)

    def confirm(self, lsn: Lsn) -> None:
        """Let the server forget everything up to a position; sent with the next status."""
        self._confirmed = max(self._confirmed, lsn)
        self._feedback.made_durable(lsn)

    def frames(self, wait_seconds: float) -> Iterator[bytes]:
        """Take the frames that are here, waiting a while for the first.

        Args:
            wait_seconds: at most so long; giving none is no error.

        Yields:
            The payload of each CopyData message.

        Raises:
            SourceError: the stream ended or broke.
        """
        self._serve()
        pgconn = self._connection.pgconn
        size, data = pgconn.get_copy_data(1)
        if size == 0:
            wait = min(wait_seconds, self._feedback.due_us(_now_us()) / 1e6)
            if select.select([pgconn.socket], [], [], max(wait, 0.0))[0]:
                self._feedback.received(0, _now_us())
            self._consume()
            size, data = pgconn.get_copy_data(1)
        while size > 0:
            frame = bytes(data)
            self._note(frame)
            yield frame
            self._serve()
            size, data = pgconn.get_copy_data(1)
        if size < 0:
            raise self._connection.stream_error()

    def close(self) -> None:
        """Send the last status and end the stream."""
        self._send(self._feedback.written_lsn, is_reply_wanted=False)
        self._connection.end_stream()

    def _consume(self) -> None:
        try:
            self._connection.pgconn.consume_input()
        except Exception:  # noqa: BLE001 - what arrived before is read first; then it shows
            if self._connection.pgconn.get_copy_data(1)[0] <= 0:
                raise self._connection.stream_error() from None

    def _note(self, frame: bytes) -> None:
        message = parse_server(frame)
        if isinstance(message, Keepalive):
            self._feedback.received(message.wal_end, _now_us())
            if message.reply_wanted:
                self._feedback.reply_requested()
        elif isinstance(message, XLogData):
            self._feedback.received(message.start_lsn, _now_us())

    def _serve(self) -> None:
        now_us = _now_us()
        if self._feedback.is_dead(now_us):
            raise SourceError("streaming: the server is silent")
        status = self._feedback.take(now_us)
        if status is not None:
            self._send(status.written_lsn, is_reply_wanted=status.reply_wanted)

    def _send(self, written_lsn: int, *, is_reply_wanted: bool) -> None:
        time_us = time.time_ns() // 1000 - EPOCH_US
        update = StatusUpdate(
            Lsn(written_lsn), self._confirmed, self._confirmed, time_us, is_reply_wanted
        )
        self._connection.pgconn.put_copy_data(update.to_bytes())
        self._connection.pgconn.flush()


def _now_us() -> int:
    return time.monotonic_ns() // 1000
