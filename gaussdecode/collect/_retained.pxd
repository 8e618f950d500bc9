"""Batches that are kept until the end of their transaction comes; see `_retained.pyx`."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.collect._open cimport Batch, OpenTransaction


@cython.final
cdef class RetainedBatches:
    cdef object spool
    cdef dict files                 # by xid, of prepared transactions
    cdef bint is_shared
    cdef uint64_t memory_limit
    cdef uint64_t total_limit
    cdef Batch *shared              # of the batch at hand, once something of it is finished
    cdef Batch *fetched             # came back from the spool, and others have turns in it
    cdef uint64_t memory_bytes
    cdef uint64_t spooled_bytes
    cdef uint64_t spooled_batches
    cdef uint64_t spooled_count     # transactions that ever went to the spool
    cdef object spooling            # number, commit LSN and bytes of the newest there

    cdef int retain(
        self, OpenTransaction *transaction, const uint8_t *entry, uint64_t size,
        uint32_t first_event, bint moves,
    ) except -1 nogil
    cdef Batch *share(
        self, OpenTransaction *transaction, const uint8_t *entry, uint64_t size
    ) except? NULL nogil
    cdef int leave_shared(self) except -1 nogil
    cdef int drop(self, OpenTransaction *transaction) except -1 nogil
    cdef int fetch(self, const OpenTransaction *transaction, Batch *batch) except -1 with gil
    cdef void unfetch(self, Batch *batch) noexcept nogil
    cdef int point_into(self, OpenTransaction *transaction, file) except -1
    cdef int keep(self, OpenTransaction *transaction, file) except -1
    cdef view(self, const OpenTransaction *transaction, uint32_t index)
    cdef int forget(self) except -1

    cdef Batch *make_batch(
        self, OpenTransaction *transaction, const uint8_t *entry, uint64_t size, bint moves
    ) except NULL nogil
    cdef int fill_batch(
        self, Batch *batch, OpenTransaction *transaction, const uint8_t *entry, bint moves
    ) except -1 nogil
    cdef int make_shared(
        self, OpenTransaction *transaction, const uint8_t *entry, uint64_t size
    ) except -1 with gil
    cdef int leave(self, Batch *batch) except -1 nogil
