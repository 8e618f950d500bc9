"""Accumulators: rows of one table version, column by column, until a row group is full."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gaussdecode.wire._layout cimport Buffer, ColumnHeader, EntryHeader, PartHeader


# One column that grows. `validity` stays empty until the first NULL; lists keep their
# elements in the child buffers.
cdef struct GrowingColumn:
    uint8_t kind
    uint8_t element
    uint64_t null_count
    uint64_t child_count
    uint64_t child_null_count
    uint64_t hinted_rows            # of the row group before, and a little more; 0: of no use
    size_t hinted_bytes             # of its data, same
    Buffer validity
    Buffer offsets
    Buffer data
    Buffer child_validity
    Buffer child_offsets
    Buffer child_data


# What is the same for all rows of one transaction.
cdef struct Stamp:
    int64_t lsn
    int64_t csn                     # 0: the source sends none
    int64_t xid
    int64_t time_us
    int64_t commit_lsn              # start of the commit record; 0: not known


cdef class Accumulator:
    cdef readonly object table
    cdef public uint64_t lands_from  # nothing of the table that ends before this has landed
    cdef public bint is_current     # no other accumulator of its table has rows
    cdef uint32_t new_count
    cdef uint32_t old_count
    cdef GrowingColumn *columns     # new columns, then identity columns
    cdef Buffer op
    cdef Buffer lsn
    cdef Buffer seq
    cdef Buffer csn                 # empty until a row has one
    cdef Buffer xid
    cdef Buffer time_us
    cdef Buffer change_lsn          # empty until a row has one
    cdef Buffer old_present         # empty until a row has an old tuple
    cdef Buffer unchanged           # uint32 row, uint32 column
    cdef Buffer misfits             # uint32 row, uint32 column
    cdef Buffer misfit_offsets      # int32
    cdef Buffer misfit_text
    cdef readonly uint64_t row_count
    cdef uint64_t hinted_rows       # as of a column
    cdef readonly uint64_t byte_count
    cdef uint64_t op_count[32]      # by the low five bits of the letter
    cdef readonly uint64_t key_change_count

    cdef int append(
        self, const uint8_t *entry, const PartHeader *part, uint32_t first,
        uint32_t count, const Stamp *stamp, int64_t seq, bint moves, uint64_t lsn,
        const uint8_t *steps,
    ) except -1 nogil
    cdef int append_marker(
        self, uint8_t op, const Stamp *stamp, int64_t seq, uint64_t lsn
    ) except -1 nogil
    cdef int reserve(self) except -1 nogil
    cdef void measure(self) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef int stamp_rows(self, uint64_t count, const Stamp *stamp, int64_t seq) except -1 nogil
    cdef int stamp_csn(self, uint64_t count, int64_t csn) except -1 nogil
    cdef int note_lsns(self, uint64_t count, uint64_t lsn, const uint8_t *steps) except -1 nogil
    cdef int append_old(
        self, const uint8_t *entry, const PartHeader *part, const ColumnHeader *headers,
        uint32_t first, uint32_t count, bint moves,
    ) except -1 nogil
    cdef int append_unchanged(
        self, const uint8_t *entry, const PartHeader *part, uint32_t first, uint32_t count
    ) except -1 nogil
    cdef int append_misfits(
        self, const uint8_t *entry, const PartHeader *part, uint32_t first, uint32_t count,
        bint moves,
    ) except -1 nogil


cdef class OwnedMemory:
    cdef uint8_t *data
    cdef Py_ssize_t size

    @staticmethod
    cdef OwnedMemory take(Buffer *buffer)


cdef int column_append_value(
    GrowingColumn *column, uint64_t row, const void *data, size_t size, bint is_null
) except -1 nogil
