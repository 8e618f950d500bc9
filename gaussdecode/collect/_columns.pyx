"""Accumulators: rows of one table version, column by column, until a row group is full.

An accumulator is given slices of decoded batches at their transaction's release, when
its position and its rows' numbers are known. It copies them out of ring memory into its
own buffers; `take` hands those buffers over to Arrow without another copy, and the
accumulator starts again empty. It knows nothing of files, transactions or order.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from gaussdecode.wire._layout cimport (
    KIND_BOOL, KIND_LIST, Buffer, ColumnHeader, Misfit, PartHeader, Unchanged,
    buffer_append, buffer_fill, buffer_free, buffer_grow, buffer_move, kind_width,
)

from gaussdecode.errors import SequenceError

cdef enum:
    MAX_OFFSET = 0x7FFFFFFF     # Arrow's string and list offsets are int32
    CAPITAL = 0x40              # of capital letters, which operations are
    LETTER = 0x1F               # bits that tell them apart
    HINTED_ROWS = 32768         # so many rows were a row group: the next one is like it; arbitrary

cdef extern from *:
    """
    #define GD_LOW_BITS 0x0101010101010101ULL
    #define GD_TO_HIGH_BYTE 0x0102040810204080ULL   /* the low bit of byte i becomes bit 56 + i */
    """
    const uint64_t LOW_BITS "GD_LOW_BITS"
    const uint64_t TO_HIGH_BYTE "GD_TO_HIGH_BYTE"


cdef class OwnedMemory:
    """A block that was a growing buffer; freed when the last Arrow array lets go."""

    def __cinit__(self):
        self.data = NULL
        self.size = 0

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __len__(self):
        return self.size

    @staticmethod
    cdef OwnedMemory take(Buffer *buffer):
        """Move the memory of `buffer` here; the buffer is empty afterwards."""
        cdef OwnedMemory owned = OwnedMemory.__new__(OwnedMemory)
        owned.data = buffer.data
        owned.size = buffer.size
        buffer.data = NULL
        buffer.size = 0
        buffer.capacity = 0
        return owned


cdef object pack_bits(Buffer *buffer):
    """Turn one byte per row into an Arrow bitmap (least significant bit first)."""
    cdef size_t count = buffer.size, size = (count + 7) // 8, i
    cdef uint64_t eight
    cdef Buffer bits
    memset(&bits, 0, sizeof(Buffer))
    try:
        buffer_fill(&bits, 0, size)
        with nogil:
            for i in range(count >> 3):
                memcpy(&eight, buffer.data + 8 * i, 8)
                bits.data[i] = <uint8_t>((eight & LOW_BITS) * TO_HIGH_BYTE >> 56)
            for i in range(count & ~<size_t>7, count):
                bits.data[i >> 3] |= (buffer.data[i] & 1) << (i & 7)
        buffer_free(buffer)
        return OwnedMemory.take(&bits)
    finally:
        buffer_free(&bits)


cdef int fail_offset() except -1 with gil:
    raise SequenceError("a row group's column grew over 2 GiB; lower row-group-bytes")


cdef int append_offsets(
    Buffer *target, size_t base, const int32_t *source, size_t first, size_t count
) except -1 nogil:
    """Append `count` end offsets, moved so that the slice begins at `base`."""
    cdef int64_t shift = <int64_t>base - source[first]
    cdef int32_t *out
    cdef size_t i
    if shift + source[first + count] > MAX_OFFSET:
        fail_offset()
    if target.size == 0:
        buffer_fill(target, 0, sizeof(int32_t))
    buffer_grow(target, count * sizeof(int32_t))
    out = <int32_t *>(target.data + target.size)
    for i in range(count):
        out[i] = <int32_t>(source[first + 1 + i] + shift)
    target.size += count * sizeof(int32_t)
    return 0


cdef int append_validity(
    Buffer *target, uint64_t have, const uint8_t *source, size_t count,
    uint64_t *null_count,
) except -1 nogil:
    """Append validity bytes; `source` NULL means all valid."""
    cdef size_t i, nulls = 0
    if source == NULL and target.size == 0:
        return 0
    if target.size == 0 and have:
        buffer_fill(target, 1, have)
    if source == NULL:
        return buffer_fill(target, 1, count)
    buffer_append(target, source, count)
    for i in range(count):
        nulls += source[i] ^ 1
    null_count[0] += nulls
    return 0


cdef inline int append_data(
    Buffer *target, const uint8_t *data, size_t size, bint moves
) except -1 nogil:
    """Append values; with `moves` they are not read again."""
    if moves:
        return buffer_move(target, data, size)
    return buffer_append(target, data, size)


cdef int append_children(
    GrowingColumn *column, const uint8_t *entry, const ColumnHeader *header,
    size_t first, size_t count, bint moves,
) except -1 nogil:
    """Append list elements `first` .. `first + count`."""
    cdef size_t width = kind_width(column.element)
    cdef const int32_t *offsets
    cdef const uint8_t *validity = NULL
    if header.child_null_count:
        validity = entry + header.child_validity_offset + first
    append_validity(
        &column.child_validity, column.child_count, validity, count, &column.child_null_count
    )
    if width:
        buffer_append(
            &column.child_data, entry + header.child_data_offset + first * width, count * width
        )
    else:
        offsets = <const int32_t *>(entry + header.child_offsets_offset)
        append_offsets(&column.child_offsets, column.child_data.size, offsets, first, count)
        append_data(
            &column.child_data, entry + header.child_data_offset + offsets[first],
            offsets[first + count] - offsets[first], moves,
        )
    column.child_count += count
    return 0


cdef int append_slice(
    GrowingColumn *column, uint64_t have, const uint8_t *entry,
    const ColumnHeader *header, size_t first, size_t count, bint moves,
) except -1 nogil:
    """Append rows `first` .. `first + count` of one decoded column."""
    cdef size_t width = kind_width(column.kind)
    cdef const int32_t *offsets
    cdef const uint8_t *validity = NULL
    if header.null_count:
        validity = entry + header.validity_offset + first
        if column.validity.size == 0:
            buffer_grow(&column.validity, column.hinted_rows)
    append_validity(&column.validity, have, validity, count, &column.null_count)
    if width:
        return buffer_append(
            &column.data, entry + header.data_offset + first * width, count * width
        )
    offsets = <const int32_t *>(entry + header.offsets_offset)
    if column.kind == KIND_LIST:
        append_offsets(&column.offsets, column.child_count, offsets, first, count)
        return append_children(
            column, entry, header, offsets[first], offsets[first + count] - offsets[first],
            moves,
        )
    append_offsets(&column.offsets, column.data.size, offsets, first, count)
    return append_data(
        &column.data, entry + header.data_offset + offsets[first],
        offsets[first + count] - offsets[first], moves,
    )


cdef int append_nulls(GrowingColumn *column, uint64_t have, size_t count) except -1 nogil:
    """Append `count` NULL rows."""
    cdef size_t width = kind_width(column.kind), _
    cdef int32_t last
    if column.validity.size == 0 and have:
        buffer_fill(&column.validity, 1, have)
    buffer_fill(&column.validity, 0, count)
    column.null_count += count
    if width:
        return buffer_fill(&column.data, 0, width * count)
    last = <int32_t>(column.child_count if column.kind == KIND_LIST else column.data.size)
    if column.offsets.size == 0:
        buffer_fill(&column.offsets, 0, sizeof(int32_t))
    for _ in range(count):
        buffer_append(&column.offsets, &last, sizeof(int32_t))
    return 0


cdef int column_append_value(
    GrowingColumn *column, uint64_t row, const void *data, size_t size, bint is_null
) except -1 nogil:
    """Append one value to a fixed-width, string or binary column that holds `row` rows."""
    cdef int32_t end
    if is_null:
        return append_nulls(column, row, 1)
    append_validity(&column.validity, row, NULL, 1, &column.null_count)
    if column.data.size + size > MAX_OFFSET:
        fail_offset()
    buffer_append(&column.data, data, size)
    if kind_width(column.kind) == 0:
        if column.offsets.size == 0:
            buffer_fill(&column.offsets, 0, sizeof(int32_t))
        end = <int32_t>column.data.size
        buffer_append(&column.offsets, &end, sizeof(int32_t))
    return 0


cdef inline size_t and_a_little(size_t size) noexcept nogil:
    """What is like something of this size has room in so much."""
    return size + (size >> 5)


cdef void column_hint(GrowingColumn *column, uint64_t rows) noexcept nogil:
    """Remember how large it has become, for the next row group."""
    column.hinted_rows = and_a_little(rows) if rows >= HINTED_ROWS else 0
    column.hinted_bytes = and_a_little(column.data.size) if rows >= HINTED_ROWS else 0


cdef int column_reserve(GrowingColumn *column) except -1 nogil:
    """Make room for a row group like the one before, so that it is not moved as it grows.

    What is not written to takes no memory. Elements of lists, and what is rarely there, grow.
    """
    if kind_width(column.kind) == 0:
        buffer_grow(&column.offsets, (column.hinted_rows + 1) * sizeof(int32_t))
    return buffer_grow(&column.data, column.hinted_bytes)


cdef size_t column_size(GrowingColumn *column) noexcept nogil:
    return (
        column.validity.size + column.offsets.size + column.data.size
        + column.child_validity.size + column.child_offsets.size + column.child_data.size
    )


cdef void column_clear(GrowingColumn *column) noexcept nogil:
    buffer_free(&column.validity)
    buffer_free(&column.offsets)
    buffer_free(&column.data)
    buffer_free(&column.child_validity)
    buffer_free(&column.child_offsets)
    buffer_free(&column.child_data)
    column.null_count = 0
    column.child_count = 0
    column.child_null_count = 0


cdef object take_column(GrowingColumn *column, uint64_t rows):
    """Hand a column's buffers over; see `Accumulator.take`."""
    cdef bint is_list = column.kind == KIND_LIST
    column_hint(column, rows)
    validity = pack_bits(&column.validity) if column.null_count else None
    offsets = None
    data = None
    child = None
    if kind_width(column.kind) == 0:
        if column.offsets.size == 0:
            buffer_fill(&column.offsets, 0, sizeof(int32_t))
        offsets = OwnedMemory.take(&column.offsets)
    if is_list:
        child = take_child(column)
    elif column.kind == KIND_BOOL:
        data = pack_bits(&column.data)
    else:
        data = OwnedMemory.take(&column.data)
    null_count = column.null_count
    column_clear(column)
    return (validity, offsets, data, null_count, child)


