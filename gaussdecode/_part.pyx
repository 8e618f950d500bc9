"""The rows of one relation version in one batch, column by column.

Given a plan (how each column is held) and tuples on the wire, a part collects the values
as the decoded batch wants them: fixed-width values in place, texts and lists as offsets
and data. Its buffers are emptied, not freed, from batch to batch, unless one huge row
has blown them up.

Promises: every value is either held exactly, or NULL with a Misfit that keeps its text, or
NULL with an Unchanged; old columns are as long as the new ones. It knows nothing of
messages, transactions and entries.
"""

from libc.stdint cimport int16_t, int64_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from gaussdecode._cursor cimport fail_wire, read_uint16, read_uint32, take
from gaussdecode._layout cimport (
    KIND_BOOL, KIND_DATE, KIND_DECIMAL, KIND_FLOAT64, KIND_INT16, KIND_INT32, KIND_INT64,
    KIND_LIST, KIND_STRING, KIND_TIMESTAMP, KIND_TIMESTAMPTZ, OLD_COLUMN, ColumnHeader, Misfit,
    PartHeader, Unchanged, buffer_align, buffer_append, buffer_fill, buffer_free, buffer_grow,
    kind_width,
)
from gaussdecode._values cimport (
    HEADROOM, append_escaped, is_ascii, is_utf8, parse_date, parse_decimal, parse_float32,
    parse_float64, parse_hex, parse_int, parse_interval, parse_timestamp,
)

from gaussdecode.errors import WireError

cdef enum:
    FIRST_ROWS = 16             # capacity of a new part; arbitrary
    MAX_OFFSET = 0x7FFFFFFF
    MAX_PRECISION = 38

cdef int fail_part(const char *reason) except -1 with gil:
    """Raise WireError for what has no place in the message; cold."""
    raise WireError(reason.decode("ascii"), 0)


cdef int fail_memory() except -1 with gil:
    raise MemoryError("no memory for the columns of a relation")


# ---- life of a part

cdef int check_plan(const PlanColumn *plan) except -1 nogil:
    """Refuse a column that could not be written: a foreign kind or a decimal out of range."""
    cdef uint8_t scalar = plan.element if plan.kind == KIND_LIST else plan.kind
    if scalar < KIND_BOOL or scalar >= KIND_LIST:
        fail_part(b"unknown column kind in a relation plan")
    if scalar == KIND_DECIMAL and (
        plan.precision < 1 or plan.precision > MAX_PRECISION or plan.scale > plan.precision
    ):
        fail_part(b"decimal out of range in a relation plan")
    return 0


cdef void plan_column(Column *column, const PlanColumn *plan) noexcept nogil:
    column.kind = plan.kind
    column.element = plan.element
    column.precision = plan.precision
    column.scale = plan.scale
    column.width = <uint8_t>kind_width(plan.kind)
    column.element_width = <uint8_t>kind_width(plan.element) if plan.kind == KIND_LIST else 0
    column.old_index = -1


cdef Part *part_create(const RawRelation *relation, const PlanColumn *plan) except NULL nogil:
    """Make an empty part; `part_free` takes it back."""
    cdef uint32_t index
    cdef uint32_t old_count = 0
    cdef Part *part
    if relation.column_count >= OLD_COLUMN:
        fail_part(b"too many columns in a relation plan")
    for index in range(relation.column_count):
        check_plan(&plan[index])
        old_count += plan[index].is_identity != 0
    part = <Part *>calloc(1, sizeof(Part))
    if part == NULL:
        fail_memory()
        return NULL
    part.oid = relation.oid
    part.version = relation.version
    part.flags = relation.flags
    part.column_count = relation.column_count
    part.old_column_count = old_count
    # One more of each, so that a table without columns allocates something.
    part.columns = <Column *>calloc(relation.column_count + old_count + 1, sizeof(Column))
    part.old_spans = <Span *>calloc(relation.column_count + 1, sizeof(Span))
    if part.columns == NULL or part.old_spans == NULL:
        part_free(part)
        fail_memory()
        return NULL
    part.old_columns = part.columns + relation.column_count
    old_count = 0
    for index in range(relation.column_count):
        plan_column(&part.columns[index], &plan[index])
        part.columns[index].index = index
        if plan[index].is_identity:
            plan_column(&part.old_columns[old_count], &plan[index])
            part.old_columns[old_count].index = index | OLD_COLUMN
            part.columns[index].old_index = <int32_t>old_count
            old_count += 1
    return part


