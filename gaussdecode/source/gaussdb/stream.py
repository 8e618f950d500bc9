"""A GaussDB stream read message by message in plain Python, for the commands that look at few.

`peek`, `get` and `capture` use it; the daemon has its own loop in C. Feedback follows the
same rules: what is confirmed was given to `confirm`, and never lies beyond a commit that
was given to `reached`. Unless told to confirm, nothing is confirmed: the flushed position
stays 0, which the server takes as "no news".
"""

import select
import ssl
import time
from collections.abc import Iterator
from typing import Final

from gaussdecode.errors import SequenceError, SourceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import EPOCH_US, XLogData
from gaussdecode.protocol.feedback import MAX_INTERVAL_US, Feedback
from gaussdecode.protocol.gaussdb import messages
from gaussdecode.protocol.gaussdb.copyboth import (
    Keepalive,
    StatusUpdate,
    check_flush,
    parse_server,
)
from gaussdecode.protocol.gaussdb.messages import Message, MessageReader, Tag
from gaussdecode.source.gaussdb.connection import GaussConnection

MAX_MESSAGE_BYTES: Final = 1 << 30  # a row can be that long
_READ_BYTES: Final = 1 << 16
_ASKING_US: Final = 1_000_000  # arbitrary


class GaussStream:
    """Frames of a connection that has started streaming.

    Args:
        connection: in CopyBoth.
        start_lsn: what was asked for.
        sender_timeout_ms: the server's ``logical_sender_timeout``, or the option's.
        receiver_timeout_seconds: silence after which the connection is given up.
        is_asking: ask how far the server is, once a second; serial decoding tells nothing unasked.

    Attributes:
        notices: texts of the server between the data, not yet looked at.
    """

    def __init__(
        self,
        connection: GaussConnection,
        start_lsn: Lsn,
        sender_timeout_ms: int,
        receiver_timeout_seconds: float = 60.0,
        *,
        is_asking: bool = False,
    ) -> None:
        self._connection = connection
        self._is_asking = is_asking
        self._feedback = Feedback(
            start_lsn,
            _now_us(),
            sender_timeout_ms * 1000,
            int(receiver_timeout_seconds * 1e6),
            _ASKING_US if is_asking else MAX_INTERVAL_US,
        )
        self._reader = MessageReader(MAX_MESSAGE_BYTES)
        self._reader.feed(connection.pending)
        self._confirmed = Lsn(0)
        self._reached = start_lsn
        self.notices: list[str] = []

    def reached(self, end_lsn: Lsn) -> None:
        """A commit that ends there was received whole; it may be confirmed from now on."""
        self._reached = max(self._reached, end_lsn)

    def confirm(self, lsn: Lsn) -> None:
        """Let the server forget everything up to a position; sent with the next status.

        Raises:
            SequenceError: it lies beyond what was received.
        """
        check_flush(lsn, self._reached)
        self._confirmed = max(self._confirmed, lsn)
        self._feedback.made_durable(lsn)

    def frames(self, wait_seconds: float) -> Iterator[bytes]:
        """Take the frames that are here, waiting a while for the first.

        Args:
            wait_seconds: at most so long; giving none is no error.

        Yields:
            The payload of each CopyData message, keepalives included.

        Raises:
            SourceError: the stream ended or broke.
            WireError: a message is damaged.
        """
        self._serve()
        message = self._reader.take()
        if message is None:
            self._fill(min(wait_seconds, self._feedback.due_us(_now_us()) / 1e6))
            message = self._reader.take()
        while message is not None:
            frame = self._frame(message)
            if frame is not None:
                yield frame
            self._serve()
            message = self._reader.take()

    def close(self) -> None:
        """Send the last status and end the stream."""
        self._send(self._feedback.written_lsn, is_reply_wanted=False)
        self._connection.end_stream()

    def _fill(self, wait_seconds: float) -> None:
        sock = self._connection.socket
        has_more = isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
        if not has_more and not select.select([sock], [], [], max(wait_seconds, 0.0))[0]:
            return
        try:
            data = sock.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            data = b""
        if not data:
            raise self._connection.stream_error(None)
        self._feedback.received(0, _now_us())
        self._reader.feed(data)

    def _frame(self, message: Message) -> bytes | None:
        """Take what may come in a stream; None for what is no frame."""
        match message.tag:
            case Tag.COPY_DATA:
                self._note(message.body)
                return message.body
            case Tag.NOTICE:
                self.notices.append(messages.notice_fields(message.body).get("M", ""))
            case Tag.PARAMETER | Tag.NOTIFICATION | Tag.READY:  # the last follows each notice
                pass
            case Tag.ERROR:
                raise self._connection.stream_error(message.body)
            case Tag.COMMAND_COMPLETE | Tag.COPY_DONE:
                raise SourceError("streaming: the server shuts down")
            case _:
                raise SequenceError(f"a message {message.tag.name} in a stream")
        return None

    def _note(self, frame: bytes) -> None:
        message = parse_server(frame)
        if isinstance(message, Keepalive):
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
            self._send(status.written_lsn, is_reply_wanted=status.reply_wanted or self._is_asking)

    def _send(self, written_lsn: int, *, is_reply_wanted: bool) -> None:
        check_flush(self._confirmed, self._reached)
        time_us = time.time_ns() // 1000 - EPOCH_US
        update = StatusUpdate.of(
            Lsn(written_lsn), self._confirmed, time_us, reply_wanted=is_reply_wanted
        )
        self._connection.send(messages.copy_data(update.to_bytes()))


def _now_us() -> int:
    return time.monotonic_ns() // 1000