cdef object take_child(GrowingColumn *column):
    cdef uint64_t count = column.child_count
    validity = pack_bits(&column.child_validity) if column.child_null_count else None
    offsets = None
    if kind_width(column.element) == 0:
        if column.child_offsets.size == 0:
            buffer_fill(&column.child_offsets, 0, sizeof(int32_t))
        offsets = OwnedMemory.take(&column.child_offsets)
    if column.element == KIND_BOOL:
        data = pack_bits(&column.child_data)
    else:
        data = OwnedMemory.take(&column.child_data)
    return (validity, offsets, data, column.child_null_count, count)


cdef uint32_t find_row(
    const void *items, size_t size, uint32_t count, uint32_t row
) noexcept nogil:
    """Index of the first of `count` items whose row, their first field, is not below `row`."""
    cdef uint32_t low = 0, high = count, middle
    while low < high:
        middle = (low + high) >> 1
        if (<const uint32_t *>(<const uint8_t *>items + middle * size))[0] < row:
            low = middle + 1
        else:
            high = middle
    return low


cdef class Accumulator:
    """Rows of one table version on their way to a row group.

    Args:
        table: whatever the caller wants to find again at `take`.
        kinds: ``(kind, element)`` of each new column, then of each identity column.
        old_count: how many of `kinds` are identity columns.
    """

    def __cinit__(self, table, list kinds, uint32_t old_count):
        cdef uint32_t i
        self.table = table
        self.old_count = old_count
        self.new_count = len(kinds) - old_count
        self.columns = <GrowingColumn *>calloc(len(kinds) + 1, sizeof(GrowingColumn))
        if self.columns == NULL:
            raise MemoryError("no memory for an accumulator")
        for i, (kind, element) in enumerate(kinds):
            self.columns[i].kind = kind
            self.columns[i].element = element

    @classmethod
    def __class_getitem__(cls, item):
        """``Accumulator[Landed]`` means something to type checkers only."""
        return cls

    def __dealloc__(self):
        if self.columns != NULL:
            self.clear()
        free(self.columns)

    cdef void clear(self) noexcept nogil:
        """Forget all rows."""
        cdef uint32_t i
        for i in range(self.new_count + self.old_count):
            column_clear(&self.columns[i])
        buffer_free(&self.op)
        buffer_free(&self.lsn)
        buffer_free(&self.seq)
        buffer_free(&self.csn)
        buffer_free(&self.xid)
        buffer_free(&self.time_us)
        buffer_free(&self.change_lsn)
        buffer_free(&self.old_present)
        buffer_free(&self.unchanged)
        buffer_free(&self.misfits)
        buffer_free(&self.misfit_offsets)
        buffer_free(&self.misfit_text)
        memset(self.op_count, 0, sizeof(self.op_count))
        self.row_count = 0
        self.byte_count = 0
        self.key_change_count = 0

    cdef int stamp_rows(
        self, uint64_t count, const Stamp *stamp, int64_t seq
    ) except -1 nogil:
        """Fill the columns that are known only now."""
        cdef uint64_t i
        cdef int64_t *out
        buffer_grow(&self.lsn, count * 8)
        buffer_grow(&self.seq, count * 8)
        buffer_grow(&self.xid, count * 8)
        buffer_grow(&self.time_us, count * 8)
        out = <int64_t *>(self.lsn.data + self.lsn.size)
        for i in range(count):
            out[i] = stamp.lsn
        out = <int64_t *>(self.xid.data + self.xid.size)
        for i in range(count):
            out[i] = stamp.xid
        out = <int64_t *>(self.time_us.data + self.time_us.size)
        for i in range(count):
            out[i] = stamp.time_us
        out = <int64_t *>(self.seq.data + self.seq.size)
        for i in range(count):
            out[i] = seq + <int64_t>i
        self.lsn.size += count * 8
        self.xid.size += count * 8
        self.time_us.size += count * 8
        self.seq.size += count * 8
        if stamp.csn or self.csn.size:
            self.stamp_csn(count, stamp.csn)
        return 0

    cdef int stamp_csn(self, uint64_t count, int64_t csn) except -1 nogil:
        """Fill the CSN; before the first one, all rows so far had none."""
        cdef uint64_t i
        cdef int64_t *out
        if self.csn.size == 0 and self.row_count:
            buffer_fill(&self.csn, 0, self.row_count * 8)
        buffer_grow(&self.csn, count * 8)
        out = <int64_t *>(self.csn.data + self.csn.size)
        for i in range(count):
            out[i] = csn
        self.csn.size += count * 8
        return 0

    cdef int note_lsns(self, uint64_t count, uint64_t lsn, const uint8_t *steps) except -1 nogil:
        """Fill the LSN of each change; before the first one, all rows so far had none.

        Called before the rows are counted. `steps` is what EVENT_SEGMENT has for these rows; NULL:
        all have the same LSN.
        """
        cdef uint64_t i
        cdef uint32_t step
        cdef uint64_t *out
        if lsn == 0 and self.change_lsn.size == 0:
            return 0
        if self.change_lsn.size == 0 and self.row_count:
            buffer_fill(&self.change_lsn, 0, self.row_count * 8)
        buffer_grow(&self.change_lsn, count * 8)
        out = <uint64_t *>(self.change_lsn.data + self.change_lsn.size)
        if steps == NULL:
            for i in range(count):
                out[i] = lsn
        else:
            for i in range(count):
                memcpy(&step, steps + i * sizeof(step), sizeof(step))
                out[i] = lsn + step
        self.change_lsn.size += count * 8
        return 0

    cdef int append_old(
        self, const uint8_t *entry, const PartHeader *part, const ColumnHeader *headers,
        uint32_t first, uint32_t count, bint moves,
    ) except -1 nogil:
        """Append old tuples; before the first one, all rows so far had none."""
        cdef uint32_t i
        if part.old_column_count == 0 and self.old_present.size == 0:
            return 0
        if self.old_present.size == 0 and self.row_count:
            buffer_fill(&self.old_present, 0, self.row_count)
            for i in range(self.old_count):
                append_nulls(&self.columns[self.new_count + i], 0, self.row_count)
        if part.old_column_count == 0:
            buffer_fill(&self.old_present, 0, count)
            for i in range(self.old_count):
                append_nulls(&self.columns[self.new_count + i], self.row_count, count)
            return 0
        buffer_append(&self.old_present, entry + part.old_present_offset + first, count)
        for i in range(self.old_count):
            append_slice(
                &self.columns[self.new_count + i], self.row_count, entry,
                &headers[self.new_count + i], first, count, moves,
            )
        return 0

    cdef int append_unchanged(
        self, const uint8_t *entry, const PartHeader *part, uint32_t first, uint32_t count
    ) except -1 nogil:
        cdef const Unchanged *item = <const Unchanged *>(entry + part.unchanged_offset)
        cdef uint32_t low = find_row(item, sizeof(Unchanged), part.unchanged_count, first)
        cdef uint32_t pair[2]
        while low < part.unchanged_count and item[low].row < first + count:
            pair[0] = <uint32_t>self.row_count + item[low].row - first
            pair[1] = item[low].column
            buffer_append(&self.unchanged, pair, sizeof(pair))
            low += 1
        return 0

    cdef int append_misfits(
        self, const uint8_t *entry, const PartHeader *part, uint32_t first, uint32_t count,
        bint moves,
    ) except -1 nogil:
        cdef const Misfit *item = <const Misfit *>(entry + part.misfit_offset)
        cdef uint32_t low = find_row(item, sizeof(Misfit), part.misfit_count, first)
        cdef uint32_t pair[2]
        cdef int32_t end
        while low < part.misfit_count and item[low].row < first + count:
            pair[0] = <uint32_t>self.row_count + item[low].row - first
            pair[1] = item[low].column
            buffer_append(&self.misfits, pair, sizeof(pair))
            if self.misfit_text.size + item[low].text_size > MAX_OFFSET:
                fail_offset()
            append_data(
                &self.misfit_text, entry + item[low].text_offset, item[low].text_size, moves
            )
            if self.misfit_offsets.size == 0:
                buffer_fill(&self.misfit_offsets, 0, sizeof(int32_t))
            end = <int32_t>self.misfit_text.size
            buffer_append(&self.misfit_offsets, &end, sizeof(int32_t))
            low += 1
        return 0

    cdef int append(
        self, const uint8_t *entry, const PartHeader *part, uint32_t first,
        uint32_t count, const Stamp *stamp, int64_t seq, bint moves, uint64_t lsn,
        const uint8_t *steps,
    ) except -1 nogil:
        """Append rows `first` .. `first + count` of a part, numbered from `seq`.

        With `moves` the entry is the caller's own, and these rows are not read again. `lsn` and
        `steps`: see `note_lsns`.
        """
        cdef const ColumnHeader *headers = <const ColumnHeader *>(entry + part.column_offset)
        cdef const uint8_t *ops = entry + part.op_offset + first
        cdef uint32_t i
        if part.new_column_count != self.new_count or (
            part.old_column_count not in (0, self.old_count)
        ):
            fail_shape()
        if self.row_count == 0 and self.hinted_rows:
            self.reserve()
        for i in range(self.new_count):
            append_slice(
                &self.columns[i], self.row_count, entry, &headers[i], first, count, moves
            )
        self.append_old(entry, part, headers, first, count, moves)
        if part.unchanged_count:
            self.append_unchanged(entry, part, first, count)
        if part.misfit_count:
            self.append_misfits(entry, part, first, count, moves)
        buffer_append(&self.op, ops, count)
        for i in range(count):
            self.op_count[ops[i] & LETTER] += 1
        if part.key_changed_offset:
            for i in range(count):
                self.key_change_count += entry[part.key_changed_offset + first + i]
        self.stamp_rows(count, stamp, seq)
        self.note_lsns(count, lsn, steps)
        self.row_count += count
        return 0

    cdef int append_marker(
        self, uint8_t op, const Stamp *stamp, int64_t seq, uint64_t lsn
    ) except -1 nogil:
        """Append a row without values (a truncate)."""
        cdef uint32_t i
        for i in range(self.new_count):
            append_nulls(&self.columns[i], self.row_count, 1)
        if self.old_present.size:
            buffer_fill(&self.old_present, 0, 1)
            for i in range(self.old_count):
                append_nulls(&self.columns[self.new_count + i], self.row_count, 1)
        buffer_append(&self.op, &op, 1)
        self.op_count[op & LETTER] += 1
        self.stamp_rows(1, stamp, seq)
        self.note_lsns(1, lsn, NULL)
        self.row_count += 1
        return 0

    cdef int reserve(self) except -1 nogil:
        """Make room for a row group like the one before."""
        cdef uint32_t i
        for i in range(self.new_count):
            column_reserve(&self.columns[i])
        buffer_grow(&self.op, self.hinted_rows)
        buffer_grow(&self.lsn, self.hinted_rows * 8)
        buffer_grow(&self.seq, self.hinted_rows * 8)
        buffer_grow(&self.xid, self.hinted_rows * 8)
        buffer_grow(&self.time_us, self.hinted_rows * 8)
        buffer_grow(&self.change_lsn, self.hinted_rows * 8)
        return 0

    cdef void measure(self) noexcept nogil:
        """Bring `byte_count` up to date."""
        cdef uint32_t i
        cdef uint64_t total = self.row_count * 33 + self.old_present.size + self.csn.size
        total += self.change_lsn.size
        for i in range(self.new_count + self.old_count):
            total += column_size(&self.columns[i])
        total += self.unchanged.size + self.misfits.size + self.misfit_text.size
        self.byte_count = total

    def bounds(self):
        """First and last ``(lsn, seq)``; only with at least one row."""
        cdef int64_t *lsn = <int64_t *>self.lsn.data
        cdef int64_t *seq = <int64_t *>self.seq.data
        cdef uint64_t last = self.row_count - 1
        return (lsn[0], seq[0]), (lsn[last], seq[last])

    def take(self):
        """Hand all rows over and start again.

        Returns:
            A dict: ``rows``, ``op``, ``lsn``, ``seq``, ``csn`` and ``change_lsn`` (None when no
            row has one), ``xid``, ``time_us`` (0 in these four: not sent), ``new`` and
            ``old`` (lists of ``(validity bits, offsets, data, null count, child)``),
            ``old_present`` (bits or None), ``unchanged`` and ``misfits`` (uint32 pairs of
            row and column), ``misfit_offsets``, ``misfit_text``, ``ops`` (rows by
            letter) and ``has_key_change``; memory as objects with the buffer protocol.
        """
        cdef uint64_t rows = self.row_count
        cdef uint32_t i
        has_old = self.old_present.size > 0
        self.hinted_rows = and_a_little(rows) if rows >= HINTED_ROWS else 0
        result = {
            "rows": rows,
            "ops": {
                chr(CAPITAL | i): self.op_count[i] for i in range(32) if self.op_count[i]
            },
            "has_key_change": self.key_change_count > 0,
            "new": [take_column(&self.columns[i], rows) for i in range(self.new_count)],
            "old": [
                take_column(&self.columns[self.new_count + i], rows)
                for i in range(self.old_count)
            ] if has_old else None,
            "old_present": pack_bits(&self.old_present) if has_old else None,
            "op": OwnedMemory.take(&self.op),
            "lsn": OwnedMemory.take(&self.lsn),
            "seq": OwnedMemory.take(&self.seq),
            "csn": OwnedMemory.take(&self.csn) if self.csn.size else None,
            "xid": OwnedMemory.take(&self.xid),
            "time_us": OwnedMemory.take(&self.time_us),
            "change_lsn": OwnedMemory.take(&self.change_lsn) if self.change_lsn.size else None,
            "unchanged": OwnedMemory.take(&self.unchanged),
            "misfits": OwnedMemory.take(&self.misfits),
            "misfit_offsets": OwnedMemory.take(&self.misfit_offsets),
            "misfit_text": OwnedMemory.take(&self.misfit_text),
        }
        self.clear()
        return result


cdef int fail_shape() except -1 with gil:
    raise SequenceError("a decoded batch has another number of columns than its relation")
