"""One column of a batch; see `_column.pyx`."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from gaussdecode.wire._layout cimport (
    KIND_BOOL, KIND_INT16, KIND_INT32, KIND_INT64, KIND_STRING, Buffer, PlanColumn,
    buffer_append, buffer_grow,
)
from gaussdecode.wire._times cimport Day
from gaussdecode.wire._values cimport is_ascii, parse_int


cdef enum:
    MAX_OFFSET = 0x7FFFFFFF


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
    Day day                     # of the last date or time
    Buffer validity             # 1 beyond the rows, so that only NULLs write to it
    Buffer offsets
    Buffer data
    uint32_t child_count
    uint32_t child_null_count
    Buffer child_validity       # empty until the first NULL
    Buffer child_offsets
    Buffer child_data


cdef int fail_column(const char *reason) except -1 with gil
cdef int column_check(const PlanColumn *plan) except -1 nogil
cdef void column_plan(Column *column, const PlanColumn *plan) noexcept nogil
cdef void column_free(Column *column) noexcept nogil
cdef void column_reset(Column *column, uint32_t rows) noexcept nogil
cdef size_t column_capacity(const Column *column) noexcept nogil
cdef int column_reserve(Column *column, uint32_t filled, uint32_t rows) except -1 nogil
cdef int column_store(
    Column *column, uint32_t row, const uint8_t *text, size_t size, Buffer *scratch
) except -1 nogil
cdef int column_move(
    Column *column, uint32_t row, const uint8_t *text, size_t size
) except -1 nogil
cdef int column_write(
    Column *column, uint32_t rows, Buffer *out, size_t header_offset
) except -1 nogil
cdef int move_block(Buffer *out, const void *data, size_t size, uint8_t *offset) except -1 nogil
cdef int write_block(Buffer *out, const void *data, size_t size, uint8_t *offset) except -1 nogil


cdef inline int reserve(Buffer *buffer, size_t size) except -1 nogil:
    """Hold at least `size` bytes, written by index; what was there stays."""
    buffer.size = 0
    return buffer_grow(buffer, size)


cdef inline void put_offset(Column *column, uint32_t row, size_t value) noexcept nogil:
    (<int32_t *>column.offsets.data)[row + 1] = <int32_t>value


cdef inline void column_store_null(Column *column, uint32_t row) noexcept nogil:
    """Make the value of a row NULL; its bytes become zeros."""
    column.validity.data[row] = 0
    column.null_count += 1
    if column.width:
        memset(column.data.data + <size_t>row * column.width, 0, column.width)
    else:
        (<int32_t *>column.offsets.data)[row + 1] = (<int32_t *>column.offsets.data)[row]


cdef inline int check_size(const Buffer *data) except -1 nogil:
    if data.size > MAX_OFFSET:
        fail_column(b"a column of one batch is larger than 2 GiB")
    return 0


cdef inline bint parse_whole(
    uint8_t kind, const uint8_t *text, size_t size, uint8_t *target
) noexcept nogil:
    """Booleans and integers."""
    cdef int64_t number
    cdef int32_t narrow
    cdef int16_t narrower
    if kind == KIND_INT64:
        if not parse_int(text, size, 0x7FFFFFFFFFFFFFFFULL, &number):
            return False
        memcpy(target, &number, 8)
    elif kind == KIND_INT32:
        if not parse_int(text, size, 0x7FFFFFFF, &number):
            return False
        narrow = <int32_t>number
        memcpy(target, &narrow, 4)
    elif kind == KIND_INT16:
        if not parse_int(text, size, 0x7FFF, &number):
            return False
        narrower = <int16_t>number
        memcpy(target, &narrower, 2)
    else:
        if size != 1 or text[0] != c"t" and text[0] != c"f":
            return False
        target[0] = text[0] == c"t"
    return True


cdef inline int column_put(
    Column *column, uint32_t row, const uint8_t *text, size_t size, Buffer *scratch
) except -1 nogil:
    """`column_store`, with what is most common inline: integers, booleans and ASCII."""
    if column.kind == KIND_STRING and is_ascii(text, size):
        buffer_append(&column.data, text, size)
        check_size(&column.data)
        put_offset(column, row, column.data.size)
        return 1
    if KIND_BOOL <= column.kind <= KIND_INT64:
        return parse_whole(
            column.kind, text, size, column.data.data + <size_t>row * column.width
        )
    return column_store(column, row, text, size, scratch)
