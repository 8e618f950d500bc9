"""Transactions whose rows come in blocks; see `_streams.pyx`."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.collect._comparison cimport Comparison
from gaussdecode.collect._ends cimport Ends
from gaussdecode.collect._open cimport OpenTransaction, OpenTransactions
from gaussdecode.collect._prepared cimport PreparedTransactions
from gaussdecode.collect._relations cimport Relations
from gaussdecode.collect._retained cimport RetainedBatches
from gaussdecode.collect._sums cimport Sums
from gaussdecode.wire._layout cimport Event


@cython.final
cdef class Streams:
    cdef Relations relations
    cdef RetainedBatches retained
    cdef Sums tallies
    cdef Comparison comparison
    cdef Ends ends
    cdef PreparedTransactions prepared
    cdef OpenTransactions opens
    cdef uint64_t streamed_count    # released transactions that were streamed
    cdef uint64_t aborted_count     # streamed transactions that were rolled back
    cdef uint64_t stray_count       # rollbacks of transactions that nobody knew

    cdef int absorb(self, const uint8_t *entry, uint64_t size, bint moves) except -1 nogil
    cdef int fail_block(self, uint32_t stream_xid, const char *what) except -1 with gil
    cdef int commit(self, const uint8_t *entry, const Event *event) except -1 nogil
    cdef int abort(self, const Event *event) except -1 nogil
    cdef int prepare(self, const uint8_t *entry, const Event *event) except -1 nogil
    cdef int commit_prepared(self, const uint8_t *entry, const Event *event) except -1 nogil
    cdef int rollback_prepared(self, const uint8_t *entry, const Event *event) except -1 nogil
    cdef void forget(self) noexcept

    cdef int drop_again(self, uint32_t xid) except -1 nogil
    cdef int pass_ended(self, const Event *event) except -1 nogil
    cdef int check_exact(
        self, const OpenTransaction *transaction, const Event *event
    ) except -1 nogil
    cdef int fail_inexact(self, const Event *event) except -1 with gil
