"""Read a stream frame by frame in plain Python, for commands that need few frames.

The daemon has its own loops in C; `_status` decides here too when a status is sent. Nothing is confirmed unless `confirm`
is used: the flushed position stays 0, which servers ignore. The folders of the servers have the
differences: how bytes are read and how a status is written.
"""

import abc
import time
from collections.abc import Iterator
from typing import Final

from gaussdecode.errors import SourceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import EPOCH_US
from gaussdecode.source._status import StatusClock

_ASKING_US: Final = 1_000_000  # arbitrary
_MOST_US: Final = 10_000_000  # between two statuses, as in the daemon


class FrameStream(abc.ABC):
    """Frames of a connection that has started streaming.

    Args:
        start_lsn: requested start.
        sender_timeout_ms: silence of ours after which the server ends the stream.
        receiver_timeout_seconds: silence after which the connection is given up.
        is_asking: ask how far the server is, once a second.
    """

    def __init__(
        self,
        start_lsn: Lsn,
        sender_timeout_ms: int,
        receiver_timeout_seconds: float,
        *,
        is_asking: bool = False,
    ) -> None:
        self._is_asking = is_asking
        self._clock = StatusClock(
            start_lsn,
            _now_us(),
            sender_timeout_ms * 1000,
            int(receiver_timeout_seconds * 1e6),
            _ASKING_US if is_asking else _MOST_US,
        )
        self._confirmed = Lsn(0)

    def confirm(self, lsn: Lsn) -> None:
        """Let the server forget everything up to a position; sent with the next status."""
        self._confirmed = max(self._confirmed, lsn)
        self._clock.made_durable(lsn)

    def frames(self, wait_seconds: float) -> Iterator[bytes]:
        """Take the frames that are here, waiting a while for the first.

        Args:
            wait_seconds: maximum wait; giving none is no error.

        Yields:
            The payload of each CopyData message, keepalives included.

        Raises:
            SourceError: the stream ended or broke.
            WireError: a message is damaged.
        """
        self._serve()
        frame = self._take()
        if frame is None:
            due_seconds = self._clock.due_us(_now_us()) / 1e6
            if self._fill(max(0.0, min(wait_seconds, due_seconds))):
                self._clock.received(0, _now_us())
            frame = self._take()
        while frame is not None:
            lsn, is_reply_wanted = self._read(frame)
            self._clock.received(lsn, _now_us())
            if is_reply_wanted:
                self._clock.reply_requested()
            yield frame
            self._serve()
            frame = self._take()

    def close(self) -> None:
        """Send the last status and end the stream."""
        self._send_status(self._clock.written_lsn, is_reply_wanted=False)
        self._end()

    def _serve(self) -> None:
        now_us = _now_us()
        if self._clock.is_dead(now_us):
            raise SourceError("streaming: the server is silent")
        status = self._clock.take(now_us)
        if status is not None:
            written_lsn, _, is_reply_wanted = status
            self._send_status(written_lsn, is_reply_wanted=is_reply_wanted or self._is_asking)

    def _send_status(self, written_lsn: int, *, is_reply_wanted: bool) -> None:
        time_us = time.time_ns() // 1000 - EPOCH_US
        self._send(Lsn(written_lsn), self._confirmed, time_us, is_reply_wanted=is_reply_wanted)

    @abc.abstractmethod
    def _take(self) -> bytes | None:
        """The next frame that is here whole; None for none."""

    @abc.abstractmethod
    def _fill(self, wait_seconds: float) -> bool:
        """Wait for bytes and read what is here; whether any came."""

    @abc.abstractmethod
    def _read(self, frame: bytes) -> tuple[int, bool]:
        """The position that a frame says was sent, 0 for none; whether it wants an answer."""

    @abc.abstractmethod
    def _send(self, written: Lsn, confirmed: Lsn, time_us: int, *, is_reply_wanted: bool) -> None:
        """Send a status, its time in microseconds since 2000."""

    @abc.abstractmethod
    def _end(self) -> None:
        """End the stream in order."""


def _now_us() -> int:
    return time.monotonic_ns() // 1000
