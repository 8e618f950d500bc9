"""What the end of a transaction means; see `_ends.pyx`."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gaussdecode.collect._columns cimport Stamp
from gaussdecode.collect._comparison cimport Comparison
from gaussdecode.collect._open cimport OpenTransaction
from gaussdecode.collect._releaser cimport Releaser
from gaussdecode.collect._retained cimport RetainedBatches
from gaussdecode.collect._sums cimport Reason, Sums
from gaussdecode.wire._layout cimport Event


@cython.final
cdef class Ends:
    cdef RetainedBatches retained
    cdef Sums tallies
    cdef Comparison comparison
    cdef Releaser releaser
    cdef bint only_local
    cdef uint64_t start_csn
    cdef uint64_t resume_lsn
    cdef uint64_t resume_until
    cdef uint64_t boundary_lsn
    cdef uint64_t arrived_lsn       # by CSN: up to there all has come
    cdef uint64_t last_end_lsn
    cdef int64_t last_commit_time_us
    cdef uint64_t last_csn          # 0 where the source sends none; by CSN, passed
    cdef uint64_t resent_count
    cdef uint64_t foreign_count     # left out by only_local, users and start_csn

    cdef int end(
        self, OpenTransaction *transaction, const Event *event, const uint8_t *entry,
        uint32_t first, uint32_t commit, bint moves,
    ) except -1 nogil
    cdef int pass_over(self, OpenTransaction *transaction, const Event *commit) except -1 nogil
    cdef Reason why_left_out(self, const OpenTransaction *transaction) noexcept nogil
    cdef int leave_out(self, OpenTransaction *transaction, Reason why) except -1 nogil
    cdef int catch_up(self) except -1 nogil
    cdef void fill_stamp(
        self, const OpenTransaction *transaction, const Event *commit, Stamp *stamp
    ) noexcept nogil
    cdef int fail_commit_order(self, const Event *event) except -1 with gil
    cdef int fail_order(self, const Event *event, const OpenTransaction *inside) except -1 with gil

    cdef int compare(self, OpenTransaction *transaction, const Event *commit) except -1 nogil
    cdef bint is_before_start(self, const OpenTransaction *transaction) noexcept nogil

    cdef inline void move_boundary(self, uint64_t lsn) noexcept nogil:
        if lsn > self.boundary_lsn:
            self.boundary_lsn = lsn
