"""Rows of the text style, parallel and serial.

    table public t INSERT: a[integer]:1 b[text]:'it''s'
    table public t UPDATE: old-key: a[integer]:1 new-tuple: a[integer]:1 b[text]:null
    table public t DELETE: (no-tuple-data)
    table public.t, public.u: TRUNCATE: restart_seqs cascade

The head is all up to the operation, in serial plug-ins with a colon at its end. Schema and
table are not quoted: what they are is for the slow path to find out, once per spelling. A
column's name, type and colon are one span.

References:
    openGauss, parallel_decode.cpp: parallel_decode_change_to_text(), tuple_to_stringinfo().
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from gaussdecode.wire._cursor cimport fail_truncated, fail_wire
from gaussdecode.wire._forms cimport (
    WORD_DELETE, WORD_INSERT, WORD_NEW_TUPLE, WORD_NO_TUPLE, WORD_OLD_KEY, WORD_TRUNCATE,
    WORD_UPDATE, Word,
)
from gaussdecode.source.gaussdb.translate._row cimport (
    Field, Tuple, accept_word, expect, expect_word, read_identifier, read_literal, tuple_add,
)


cdef inline bint stands(const uint8_t *text, const uint8_t *end, Word word) noexcept nogil:
    return <size_t>(end - text) >= word.size and memcmp(text, word.text, word.size) == 0


cdef uint8_t operation_at(const uint8_t *text, const uint8_t *end) noexcept nogil:
    """The letter of the operation that stands here, or 0."""
    if stands(text, end, WORD_INSERT):
        return c"I"
    if stands(text, end, WORD_UPDATE):
        return c"U"
    if stands(text, end, WORD_DELETE):
        return c"D"
    return c"T" if stands(text, end, WORD_TRUNCATE) else 0


cdef int read_head(
    Cursor *cursor, Row *row, const uint8_t *hint, size_t hint_size
) except -1 nogil:
    """Find the first operation; most often it follows the head of the row before."""
    cdef const uint8_t *found = cursor.next
    row.head = cursor.next
    row.op = 0
    if hint_size <= <size_t>(cursor.end - cursor.next) and (
        hint_size and memcmp(cursor.next, hint, hint_size) == 0
    ):
        found += hint_size
        row.op = operation_at(found, cursor.end)
    if not row.op:
        found = cursor.next
        while True:
            if found < cursor.end:
                found = <const uint8_t *>memchr(found, c" ", cursor.end - found)
            if found == NULL or found == cursor.end:
                return fail_wire(cursor, b"row without an operation", 0)
            row.op = operation_at(found, cursor.end)
            if row.op:
                break
            found += 1
    row.head_size = found - row.head
    cursor.next = found + (WORD_TRUNCATE.size if row.op == c"T" else WORD_INSERT.size)
    return 0


cdef inline int skip_type(Cursor *cursor) except -1 nogil:
    """Step over `[type]:`; the type of an array ends in brackets itself."""
    cdef bint is_quoted = False
    cdef uint8_t byte
    expect(cursor, b"[", 1)
    while cursor.end - cursor.next >= 2:
        byte = cursor.next[0]
        if byte == c"\"":
            is_quoted = not is_quoted
        elif byte == c"]" and not is_quoted and cursor.next[1] == c":":
            cursor.next += 2
            return 0
        cursor.next += 1
    return fail_truncated(cursor, cursor.end - cursor.next + 1)


cdef int read_columns(Cursor *cursor, Tuple *row_tuple) except -1 nogil:
    """Read columns, a blank before each, up to the end or another kind of word."""
    cdef Field *field
    row_tuple.is_present = True
    while cursor.next < cursor.end:
        if accept_word(cursor, WORD_NEW_TUPLE):
            cursor.next -= WORD_NEW_TUPLE.size
            return 0
        expect(cursor, b" ", 1)
        field = tuple_add(cursor, row_tuple)
        field.name = cursor.next
        field.type_size = 0
        read_identifier(cursor)
        skip_type(cursor)
        field.name_size = <uint32_t>(cursor.next - field.name)
        read_literal(cursor, field)
    return 0


cdef int scan_text(
    Cursor *cursor, Row *row, const uint8_t *hint, size_t hint_size
) except -1 nogil:
    """Read a row from the byte after `table `; of a TRUNCATE only the head.

    Args:
        hint: head of the row before, or NULL.
    """
    read_head(cursor, row, hint, hint_size)
    if row.op == c"T":
        return 0
    if accept_word(cursor, WORD_NO_TUPLE):
        pass
    elif row.op == c"D":
        read_columns(cursor, &row.old)
    else:
        if row.op == c"U" and accept_word(cursor, WORD_OLD_KEY):
            read_columns(cursor, &row.old)
            expect_word(cursor, WORD_NEW_TUPLE)
        if not accept_word(cursor, WORD_NO_TUPLE):
            read_columns(cursor, &row.new)
    if cursor.next != cursor.end:
        fail_wire(cursor, b"bytes after the end of the row", 0)
    return 0