cdef void part_free_rows(Part *part) noexcept nogil:
    """Give all row memory back; the plan stays. Only for a part without rows."""
    cdef uint32_t index
    cdef Column *column
    if part.columns != NULL:
        for index in range(part.column_count + part.old_column_count):
            column = &part.columns[index]
            buffer_free(&column.validity)
            buffer_free(&column.offsets)
            buffer_free(&column.data)
            buffer_free(&column.child_validity)
            buffer_free(&column.child_offsets)
            buffer_free(&column.child_data)
    buffer_free(&part.ops)
    buffer_free(&part.old_present)
    buffer_free(&part.key_changed)
    buffer_free(&part.unchanged)
    buffer_free(&part.misfits)
    buffer_free(&part.texts)
    buffer_free(&part.scratch)
    part.row_capacity = 0
    part.held_bytes = 0


cdef void part_free(Part *part) noexcept nogil:
    if part != NULL:
        part_free_rows(part)
        free(part.columns)
        free(part.old_spans)
        free(part)


cdef void reset_column(Column *column, uint32_t rows) noexcept nogil:
    if column.null_count and rows:
        memset(column.validity.data, 1, rows)
    column.null_count = 0
    column.data.size = 0
    column.child_count = 0
    column.child_null_count = 0
    column.child_validity.size = 0
    column.child_offsets.size = 0
    column.child_data.size = 0


cdef size_t part_capacity(const Part *part) noexcept nogil:
    """Bytes of row memory that the part holds on to."""
    cdef uint32_t index
    cdef const Column *column
    cdef size_t total = (
        part.ops.capacity + part.old_present.capacity + part.key_changed.capacity
        + part.unchanged.capacity + part.misfits.capacity + part.texts.capacity
        + part.scratch.capacity
    )
    for index in range(part.column_count + part.old_column_count):
        column = &part.columns[index]
        total += column.validity.capacity + column.offsets.capacity + column.data.capacity
        total += column.child_validity.capacity + column.child_offsets.capacity
        total += column.child_data.capacity
    return total


cdef int part_reset(Part *part) except -1 nogil:
    """Empty it for the next batch; give back memory that only a huge row needed.

    Afterwards `held_bytes` is what it holds on to, at most `MAX_PART_BYTES`.
    """
    cdef uint32_t index
    part.held_bytes = part_capacity(part)
    if part.held_bytes > MAX_PART_BYTES:
        part_free_rows(part)
    for index in range(part.column_count):
        reset_column(&part.columns[index], part.row_count if part.row_capacity else 0)
    if part.has_old:
        for index in range(part.old_column_count):
            reset_column(&part.old_columns[index], part.row_count if part.row_capacity else 0)
    if part.row_capacity:
        memset(part.old_present.data, 0, part.row_count)
        memset(part.key_changed.data, 0, part.row_count)
    part.row_count = 0
    part.old_row_count = 0
    part.has_old = False
    part.has_key_change = False
    part.is_used = False
    part.invalid_count = 0
    part.unchanged.size = 0
    part.misfits.size = 0
    part.texts.size = 0
    return 0


# ---- room for rows

cdef inline int reserve(Buffer *buffer, size_t size) except -1 nogil:
    """Hold at least `size` bytes, written by index; what was there stays."""
    buffer.size = 0
    return buffer_grow(buffer, size)


