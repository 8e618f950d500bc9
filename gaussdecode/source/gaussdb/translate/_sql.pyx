"""Rows of sql_decoding, which are SQL statements.

    insert into public.t values (1, 'it''s', null);
    delete from public.t where a = 1 and b = 'x';
    delete from public.t where a = 1;insert into public.t values (1, 'new');

The last is an UPDATE, in one message. An insert names no columns: their names and types are
the catalogue's. A list may end in a comma, where the table's last column was dropped. TRUNCATE is
written as the other serial plug-ins do (`_text`); a DDL statement is passed on whole:

    table public.t, public.u: TRUNCATE: cascade
    message: prefix x, relid 16390, cmdtype: Simple, sz: 99 content: {...}

References:
    openGauss, contrib/sql_decoding: pg_decode_change(), TupleToStringinfo().
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from gaussdecode.wire._cursor cimport fail_wire
from gaussdecode.wire._forms cimport (
    SQL_AND, SQL_COMMA, SQL_DELETE, SQL_INSERT, SQL_IS, SQL_VALUES, SQL_WHERE, WORD_NO_TUPLE,
)
from gaussdecode.source.gaussdb.translate._row cimport (
    Field, Tuple, accept, accept_word, expect, expect_word, read_identifier, read_literal,
    tuple_add,
)


cdef int read_table(Cursor *cursor, Row *row) except -1 nogil:
    """Read schema and table; the second statement of an UPDATE names the same."""
    cdef const uint8_t *start = cursor.next
    cdef size_t size
    read_identifier(cursor)
    expect(cursor, b".", 1)
    read_identifier(cursor)
    size = cursor.next - start
    if row.head != NULL and (size != row.head_size or memcmp(start, row.head, size) != 0):
        fail_wire(cursor, b"update of two tables", 0)
    row.head = start
    row.head_size = size
    return 0


cdef int read_list(Cursor *cursor, Tuple *row_tuple) except -1 nogil:
    """Read `(1, 'x')`."""
    cdef Field *field
    row_tuple.is_present = True
    if not accept(cursor, b"(", 1):     # the server found more columns than the table has
        return 0
    while not accept(cursor, b")", 1):
        field = tuple_add(cursor, row_tuple)
        field.name_size = field.type_size = 0
        read_literal(cursor, field)
        if not accept_word(cursor, SQL_COMMA):
            expect(cursor, b")", 1)
            return 0
    return 0


cdef int read_conditions(Cursor *cursor, Tuple *row_tuple) except -1 nogil:
    """Read `a = 1 and b = 'x'`."""
    cdef Field *field
    row_tuple.is_present = True
    if cursor.next < cursor.end and cursor.next[0] == c";":
        return 0
    while True:
        field = tuple_add(cursor, row_tuple)
        field.name = cursor.next
        read_identifier(cursor)
        field.name_size = <uint32_t>(cursor.next - field.name)
        field.type_size = 0
        expect_word(cursor, SQL_IS)
        read_literal(cursor, field)
        if not accept_word(cursor, SQL_AND):
            return 0


cdef int scan_sql(Cursor *cursor, Row *row) except -1 nogil:
    """Read a row from its first word on."""
    row.is_positional = True
    row.op = c"I"
    if accept_word(cursor, SQL_DELETE):
        row.op = c"D"
        read_table(cursor, row)
        expect_word(cursor, SQL_WHERE)
        if not accept_word(cursor, WORD_NO_TUPLE):
            read_conditions(cursor, &row.old)
        expect(cursor, b";", 1)
        if cursor.next == cursor.end:
            return 0
        row.op = c"U"
    expect_word(cursor, SQL_INSERT)
    read_table(cursor, row)
    expect_word(cursor, SQL_VALUES)
    if not accept_word(cursor, WORD_NO_TUPLE):
        read_list(cursor, &row.new)
    expect(cursor, b";", 1)
    if cursor.next != cursor.end:
        fail_wire(cursor, b"bytes after the end of the row", 0)
    return 0
