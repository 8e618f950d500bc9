"""The text of PostgreSQL's example plug-in test_decoding."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from gaussdecode.serve.outputs._arrow cimport Piece, print_integer, print_timestamp
from gaussdecode.serve.outputs._rows cimport (
    HEAD_DELETE, HEAD_INSERT, HEAD_NEW, HEAD_OLD, HEAD_TRUNCATE, HEAD_UPDATE, TEXT_NULL,
    TEXT_UNCHANGED, TRUNCATE_CASCADE, TRUNCATE_RESTART, Column, Table, Text, Writer, has_old_row,
    put, put_literal, read_text,
)
from gaussdecode.wire._layout cimport buffer_append

cdef const char *NO_TUPLE = b" (no-tuple-data)"


cdef class TestDecodingWriter(Writer):
    """Writes lines.

    Args:
        has_xids: BEGIN and COMMIT say the transaction's id.
        has_times: COMMIT says the commit time.
        is_lazy: see `Writer`.
    """

    cdef bint has_xids, has_times

    def __init__(self, *, bint has_xids, bint has_times, bint is_lazy):
        super().__init__(is_lazy=is_lazy)
        self.has_xids = has_xids
        self.has_times = has_times

    cdef int begin(self, uint64_t lsn) except -1 nogil:
        buffer_append(&self.content, b"BEGIN ", 6 if self.has_xids else 5)
        if self.has_xids:
            print_integer(self.xid[self.transaction], &self.content)
        return self.end_message(lsn, False)

    cdef int commit(self) except -1 nogil:
        cdef int64_t now = self.transaction
        buffer_append(&self.content, b"COMMIT ", 7 if self.has_xids else 6)
        if self.has_xids:
            print_integer(self.xid[now], &self.content)
        if self.has_times:
            buffer_append(&self.content, b" (at ", 5)
            print_timestamp(self.time_us[now], True, &self.content)
            buffer_append(&self.content, b")", 1)
        return self.end_message(self.end_lsn[now], True)

    cdef int row(self, Table *table, int64_t row, uint8_t op, uint64_t lsn) except -1 nogil:
        cdef bint has_old = has_old_row(table, row)
        if op == c"D":
            put(&self.content, table.heads[<int>HEAD_DELETE])
            if has_old:
                self.columns(table, row, True)
            else:
                buffer_append(&self.content, NO_TUPLE, 16)
            return self.end_message(lsn, False)
        if op == c"U":
            put(&self.content, table.heads[<int>HEAD_UPDATE])
            if has_old:
                put(&self.content, table.heads[<int>HEAD_OLD])
                self.columns(table, row, True)
                put(&self.content, table.heads[<int>HEAD_NEW])
        else:
            put(&self.content, table.heads[<int>HEAD_INSERT])
        self.columns(table, row, False)
        return self.end_message(lsn, False)

    cdef int columns(self, Table *table, int64_t row, bint is_old) except -1 nogil:
        """Write all columns of the new row, or those of the old one that are not NULL."""
        cdef int _index
        cdef Text text
        cdef const Column *column = table.old_columns if is_old else table.new_columns
        for _index in range(table.old_count if is_old else table.new_count):
            read_text(table, column, is_old, row, &self.scratch, &text)
            if not is_old or text.state != TEXT_NULL:
                put(&self.content, column.prefix)
                if text.state == TEXT_NULL:
                    buffer_append(&self.content, b"null", 4)
                elif text.state == TEXT_UNCHANGED:
                    buffer_append(&self.content, b"unchanged-toast-datum", 21)
                else:
                    put_literal(&self.content, column.literal, &text)
            column += 1
        return 0

    cdef int message(
        self, Piece prefix, Piece content, bint is_transactional, uint64_t lsn
    ) except -1 nogil:
        buffer_append(&self.content, b"message: transactional: ", 24)
        print_integer(is_transactional, &self.content)
        buffer_append(&self.content, b" prefix: ", 9)
        put(&self.content, prefix)
        buffer_append(&self.content, b", sz: ", 6)
        print_integer(content.size, &self.content)
        buffer_append(&self.content, b" content:", 9)
        put(&self.content, content)
        return self.end_message(lsn, False)

    cdef int truncate(
        self, Table **tables, const int32_t *numbers, int64_t count, uint8_t flags, uint64_t lsn
    ) except -1 nogil:
        cdef int64_t index
        buffer_append(&self.content, b"table ", 6)
        for index in range(count):
            if index:
                buffer_append(&self.content, b", ", 2)
            put(&self.content, tables[numbers[index]].heads[<int>HEAD_TRUNCATE])
        buffer_append(&self.content, b": TRUNCATE:", 11)
        if flags & TRUNCATE_RESTART:
            buffer_append(&self.content, b" restart_seqs", 13)
        if flags & TRUNCATE_CASCADE:
            buffer_append(&self.content, b" cascade", 8)
        if not flags:
            buffer_append(&self.content, b" (no-flags)", 11)
        return self.end_message(lsn, False)
