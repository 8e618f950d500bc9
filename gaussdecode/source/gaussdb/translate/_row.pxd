"""One row as sent: spans of its record, nothing copied; see `_row.pyx`."""

from libc.stdint cimport uint8_t, uint32_t

from gaussdecode.wire._cursor cimport Cursor
from gaussdecode.wire._forms cimport Word
from gaussdecode.wire._layout cimport Buffer


cdef enum:
    MAX_COLUMNS = 0x7FFF        # what a decoder's plan can hold

# How the text of a value stands in the record.
cdef enum Form:
    FORM_PLAIN = 0
    FORM_DOUBLED = 1            # each quote stands twice
    FORM_NULL = 2
    FORM_TRUE = 3
    FORM_FALSE = 4
    FORM_UNCHANGED = 5

cdef struct Field:
    const uint8_t *name         # as sent, and its type where that follows at once
    const uint8_t *type         # as sent where it stands apart (JSON)
    const uint8_t *text
    size_t size                 # of the text
    uint32_t name_size
    uint32_t type_size
    uint32_t column             # in the relation, once matched
    uint8_t form

cdef struct Tuple:
    Field *fields
    uint32_t count
    uint32_t capacity
    bint is_present

cdef struct Row:
    uint8_t op                  # I, U, D or T
    bint is_positional          # the new tuple names no columns
    bint hides_bare             # an old tuple without columns does not show
    bint is_utf8                # the database is
    const uint8_t *head         # what names the table, as sent
    size_t head_size
    Tuple new
    Tuple old
    Buffer scratch              # unescaped values; does not move while a row is read


cdef int row_clear(Row *row, uint8_t op) except -1 nogil
cdef void row_free(Row *row) noexcept nogil
cdef Field *tuple_add(Cursor *cursor, Tuple *row_tuple) except NULL nogil
cdef int expect(Cursor *cursor, const char *text, size_t size) except -1 nogil
cdef bint accept(Cursor *cursor, const char *text, size_t size) noexcept nogil
cdef inline bint accept_word(Cursor *cursor, Word word) noexcept nogil:
    return accept(cursor, word.text, word.size)


cdef inline int expect_word(Cursor *cursor, Word word) except -1 nogil:
    return expect(cursor, word.text, word.size)


cdef int read_identifier(Cursor *cursor) except -1 nogil
cdef int read_literal(Cursor *cursor, Field *field) except -1 nogil
cdef bint set_literal(Field *field, const uint8_t *text, size_t size) noexcept nogil
