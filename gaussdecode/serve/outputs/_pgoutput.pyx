"""Messages of PostgreSQL's pgoutput, as `protocol.canonical` reads them.

Heads of a table: `HEAD_INSERT` has the Relation message, `HEAD_UPDATE` the Type messages before it,
each after its length (four bytes, big-endian).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from gaussdecode.serve.outputs._arrow cimport (
    Digits, Leaf, LeafForm, Piece, leaf_bind, leaf_bytes, leaf_free, leaf_is_null,
)
from gaussdecode.serve.outputs._rows cimport (
    HEAD_INSERT, HEAD_OLD, HEAD_UPDATE, TEXT_NULL, TEXT_UNCHANGED, Column, Table, Text, Writer,
    has_old_row, put, put_big, read_text,
)
from gaussdecode.wire._layout cimport (
    Buffer, buffer_append, buffer_fill, buffer_free,
)

import pyarrow as pa

cdef int64_t EPOCH_2000_US = 946684800000000


cdef class PgOutputWriter(Writer):
    """Writes messages of protocol version 1; a table is described before its first row."""

    cdef Buffer told            # int64: version by number of the table
    cdef Leaf origins
    cdef object kept

    def __init__(self):
        super().__init__(is_lazy=True)

    def __dealloc__(self):
        buffer_free(&self.told)
        leaf_free(&self.origins)

    def set_origins(self, tuple origins):
        """Set the names of the origins of the transactions of the next block."""
        leaf_free(&self.origins)
        self.kept = pa.array(origins, pa.string())
        leaf_bind(&self.origins, self.kept, Digits.DIGITS_SHORTEST, LeafForm.FORM_PLAIN)

    cdef int begin(self, uint64_t lsn) except -1 nogil:
        cdef int64_t now = self.transaction
        buffer_append(&self.content, b"B", 1)
        put_big(&self.content, self.commit_lsn[now], 8)
        put_big(&self.content, self.time_us[now] - EPOCH_2000_US, 8)
        put_big(&self.content, self.xid[now], 4)
        self.end_message(lsn, False)
        if now >= self.origins.length or leaf_is_null(&self.origins, now):
            return 0
        buffer_append(&self.content, b"O", 1)
        put_big(&self.content, 0, 8)
        put(&self.content, leaf_bytes(&self.origins, now))
        put_big(&self.content, 0, 1)
        return self.end_message(lsn, False)

    cdef int commit(self) except -1 nogil:
        cdef int64_t now = self.transaction
        buffer_append(&self.content, b"C", 1)
        put_big(&self.content, 0, 1)
        put_big(&self.content, self.commit_lsn[now], 8)
        put_big(&self.content, self.end_lsn[now], 8)
        put_big(&self.content, self.time_us[now] - EPOCH_2000_US, 8)
        return self.end_message(self.end_lsn[now], True)

    def knows(self, int64_t relation, int64_t version):
        """Whether the client knows a table in this version."""
        return self.known(relation)[0] == version

    def tell(self, int64_t relation, int64_t version):
        """The client knows a table in this version from now on."""
        self.known(relation)[0] = version

    cdef int64_t *known(self, int64_t relation) except NULL nogil:
        """The version in which the client knows a table; 0 for none."""
        if self.told.size <= <size_t>relation * 8:
            buffer_fill(&self.told, 0, (relation + 1) * 8 - self.told.size)
        return <int64_t *>self.told.data + relation

    cdef int describe(self, const Table *table) except -1 nogil:
        """Write Type messages and the Relation message, unless the client knows them."""
        cdef int64_t *known = self.known(table.relation)
        cdef const uint8_t *next = table.heads[<int>HEAD_UPDATE].data
        cdef const uint8_t *end = next + table.heads[<int>HEAD_UPDATE].size
        cdef Piece piece
        if known[0] == table.version:
            return 0
        known[0] = table.version
        while end - next > 4:
            piece.size = next[0] << 24 | next[1] << 16 | next[2] << 8 | next[3]
            piece.data = next + 4
            put(&self.content, piece)
            self.end_message(0, False)
            next = piece.data + piece.size
        put(&self.content, table.heads[<int>HEAD_INSERT])
        return self.end_message(0, False)

    cdef int row(self, Table *table, int64_t row, uint8_t op, uint64_t lsn) except -1 nogil:
        cdef uint8_t letter = c"I" if op == c"R" else op
        cdef bint has_old = has_old_row(table, row)
        if op == c"D" and not has_old:
            return 0
        self.describe(table)
        buffer_append(&self.content, &letter, 1)
        put_big(&self.content, table.oid, 4)
        if has_old and letter != c"I":
            put(&self.content, table.heads[<int>HEAD_OLD])
            self.columns(table, row, True)
        if letter != c"D":
            buffer_append(&self.content, b"N", 1)
            self.columns(table, row, False)
        return self.end_message(lsn, False)

    cdef int columns(self, Table *table, int64_t row, bint is_old) except -1 nogil:
        cdef int index
        cdef Text text
        cdef const Column *column
        put_big(&self.content, table.new_count, 2)
        for index in range(table.new_count):
            column = &table.new_columns[index]
            if is_old:
                if column.old_index < 0:
                    buffer_append(&self.content, b"n", 1)
                    continue
                column = &table.old_columns[column.old_index]
            read_text(table, column, is_old, row, &self.scratch, &text)
            if text.state == TEXT_NULL:
                buffer_append(&self.content, b"n", 1)
            elif text.state == TEXT_UNCHANGED:
                buffer_append(&self.content, b"u", 1)
            else:
                buffer_append(&self.content, b"t", 1)
                put_big(&self.content, text.size, 4)
                buffer_append(&self.content, text.data, text.size)
        return 0

    cdef int message(
        self, Piece prefix, Piece content, bint is_transactional, uint64_t lsn
    ) except -1 nogil:
        buffer_append(&self.content, b"M", 1)
        put_big(&self.content, is_transactional, 1)
        put_big(&self.content, lsn, 8)
        put(&self.content, prefix)
        put_big(&self.content, 0, 1)
        put_big(&self.content, content.size, 4)
        put(&self.content, content)
        return self.end_message(lsn, False)

    cdef int truncate(
        self, Table **tables, const int32_t *numbers, int64_t count, uint8_t flags, uint64_t lsn
    ) except -1 nogil:
        cdef int64_t index
        for index in range(count):
            self.describe(tables[numbers[index]])
        buffer_append(&self.content, b"T", 1)
        put_big(&self.content, count, 4)
        put_big(&self.content, flags, 1)
        for index in range(count):
            put_big(&self.content, tables[numbers[index]].oid, 4)
        return self.end_message(lsn, False)
