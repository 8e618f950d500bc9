"""Transactions that were prepared and have not ended; see `_prepared.pyx`."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.collect._open cimport OpenTransaction, OpenTransactions
from gaussdecode.collect._relations cimport Relations
from gaussdecode.collect._retained cimport RetainedBatches
from gaussdecode.wire._layout cimport Event


@cython.final
cdef class PreparedTransactions:
    cdef object listener
    cdef Relations relations
    cdef RetainedBatches retained
    cdef OpenTransactions opens
    cdef dict waiting               # by xid, what other threads may know of them

    cdef bint has(self, uint32_t xid) noexcept nogil
    cdef bint is_known(self, const uint8_t *entry, const Event *event) except -1 nogil
    cdef int take(
        self, OpenTransactions *streams, OpenTransaction *transaction, const uint8_t *entry,
        const Event *event,
    ) except -1 nogil
    cdef OpenTransaction *find(self, const uint8_t *entry, const Event *event) noexcept nogil
    cdef int end(self, OpenTransaction *transaction) except -1 nogil
    cdef int fail(
        self, const uint8_t *entry, const Event *event, const char *what, const char *why
    ) except -1 with gil

    cdef OpenTransaction *adopt(self, file) except NULL
    cdef OpenTransaction *of_number(self, uint32_t xid) except NULL
    cdef list unkept(self)
    cdef tuple dump(self, uint32_t xid)
    cdef int keep(self, file) except -1
    cdef list told(self)
    cdef int forget(self) except -1

    cdef int tell(self, const OpenTransaction *transaction) except -1 with gil
