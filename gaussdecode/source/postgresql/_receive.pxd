"""The nogil side of `source.postgresql._receive`."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gaussdecode.source.postgresql._known cimport KnownMessages
from gaussdecode.source._receive cimport Receiver

ctypedef int (*ssl_has_pending_t)(const void *ssl) noexcept nogil


@cython.final
cdef class PostgresReceiver(Receiver):
    cdef KnownMessages known
    cdef uint64_t offered_lsn   # newest keepalive that is not in-band yet; 0 = none
    cdef bint offered_reply
    cdef uint64_t keepalive_lsn  # last one sent in-band
    cdef bint keepalive_reply
    cdef int64_t keepalive_us
    cdef uint32_t block         # a Block: of the transaction `xid`
    cdef void *ssl              # of TLS that reads ahead, where it tells what it holds
    cdef ssl_has_pending_t has_pending
    cdef bint is_cut_off        # the server leaves changes out from here on

    cdef int leave_off(self) except -1 nogil
    cdef int take_message(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int take_commit(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int begin_block(self, const uint8_t *data, size_t size) except -1 nogil
    cdef size_t xid_size(self) noexcept nogil
    cdef int take_stream_stop(self, size_t size) except -1 nogil
    cdef int end_block(self) except -1 nogil
    cdef int take_prepared(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int take_commit_prepared(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int take_stream_commit(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int check_outside(self, uint8_t tag) except -1 nogil
    cdef int describe(self, const uint8_t *data, size_t size, int outcome) except -1 nogil
