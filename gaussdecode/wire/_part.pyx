"""The rows of one relation version in one batch, column by column.

Given a plan (how each column is held) and tuples on the wire, a part collects the values
as the decoded batch wants them: fixed-width values in place, texts and lists as offsets
and data. Its buffers are emptied, not freed, from batch to batch, unless one huge row
has blown them up. A part that sleeps has its plan and no columns: a few bytes per column.

Promises: every value is either held exactly, or NULL with a Misfit that keeps its text, or
NULL with an Unchanged; old columns are as long as the new ones. It knows nothing of
messages, transactions and entries.
"""

from libc.stdint cimport int32_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from gaussdecode.wire._column cimport (
    column_capacity, column_check, column_free, column_move, column_plan, column_reserve,
    column_put, column_reset, column_store_null, column_write, fail_column, move_block, reserve,
    write_block,
)
from gaussdecode.wire._cursor cimport fail_wire, read_uint16, read_uint32, take
from gaussdecode.wire._encoding cimport Codes, append_kept, append_translated, codes_of
from gaussdecode.wire._layout cimport (
    KIND_LIST, KIND_STRING, MOVED_BYTES, OLD_COLUMN, ColumnHeader, Misfit,
    PartHeader, Unchanged, buffer_align, buffer_append, buffer_fill, buffer_free, give_back,
)
from gaussdecode.wire._letters cimport (
    CELL_BINARY, CELL_NULL, CELL_TEXT, CELL_UNCHANGED, IMAGE_KEY, IMAGE_OLD,
)
from gaussdecode.wire._values cimport append_escaped, is_ascii, is_utf8

cdef enum:
    FIRST_ROWS = 16             # capacity of a new part; arbitrary
    HEADROOM = 8                # readable bytes before a text


cdef int fail_memory() except -1 with gil:
    raise MemoryError("no memory for the columns of a relation")


cdef const Codes *find_codes(uint32_t encoding) except NULL with gil:
    return codes_of(encoding)


# ---- life of a part

cdef Part *part_create(const RawRelation *relation, const PlanColumn *plan) except NULL nogil:
    """Make an empty part that sleeps; `part_free` takes it back."""
    cdef uint32_t index
    cdef uint32_t old_count = 0
    cdef const Codes *codes = NULL
    cdef Part *part
    if relation.column_count >= OLD_COLUMN:
        fail_column(b"too many columns in a relation plan")
    if relation.encoding:
        codes = find_codes(relation.encoding)
    for index in range(relation.column_count):
        column_check(&plan[index])
        old_count += plan[index].is_identity != 0
    part = <Part *>calloc(1, sizeof(Part))
    if part == NULL:
        fail_memory()
        return NULL
    part.oid = relation.oid
    part.version = relation.version
    part.flags = relation.flags
    part.codes = codes
    part.column_count = relation.column_count
    part.old_column_count = old_count
    # One more, so that a table without columns allocates something.
    part.plan = <PlanColumn *>calloc(relation.column_count + 1, sizeof(PlanColumn))
    if part.plan == NULL:
        part_free(part)
        fail_memory()
        return NULL
    memcpy(part.plan, plan, relation.column_count * sizeof(PlanColumn))
    return part


cdef int part_wake(Part *part) except -1 nogil:
    """Make the columns of a part that sleeps."""
    cdef uint32_t index
    cdef uint32_t old_count = 0
    cdef PlanColumn *plan
    # One more of each, so that a table without columns allocates something.
    part.columns = <Column *>calloc(
        part.column_count + part.old_column_count + 1, sizeof(Column)
    )
    part.old_spans = <Span *>calloc(part.column_count + 1, sizeof(Span))
    if part.columns == NULL or part.old_spans == NULL:
        part_sleep(part)
        return fail_memory()
    part.old_columns = part.columns + part.column_count
    for index in range(part.column_count):
        plan = &part.plan[index]
        column_plan(&part.columns[index], plan)
        part.columns[index].index = index
        if plan.is_identity:
            column_plan(&part.old_columns[old_count], plan)
            part.old_columns[old_count].index = index | OLD_COLUMN
            part.columns[index].old_index = <int32_t>old_count
            old_count += 1
    return 0


cdef void part_sleep(Part *part) noexcept nogil:
    """Give all memory back but the plan. Only for a part without rows."""
    part_free_rows(part)
    free(part.columns)
    free(part.old_spans)
    part.columns = NULL
    part.old_columns = NULL
    part.old_spans = NULL


cdef void part_free_rows(Part *part) noexcept nogil:
    """Give all row memory back; the plan stays. Only for a part without rows."""
    cdef uint32_t index
    if part.columns != NULL:
        for index in range(part.column_count + part.old_column_count):
            column_free(&part.columns[index])
    buffer_free(&part.ops)
    buffer_free(&part.old_present)
    buffer_free(&part.key_changed)
    buffer_free(&part.unchanged)
    buffer_free(&part.misfits)
    buffer_free(&part.texts)
    buffer_free(&part.scratch)
    buffer_free(&part.translated)
    part.row_capacity = 0
    part.held_bytes = 0


