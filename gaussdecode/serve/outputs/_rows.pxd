"""Rows of a block, and the loop over its transactions that every plug-in shares."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from gaussdecode.serve.outputs._arrow cimport Leaf, LeafKind, Piece
from gaussdecode.wire._layout cimport Buffer, buffer_append

cdef enum TextState:
    TEXT_VALUE
    TEXT_NULL
    TEXT_UNCHANGED              # not sent, and not known


cdef struct Text:
    TextState state
    const uint8_t *data         # in the array, or in the scratch buffer until the next value
    size_t size


cdef enum Literal:              # as print_literal of the server's plug-ins quotes a value
    LITERAL_QUOTED
    LITERAL_BARE
    LITERAL_BIT
    LITERAL_BOOL
    LITERAL_BYTES               # quoted; of bytea


cdef struct Column:
    Leaf leaf
    Piece landed
    Piece raw_key               # of its text in gd_raw; empty: none can be there
    Piece prefix                # what a plug-in writes before the value
    Literal literal
    bint in_identity
    int old_index               # of the same column of the old row; -1: it is not there


cdef enum TruncateFlag:
    TRUNCATE_CASCADE = 1
    TRUNCATE_RESTART = 2


cdef enum Head:                 # what a plug-in writes before the columns of a row
    HEAD_INSERT
    HEAD_UPDATE
    HEAD_DELETE
    HEAD_TRUNCATE
    HEAD_OLD                    # before the old row of an update or a delete
    HEAD_NEW                    # before the new row of an update that has an old one
    HEADS


cdef enum Skip:
    SKIP_TRANSACTION = 1
    SKIP_ROWS = 2
    SKIP_FRAME = 3              # BEGIN and COMMIT: its only row is a message outside of any


cdef struct Table:
    int64_t length
    bint is_wanted
    bint has_unchanged
    bint has_raw
    bint has_old
    Leaf op
    Leaf unchanged
    Leaf raw
    Leaf old
    int new_count
    int old_count
    Column *new_columns
    Column *old_columns
    Piece[<int>HEADS] heads
    int64_t oid
    int64_t truncate_count
    const int64_t *truncate_rows  # rising
    const uint8_t *truncate_flags
    int64_t relation            # number of the table, from 0
    int64_t version             # number of its schema, from 1


cdef class BoundTable:
    cdef list kept              # what the pointers point into
    cdef readonly object plan
    cdef Table table

    cdef int bind(self, Leaf *leaf, object array, LeafKind kind) except -1
    cdef void match_old(self) noexcept
    cdef int bind_column(self, Column *column, object plan, object array) except -1


cdef class Writer:
    cdef Buffer content, ends, start_lsns, end_lsns, transactions, scratch
    cdef bint is_lazy           # BEGIN comes with the first row, and no transaction without rows
    cdef bint has_begun         # of the transaction that goes on in the next block
    cdef int64_t transaction
    cdef const int64_t *xid
    cdef const uint64_t *end_lsn
    cdef const uint64_t *commit_lsn
    cdef const uint64_t *first_lsn
    cdef const int64_t *csn
    cdef const int64_t *time_us

    cdef int begin(self, uint64_t lsn) except -1 nogil
    cdef int row(self, Table *table, int64_t row, uint8_t op, uint64_t lsn) except -1 nogil
    cdef int truncate(
        self, Table **tables, const int32_t *numbers, int64_t count, uint8_t flags, uint64_t lsn
    ) except -1 nogil
    cdef int message(
        self, Piece prefix, Piece content, bint is_transactional, uint64_t lsn
    ) except -1 nogil
    cdef int commit(self) except -1 nogil
    cdef int finish(self) except -1 nogil
    cdef int end_message(self, uint64_t lsn, bint is_last) except -1 nogil
    cdef Table *table_at(
        self, Table **tables, int64_t table_count, int64_t number, int64_t row
    ) except NULL nogil
    cdef int run(
        self, Table **tables, int64_t table_count, int64_t transaction_count,
        const int64_t *row_ends, const uint8_t *skipped, const int32_t *row_table,
        const int64_t *row_index, const uint64_t *change_lsn, bint is_continued, bint is_open,
    ) except -1 nogil


cdef inline int put(Buffer *out, Piece piece) except -1 nogil:
    return buffer_append(out, piece.data, piece.size)


cdef int read_text(
    Table *table, const Column *column, bint is_old, int64_t row, Buffer *scratch, Text *text
) except -1 nogil
cdef bint has_old_row(const Table *table, int64_t row) noexcept nogil
cdef int put_big(Buffer *out, uint64_t value, int size) except -1 nogil
cdef void set_big(uint8_t *target, uint64_t value, int size) noexcept nogil
cdef int put_quoted(Buffer *out, const uint8_t *data, size_t size) except -1 nogil
cdef int put_json(Buffer *out, const uint8_t *data, size_t size) except -1 nogil
cdef int put_literal(Buffer *out, Literal literal, const Text *text) except -1 nogil
