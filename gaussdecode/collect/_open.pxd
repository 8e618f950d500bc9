"""Transactions that have begun and not ended; see `_open.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gaussdecode.wire._layout cimport Buffer, Tally


cdef enum Place:
    IN_MEMORY = 0
    IN_SPOOL = 1
    IN_FILE = 2             # of a prepared transaction

cdef struct Batch:
    uint8_t *data           # NULL: where it lies
    uint64_t offset         # there
    uint64_t size
    uint32_t users          # what is retained of it, by however many transactions
    Place place

cdef struct Retained:
    Batch *batch
    uint32_t first_event
    uint32_t stop_event     # at most as many as it has
    bint taken_back         # it has DELETEs of rows that an upsert inserted

cdef struct OpenTransaction:
    uint32_t stream_xid     # of one that is streamed; 0: it began with a BEGIN
    uint8_t flags           # of its BEGIN
    int64_t time_us
    uint64_t csn
    uint64_t commit_lsn
    uint64_t first_lsn      # that the server sent with its BEGIN; 0: not known
    uint64_t xid
    bint has_origin
    Buffer origin
    bint has_user
    Buffer user
    bint is_excluded        # its user is one of those that are left out
    bint is_given_up        # by CSN: there was no room for it; it comes again
    uint64_t taken_back     # DELETEs of rows that an upsert inserted; see `_upserts.pyx`
    uint64_t rows           # that would land; counted while comparing only
    uint64_t lands_from     # the least of its tables'
    Tally tally             # what was framed of it
    Retained *retained
    uint32_t retained_count
    uint32_t retained_capacity
    uint64_t memory_bytes   # of what is retained
    uint64_t spooled_bytes
    uint32_t *aborted       # subtransactions that were rolled back
    uint32_t aborted_count
    uint32_t aborted_capacity
    Buffer gid              # of one that is prepared,
    uint64_t prepared_lsn   # the end of its PREPARE,
    int64_t prepared_us     # its time,
    bint is_kept            # and whether all that is retained of it is in a file of its own

cdef struct OpenTransactions:
    OpenTransaction **items
    uint32_t count
    uint32_t capacity
    uint32_t last           # where the one that was asked for last may be


cdef OpenTransaction *open_create(uint32_t stream_xid) except NULL nogil
cdef void open_begin(OpenTransaction *transaction) noexcept nogil
cdef void open_free(OpenTransaction *transaction) noexcept nogil
cdef void open_forget(OpenTransaction *transaction) noexcept nogil
cdef Retained *open_retain(OpenTransaction *transaction, Batch *batch) except NULL nogil
cdef Batch *batch_create(uint64_t size) except NULL nogil
cdef void batch_leave(Batch *batch) noexcept nogil
cdef int open_abort(OpenTransaction *transaction, uint32_t subxid) except -1 nogil
cdef int open_set_origin(
    OpenTransaction *transaction, const uint8_t *data, size_t size
) except -1 nogil
cdef bint open_is_aborted(const OpenTransaction *transaction, uint64_t xid) noexcept nogil

cdef OpenTransaction *opens_find(OpenTransactions *opens, uint32_t stream_xid) noexcept nogil
cdef OpenTransaction *opens_add(OpenTransactions *opens, uint32_t stream_xid) except NULL nogil
cdef int opens_move(
    OpenTransactions *opens, OpenTransactions *to, OpenTransaction *transaction
) except -1 nogil
cdef void opens_remove(OpenTransactions *opens, OpenTransaction *transaction) noexcept nogil
cdef void opens_free(OpenTransactions *opens) noexcept nogil
