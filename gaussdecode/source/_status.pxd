"""The nogil side of `source._status`."""

from libc.stdint cimport int64_t, uint64_t


cdef struct StatusNumbers:
    uint64_t written_lsn
    uint64_t flushed_lsn
    bint reply_wanted


cdef class StatusClock:
    cdef readonly uint64_t written_lsn
    cdef readonly uint64_t durable_lsn
    cdef readonly uint64_t sent_flushed_lsn
    cdef readonly int64_t interval_us
    cdef int64_t receiver_timeout_us
    cdef int64_t sent_us
    cdef int64_t heard_us
    cdef int64_t ping_us
    cdef bint has_sent
    cdef bint has_pinged
    cdef bint reply_due

    cdef void note_received(self, uint64_t lsn, int64_t now_us) noexcept nogil
    cdef void note_written(self, uint64_t lsn) noexcept nogil
    cdef void note_reply_requested(self) noexcept nogil
    cdef void note_durable(self, uint64_t lsn) noexcept nogil
    cdef int64_t wait_us(self, int64_t now_us) noexcept nogil
    cdef bint take_status(self, int64_t now_us, StatusNumbers *status) noexcept nogil
    cdef bint dead(self, int64_t now_us) noexcept nogil
    cdef bint ping_due(self, int64_t now_us) noexcept nogil
