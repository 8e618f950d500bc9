"""The rows of one relation version in one batch, column by column; see `_part.pyx`."""

from libc.stdint cimport uint8_t, uint32_t

from gaussdecode.wire._column cimport Column
from gaussdecode.wire._cursor cimport Cursor
from gaussdecode.wire._encoding cimport Codes
from gaussdecode.wire._layout cimport Buffer, PlanColumn, RawRelation


cdef enum:
    MAX_PART_BYTES = 8 << 20    # a part larger than this is freed after its batch; arbitrary

cdef struct Span:
    const uint8_t *text
    uint32_t size
    uint8_t tag

cdef struct Part:
    uint32_t oid
    uint32_t version
    uint32_t flags
    uint32_t column_count
    uint32_t old_column_count   # identity columns
    PlanColumn *plan
    Column *columns             # column_count new ones, then the old ones; NULL while it sleeps
    Column *old_columns
    Span *old_spans             # the old tuple of the row being read
    uint32_t row_count
    uint32_t row_capacity
    uint32_t old_row_count      # rows the old columns are filled up to
    bint has_old
    bint has_key_change
    bint is_used                # has rows in this batch
    bint was_used               # since the hand of the clock came by
    uint32_t index              # among the parts of this batch
    uint32_t invalid_count      # texts that were not UTF-8
    size_t held_bytes           # row memory after the last batch
    Buffer ops
    Buffer old_present
    Buffer key_changed
    Buffer unchanged            # Unchanged
    Buffer misfits              # Misfit, text_offset counted in `texts`
    Buffer texts
    Buffer scratch              # one unescaped array element
    const Codes *codes          # of the values; NULL where they are UTF-8
    Buffer translated           # one value, behind HEADROOM


cdef Part *part_create(const RawRelation *relation, const PlanColumn *plan) except NULL nogil
cdef int part_wake(Part *part) except -1 nogil
cdef void part_sleep(Part *part) noexcept nogil
cdef void part_free(Part *part) noexcept nogil
cdef void part_free_rows(Part *part) noexcept nogil
cdef int part_reset(Part *part) except -1 nogil
cdef int part_begin_row(Part *part, uint8_t op) except -1 nogil
cdef int part_read_old(Part *part, Cursor *cursor, uint8_t tag) except -1 nogil
cdef int part_read_new(
    Part *part, Cursor *cursor, uint8_t old_tag, bint moves
) except -1 nogil
cdef int part_fill_nulls(Part *part) except -1 nogil
cdef int part_skip_tuple(Part *part, Cursor *cursor, bint is_old) except -1 nogil
cdef int part_write(Part *part, Buffer *out, size_t header_offset) except -1 nogil