cdef int reserve_column(Column *column, uint32_t filled, uint32_t rows) except -1 nogil:
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


cdef int grow_rows(Part *part) except -1 nogil:
    cdef uint32_t index
    cdef uint32_t filled = part.row_capacity
    cdef uint32_t rows = filled * 2 if filled else FIRST_ROWS
    for index in range(part.column_count):
        reserve_column(&part.columns[index], filled, rows)
    if part.has_old:
        for index in range(part.old_column_count):
            reserve_column(&part.old_columns[index], filled, rows)
    reserve(&part.ops, rows)
    reserve(&part.old_present, rows)
    memset(part.old_present.data + filled, 0, rows - filled)
    reserve(&part.key_changed, rows)
    memset(part.key_changed.data + filled, 0, rows - filled)
    part.row_capacity = rows
    return 0


cdef int part_begin_row(Part *part, uint8_t op) except -1 nogil:
    """Make room for one more row; the caller raises `row_count` when it is complete."""
    if part.row_count == part.row_capacity:
        grow_rows(part)
    part.ops.data[part.row_count] = op
    return 0


# ---- one value

cdef inline void put_offset(Column *column, uint32_t row, size_t value) noexcept nogil:
    (<int32_t *>column.offsets.data)[row + 1] = <int32_t>value


cdef inline void store_null(Column *column, uint32_t row) noexcept nogil:
    column.validity.data[row] = 0
    column.null_count += 1
    if column.width:
        memset(column.data.data + <size_t>row * column.width, 0, column.width)
    else:
        (<int32_t *>column.offsets.data)[row + 1] = (<int32_t *>column.offsets.data)[row]


cdef inline bint parse_narrow(
    uint8_t kind, const uint8_t *text, size_t size, uint8_t *target
) noexcept nogil:
    """Booleans, integers and floats."""
    cdef int64_t number
    cdef int32_t narrow
    cdef int16_t narrower
    cdef float single
    cdef double real
    if kind == KIND_INT32:
        if not parse_int(text, size, 0x7FFFFFFF, &number):
            return False
        narrow = <int32_t>number
        memcpy(target, &narrow, 4)
    elif kind == KIND_INT64:
        if not parse_int(text, size, 0x7FFFFFFFFFFFFFFFULL, &number):
            return False
        memcpy(target, &number, 8)
    elif kind == KIND_FLOAT64:
        if not parse_float64(text, size, &real):
            return False
        memcpy(target, &real, 8)
    elif kind == KIND_BOOL:
        if size != 1 or text[0] != c"t" and text[0] != c"f":
            return False
        target[0] = text[0] == c"t"
    elif kind == KIND_INT16:
        if not parse_int(text, size, 0x7FFF, &number):
            return False
        narrower = <int16_t>number
        memcpy(target, &narrower, 2)
    else:
        if not parse_float32(text, size, &single):
            return False
        memcpy(target, &single, 4)
    return True


cdef inline bint parse_fixed(
    uint8_t kind, const Column *column, const uint8_t *text, size_t size, uint8_t *target
) noexcept nogil:
    """Write one value of a fixed-width kind, or say that it does not fit."""
    cdef int64_t micros
    cdef int32_t days
    if kind <= KIND_FLOAT64:
        return parse_narrow(kind, text, size, target)
    if kind == KIND_TIMESTAMPTZ or kind == KIND_TIMESTAMP:
        if not parse_timestamp(text, size, kind == KIND_TIMESTAMPTZ, &micros):
            return False
        memcpy(target, &micros, 8)
        return True
    if kind == KIND_DECIMAL:
        return parse_decimal(text, size, column.precision, column.scale, target)
    if kind == KIND_DATE:
        if not parse_date(text, size, &days):
            return False
        memcpy(target, &days, 4)
        return True
    return parse_interval(text, size, target)


