"""Read a stream of GaussDB frame by frame, over our own client.

It confirms only positions given to `confirm`, and never one beyond the last commit given to `reached`.
"""

import select
import ssl
from typing import Final

from gaussdecode.errors import SequenceError, SourceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive
from gaussdecode.protocol.gaussdb import messages
from gaussdecode.protocol.gaussdb.copyboth import check_flush, parse_server, status_update
from gaussdecode.protocol.gaussdb.messages import Message, MessageReader, Tag
from gaussdecode.source.gaussdb.connection import GaussConnection
from gaussdecode.source.stream import FrameStream

MAX_MESSAGE_BYTES: Final = 1 << 30  # a row can be that long
_READ_BYTES: Final = 1 << 16


class GaussStream(FrameStream):
    """See `FrameStream`.

    Args:
        connection: connection in CopyBoth.
        start_lsn: requested start.
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
        super().__init__(
            start_lsn, sender_timeout_ms, receiver_timeout_seconds, is_asking=is_asking
        )
        self._connection = connection
        self._reader = MessageReader(MAX_MESSAGE_BYTES)
        self._reader.feed(connection.pending)
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
        super().confirm(lsn)

    def _take(self) -> bytes | None:
        while (message := self._reader.take()) is not None:
            frame = self._frame(message)
            if frame is not None:
                return frame
        return None

    def _fill(self, wait_seconds: float) -> bool:
        sock = self._connection.socket
        has_more = isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
        if not has_more and not select.select([sock], [], [], wait_seconds)[0]:
            return False
        try:
            data = sock.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            data = b""
        if not data:
            raise self._connection.stream_error(None)
        self._reader.feed(data)
        return True

    def _frame(self, message: Message) -> bytes | None:
        """Take what may come in a stream; None for what is no frame."""
        match message.tag:
            case Tag.COPY_DATA:
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

    def _read(self, frame: bytes) -> tuple[int, bool]:
        message = parse_server(frame)
        if isinstance(message, Keepalive):  # its position is what was read, not what was sent
            return 0, message.reply_wanted
        return message.start_lsn, False

    def _send(self, written: Lsn, confirmed: Lsn, time_us: int, *, is_reply_wanted: bool) -> None:
        check_flush(confirmed, self._reached)
        update = status_update(written, confirmed, time_us, reply_wanted=is_reply_wanted)
        self._connection.send(messages.copy_data(update))

    def _end(self) -> None:
        self._connection.end_stream()
