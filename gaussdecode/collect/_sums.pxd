"""What came, what landed and what was left out, counted by kind; see `_sums.pyx`."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from gaussdecode.wire._layout cimport EntryHeader, Event, PartHeader, Tally, TallyKind
from gaussdecode.wire._tally cimport tally_move, tally_ops, tally_subtract


cdef enum Reason:           # why something does not land; in the order of REASONS
    BECAUSE_RESENT = 0
    BECAUSE_ORIGIN = 1
    BECAUSE_USER = 2
    BECAUSE_BEFORE_START = 3
    BECAUSE_FILTERED = 4
    BECAUSE_NOT_WANTED = 5
    BECAUSE_EMPTY = 6
    BECAUSE_ABORTED = 7
    BECAUSE_SPECULATIVE = 8
    REASON_COUNT = 9


cdef inline void count_segment(
    Tally *tally, const uint8_t *entry, const Event *event
) noexcept nogil:
    """Count the rows of a segment by operation."""
    cdef const PartHeader *parts = <const PartHeader *>(
        entry + (<const EntryHeader *>entry).part_offset
    )
    tally_ops(tally, entry + parts[event.index].op_offset + event.first_row, event.row_count)


@cython.final
cdef class Sums:
    cdef Tally framed               # all since `committed`, and what was open then
    cdef Tally landed
    cdef Tally[REASON_COUNT] left_out
    cdef Tally open                 # of `framed`: of streamed, prepared and finished transactions
    cdef uint64_t[REASON_COUNT] left_out_total  # rows of entries before

    cdef int check(
        self, const EntryHeader *header, const Tally *plain, uint64_t lsn
    ) except -1 nogil
    cdef int fail(self, const Tally *found, uint64_t lsn) except -1 with gil
    cdef tuple since_committed(self, const Tally *plain)
    cdef dict left_out_rows(self)
    cdef void committed(self, const Tally *plain) noexcept

    cdef inline void count_landed(self, TallyKind kind) noexcept nogil:
        self.landed.count[<int>kind] += 1

    cdef inline void count_left_out(self, Reason why, TallyKind kind) noexcept nogil:
        self.left_out[<int>why].count[<int>kind] += 1

    cdef inline void leave_out(self, Reason why, Tally *tally) noexcept nogil:
        """Nothing of a transaction lands; its counts begin again."""
        tally_move(&self.left_out[<int>why], tally)

    cdef inline void close(self, const Tally *tally) noexcept nogil:
        """A transaction of `open` has ended: what it counted is the caller's."""
        tally_subtract(&self.open, tally)