cdef int append_bytes(
    uint8_t kind, Buffer *data, const uint8_t *text, size_t size
) except -1 nogil:
    """Append a string or a binary; returns 0 when it does not fit, and appends nothing."""
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
    if data.size > MAX_OFFSET:
        fail_part(b"a column of one batch is larger than 2 GiB")
    return 1


cdef int keep_text(
    Part *part, Column *column, uint32_t row, const uint8_t *text, size_t size
) except -1 nogil:
    """Make the value NULL and keep its text."""
    cdef Misfit misfit
    store_null(column, row)
    memset(&misfit, 0, sizeof(Misfit))
    misfit.row = row
    misfit.column = <uint16_t>column.index
    misfit.text_offset = part.texts.size
    if column.kind != KIND_STRING and (is_ascii(text, size) or is_utf8(text, size)):
        buffer_append(&part.texts, text, size)
    else:
        part.invalid_count += 1
        append_escaped(&part.texts, text, size)
    misfit.text_size = part.texts.size - misfit.text_offset
    return buffer_append(&part.misfits, &misfit, sizeof(Misfit))


cdef int store_value(
    Part *part, Column *column, uint32_t row, const uint8_t *text, size_t size
) except -1 nogil:
    """Store one value in its row, exactly or as a misfit."""
    cdef int fits
    if column.width:
        fits = parse_fixed(
            column.kind, column, text, size, column.data.data + <size_t>row * column.width
        )
    elif column.kind == KIND_LIST:
        fits = read_list(part, column, text, size)
        put_offset(column, row, column.child_count)
    else:
        fits = append_bytes(column.kind, &column.data, text, size)
        put_offset(column, row, column.data.size)
    if not fits:
        keep_text(part, column, row, text, size)
    return 0


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
    Part *part, Column *column, const uint8_t **text, const uint8_t *end
) except -1 nogil:
    """Read the element whose first byte after the quote is `text`; step over its end."""
    cdef const uint8_t *start = text[0]
    cdef const uint8_t *stop = start
    cdef size_t escapes = 0
    cdef Buffer *scratch = &part.scratch
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
    Part *part, Column *column, const uint8_t *text, const uint8_t *end
) except -1 nogil:
    """Read what stands between the braces; returns 0 when it cannot be held."""
    cdef const uint8_t *start
    cdef int fits
    while True:
        if text < end and text[0] == c"\"":
            text += 1
            fits = read_quoted(part, column, &text, end)
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
    Part *part, Column *column, const uint8_t *text, size_t size
) except -1 nogil:
    """Append `{a,"b c",NULL}`; of a list that does not fit nothing stays.

    More dimensions, a lower bound that is not 1 and an element that does not fit its kind
    make the whole value a misfit.
    """
    cdef uint32_t count = column.child_count
    cdef uint32_t null_count = column.child_null_count
    cdef size_t data_size = column.child_data.size
    cdef int32_t zero = 0
    if column.element_width == 0 and column.child_offsets.size == 0:
        buffer_append(&column.child_offsets, &zero, 4)
    if size < 2 or text[0] != c"{" or text[size - 1] != c"}":
        return 0
    if size == 2 or read_elements(part, column, text + 1, text + size - 1):
        return 1
    column.child_count = count
    column.child_null_count = null_count
    column.child_data.size = data_size
    column.child_validity.size = count if null_count else 0
    if column.element_width == 0:
        column.child_offsets.size = (<size_t>count + 1) * 4
    return 0


# ---- tuples

cdef int read_column_count(Part *part, Cursor *cursor) except -1 nogil:
    if <uint32_t>read_uint16(cursor) != part.column_count:
        fail_wire(cursor, b"another number of columns than its relation", 2)
    return 0


cdef int fail_tag(Cursor *cursor, uint8_t tag) except -1 nogil:
    if tag == c"b":
        return fail_wire(cursor, b"binary value, though binary is off", 1)
    return fail_wire(cursor, b"unknown kind of value", 1)


