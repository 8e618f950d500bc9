"""One column of a batch: typed values, NULLs and lists, as the decoded batch wants them.

Given a plan (how the column is held) and texts, a column stores each value exactly, or
says that it does not fit; keeping the text is its owner's part. Fixed-width values are
written by row, the bytes of strings and the elements of lists are appended. Its buffers
are emptied, not freed, from batch to batch.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from gaussdecode.wire._layout cimport (
    KIND_BOOL, KIND_DATE, KIND_DECIMAL, KIND_FLOAT32, KIND_FLOAT64, KIND_LIST, KIND_STRING,
    KIND_TIMESTAMP, KIND_TIMESTAMPTZ, MOVED_BYTES, ColumnHeader, buffer_align, buffer_append,
    buffer_fill, buffer_free, buffer_grow, buffer_move, kind_width,
)
from gaussdecode.wire._times cimport parse_date, parse_interval, parse_timestamp
from gaussdecode.wire._values cimport (
    HEADROOM, is_ascii, is_utf8, parse_decimal, parse_float32, parse_float64, parse_hex,
)

from gaussdecode.errors import WireError

cdef enum:
    MAX_PRECISION = 38


cdef int fail_column(const char *reason) except -1 with gil:
    """Raise WireError for what has no place in the message; cold."""
    raise WireError(reason.decode("ascii"), 0)


# ---- life of a column

cdef int column_check(const PlanColumn *plan) except -1 nogil:
    """Refuse a column that could not be written: a foreign kind or a decimal out of range."""
    cdef uint8_t scalar = plan.element if plan.kind == KIND_LIST else plan.kind
    if scalar < KIND_BOOL or scalar >= KIND_LIST:
        fail_column(b"unknown column kind in a relation plan")
    if scalar == KIND_DECIMAL and (
        plan.precision < 1 or plan.precision > MAX_PRECISION or plan.scale > plan.precision
    ):
        fail_column(b"decimal out of range in a relation plan")
    return 0


cdef void column_plan(Column *column, const PlanColumn *plan) noexcept nogil:
    """Make an empty column of zeros one that follows the plan."""
    column.kind = plan.kind
    column.element = plan.element
    column.precision = plan.precision
    column.scale = plan.scale
    column.width = <uint8_t>kind_width(plan.kind)
    column.element_width = <uint8_t>kind_width(plan.element) if plan.kind == KIND_LIST else 0
    column.old_index = -1


cdef void column_free(Column *column) noexcept nogil:
    """Give all memory back; the plan stays."""
    buffer_free(&column.validity)
    buffer_free(&column.offsets)
    buffer_free(&column.data)
    buffer_free(&column.child_validity)
    buffer_free(&column.child_offsets)
    buffer_free(&column.child_data)


cdef void column_reset(Column *column, uint32_t rows) noexcept nogil:
    """Empty it for the next batch."""
    if column.null_count and rows:
        memset(column.validity.data, 1, rows)
    column.null_count = 0
    column.data.size = 0
    column.child_count = 0
    column.child_null_count = 0
    column.child_validity.size = 0
    column.child_offsets.size = 0
    column.child_data.size = 0


cdef size_t column_capacity(const Column *column) noexcept nogil:
    """Bytes the column holds on to."""
    return (
        column.validity.capacity + column.offsets.capacity + column.data.capacity
        + column.child_validity.capacity + column.child_offsets.capacity
        + column.child_data.capacity
    )


cdef int column_reserve(Column *column, uint32_t filled, uint32_t rows) except -1 nogil:
    """Make room for `rows`; validity beyond the `filled` ones becomes 1."""
    cdef bint is_first = column.offsets.capacity == 0
    reserve(&column.validity, rows)
    memset(column.validity.data + filled, 1, rows - filled)
    if column.width:
        return reserve(&column.data, <size_t>rows * column.width)
    reserve(&column.offsets, (<size_t>rows + 1) * 4)
    if is_first:
        memset(column.offsets.data, 0, 4)
    return 0


# ---- one value

cdef inline bint parse_narrow(
    uint8_t kind, const uint8_t *text, size_t size, uint8_t *target
) noexcept nogil:
    """Booleans, integers and floats."""
    cdef float single
    cdef double real
    if kind == KIND_FLOAT64:
        if not parse_float64(text, size, &real):
            return False
        memcpy(target, &real, 8)
        return True
    if kind == KIND_FLOAT32:
        if not parse_float32(text, size, &single):
            return False
        memcpy(target, &single, 4)
        return True
    return parse_whole(kind, text, size, target)


cdef inline bint parse_fixed(
    uint8_t kind, Column *column, const uint8_t *text, size_t size, uint8_t *target
) noexcept nogil:
    """Write one value of a fixed-width kind, or say that it does not fit."""
    cdef int64_t micros
    cdef int32_t days
    if kind <= KIND_FLOAT64:
        return parse_narrow(kind, text, size, target)
    if kind == KIND_TIMESTAMPTZ or kind == KIND_TIMESTAMP:
        if not parse_timestamp(text, size, kind == KIND_TIMESTAMPTZ, &column.day, &micros):
            return False
        memcpy(target, &micros, 8)
        return True
    if kind == KIND_DECIMAL:
        return parse_decimal(text, size, column.precision, column.scale, target)
    if kind == KIND_DATE:
        if not parse_date(text, size, &column.day, &days):
            return False
        memcpy(target, &days, 4)
        return True
    return parse_interval(text, size, target)


cdef int append_bytes(
    uint8_t kind, Buffer *data, const uint8_t *text, size_t size
) except -1 nogil:
    """Append a string, or a binary that stands in `text` in hex.

    Returns 0 when it does not fit, and appends nothing.
    """
    cdef size_t byte_count
    if kind == KIND_STRING:
        if not is_ascii(text, size) and not is_utf8(text, size):
            return 0
        buffer_append(data, text, size)
    else:
        byte_count = size >> 1
        buffer_grow(data, byte_count)
        if not parse_hex(text, size, data.data + data.size):
            return 0
        data.size += byte_count - 1
    check_size(data)
    return 1


cdef int column_store(
    Column *column, uint32_t row, const uint8_t *text, size_t size, Buffer *scratch
) except -1 nogil:
    """Store one value in its row; returns 0 when it does not fit, and then stores nothing.

    Args:
        scratch: room for one unescaped element of a list; emptied by each use.
    """
    cdef int fits
    if column.width:
        return parse_fixed(
            column.kind, column, text, size, column.data.data + <size_t>row * column.width
        )
    if column.kind == KIND_LIST:
        fits = read_list(column, scratch, text, size)
        put_offset(column, row, column.child_count)
    else:
        fits = append_bytes(column.kind, &column.data, text, size)
        put_offset(column, row, column.data.size)
    return fits


cdef int column_move(
    Column *column, uint32_t row, const uint8_t *text, size_t size
) except -1 nogil:
    """Store a huge text that nobody reads again; 0 for any other, which stays as it is."""
    if column.kind != KIND_STRING or size < MOVED_BYTES:
        return 0
    if not is_ascii(text, size) and not is_utf8(text, size):
        return 0
    buffer_move(&column.data, text, size)
    check_size(&column.data)
    put_offset(column, row, column.data.size)
    return 1


# ---- lists

cdef int append_child(
    Column *column, const uint8_t *text, size_t size
) except -1 nogil:
    """Append one element; returns 0 when it does not fit."""
    cdef int32_t end
    if column.element_width:
        buffer_grow(&column.child_data, column.element_width)
        if not parse_fixed(
            column.element, column, text, size, column.child_data.data + column.child_data.size
        ):
            return 0
        column.child_data.size += column.element_width
    else:
        if not append_bytes(column.element, &column.child_data, text, size):
            return 0
        end = <int32_t>column.child_data.size
        buffer_append(&column.child_offsets, &end, 4)
    if column.child_null_count:
        buffer_fill(&column.child_validity, 1, 1)
    column.child_count += 1
    return 1


cdef int append_child_null(Column *column) except -1 nogil:
    cdef int32_t end = <int32_t>column.child_data.size
    if column.child_null_count == 0 and column.child_count:
        buffer_fill(&column.child_validity, 1, column.child_count)
    buffer_fill(&column.child_validity, 0, 1)
    if column.element_width:
        buffer_fill(&column.child_data, 0, column.element_width)
    else:
        buffer_append(&column.child_offsets, &end, 4)
    column.child_null_count += 1
    column.child_count += 1
    return 1


cdef inline bint is_bare(const uint8_t *text, size_t size) noexcept nogil:
    """Whether the server would write this element without quotes."""
    cdef size_t index
    cdef uint8_t byte
    for index in range(size):
        byte = text[index]
        if byte == c"{" or byte == c"}" or byte == c"\"" or byte == c"\\":
            return False
        if byte == c" " or 9 <= byte <= 13:
            return False
    return size > 0 and not (
        size == 4 and text[0] | 32 == c"n" and text[1] | 32 == c"u"
        and text[2] | 32 == c"l" and text[3] | 32 == c"l"
    )


cdef int read_quoted(
    Column *column, Buffer *scratch, const uint8_t **text, const uint8_t *end
) except -1 nogil:
    """Read the element whose first byte after the quote is `text`; step over its end."""
    cdef const uint8_t *start = text[0]
    cdef const uint8_t *stop = start
    cdef size_t escapes = 0
    while stop < end and stop[0] != c"\"":
        if stop[0] == c"\\":
            escapes += 1
            stop += 1
        stop += 1
    if stop >= end:
        return 0
    text[0] = stop + 1
    if escapes == 0:
        return append_child(column, start, stop - start)
    scratch.size = 0
    buffer_fill(scratch, 0, HEADROOM)
    buffer_grow(scratch, stop - start)
    while start < stop:
        start += start[0] == c"\\"
        scratch.data[scratch.size] = start[0]
        scratch.size += 1
        start += 1
    return append_child(column, scratch.data + HEADROOM, scratch.size - HEADROOM)


cdef int read_elements(
    Column *column, Buffer *scratch, const uint8_t *text, const uint8_t *end
) except -1 nogil:
    """Read what stands between the braces; returns 0 when it cannot be held."""
    cdef const uint8_t *start
    cdef int fits
    while True:
        if text < end and text[0] == c"\"":
            text += 1
            fits = read_quoted(column, scratch, &text, end)
        else:
            start = text
            while text < end and text[0] != c",":
                text += 1
            if text - start == 4 and memcmp(start, b"NULL", 4) == 0:
                fits = append_child_null(column)
            else:
                fits = is_bare(start, text - start)
                if fits:
                    fits = append_child(column, start, text - start)
        if not fits or column.child_data.size > MAX_OFFSET:
            return 0
        if text == end:
            return 1
        if text[0] != c",":
            return 0
        text += 1


cdef int read_list(
    Column *column, Buffer *scratch, const uint8_t *text, size_t size
) except -1 nogil:
    """Append `{a,"b c",NULL}`; of a list that does not fit nothing stays.

    More dimensions, a lower bound that is not 1 and an element that does not fit its kind
    make the whole value a misfit.
    """
    cdef int32_t zero = 0
    cdef uint32_t count = column.child_count
    cdef uint32_t null_count = column.child_null_count
    cdef size_t data_size = column.child_data.size
    if column.element_width == 0 and column.child_offsets.size == 0:
        buffer_append(&column.child_offsets, &zero, 4)
    if size < 2 or text[0] != c"{" or text[size - 1] != c"}":
        return 0
    if size == 2 or read_elements(column, scratch, text + 1, text + size - 1):
        return 1
    column.child_count = count
    column.child_null_count = null_count
    column.child_data.size = data_size
    column.child_validity.size = count if null_count else 0
    if column.element_width == 0:
        column.child_offsets.size = (<size_t>count + 1) * 4
    return 0


# ---- into the entry

cdef int write_block(Buffer *out, const void *data, size_t size, uint8_t *offset) except -1 nogil:
    """Append a block at the next multiple of 8 and write where it begins to `offset`."""
    note_place(out, offset)
    return buffer_append(out, data, size)


cdef int move_block(Buffer *out, const void *data, size_t size, uint8_t *offset) except -1 nogil:
    """The same with bytes that are not read again."""
    note_place(out, offset)
    return buffer_move(out, data, size)


cdef inline int note_place(Buffer *out, uint8_t *offset) except -1 nogil:
    cdef uint64_t where
    buffer_align(out)
    where = out.size
    memcpy(offset, &where, 8)
    return 0


cdef int column_write(
    Column *column, uint32_t rows, Buffer *out, size_t header_offset
) except -1 nogil:
    """Append the buffers to a decoded batch and fill in the ColumnHeader there."""
    cdef ColumnHeader header
    memset(&header, 0, sizeof(ColumnHeader))
    header.kind = column.kind
    header.element = column.element
    header.null_count = column.null_count
    if column.null_count:
        write_block(out, column.validity.data, rows, <uint8_t *>&header.validity_offset)
    if column.width:
        header.data_size = <uint64_t>rows * column.width
    else:
        write_block(
            out, column.offsets.data, (<size_t>rows + 1) * 4, <uint8_t *>&header.offsets_offset
        )
        header.data_size = column.data.size
    move_block(out, column.data.data, header.data_size, <uint8_t *>&header.data_offset)
    if column.kind == KIND_LIST:
        header.child_count = column.child_count
        header.child_null_count = column.child_null_count
        header.child_data_size = column.child_data.size
        write_block(
            out, column.child_validity.data, column.child_validity.size,
            <uint8_t *>&header.child_validity_offset,
        )
        write_block(
            out, column.child_offsets.data, column.child_offsets.size,
            <uint8_t *>&header.child_offsets_offset,
        )
        move_block(
            out, column.child_data.data, column.child_data.size,
            <uint8_t *>&header.child_data_offset,
        )
    memcpy(out.data + header_offset, &header, sizeof(ColumnHeader))
    return 0
