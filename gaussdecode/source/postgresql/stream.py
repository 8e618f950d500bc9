"""Read a stream of PostgreSQL frame by frame, over libpq."""

from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive, parse_server, status_update
from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.stream import FrameStream


class Stream(FrameStream):
    """See `FrameStream`.

    Args:
        connection: connection in CopyBoth.
        start_lsn: requested start.
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
        super().__init__(start_lsn, sender_timeout_ms, receiver_timeout_seconds)
        self._connection = connection

    def _take(self) -> bytes | None:
        return self._connection.take_frame()

    def _fill(self, wait_seconds: float) -> bool:
        return self._connection.wait_for_frames(wait_seconds)

    def _read(self, frame: bytes) -> tuple[int, bool]:
        message = parse_server(frame)
        if isinstance(message, Keepalive):
            return message.wal_end, message.reply_wanted
        return message.start_lsn, False

    def _send(self, written: Lsn, confirmed: Lsn, time_us: int, *, is_reply_wanted: bool) -> None:
        update = status_update(written, confirmed, time_us, reply_wanted=is_reply_wanted)
        self._connection.send_frame(update)

    def _end(self) -> None:
        self._connection.end_stream()
