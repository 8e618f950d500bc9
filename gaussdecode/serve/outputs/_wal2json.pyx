"""The JSON objects of wal2json's format version 2.

Heads of a table: `HEAD_INSERT` and `HEAD_TRUNCATE` have its name, `HEAD_OLD` its primary key, if
that is asked for. The prefix of a column goes up to its value.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp

from gaussdecode.serve.outputs._arrow cimport (
    Digits, Leaf, LeafForm, Piece, leaf_bind, leaf_free, leaf_is_null, print_integer,
    print_lsn, print_timestamp,
)
from gaussdecode.serve.outputs._rows cimport (
    HEAD_INSERT, HEAD_OLD, HEAD_TRUNCATE, LITERAL_BARE, LITERAL_BOOL, LITERAL_BYTES, TEXT_NULL,
    TEXT_UNCHANGED, Column, Table, Text, Writer, has_old_row, put, put_json, put_literal,
    read_text,
)
from gaussdecode.wire._layout cimport Buffer, buffer_append

import pyarrow as pa


cdef class Wal2JsonWriter(Writer):
    """Writes one object for each change, and for BEGIN and COMMIT.

    Args:
        actions: letters of the changes that are written: of I, U, D and T.
        has_transactions: BEGIN and COMMIT are written.
        has_xids: objects say the transaction's id.
        has_times: objects say the commit time.
        has_origins: objects say the number of the origin: 0 for none, and null for others, since
            the landing has only their names.
        has_lsns: objects say LSNs.
        quotes_numbers: numbers are strings, NaN and Infinity too.
        added_prefixes: of messages that are written, each with a zero byte; empty for all.
        filtered_prefixes: of messages that are not, likewise.
    """

    cdef bytes actions
    cdef const char *letters
    cdef size_t letter_count
    cdef bytes added_prefixes, filtered_prefixes
    cdef Piece added, filtered
    cdef bint has_transactions, has_xids, has_times, has_origins, has_lsns, quotes_numbers
    cdef Leaf origins
    cdef object kept

    def __init__(
        self, *, bytes actions, bint has_transactions, bint has_xids, bint has_times,
        bint has_origins, bint has_lsns, bint quotes_numbers, bytes added_prefixes,
        bytes filtered_prefixes,
    ):
        super().__init__()
        self.actions = actions
        self.letters = actions
        self.letter_count = len(actions)
        self.has_transactions, self.has_xids, self.has_times = has_transactions, has_xids, has_times
        self.has_origins, self.has_lsns = has_origins, has_lsns
        self.quotes_numbers = quotes_numbers
        self.added_prefixes, self.filtered_prefixes = added_prefixes, filtered_prefixes
        self.added.data, self.added.size = added_prefixes, len(added_prefixes)
        self.filtered.data, self.filtered.size = filtered_prefixes, len(filtered_prefixes)

    def __dealloc__(self):
        leaf_free(&self.origins)

    def set_origins(self, tuple origins):
        """Set the names of the origins of the transactions of the next block."""
        leaf_free(&self.origins)
        self.kept = pa.array(origins, pa.string())
        leaf_bind(&self.origins, self.kept, Digits.DIGITS_SHORTEST, LeafForm.FORM_PLAIN)

    cdef bint is_written(self, uint8_t letter) noexcept nogil:
        return memchr(self.letters, letter, self.letter_count) != NULL

    # --- transactions ----------------------------------------------------------------------

    cdef int open(
        self, uint8_t letter, uint64_t lsn, bint is_transactional=True
    ) except -1 nogil:
        """Begin an object with what all of them have."""
        cdef int64_t now = self.transaction
        cdef Buffer *out = &self.content
        buffer_append(out, b'{"action":"', 11)
        buffer_append(out, &letter, 1)
        buffer_append(out, b'"', 1)
        if self.has_xids:
            buffer_append(out, b',"xid":', 7)
            if is_transactional:
                print_integer(self.xid[now], out)
            else:
                buffer_append(out, b"null", 4)
        if self.has_times:
            buffer_append(out, b',"timestamp":', 13)
            if is_transactional and self.time_us[now]:
                buffer_append(out, b'"', 1)
                print_timestamp(self.time_us[now], True, out)
                buffer_append(out, b'"', 1)
            else:
                buffer_append(out, b"null", 4)
        if self.has_origins:
            buffer_append(out, b',"origin":', 10)
            if is_transactional and now < self.origins.length and leaf_is_null(&self.origins, now):
                buffer_append(out, b"0", 1)
            else:
                buffer_append(out, b"null", 4)
        if self.has_lsns:
            self.put_lsn(b',"lsn":"', 8, lsn)
        return 0

    cdef int put_lsn(self, const char *key, size_t size, uint64_t lsn) except -1 nogil:
        buffer_append(&self.content, key, size)
        print_lsn(lsn, &self.content)
        return buffer_append(&self.content, b'"', 1)

    cdef int put_bound(self, uint8_t letter, uint64_t lsn, bint is_last) except -1 nogil:
        """Write BEGIN or COMMIT."""
        if not self.has_transactions:
            return 0
        self.open(letter, self.commit_lsn[self.transaction])
        if self.has_lsns:
            self.put_lsn(b',"nextlsn":"', 12, self.end_lsn[self.transaction])
        buffer_append(&self.content, b"}", 1)
        return self.end_message(lsn, is_last)

    cdef int begin(self, uint64_t lsn) except -1 nogil:
        return self.put_bound(c"B", lsn, False)

    cdef int commit(self) except -1 nogil:
        return self.put_bound(c"C", self.end_lsn[self.transaction], True)

    # --- rows ------------------------------------------------------------------------------

    cdef int row(self, Table *table, int64_t row, uint8_t op, uint64_t lsn) except -1 nogil:
        cdef uint8_t letter = c"I" if op == c"R" else op
        cdef bint has_old = has_old_row(table, row)
        cdef bint is_identified = letter == c"I" or has_old or has_identity(table)
        if not self.is_written(letter) or not is_identified:
            return 0
        self.open(letter, lsn)
        put(&self.content, table.heads[<int>HEAD_INSERT])
        if letter != c"D":
            buffer_append(&self.content, b',"columns":[', 12)
            self.columns(table, row, False, False)
        if letter == c"U" or (letter == c"D" and has_old):
            buffer_append(&self.content, b',"identity":[', 13)
            self.columns(table, row, has_old, True)
        put(&self.content, table.heads[<int>HEAD_OLD])
        buffer_append(&self.content, b"}", 1)
        return self.end_message(lsn, False)

    cdef int columns(self, Table *table, int64_t row, bint is_old, bint is_key) except -1 nogil:
        """Write the columns of a row that were sent, and the end of their list.

        Args:
            is_old: values of the old row.
            is_key: columns of the identity only.
        """
        cdef int _index
        cdef bint is_first = True
        cdef Text text
        cdef const Column *column = table.old_columns if is_old else table.new_columns
        for _index in range(table.old_count if is_old else table.new_count):
            if not is_key or column.in_identity:
                read_text(table, column, is_old, row, &self.scratch, &text)
                if text.state != TEXT_UNCHANGED:
                    if not is_first:
                        buffer_append(&self.content, b",", 1)
                    is_first = False
                    put(&self.content, column.prefix)
                    self.put_value(column, &text)
                    buffer_append(&self.content, b"}", 1)
            column += 1
        return buffer_append(&self.content, b"]", 1)

    cdef int put_value(self, const Column *column, const Text *text) except -1 nogil:
        if text.state == TEXT_NULL:
            return buffer_append(&self.content, b"null", 4)
        if column.literal == LITERAL_BARE and not self.quotes_numbers:
            if is_finite(text):
                return buffer_append(&self.content, text.data, text.size)
            return buffer_append(&self.content, b"null", 4)
        if column.literal == LITERAL_BOOL:
            return put_literal(&self.content, LITERAL_BOOL, text)
        if column.literal == LITERAL_BYTES and text.size >= 2:  # without the \x before the digits
            return put_json(&self.content, text.data + 2, text.size - 2)
        return put_json(&self.content, text.data, text.size)

    cdef int message(
        self, Piece prefix, Piece content, bint is_transactional, uint64_t lsn
    ) except -1 nogil:
        cdef const uint8_t *nul
        if is_listed(self.filtered, prefix) or (
            self.added.size and not is_listed(self.added, prefix)
        ):
            return 0
        self.open(c"M", lsn, is_transactional)
        buffer_append(&self.content, b',"transactional":', 17)
        if is_transactional:
            buffer_append(&self.content, b"true", 4)
        else:
            buffer_append(&self.content, b"false", 5)
        buffer_append(&self.content, b',"prefix":', 10)
        put_json(&self.content, prefix.data, prefix.size)
        buffer_append(&self.content, b',"content":', 11)
        if content.size:  # a zero byte ends it, as there
            nul = <const uint8_t *>memchr(content.data, 0, content.size)
            if nul != NULL:
                content.size = nul - content.data
        put_json(&self.content, content.data, content.size)
        buffer_append(&self.content, b"}", 1)
        return self.end_message(lsn, False)

    cdef int truncate(
        self, Table **tables, const int32_t *numbers, int64_t count, uint8_t flags, uint64_t lsn
    ) except -1 nogil:
        cdef int64_t index
        if not self.is_written(c"T"):
            return 0
        for index in range(count):
            self.open(c"T", lsn)
            put(&self.content, tables[numbers[index]].heads[<int>HEAD_TRUNCATE])
            buffer_append(&self.content, b"}", 1)
            self.end_message(lsn, False)
        return 0


cdef bint is_listed(Piece items, Piece item) noexcept nogil:
    """Whether a text is one of several, each with a zero byte after it."""
    cdef const uint8_t *end
    cdef size_t size
    while items.size:
        end = <const uint8_t *>memchr(items.data, 0, items.size)
        if end == NULL:
            return False
        size = end - items.data
        if size == item.size and memcmp(items.data, item.data, size) == 0:
            return True
        items.data = end + 1
        items.size -= size + 1
    return False


cdef bint has_identity(const Table *table) noexcept nogil:
    """Whether a new row says which row it is."""
    cdef int index
    for index in range(table.new_count):
        if table.new_columns[index].in_identity:
            return True
    return False


cdef bint is_finite(const Text *text) noexcept nogil:
    """Whether the text of a number is one of JSON: neither NaN nor Infinity."""
    cdef uint8_t letter
    if not text.size:
        return False
    letter = text.data[1] if text.data[0] == c"-" and text.size > 1 else text.data[0]
    return c"0" <= letter <= c"9" or letter == c"."
