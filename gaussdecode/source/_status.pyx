"""Decide when to send a status to the server, and which position to confirm.

Order. Three positions go to the server: *written*, the highest position received, and
*flushed* and *applied*, both the durable position of the landing. The server forgets
whatever lies below *flushed*; so this is the place where data could be lost. Nothing
here computes a position: the durable one comes from the commit log as it is, is never
added to, and is the end of a commit record (or the end of WAL of a keepalive that went
through the log as an idle entry). A position lower than one already sent is never sent
again, even when a caller offers it: old servers would move the slot back.

States. A status is *due* at once when the server asked for one, or when the durable
position has moved; otherwise when the interval is over: a third of the server's
``wal_sender_timeout``, at most ten seconds (or as given). A server that shuts down asks again
as soon as it is answered, until the durable position has reached its last record;
`REPLY_GAP_US` keeps that exchange from becoming a busy loop.

Silence. The server is quiet for long times only when nothing happens, and even then it
answers a ping. After half of the receive timeout without a byte a status asks for a
reply; after another half without one the connection is given up. Time during which we
did not read (the rings were full, the process was stopped) is not silence: the
caller reports `received` for what lies in the socket before asking.

Crash. All of it can be lost: after a restart the durable position comes from the log,
and the server sends again what lies above.

Deadlocks avoided. The status does not depend on any queue: a full ring stops reading,
never this. The final status of a stop waits for the landing and for nothing else.

The clock is the caller's: microseconds of a monotonic clock, from any zero. The receive loops
use the functions without the GIL, streams for a few frames (`source.stream`) those of Python.
"""

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    MAX_INTERVAL_US = 10000000
    REPLY_GAP_US = 5000  # arbitrary; a loopback exchange takes 0.1 ms
    TIMEOUT_FRACTION = 3


cdef class StatusClock:
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
        uint64_t start_lsn,
        int64_t now_us,
        int64_t sender_timeout_us,
        int64_t receiver_timeout_us,
        int64_t max_interval_us=MAX_INTERVAL_US,
    ):
        self.interval_us = max_interval_us
        if sender_timeout_us > 0:
            self.interval_us = max(1, min(max_interval_us, sender_timeout_us // TIMEOUT_FRACTION))
        self.receiver_timeout_us = receiver_timeout_us
        self.written_lsn = start_lsn
        self.durable_lsn = start_lsn
        self.heard_us = now_us

    cdef void note_received(self, uint64_t lsn, int64_t now_us) noexcept nogil:
        self.note_written(lsn)
        self.heard_us = now_us
        self.has_pinged = False

    cdef void note_written(self, uint64_t lsn) noexcept nogil:
        if lsn > self.written_lsn:
            self.written_lsn = lsn

    cdef void note_reply_requested(self) noexcept nogil:
        self.reply_due = True

    cdef void note_durable(self, uint64_t lsn) noexcept nogil:
        if lsn > self.durable_lsn:
            self.durable_lsn = lsn

    cdef int64_t wait_us(self, int64_t now_us) noexcept nogil:
        cdef int64_t left
        if not self.has_sent:
            return 0
        if self.durable_lsn > self.sent_flushed_lsn or self.ping_due(now_us):
            return 0
        left = (REPLY_GAP_US if self.reply_due else self.interval_us) - (now_us - self.sent_us)
        return left if left > 0 else 0

    cdef bint take_status(self, int64_t now_us, StatusNumbers *status) noexcept nogil:
        cdef bint ping
        if self.wait_us(now_us) > 0:
            return False
        ping = self.ping_due(now_us)
        if ping:
            self.has_pinged = True
            self.ping_us = now_us
        self.has_sent = True
        self.sent_us = now_us
        self.sent_flushed_lsn = self.durable_lsn
        self.note_written(self.durable_lsn)
        self.reply_due = False
        status.written_lsn = self.written_lsn
        status.flushed_lsn = self.durable_lsn
        status.reply_wanted = ping
        return True

    cdef bint dead(self, int64_t now_us) noexcept nogil:
        return (
            self.receiver_timeout_us > 0
            and self.has_pinged
            and now_us - self.ping_us >= self.receiver_timeout_us // 2
        )

    cdef bint ping_due(self, int64_t now_us) noexcept nogil:
        return (
            self.receiver_timeout_us > 0
            and not self.has_pinged
            and now_us - self.heard_us >= self.receiver_timeout_us // 2
        )

    # ---- with the GIL ----

    def received(self, uint64_t lsn, int64_t now_us):
        """Bytes came; `lsn` is the highest position they name, 0 when none."""
        self.note_received(lsn, now_us)

    def reply_requested(self):
        """A keepalive wants an answer."""
        self.note_reply_requested()

    def made_durable(self, uint64_t lsn):
        """The landing is complete up to `lsn`; lower than before changes nothing."""
        self.note_durable(lsn)

    def due_us(self, int64_t now_us):
        """Microseconds until `take` will give a status; 0 when it is due now."""
        return self.wait_us(now_us)

    def take(self, int64_t now_us):
        """Give (written, flushed, reply wanted) to send now, or None."""
        cdef StatusNumbers status
        if not self.take_status(now_us, &status):
            return None
        return status.written_lsn, status.flushed_lsn, bool(status.reply_wanted)

    def is_dead(self, int64_t now_us):
        """A ping went unanswered for half the receive timeout."""
        return bool(self.dead(now_us))
