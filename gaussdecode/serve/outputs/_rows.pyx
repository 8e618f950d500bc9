"""Rows of a block, and the loop over its transactions that every plug-in shares.

A `BoundTable` points into the Arrow arrays of one table of a block. A `Writer` walks through the
transactions without the GIL; what is written for each step is its subclass's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp

from gaussdecode.serve.outputs._arrow cimport (
    Digits, Leaf, LeafForm, LeafKind, Piece, leaf_bind, leaf_bytes, leaf_free, leaf_is_null,
    leaf_print, leaf_range,
)
from gaussdecode.wire._layout cimport Buffer, buffer_append, buffer_free


cdef Piece piece_of(bytes text, list kept) except *:
    cdef Piece piece
    kept.append(text)
    piece.data = <const uint8_t *>PyBytes_AS_STRING(text)
    piece.size = PyBytes_GET_SIZE(text)
    return piece


cdef class BoundTable:
    """Rows of one table of a block, as a plug-in writes them.

    Args:
        plan: `plan.TablePlan`.
        heads: bytes for each `Head`.
        length: number of rows.
        op: ``gd_op``.
        unchanged: ``gd_unchanged``, or None.
        raw: ``gd_raw``, or None.
        old: ``gd_old``, or None.
        new_columns: pairs of a `plan.ColumnPlan` and its array.
        old_columns: same, of the old row.
        truncate_rows: int64, rising: its rows of op T.
        truncate_flags: uint8: `TruncateFlag` of each.
    """

    def __cinit__(
        self, object plan, object heads, int64_t length, object op, object unchanged,
        object raw, object old, list new_columns, list old_columns,
        const int64_t[::1] truncate_rows, const uint8_t[::1] truncate_flags,
    ):
        cdef int index
        self.kept = [
            op, unchanged, raw, old, new_columns, old_columns, truncate_rows, truncate_flags
        ]
        self.plan = plan
        self.table.length = length
        self.table.is_wanted = plan.is_wanted
        self.table.oid = plan.oid
        self.table.relation, self.table.version = plan.relation, plan.version
        self.table.truncate_count = min(truncate_rows.shape[0], truncate_flags.shape[0])
        if self.table.truncate_count:
            self.table.truncate_rows = &truncate_rows[0]
            self.table.truncate_flags = &truncate_flags[0]
        self.bind(&self.table.op, op, LeafKind.LEAF_STRING)
        if unchanged is not None:
            self.bind(&self.table.unchanged, unchanged, LeafKind.LEAF_LIST)
            self.table.has_unchanged = True
        if raw is not None:
            self.bind(&self.table.raw, raw, LeafKind.LEAF_MAP)
            self.table.has_raw = True
        if old is not None:
            self.bind(&self.table.old, old, LeafKind.LEAF_STRUCT)
            self.table.has_old = True
        self.table.new_columns = <Column *>calloc(len(new_columns) + 1, sizeof(Column))
        self.table.old_columns = <Column *>calloc(len(old_columns) + 1, sizeof(Column))
        if self.table.new_columns == NULL or self.table.old_columns == NULL:
            raise MemoryError
        for column, array in new_columns:
            self.table.new_count += 1
            self.bind_column(&self.table.new_columns[self.table.new_count - 1], column, array)
        for column, array in old_columns:
            self.table.old_count += 1
            self.bind_column(&self.table.old_columns[self.table.old_count - 1], column, array)
        self.match_old()
        for index, text in enumerate(heads):
            self.table.heads[index] = piece_of(text, self.kept)

    cdef int bind(self, Leaf *leaf, object array, LeafKind kind) except -1:
        leaf_bind(leaf, array, Digits.DIGITS_SHORTEST, LeafForm.FORM_PLAIN)
        if leaf.kind != kind or leaf.length != self.table.length:
            raise ValueError(f"a column of a landing is not as its format says: {array.type}")
        return 0

    cdef int bind_column(self, Column *column, object plan, object array) except -1:
        leaf_bind(&column.leaf, array, plan.digits, plan.form)
        if column.leaf.length != self.table.length:
            raise ValueError(f"column {plan.name} has another number of rows than its table")
        column.landed = piece_of(plan.landed, self.kept)
        column.raw_key = piece_of(plan.raw_key, self.kept)
        column.prefix = piece_of(plan.prefix, self.kept)
        column.literal = plan.literal
        column.in_identity = plan.in_identity
        return 0

    cdef void match_old(self) noexcept:
        cdef int index, other
        for index in range(self.table.new_count):
            self.table.new_columns[index].old_index = -1
            for other in range(self.table.old_count):
                if is_named(
                    self.table.new_columns[index].landed, self.table.old_columns[other].landed
                ):
                    self.table.new_columns[index].old_index = other

    def __dealloc__(self):
        cdef int index
        leaf_free(&self.table.op)
        leaf_free(&self.table.unchanged)
        leaf_free(&self.table.raw)
        leaf_free(&self.table.old)
        for index in range(self.table.new_count):
            leaf_free(&self.table.new_columns[index].leaf)
        for index in range(self.table.old_count):
            leaf_free(&self.table.old_columns[index].leaf)
        free(self.table.new_columns)
        free(self.table.old_columns)


cdef bint is_named(Piece piece, Piece name) noexcept nogil:
    return piece.size == name.size and memcmp(piece.data, name.data, name.size) == 0


cdef bint has_old_row(const Table *table, int64_t row) noexcept nogil:
    return table.has_old and not leaf_is_null(&table.old, row)


cdef int read_text(
    Table *table, const Column *column, bint is_old, int64_t row, Buffer *scratch, Text *text
) except -1 nogil:
    """Read the text of a value, of the new row or of the old one."""
    cdef int64_t index, first, end
    cdef const Leaf *names
    cdef Piece piece
    text.state = TEXT_VALUE
    if not leaf_is_null(&column.leaf, row):
        if column.leaf.kind == LeafKind.LEAF_STRING:
            piece = leaf_bytes(&column.leaf, row)
        else:
            scratch.size = 0
            leaf_print(&column.leaf, row, scratch)
            piece.data = scratch.data
            piece.size = scratch.size
        text.data = piece.data
        text.size = piece.size
        return 0
    text.state = TEXT_NULL
    text.data = NULL
    text.size = 0
    if table.has_raw and column.raw_key.size and not leaf_is_null(&table.raw, row):
        names = &table.raw.children[0].children[0]
        leaf_range(&table.raw, row, &first, &end)
        for index in range(first, end):
            if is_named(leaf_bytes(names, index), column.raw_key):
                piece = leaf_bytes(&table.raw.children[0].children[1], index)
                text.state = TEXT_VALUE
                text.data = piece.data
                text.size = piece.size
                return 0
    if not is_old and table.has_unchanged and not leaf_is_null(&table.unchanged, row):
        leaf_range(&table.unchanged, row, &first, &end)
        for index in range(first, end):
            if is_named(leaf_bytes(table.unchanged.children, index), column.landed):
                text.state = TEXT_UNCHANGED
                return 0
    return 0


cdef int put_big(Buffer *out, uint64_t value, int size) except -1 nogil:
    """Append an integer, big-endian."""
    cdef uint8_t[8] digits
    cdef int index
    for index in range(size):
        digits[index] = <uint8_t>(value >> 8 * (size - 1 - index))
    return buffer_append(out, digits, size)


cdef void set_big(uint8_t *target, uint64_t value, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        target[index] = <uint8_t>(value >> 8 * (size - 1 - index))


cdef int put_quoted(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    """Append a text in single quotes, and those in it twice; a backslash is itself."""
    cdef const uint8_t *end = data + size
    cdef const uint8_t *quote
    buffer_append(out, b"'", 1)
    while data < end:
        quote = <const uint8_t *>memchr(data, c"'", end - data)
        if quote == NULL:
            buffer_append(out, data, end - data)
            break
        buffer_append(out, data, quote + 1 - data)
        buffer_append(out, b"'", 1)
        data = quote + 1
    return buffer_append(out, b"'", 1)


cdef int put_json(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    """Append a JSON string as cJSON and PostgreSQL print it: bytes from 0x80 on as they are."""
    cdef size_t index
    cdef size_t start = 0
    cdef uint8_t letter
    cdef char[8] code
    buffer_append(out, b'"', 1)
    for index in range(size):
        letter = data[index]
        if letter >= 32 and letter != c'"' and letter != c"\\":
            continue
        buffer_append(out, data + start, index - start)
        start = index + 1
        if letter == c'"':
            buffer_append(out, b'\\"', 2)
        elif letter == c"\\":
            buffer_append(out, b"\\\\", 2)
        elif letter == 8:
            buffer_append(out, b"\\b", 2)
        elif letter == 9:
            buffer_append(out, b"\\t", 2)
        elif letter == 10:
            buffer_append(out, b"\\n", 2)
        elif letter == 12:
            buffer_append(out, b"\\f", 2)
        elif letter == 13:
            buffer_append(out, b"\\r", 2)
        else:
            buffer_append(out, code, snprintf(code, 8, b"\\u%04x", <unsigned int>letter))
    buffer_append(out, data + start, size - start)
    return buffer_append(out, b'"', 1)


cdef int put_literal(Buffer *out, Literal literal, const Text *text) except -1 nogil:
    """Append a value as print_literal does."""
    if literal == LITERAL_BARE:
        return buffer_append(out, text.data, text.size)
    if literal == LITERAL_BIT:
        buffer_append(out, b"B'", 2)
        buffer_append(out, text.data, text.size)
        return buffer_append(out, b"'", 1)
    if literal == LITERAL_BOOL:
        if text.size == 1 and text.data[0] == c"t":
            return buffer_append(out, b"true", 4)
        return buffer_append(out, b"false", 5)
    return put_quoted(out, text.data, text.size)


cdef bytes taken(Buffer *buffer):
    """The bytes of a buffer, which is empty then."""
    content = PyBytes_FromStringAndSize(<const char *>buffer.data, buffer.size)
    buffer_free(buffer)
    return content


cdef class Writer:
    """Writes the messages of blocks; subclasses say how.

    Args:
        is_lazy: BEGIN comes with the first row, and no transaction without rows.
    """

    def __init__(self, *, bint is_lazy=False):
        self.is_lazy = is_lazy

    def __dealloc__(self):
        buffer_free(&self.content)
        buffer_free(&self.ends)
        buffer_free(&self.start_lsns)
        buffer_free(&self.end_lsns)
        buffer_free(&self.transactions)
        buffer_free(&self.scratch)

    @property
    def state(self):
        """What is kept from block to block."""
        return self.has_begun

    @state.setter
    def state(self, bint state):
        self.has_begun = state

    def write(
        self, const int64_t[::1] xid, const uint64_t[::1] end_lsn, const uint64_t[::1] commit_lsn,
        const uint64_t[::1] first_lsn, const int64_t[::1] csn, const int64_t[::1] time_us,
        const int64_t[::1] row_ends, const uint8_t[::1] skipped, const int32_t[::1] row_table,
        const int64_t[::1] row_index, const uint64_t[::1] change_lsn, list tables,
        bint is_continued, bint is_open,
    ):
        """Write a block; see `block.Block`.

        Args:
            skipped: a `Skip` for each transaction, or 0.
            tables: `BoundTable` of each table.

        Returns:
            Content, and as bytes of 64-bit numbers: ends, start LSNs, end LSNs, transactions.
        """
        cdef int64_t count = xid.shape[0]
        cdef int64_t rows = row_table.shape[0]
        cdef int64_t index
        cdef Table **bound
        cdef BoundTable table
        if not (
            count == end_lsn.shape[0] == commit_lsn.shape[0] == first_lsn.shape[0] == csn.shape[0]
            == time_us.shape[0] == row_ends.shape[0] == skipped.shape[0]
        ) or not rows == row_index.shape[0] == change_lsn.shape[0]:
            raise ValueError("arrays of a block differ in length")
        if not count:
            return b"", b"", b"", b"", b""
        if row_ends[count - 1] != rows:
            raise ValueError("the rows of a block's transactions are not the rows of the block")
        bound = <Table **>calloc(len(tables) + 1, sizeof(Table *))
        if bound == NULL:
            raise MemoryError
        try:
            for index, table in enumerate(tables):
                bound[index] = &table.table
            self.xid, self.end_lsn, self.commit_lsn = &xid[0], &end_lsn[0], &commit_lsn[0]
            self.first_lsn, self.csn, self.time_us = &first_lsn[0], &csn[0], &time_us[0]
            index = len(tables)
            with nogil:
                self.run(
                    bound, index, count, &row_ends[0], &skipped[0],
                    &row_table[0] if rows else NULL, &row_index[0] if rows else NULL,
                    &change_lsn[0] if rows else NULL, is_continued, is_open,
                )
            return (
                taken(&self.content), taken(&self.ends), taken(&self.start_lsns),
                taken(&self.end_lsns), taken(&self.transactions),
            )
        finally:
            free(bound)
            buffer_free(&self.content)
            buffer_free(&self.ends)
            buffer_free(&self.start_lsns)
            buffer_free(&self.end_lsns)
            buffer_free(&self.transactions)

    cdef int run(
        self, Table **tables, int64_t table_count, int64_t transaction_count,
        const int64_t *row_ends, const uint8_t *skipped, const int32_t *row_table,
        const int64_t *row_index, const uint64_t *change_lsn, bint is_continued, bint is_open,
    ) except -1 nogil:
        cdef int64_t end
        cdef int64_t index = 0
        cdef int64_t group
        cdef uint8_t op
        cdef uint8_t flags
        cdef bint is_outside
        cdef Table *table
        for self.transaction in range(transaction_count):
            end = row_ends[self.transaction]
            if end < index:
                with gil:
                    raise ValueError("the rows of a block's transactions overlap")
            if skipped[self.transaction] == SKIP_TRANSACTION:
                index = end
                continue
            is_outside = skipped[self.transaction] == SKIP_FRAME
            if is_outside:
                self.has_begun = False
            elif self.transaction or not is_continued:
                self.has_begun = not self.is_lazy
                if self.has_begun:
                    self.begin(self.first_lsn[self.transaction])
            if skipped[self.transaction] == SKIP_ROWS:
                index = end
            while index < end:
                table = self.table_at(tables, table_count, row_table[index], row_index[index])
                if not table.is_wanted:
                    index += 1
                    continue
                if not self.has_begun and not is_outside:
                    self.begin(change_lsn[index])
                    self.has_begun = True
                op = op_of(table, row_index[index])
                if op == c"M" and table.new_count == 2:
                    self.message(
                        leaf_bytes(&table.new_columns[0].leaf, row_index[index]),
                        leaf_bytes(&table.new_columns[1].leaf, row_index[index]),
                        not is_outside, change_lsn[index],
                    )
                    index += 1
                    continue
                if op != c"T":
                    self.row(table, row_index[index], op, change_lsn[index])
                    index += 1
                    continue
                # One record of the log that truncates several tables has one LSN.
                flags = truncate_flags_of(table, row_index[index])
                group = index + 1
                while (
                    group < end and change_lsn[group] == change_lsn[index]
                    and change_lsn[index] != self.end_lsn[self.transaction]
                ):
                    table = self.table_at(tables, table_count, row_table[group], row_index[group])
                    if not table.is_wanted or op_of(table, row_index[group]) != c"T":
                        break
                    group += 1
                self.truncate(
                    tables, row_table + index, group - index, flags, change_lsn[index]
                )
                index = group
            if self.has_begun and not (is_open and self.transaction == transaction_count - 1):
                self.commit()
        return self.finish()

    cdef Table *table_at(
        self, Table **tables, int64_t table_count, int64_t number, int64_t row
    ) except NULL nogil:
        if not 0 <= number < table_count or not 0 <= row < tables[number].length:
            with gil:
                raise IndexError(f"a block has no row {row} of table {number}")
        return tables[number]

    cdef int begin(self, uint64_t lsn) except -1 nogil:
        return 0

    cdef int row(self, Table *table, int64_t row, uint8_t op, uint64_t lsn) except -1 nogil:
        return 0

    cdef int truncate(
        self, Table **tables, const int32_t *numbers, int64_t count, uint8_t flags, uint64_t lsn
    ) except -1 nogil:
        return 0

    cdef int message(
        self, Piece prefix, Piece content, bint is_transactional, uint64_t lsn
    ) except -1 nogil:
        return 0

    cdef int commit(self) except -1 nogil:
        return 0

    cdef int finish(self) except -1 nogil:
        """Write what is left at the end of a block."""
        return 0

    cdef int end_message(self, uint64_t lsn, bint is_last) except -1 nogil:
        """End a message; `is_last`: it is the last of its transaction."""
        cdef int64_t end = self.content.size
        cdef uint64_t confirmed = self.end_lsn[self.transaction] if is_last else lsn
        buffer_append(&self.ends, &end, 8)
        buffer_append(&self.start_lsns, &lsn, 8)
        buffer_append(&self.end_lsns, &confirmed, 8)
        return buffer_append(&self.transactions, &self.transaction, 8)


cdef uint8_t op_of(const Table *table, int64_t row) noexcept nogil:
    cdef Piece piece = leaf_bytes(&table.op, row)
    return piece.data[0] if piece.size else 0


cdef uint8_t truncate_flags_of(const Table *table, int64_t row) noexcept nogil:
    """Flags of a row of op T; there are few."""
    cdef int64_t index
    for index in range(table.truncate_count):
        if table.truncate_rows[index] == row:
            return table.truncate_flags[index]
    return 0
