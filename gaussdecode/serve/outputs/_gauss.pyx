"""The parallel styles of GaussDB and openGauss, and the text of their serial plug-ins.

Of a parallel style, each record or statement is as ``source/gaussdb/translate`` reads it. With
sending-batch 1 records share a message until it is longer than 1 MiB, as the server counts it.
What is left at the end of a block goes out as the server's timer would send it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t

from gaussdecode.serve.outputs._arrow cimport (
    Digits, Leaf, LeafForm, leaf_bind, leaf_bytes, leaf_free, leaf_is_null, print_integer,
    print_lsn, print_timestamp,
)
from gaussdecode.serve.outputs._rows cimport (
    HEAD_DELETE, HEAD_INSERT, HEAD_NEW, HEAD_OLD, HEAD_TRUNCATE, HEAD_UPDATE, TEXT_NULL,
    TEXT_UNCHANGED, TRUNCATE_CASCADE, TRUNCATE_RESTART, Column, Table, Text, Writer, has_old_row,
    put, put_big, put_json, put_literal, read_text, set_big,
)
from gaussdecode.wire._forms cimport (
    JSON_DELETE, JSON_INSERT, JSON_NAMES, JSON_OLD_NAMES, JSON_OLD_TYPES, JSON_OLD_VALUES,
    JSON_OPERATION, JSON_TABLE, JSON_TYPES, JSON_UPDATE, JSON_VALUES, KEY_CSN, KEY_FIRST_LSN,
    KEY_ORIGIN, KEY_TIME, KEY_USER, KEY_XID, NULL_SIZE, PART_NEW, PART_OLD, PART_ORIGIN,
    PART_TIME, PART_USER, PART_XID, RECORD_BEGIN, RECORD_COMMIT, RECORD_HEARTBEAT, RECORD_INSERT,
    SEPARATOR_LAST, SEPARATOR_NEXT, SQL_AND, SQL_COMMA, SQL_DELETE, SQL_INSERT, SQL_IS,
    SQL_VALUES, SQL_WHERE, VALUE_NULL, VALUE_UNCHANGED, WORD_AT, WORD_BEGIN, WORD_CASCADE,
    WORD_COMMIT, WORD_CSN, WORD_DELETE, WORD_HEARTBEAT, WORD_INSERT, WORD_NEW_TUPLE,
    WORD_NO_FLAGS, WORD_NO_TUPLE, WORD_OLD_KEY, WORD_ORIGIN, WORD_PARALLEL_COMMIT, WORD_RESTART,
    WORD_TABLE, WORD_TRUNCATE, WORD_UPDATE, WORD_XID, Word,
)
from gaussdecode.wire._layout cimport (
    Buffer, buffer_append, buffer_fill, buffer_free,
)

import pyarrow as pa

cdef enum:
    HEADER_BYTES = 25           # of XLogData, which the server counts
    BATCH_BYTES = 1 << 20
    FRAME_BYTES = 12            # length and LSN

cdef enum RecordKind:
    BEGIN
    CHANGE
    COMMIT

cdef inline int put_word(Buffer *out, Word word) except -1 nogil:
    return buffer_append(out, word.text, word.size)


cdef inline int put_letter(Buffer *out, uint8_t letter) except -1 nogil:
    return buffer_append(out, &letter, 1)


cdef inline int put_key(Buffer *out, Word key) except -1 nogil:
    """Append what stands before a value of a boundary of the styles t and j."""
    buffer_append(out, b" ", 1)
    put_word(out, key)
    return buffer_append(out, b": ", 2)


cdef str of_word(Word word):
    return word.text[:word.size].decode()


# For the heads of rows, which are made in Python.
TABLE = of_word(WORD_TABLE)
INSERT, UPDATE, DELETE = of_word(WORD_INSERT), of_word(WORD_UPDATE), of_word(WORD_DELETE)
OLD_KEY, NEW_TUPLE = of_word(WORD_OLD_KEY), of_word(WORD_NEW_TUPLE)
OF_JSON = tuple([
    of_word(JSON_TABLE), of_word(JSON_OPERATION), of_word(JSON_NAMES), of_word(JSON_TYPES),
    of_word(JSON_VALUES), of_word(JSON_OLD_NAMES), of_word(JSON_OLD_TYPES),
    of_word(JSON_OLD_VALUES),
])
JSON_OPERATIONS = of_word(JSON_INSERT), of_word(JSON_UPDATE), of_word(JSON_DELETE)
OF_SQL = tuple([
    of_word(SQL_INSERT), of_word(SQL_VALUES), of_word(SQL_DELETE), of_word(SQL_WHERE),
    of_word(SQL_IS),
])
HEARTBEAT = of_word(WORD_HEARTBEAT)
HEARTBEAT_LETTER = bytes([RECORD_HEARTBEAT])
LAST = bytes([SEPARATOR_LAST])

cdef class GaussWriter(Writer):
    """Rows in the forms that GaussDB has.

    Args:
        style: ``b``, ``t`` and ``j``: parallel; ``s``: serial mppdb_decoding; ``q``: sql_decoding.
        has_xids: BEGIN and COMMIT say the transaction's id.
        begin_has_xid: BEGIN of a parallel style says it too, as openGauss does from 6.0 on.
        has_times: COMMIT, and in a parallel style BEGIN, says the commit time.
        has_users: BEGIN says the user.
        has_origins: BEGIN says the number of the origin: 0, since the landing has only its name.
        batch: ``sending-batch``.
        is_by_csn: BEGIN and COMMIT have messages of their own.
        is_lazy: see `Writer`.
    """

    cdef uint8_t style
    cdef bint has_xids, begin_has_xid, has_times, has_users, has_origins, is_by_csn
    cdef int batch
    cdef size_t message_start   # in `content`
    cdef size_t record_start
    cdef int64_t waiting        # records of the message
    cdef uint64_t header_lsn    # commit LSN of its first transaction
    cdef uint64_t write_lsn     # greatest LSN of a row or of a commit record so far
    cdef uint64_t committed     # end of the last transaction that ends in the message; 0: none
    cdef bint ends_whole        # the last record of the message is a COMMIT
    cdef int64_t last           # transaction of the last record
    cdef Buffer literal
    cdef Leaf users
    cdef object kept

    def __init__(
        self, *, bytes style, bint has_xids, bint begin_has_xid, bint has_times, bint has_users,
        bint has_origins, int batch, bint is_by_csn, bint is_lazy,
    ):
        super().__init__(is_lazy=is_lazy)
        self.style = style[0]
        self.has_xids, self.begin_has_xid, self.has_times = has_xids, begin_has_xid, has_times
        self.has_users, self.has_origins, self.is_by_csn = has_users, has_origins, is_by_csn
        self.batch = batch

    def __dealloc__(self):
        buffer_free(&self.literal)
        leaf_free(&self.users)

    def set_users(self, tuple users):
        """Set the names of the users of the transactions of the next block."""
        leaf_free(&self.users)
        self.kept = pa.array(users, pa.string())
        leaf_bind(&self.users, self.kept, Digits.DIGITS_SHORTEST, LeafForm.FORM_PLAIN)

    @property
    def state(self):
        """What is kept from block to block."""
        return self.has_begun, self.write_lsn

    @state.setter
    def state(self, tuple state):
        self.has_begun, self.write_lsn = state

    cdef bint is_serial(self) noexcept nogil:
        return self.style == c"s" or self.style == c"q"

    # --- records and messages --------------------------------------------------------------

    cdef int start_record(self, uint64_t lsn) except -1 nogil:
        if not self.waiting:
            self.message_start = self.content.size
            self.header_lsn = self.commit_lsn[self.transaction]
            self.committed = 0
        self.record_start = self.content.size
        if self.style == c"b" or (self.batch and not self.is_serial()):
            put_big(&self.content, 0, 4)
            put_big(&self.content, lsn, 8)
        return 0

    cdef int end_record(self, uint64_t lsn, RecordKind kind) except -1 nogil:
        cdef size_t size
        cdef bint is_full
        if self.is_serial():
            return self.end_message(lsn, kind == COMMIT)
        if self.style == c"b" or self.batch:
            size = self.content.size - self.record_start - 4
            if size >= NULL_SIZE:
                with gil:
                    raise OverflowError("a change is too large for a record of this style")
            set_big(self.content.data + self.record_start, size, 4)
        self.waiting += 1
        self.ends_whole = kind == COMMIT
        self.last = self.transaction
        is_full = (kind != CHANGE and self.is_by_csn) or (
            self.content.size - self.message_start + HEADER_BYTES > self.batch * <size_t>BATCH_BYTES
        )
        if self.style == c"b":
            put_letter(&self.content, SEPARATOR_LAST if is_full else SEPARATOR_NEXT)
        elif is_full and self.batch:
            buffer_fill(&self.content, 0, 4)
        if is_full:
            return self.send(self.write_lsn if self.write_lsn else self.header_lsn)
        return 0

    cdef int send(self, uint64_t lsn) except -1 nogil:
        """End a message of one record or several."""
        cdef int64_t end = self.content.size
        cdef uint64_t confirmed = self.committed if self.committed else lsn
        buffer_append(&self.ends, &end, 8)
        buffer_append(&self.start_lsns, &lsn, 8)
        buffer_append(&self.end_lsns, &confirmed, 8)
        buffer_append(&self.transactions, &self.last, 8)
        self.waiting = 0
        return 0

    cdef int flush(self) except -1 nogil:
        """Send what waits, as the server's timer does; in a transaction as a full buffer."""
        if not self.waiting:
            return 0
        if self.style != c"b" or self.ends_whole:
            buffer_fill(&self.content, 0, 4)
        else:
            self.content.data[self.content.size - 1] = SEPARATOR_LAST
        return self.send(self.header_lsn)

    cdef int finish(self) except -1 nogil:
        return self.flush()

    cdef void saw(self, uint64_t lsn) noexcept nogil:
        if lsn > self.write_lsn:
            self.write_lsn = lsn

    # --- transactions ----------------------------------------------------------------------

    cdef int put_time(self) except -1 nogil:
        return print_timestamp(self.time_us[self.transaction], True, &self.content)

    cdef int put_counted(self, uint8_t letter, bint is_user) except -1 nogil:
        """Append a part of a binary record that has a text."""
        cdef size_t start
        put_letter(&self.content, letter)
        put_big(&self.content, 0, 4)
        start = self.content.size
        if is_user:
            self.put_user()
        else:
            self.put_time()
        set_big(self.content.data + start - 4, self.content.size - start, 4)
        return 0

    cdef int put_user(self) except -1 nogil:
        if self.transaction < self.users.length and not leaf_is_null(&self.users, self.transaction):
            return put(&self.content, leaf_bytes(&self.users, self.transaction))
        return 0

    cdef int begin(self, uint64_t lsn) except -1 nogil:
        cdef int64_t now = self.transaction
        if self.is_lazy:
            self.saw(lsn)
        if self.is_by_csn:
            self.flush()
        self.start_record(self.first_lsn[now])
        if self.style == c"b":
            put_letter(&self.content, RECORD_BEGIN)
            put_big(&self.content, self.csn[now], 8)
            put_big(&self.content, self.first_lsn[now], 8)
            if self.has_xids and self.begin_has_xid:
                put_letter(&self.content, PART_XID)
                put_big(&self.content, self.xid[now], 8)
            if self.has_times:
                self.put_counted(PART_TIME, False)
            if self.has_users:
                self.put_counted(PART_USER, True)
            if self.has_origins:
                put_letter(&self.content, PART_ORIGIN)
                put_big(&self.content, 0, 4)
            return self.end_record(lsn, BEGIN)
        if self.is_serial():
            put_word(&self.content, WORD_BEGIN)
            if self.has_xids:
                put_letter(&self.content, c" ")
                print_integer(
                    self.xid[now] if self.style == c"s" else self.csn[now], &self.content
                )
            if self.has_origins:
                put_word(&self.content, WORD_ORIGIN)
                put_letter(&self.content, c"0")
            return self.end_record(lsn, BEGIN)
        put_word(&self.content, WORD_BEGIN)
        put_key(&self.content, KEY_CSN)
        print_integer(self.csn[now], &self.content)
        put_key(&self.content, KEY_FIRST_LSN)
        print_lsn(self.first_lsn[now], &self.content)
        if self.has_xids and self.begin_has_xid:
            put_key(&self.content, KEY_XID)
            print_integer(self.xid[now], &self.content)
        if self.has_times:
            put_key(&self.content, KEY_TIME)
            self.put_time()
        if self.has_users:
            put_key(&self.content, KEY_USER)
            self.put_user()
        if self.has_origins:
            put_key(&self.content, KEY_ORIGIN)
            put_letter(&self.content, c"0")
        return self.end_record(lsn, BEGIN)

    cdef int commit(self) except -1 nogil:
        cdef int64_t now = self.transaction
        self.saw(self.commit_lsn[now])
        if self.is_by_csn:
            self.flush()
        self.start_record(self.end_lsn[now])
        self.committed = self.end_lsn[now]
        if self.style == c"b":
            put_letter(&self.content, RECORD_COMMIT)
            if self.has_xids:
                put_letter(&self.content, PART_XID)
                put_big(&self.content, self.xid[now], 8)
            if self.has_times:
                self.put_counted(PART_TIME, False)
            return self.end_record(self.end_lsn[now], COMMIT)
        put_word(&self.content, WORD_COMMIT if self.is_serial() else WORD_PARALLEL_COMMIT)
        if self.has_xids and self.style != c"q":
            if self.style == c"s":
                put_letter(&self.content, c" ")
            else:
                put_word(&self.content, WORD_XID)
            print_integer(self.xid[now], &self.content)
        if self.has_times:
            put_word(&self.content, WORD_AT)
            self.put_time()
            put_letter(&self.content, c")")
        if self.is_serial():
            if self.style == c"s":
                put_word(&self.content, WORD_CSN)
            else:
                put_letter(&self.content, c" ")
            print_integer(self.csn[now], &self.content)
        return self.end_record(self.end_lsn[now], COMMIT)

    cdef int truncate(
        self, Table **tables, const int32_t *numbers, int64_t count, uint8_t flags, uint64_t lsn
    ) except -1 nogil:
        """Write a TRUNCATE; the parallel styles have none."""
        cdef int64_t index
        if not self.is_serial():
            return 0
        self.start_record(lsn)
        put_word(&self.content, WORD_TABLE)
        for index in range(count):
            if index:
                buffer_append(&self.content, b", ", 2)
            put(&self.content, tables[numbers[index]].heads[<int>HEAD_TRUNCATE])
        put_letter(&self.content, c":")
        put_word(&self.content, WORD_TRUNCATE)
        if flags & TRUNCATE_RESTART:
            put_word(&self.content, WORD_RESTART)
        if flags & TRUNCATE_CASCADE:
            put_word(&self.content, WORD_CASCADE)
        if not flags:
            put_word(&self.content, WORD_NO_FLAGS)
        return self.end_record(lsn, CHANGE)

    # --- rows ------------------------------------------------------------------------------

    cdef int row(self, Table *table, int64_t row, uint8_t op, uint64_t lsn) except -1 nogil:
        self.saw(lsn)
        self.start_record(lsn)
        if self.style == c"b":
            self.binary_row(table, row, op)
        elif self.style == c"t":
            self.text_row(table, row, op)
        elif self.style == c"q":
            self.sql_row(table, row, op)
        else:
            self.json_row(table, row, op)
        return self.end_record(lsn, CHANGE)

    cdef bint has_key(self, Table *table, int64_t row, uint8_t op) noexcept nogil:
        """Whether the server sends an old row: of an update with a key always."""
        return has_old_row(table, row) or (op == c"U" and table.has_old)

    cdef int binary_row(self, Table *table, int64_t row, uint8_t op) except -1 nogil:
        put_letter(&self.content, RECORD_INSERT if op == c"R" else op)
        put(&self.content, table.heads[<int>HEAD_INSERT])
        if op != c"D":
            put_letter(&self.content, PART_NEW)
            self.columns(table, row, False, False)
        if op != c"I" and op != c"R" and self.has_key(table, row, op):
            put_letter(&self.content, PART_OLD)
            self.columns(table, row, has_old_row(table, row), True)
        return 0

    cdef int text_row(self, Table *table, int64_t row, uint8_t op) except -1 nogil:
        cdef bint has_key = self.has_key(table, row, op)
        if op == c"D":
            put(&self.content, table.heads[<int>HEAD_DELETE])
            if not has_key:
                return put_word(&self.content, WORD_NO_TUPLE)
            return self.columns(table, row, True, True)
        if op != c"U":
            put(&self.content, table.heads[<int>HEAD_INSERT])
            return self.columns(table, row, False, False)
        put(&self.content, table.heads[<int>HEAD_UPDATE])
        if has_key:
            put_word(&self.content, WORD_OLD_KEY)
            self.columns(table, row, has_old_row(table, row), True)
            put_word(&self.content, WORD_NEW_TUPLE)
        return self.columns(table, row, False, False)

    cdef int json_row(self, Table *table, int64_t row, uint8_t op) except -1 nogil:
        cdef bint has_key = self.has_key(table, row, op)
        if op == c"D":
            put(&self.content, table.heads[<int>HEAD_DELETE])
        else:
            put(&self.content, table.heads[<int>HEAD_UPDATE if op == c"U" else <int>HEAD_INSERT])
            self.columns(table, row, False, False)
        if has_key and op != c"I" and op != c"R":
            put(&self.content, table.heads[<int>HEAD_OLD])
            self.columns(table, row, has_old_row(table, row), True)
        else:
            put(&self.content, table.heads[<int>HEAD_NEW])
        return buffer_append(&self.content, b"]}", 2)

    cdef int sql_row(self, Table *table, int64_t row, uint8_t op) except -1 nogil:
        if op == c"U" or op == c"D":
            put(&self.content, table.heads[<int>HEAD_DELETE])
            if self.has_key(table, row, op):
                self.columns(table, row, has_old_row(table, row), True)
            else:
                put_word(&self.content, WORD_NO_TUPLE)
            buffer_append(&self.content, b";", 1)
        if op != c"D":
            put(&self.content, table.heads[<int>HEAD_INSERT])
            buffer_append(&self.content, b"(", 1)
            self.columns(table, row, False, False)
            buffer_append(&self.content, b");", 2)
        return 0

    cdef int columns(
        self, Table *table, int64_t row, bint is_old, bint is_key
    ) except -1 nogil:
        """Write the columns of a row.

        Args:
            is_old: values of the old row.
            is_key: columns of the identity only, of the old row or, where the key did
                not change, of the new one.
        """
        cdef int _index
        cdef uint16_t count = 0
        cdef size_t start = self.content.size
        cdef Text text
        cdef const Column *column = table.old_columns if is_old else table.new_columns
        if self.style == c"b":
            put_big(&self.content, 0, 2)
        for _index in range(table.old_count if is_old else table.new_count):
            if not is_key or column.in_identity:
                read_text(table, column, is_old, row, &self.scratch, &text)
                if self.style != c"b":
                    self.put_text(column, &text, count == 0, is_key)
                    count += 1
                elif text.state != TEXT_UNCHANGED:
                    self.put_binary(column, &text)
                    count += 1
            column += 1
        if self.style == c"b":
            set_big(self.content.data + start, count, 2)
        return 0

    cdef int put_binary(self, const Column *column, const Text *text) except -1 nogil:
        put(&self.content, column.prefix)
        if text.state == TEXT_NULL:
            return put_big(&self.content, NULL_SIZE, 4)
        put_big(&self.content, text.size, 4)
        return buffer_append(&self.content, text.data, text.size)

    cdef int put_text(
        self, const Column *column, const Text *text, bint is_first, bint is_key
    ) except -1 nogil:
        """Write a column of a style that has literals."""
        cdef Buffer *out = &self.content
        if self.style == c"j" or self.style == c"s":
            if not is_first:
                buffer_append(out, b",", 1)
            self.literal.size = 0
            self.put_value(&self.literal, column, text)
            return put_json(out, self.literal.data, self.literal.size)
        if self.style == c"t":
            put(out, column.prefix)
        elif is_key:
            if not is_first:
                put_word(out, SQL_AND)
            put(out, column.prefix)
        elif not is_first:
            put_word(out, SQL_COMMA)
        return self.put_value(out, column, text)

    cdef int put_value(self, Buffer *out, const Column *column, const Text *text) except -1 nogil:
        if text.state == TEXT_NULL:
            return put_word(out, VALUE_NULL)
        if text.state == TEXT_UNCHANGED:
            return put_word(out, VALUE_UNCHANGED)
        return put_literal(out, column.literal, text)
