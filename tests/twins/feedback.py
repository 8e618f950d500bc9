"""`source._status.StatusClock` in plain Python, with the same rules, states and names."""

import dataclasses
from typing import Final

from gaussdecode.model.lsn import Lsn

MAX_INTERVAL_US: Final = 10_000_000
REPLY_GAP_US: Final = 5_000  # arbitrary; a loopback exchange takes 0.1 ms
_TIMEOUT_FRACTION: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """What to send: positions, and whether to ask for an answer."""

    written_lsn: Lsn
    flushed_lsn: Lsn
    reply_wanted: bool


class Feedback:
    """Decides what to send when.

    Args:
        start_lsn: the durable position at the start of the stream.
        now_us: the caller's clock.
        sender_timeout_us: the server's ``wal_sender_timeout``; 0 when it has none.
        receiver_timeout_us: silence after which the connection is given up; 0 for never.
        max_interval_us: longest time between two statuses.
    """

    def __init__(
        self,
        start_lsn: int,
        now_us: int,
        sender_timeout_us: int,
        receiver_timeout_us: int,
        max_interval_us: int = MAX_INTERVAL_US,
    ) -> None:
        self.interval_us = max_interval_us
        if sender_timeout_us > 0:
            self.interval_us = max(1, min(max_interval_us, sender_timeout_us // _TIMEOUT_FRACTION))
        self.receiver_timeout_us = receiver_timeout_us
        self.written_lsn = start_lsn
        self.durable_lsn = start_lsn
        self.sent_flushed_lsn = 0
        self.sent_us: int | None = None
        self.heard_us = now_us
        self.ping_us: int | None = None
        self.reply_due = False

    def received(self, lsn: int, now_us: int) -> None:
        """Bytes came; `lsn` is the highest position they name, 0 when none."""
        self.written_lsn = max(self.written_lsn, lsn)
        self.heard_us = now_us
        self.ping_us = None

    def reply_requested(self) -> None:
        """A keepalive wants an answer."""
        self.reply_due = True

    def made_durable(self, lsn: int) -> None:
        """The landing is complete up to `lsn`; lower than before changes nothing."""
        self.durable_lsn = max(self.durable_lsn, lsn)

    def due_us(self, now_us: int) -> int:
        """Microseconds until `take` will give a status; 0 when it is due now."""
        if self.sent_us is None:
            return 0
        since = now_us - self.sent_us
        if self.durable_lsn > self.sent_flushed_lsn or self._ping_due(now_us):
            return 0
        if self.reply_due:
            return max(0, REPLY_GAP_US - since)
        return max(0, self.interval_us - since)

    def take(self, now_us: int) -> Status | None:
        """Give the status to send now, or None; the caller sends what it takes."""
        if self.due_us(now_us) > 0:
            return None
        ping = self._ping_due(now_us)
        if ping:
            self.ping_us = now_us
        self.sent_us = now_us
        self.sent_flushed_lsn = self.durable_lsn
        self.written_lsn = max(self.written_lsn, self.durable_lsn)
        self.reply_due = False
        return Status(Lsn(self.written_lsn), Lsn(self.durable_lsn), ping)

    def is_dead(self, now_us: int) -> bool:
        """A ping went unanswered for half the receive timeout."""
        return (
            self.receiver_timeout_us > 0
            and self.ping_us is not None
            and now_us - self.ping_us >= self.receiver_timeout_us // 2
        )

    def _ping_due(self, now_us: int) -> bool:
        return (
            self.receiver_timeout_us > 0
            and self.ping_us is None
            and now_us - self.heard_us >= self.receiver_timeout_us // 2
        )