cdef int read_span(Cursor *cursor, Span *span) except -1 nogil:
    span.tag = take(cursor, 1)[0]
    span.size = 0
    if span.tag == c"t":
        read_uint32(cursor, &span.size)
        span.text = take(cursor, span.size)
    elif span.tag != c"n" and span.tag != c"u":
        fail_tag(cursor, span.tag)
    return 0


cdef int fill_old(Part *part, uint32_t stop) except -1 nogil:
    """Make old columns NULL from where they are filled up to row `stop`."""
    cdef uint32_t index, row
    for index in range(part.old_column_count):
        for row in range(part.old_row_count, stop):
            store_null(&part.old_columns[index], row)
    part.old_row_count = stop
    return 0


cdef inline int check_old(Cursor *cursor, const Span *span) except -1 nogil:
    """The server writes old tuples in full: whatever this is, it is not NULL."""
    if span.tag == c"u":
        fail_wire(cursor, b"unchanged value in an old tuple", 1)
    return 0


cdef int part_read_old(Part *part, Cursor *cursor, uint8_t tag) except -1 nogil:
    """Read a K or O tuple into the identity columns; other columns of a K say nothing."""
    cdef uint32_t index
    cdef uint32_t row = part.row_count
    cdef Column *column
    cdef Span *span
    read_column_count(part, cursor)
    if not part.has_old:
        part.has_old = True
        for index in range(part.old_column_count):
            reserve_column(&part.old_columns[index], 0, part.row_capacity)
    fill_old(part, row)
    part.old_row_count = row + 1
    part.old_present.data[row] = 1
    for index in range(part.column_count):
        span = &part.old_spans[index]
        read_span(cursor, span)
        check_old(cursor, span)
        if part.columns[index].old_index < 0:
            continue
        column = &part.old_columns[part.columns[index].old_index]
        if span.tag == c"t":
            store_value(part, column, row, span.text, span.size)
        else:
            store_null(column, row)
    return 0


cdef int keep_unchanged(Part *part, uint32_t row, uint32_t column) except -1 nogil:
    cdef Unchanged unchanged
    unchanged.row = row
    unchanged.column = column
    return buffer_append(&part.unchanged, &unchanged, sizeof(Unchanged))


cdef int read_unchanged(
    Part *part, Column *column, uint32_t row, uint8_t old_tag
) except -1 nogil:
    """Take the old tuple's value for a value not sent, where it has one; else say so.

    A full old tuple has all values. Of a key tuple only the identity counts.
    """
    cdef Span *span = &part.old_spans[column.index]
    if span.tag == c"t" and (old_tag == c"O" or old_tag == c"K" and column.old_index >= 0):
        return store_value(part, column, row, span.text, span.size)
    store_null(column, row)
    return keep_unchanged(part, row, column.index)


cdef inline void compare_key(
    Part *part, const Column *column, uint32_t row, const Span *value
) noexcept nogil:
    """A K tuple is also sent for a key stored out of line: only a difference is a change."""
    cdef const Span *old = &part.old_spans[column.index]
    if column.old_index < 0 or old.tag == c"u" or value.tag == c"u":
        return
    if old.tag == value.tag and old.size == value.size and (
        value.size == 0 or memcmp(old.text, value.text, value.size) == 0
    ):
        return
    part.has_key_change = True
    part.key_changed.data[row] = 1


cdef int part_read_new(Part *part, Cursor *cursor, uint8_t old_tag) except -1 nogil:
    """Read an N tuple; `old_tag` is K or O when `part_read_old` has read one before, else 0."""
    cdef uint32_t index
    cdef uint32_t row = part.row_count
    cdef Column *column
    cdef Span value
    read_column_count(part, cursor)
    for index in range(part.column_count):
        column = &part.columns[index]
        read_span(cursor, &value)
        if value.tag == c"t":
            store_value(part, column, row, value.text, value.size)
        elif value.tag == c"n":
            store_null(column, row)
        else:
            read_unchanged(part, column, row, old_tag)
        if old_tag == c"K":
            compare_key(part, column, row, &value)
    return 0


