"""Transactions in the order of CSNs; see `_csnorder.pyx`."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gaussdecode.collect._ends cimport Ends
from gaussdecode.collect._open cimport OpenTransaction
from gaussdecode.collect._retained cimport RetainedBatches
from gaussdecode.collect._sums cimport Sums
from gaussdecode.collect._turns cimport Turns
from gaussdecode.wire._layout cimport Event


@cython.final
cdef class CsnOrder:
    cdef Ends ends
    cdef RetainedBatches retained
    cdef Sums tallies
    cdef Turns turns                # of those that are finished
    cdef int64_t next_commit_us     # commit time of the one whose turn is next; 0: none, or unknown
    cdef uint64_t resume_csn
    cdef uint64_t arrived_csn       # the highest that is finished
    cdef uint64_t given_up_csn      # the least that was given up; UINT64_MAX: none
    cdef uint64_t given_up_end      # where in the log the first of them ends,
    cdef uint64_t given_up_before   # and the commit before it
    cdef uint64_t given_up_count
    cdef uint64_t kept_csn          # nothing up to it is given up any more
    cdef uint64_t lost_csn          # one that was given up, and nothing stood before it; 0: none

    cdef OpenTransaction *finish(
        self, OpenTransaction *transaction, const Event *event, const uint8_t *entry,
        uint64_t size, uint32_t first, uint32_t commit,
    ) except NULL nogil
    cdef bint give_up(self, OpenTransaction *at_hand) except -1
    cdef int pass_csn(self, uint64_t csn, uint64_t lsn) except -1
    cdef void forget(self) noexcept

    cdef int leave_for_later(
        self, OpenTransaction *transaction, const Event *event, uint64_t before_lsn
    ) except -1 nogil
    cdef void note_given_up(
        self, uint64_t csn, uint64_t end_lsn, uint64_t before_lsn
    ) noexcept nogil
    cdef int release_turns(self, uint64_t csn) except -1 nogil
    cdef void note_next(self) noexcept nogil
    cdef int fail_late(
        self, const OpenTransaction *transaction, const Event *event
    ) except -1 with gil

    cdef inline bint is_given_up(self, uint64_t csn) noexcept nogil:
        """Whether a transaction with this CSN comes again in another session."""
        return csn >= self.given_up_csn

    cdef inline bint is_passed(self, uint64_t csn) noexcept nogil:
        """Whether a transaction with this CSN has landed, or comes too late."""
        return 0 < csn <= self.resume_csn