cdef void part_free(Part *part) noexcept nogil:
    if part != NULL:
        part_sleep(part)
        free(part.plan)
        free(part)


cdef size_t part_capacity(const Part *part) noexcept nogil:
    """Bytes of row memory that the part holds on to."""
    cdef uint32_t index
    cdef size_t total = (
        part.ops.capacity + part.old_present.capacity + part.key_changed.capacity
        + part.unchanged.capacity + part.misfits.capacity + part.texts.capacity
        + part.scratch.capacity + part.translated.capacity
    )
    for index in range(part.column_count + part.old_column_count):
        total += column_capacity(&part.columns[index])
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
        column_reset(&part.columns[index], part.row_count if part.row_capacity else 0)
    if part.has_old:
        for index in range(part.old_column_count):
            column_reset(&part.old_columns[index], part.row_count if part.row_capacity else 0)
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


# ---- rows

cdef int grow_rows(Part *part) except -1 nogil:
    cdef uint32_t index
    cdef uint32_t filled = part.row_capacity
    cdef uint32_t rows = filled * 2 if filled else FIRST_ROWS
    for index in range(part.column_count):
        column_reserve(&part.columns[index], filled, rows)
    if part.has_old:
        for index in range(part.old_column_count):
            column_reserve(&part.old_columns[index], filled, rows)
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


cdef int keep_text(
    Part *part, Column *column, uint32_t row, const uint8_t *text, size_t size
) except -1 nogil:
    """Keep a text that its column cannot hold."""
    cdef size_t offset = part.texts.size
    if column.kind != KIND_STRING and (is_ascii(text, size) or is_utf8(text, size)):
        buffer_append(&part.texts, text, size)
    else:
        part.invalid_count += 1
        append_escaped(&part.texts, text, size)
    return add_misfit(part, column, row, offset)


cdef int add_misfit(Part *part, Column *column, uint32_t row, size_t offset) except -1 nogil:
    """Make the value NULL; its text is what `texts` holds from `offset` on."""
    cdef Misfit misfit
    column_store_null(column, row)
    memset(&misfit, 0, sizeof(Misfit))
    misfit.row = row
    misfit.column = <uint16_t>column.index
    misfit.text_offset = offset
    misfit.text_size = part.texts.size - offset
    return buffer_append(&part.misfits, &misfit, sizeof(Misfit))


cdef int store_translated(
    Part *part, Column *column, uint32_t row, const uint8_t *text, size_t size
) except -1 nogil:
    """Store a value that is not in UTF-8; one that has no letters in it is kept escaped."""
    cdef Buffer *translated = &part.translated
    cdef size_t offset = part.texts.size
    translated.size = 0
    buffer_fill(translated, 0, HEADROOM)
    if not append_translated(translated, part.codes, text, size):
        part.invalid_count += 1
        append_kept(&part.texts, part.codes, text, size)
        return add_misfit(part, column, row, offset)
    text = translated.data + HEADROOM
    size = translated.size - HEADROOM
    if column_move(column, row, text, size):
        return 0
    if not column_put(column, row, text, size, &part.scratch):
        keep_text(part, column, row, text, size)
    return 0


cdef inline int store_value(
    Part *part, Column *column, uint32_t row, const uint8_t *text, size_t size
) except -1 nogil:
    """Store one value in its row, exactly or as a misfit."""
    if part.codes != NULL and not is_ascii(text, size):
        return store_translated(part, column, row, text, size)
    if not column_put(column, row, text, size, &part.scratch):
        keep_text(part, column, row, text, size)
    return 0


cdef inline bint is_foreign_list(const Part *part, const Column *column) noexcept nogil:
    """Whether it is a list of texts in another encoding, which is translated as a whole."""
    return part.codes != NULL and column.kind == KIND_LIST and column.element == KIND_STRING


cdef int move_value(
    Part *part, Column *column, uint32_t row, const uint8_t *text, size_t size
) except -1 nogil:
    """Store a huge value whose text is not read again."""
    if part.codes == NULL and column_move(column, row, text, size):
        return 0
    store_value(part, column, row, text, size)
    give_back(text, size)
    return 0


# ---- tuples

cdef int read_column_count(Part *part, Cursor *cursor) except -1 nogil:
    if <uint32_t>read_uint16(cursor) != part.column_count:
        fail_wire(cursor, b"another number of columns than its relation", 2)
    return 0


