"""The rows of one relation version in one batch, column by column; see `_part.pyx`."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from gaussdecode._cursor cimport Cursor
from gaussdecode._layout cimport Buffer, PlanColumn, RawRelation


cdef enum:
    MAX_PART_BYTES = 8 << 20    # a part larger than this is freed after its batch; arbitrary

cdef struct Column:
    uint8_t kind
    uint8_t element
    uint8_t precision
    uint8_t scale
    uint8_t width               # bytes per row; 0: offsets and data
    uint8_t element_width       # same, of a list's elements
    uint32_t index              # in the relation; OLD_COLUMN set for an old one
    int32_t old_index           # where its old value goes, -1 for nowhere
    uint32_t null_count
    Buffer validity             # 1 beyond the rows, so that only NULLs write to it
    Buffer offsets
    Buffer data
    uint32_t child_count
    uint32_t child_null_count
    Buffer child_validity       # empty until the first NULL
    Buffer child_offsets
    Buffer child_data

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
    Column *columns             # column_count new ones, then the old ones
    Column *old_columns
    Span *old_spans             # the old tuple of the row being read
    uint32_t row_count
    uint32_t row_capacity
    uint32_t old_row_count      # rows the old columns are filled up to
    bint has_old
    bint has_key_change
    bint is_used                # has rows in this batch
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


cdef Part *part_create(const RawRelation *relation, const PlanColumn *plan) except NULL nogil
cdef void part_free(Part *part) noexcept nogil
cdef void part_free_rows(Part *part) noexcept nogil
cdef int part_reset(Part *part) except -1 nogil
cdef int part_begin_row(Part *part, uint8_t op) except -1 nogil
cdef int part_read_old(Part *part, Cursor *cursor, uint8_t tag) except -1 nogil
cdef int part_read_new(Part *part, Cursor *cursor, uint8_t old_tag) except -1 nogil
cdef int part_fill_nulls(Part *part) except -1 nogil
cdef int part_skip_tuple(Part *part, Cursor *cursor, bint is_old) except -1 nogil
cdef int part_write(Part *part, Buffer *out, size_t header_offset) except -1 nogil
