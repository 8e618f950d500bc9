"""BEGIN, COMMIT and heartbeats; see `_statement.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gaussdecode.wire._cursor cimport Cursor


cdef extern from *:
    """
    #define GD_NO_TIME INT64_MIN
    """
    const int64_t NO_TIME "GD_NO_TIME"

cdef struct Boundary:           # of a transaction, what was sent of it
    uint64_t lsn
    uint64_t csn                # 0: not sent, as below
    uint64_t xid
    int64_t time                # us since 2000; NO_TIME: not sent
    uint32_t origin
    const uint8_t *user
    size_t user_size
    uint32_t unknown_parts      # stepped over
    uint32_t unread_times       # infinite, BC, without a zone

cdef struct Heartbeat:
    uint64_t lsn
    uint64_t flushed_lsn
    int64_t time                # us since 1970; 0: not known


cdef void boundary_clear(Boundary *boundary, uint64_t lsn) noexcept nogil
cdef int read_binary_begin(Cursor *cursor, Boundary *boundary) except -1 nogil
cdef int read_binary_parts(Cursor *cursor, Boundary *boundary) except -1 nogil
cdef int read_binary_heartbeat(Cursor *cursor, Heartbeat *heartbeat) except -1 nogil
cdef int read_text_begin(Cursor *cursor, Boundary *boundary, uint8_t style) except -1 nogil
cdef int read_text_commit(Cursor *cursor, Boundary *boundary, uint8_t style) except -1 nogil
cdef int read_text_heartbeat(Cursor *cursor, Heartbeat *heartbeat) except -1 nogil