cdef inline int read_span(Cursor *cursor, Span *span) except -1 nogil:
    span.tag = take(cursor, 1)[0]
    span.size = 0
    if span.tag == CELL_TEXT:
        read_uint32(cursor, &span.size)
        span.text = take(cursor, span.size)
    elif span.tag == CELL_BINARY:
        fail_wire(cursor, b"binary value, which was not asked for", 1)
    elif span.tag != CELL_NULL and span.tag != CELL_UNCHANGED:
        fail_wire(cursor, b"unknown kind of value", 1)
    return 0


cdef int fill_old(Part *part, uint32_t stop) except -1 nogil:
    """Make old columns NULL from where they are filled up to row `stop`."""
    cdef uint32_t index, row
    for index in range(part.old_column_count):
        for row in range(part.old_row_count, stop):
            column_store_null(&part.old_columns[index], row)
    part.old_row_count = stop
    return 0


cdef inline int check_old(Cursor *cursor, const Span *span) except -1 nogil:
    """The server writes old tuples in full: whatever this is, it is not NULL."""
    if span.tag == CELL_UNCHANGED:
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
            column_reserve(&part.old_columns[index], 0, part.row_capacity)
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
        if span.tag == CELL_TEXT:
            store_value(part, column, row, span.text, span.size)
        else:
            column_store_null(column, row)
    return 0


cdef int keep_unchanged(Part *part, uint32_t row, uint32_t column) except -1 nogil:
    cdef Unchanged unchanged
    unchanged.row = row
    unchanged.column = column
    return buffer_append(&part.unchanged, &unchanged, sizeof(Unchanged))


cdef int read_unchanged(
    Part *part, Column *column, uint32_t row, uint8_t old_tag, Cursor *cursor
) except -1 nogil:
    """Take the old tuple's value for a value not sent, where it has one; else say so.

    A full old tuple has all values. Of a key tuple only the identity counts.
    """
    cdef Span *span = &part.old_spans[column.index]
    if old_tag == IMAGE_OLD or old_tag == IMAGE_KEY and column.old_index >= 0:
        if span.tag == CELL_TEXT:
            return store_value(part, column, row, span.text, span.size)
    column_store_null(column, row)
    return keep_unchanged(part, row, column.index)


cdef inline void compare_key(
    Part *part, const Column *column, uint32_t row, const Span *value
) noexcept nogil:
    """A K tuple is also sent for a key stored out of line: only a difference is a change."""
    cdef const Span *old = &part.old_spans[column.index]
    if column.old_index < 0 or old.tag == CELL_UNCHANGED or value.tag == CELL_UNCHANGED:
        return
    if old.tag == value.tag and old.size == value.size and (
        value.size == 0 or memcmp(old.text, value.text, value.size) == 0
    ):
        return
    part.has_key_change = True
    part.key_changed.data[row] = 1


cdef int part_read_new(
    Part *part, Cursor *cursor, uint8_t old_tag, bint moves
) except -1 nogil:
    """Read an N tuple; `old_tag` is K or O when `part_read_old` has read one before, else 0.

    With `moves` a huge text leaves the message, unless it is compared with a key's.
    """
    cdef uint32_t index
    cdef uint32_t row = part.row_count
    cdef Column *column
    cdef Span value
    read_column_count(part, cursor)
    for index in range(part.column_count):
        column = &part.columns[index]
        read_span(cursor, &value)
        if value.tag == CELL_TEXT:
            if value.size >= MOVED_BYTES and moves and old_tag != IMAGE_KEY:
                move_value(part, column, row, value.text, value.size)
            else:
                store_value(part, column, row, value.text, value.size)
        elif value.tag == CELL_NULL:
            column_store_null(column, row)
        else:
            read_unchanged(part, column, row, old_tag, cursor)
        if old_tag == IMAGE_KEY:
            compare_key(part, column, row, &value)
    return 0


cdef int part_fill_nulls(Part *part) except -1 nogil:
    """The new columns of a deleted row."""
    cdef uint32_t index
    for index in range(part.column_count):
        column_store_null(&part.columns[index], part.row_count)
    return 0


cdef int part_skip_tuple(Part *part, Cursor *cursor, bint is_old) except -1 nogil:
    """Check the framing of a tuple that nobody wants."""
    cdef uint32_t _index
    cdef Span span
    read_column_count(part, cursor)
    for _index in range(part.column_count):
        read_span(cursor, &span)
        if is_old:
            check_old(cursor, &span)
    return 0


# ---- into the entry

cdef int write_misfits(Part *part, Buffer *out, PartHeader *header) except -1 nogil:
    """The texts, then the records that point at them."""
    cdef uint64_t texts
    cdef uint32_t index
    cdef Misfit *misfit = <Misfit *>part.misfits.data
    header.misfit_count = <uint32_t>(part.misfits.size // sizeof(Misfit))
    move_block(out, part.texts.data, part.texts.size, <uint8_t *>&texts)
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
        column_write(
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