cdef int part_fill_nulls(Part *part) except -1 nogil:
    """The new columns of a deleted row."""
    cdef uint32_t index
    for index in range(part.column_count):
        store_null(&part.columns[index], part.row_count)
    return 0


cdef int part_skip_tuple(Part *part, Cursor *cursor, bint is_old) except -1 nogil:
    """Check the framing of a tuple that nobody wants."""
    cdef uint32_t index
    cdef Span span
    read_column_count(part, cursor)
    for index in range(part.column_count):
        read_span(cursor, &span)
        if is_old:
            check_old(cursor, &span)
    return 0


# ---- into the entry

cdef int write_block(Buffer *out, const void *data, size_t size, uint8_t *offset) except -1 nogil:
    """Append a block at the next multiple of 8 and write where it begins to `offset`."""
    cdef uint64_t where
    buffer_align(out)
    where = out.size
    memcpy(offset, &where, 8)
    return buffer_append(out, data, size)


cdef int write_column(
    Column *column, uint32_t rows, Buffer *out, size_t header_offset
) except -1 nogil:
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
    write_block(out, column.data.data, header.data_size, <uint8_t *>&header.data_offset)
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
        write_block(
            out, column.child_data.data, column.child_data.size,
            <uint8_t *>&header.child_data_offset,
        )
    memcpy(out.data + header_offset, &header, sizeof(ColumnHeader))
    return 0


cdef int write_misfits(Part *part, Buffer *out, PartHeader *header) except -1 nogil:
    """The texts, then the records that point at them."""
    cdef uint64_t texts
    cdef uint32_t index
    cdef Misfit *misfit = <Misfit *>part.misfits.data
    header.misfit_count = <uint32_t>(part.misfits.size // sizeof(Misfit))
    write_block(out, part.texts.data, part.texts.size, <uint8_t *>&texts)
    for index in range(header.misfit_count):
        misfit[index].text_offset += texts
    return write_block(
        out, part.misfits.data, part.misfits.size, <uint8_t *>&header.misfit_offset
    )


cdef int part_write(Part *part, Buffer *out, size_t header_offset) except -1 nogil:
    """Append the part to a decoded batch and fill in its PartHeader there."""
    cdef PartHeader header
    cdef uint32_t index
    cdef uint32_t rows = part.row_count
    memset(&header, 0, sizeof(PartHeader))
    header.version = part.version
    header.row_count = rows
    header.new_column_count = part.column_count
    if part.has_old:
        fill_old(part, rows)
        header.old_column_count = part.old_column_count
    buffer_align(out)
    header.column_offset = out.size
    buffer_fill(
        out, 0,
        <size_t>(header.new_column_count + header.old_column_count) * sizeof(ColumnHeader),
    )
    for index in range(header.new_column_count + header.old_column_count):
        write_column(
            &part.columns[index], rows, out, header.column_offset + index * sizeof(ColumnHeader)
        )
    write_block(out, part.ops.data, rows, <uint8_t *>&header.op_offset)
    if header.old_column_count:
        write_block(out, part.old_present.data, rows, <uint8_t *>&header.old_present_offset)
    if part.has_key_change:
        write_block(out, part.key_changed.data, rows, <uint8_t *>&header.key_changed_offset)
    header.unchanged_count = <uint32_t>(part.unchanged.size // sizeof(Unchanged))
    write_block(
        out, part.unchanged.data, part.unchanged.size, <uint8_t *>&header.unchanged_offset
    )
    write_misfits(part, out, &header)
    memcpy(out.data + header_offset, &header, sizeof(PartHeader))
    return 0
