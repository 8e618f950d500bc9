"""Rows of the binary style, whose values are text all the same.

| I U D | row | str16 schema, str16 table, parts up to the end of the record |
| N O | part | u16 count, count x (str16 name, u32 type OID, u32 size, text) |

Sizes 0xFFFFFFFF and 0xFFFFFFFE are NULL and reserved. A name with its type is one span.

References:
    openGauss, parallel_decode.cpp: parallel_decode_change_to_bin(), AppendTuple().
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t

from gaussdecode.wire._cursor cimport fail_truncated, fail_wire, read_uint16, read_uint32, take
from gaussdecode.wire._forms cimport (
    NULL_SIZE, PART_NEW, PART_OLD, RECORD_DELETE, RECORD_INSERT, RESERVED_SIZE,
)
from gaussdecode.source.gaussdb.translate._row cimport (
    FORM_NULL,
    FORM_PLAIN,
    Field,
    Tuple,
    tuple_add,
)

cdef enum:
    LEAST_COLUMN = 10           # bytes of a column without name and value
    OID_SIZE = 4


cdef int read_part(Cursor *cursor, Tuple *row_tuple) except -1 nogil:
    cdef uint32_t _index, size
    cdef uint32_t count
    cdef uint16_t name_size
    cdef Field *field
    if row_tuple.is_present:
        fail_wire(cursor, b"row with two tuples of a kind", 1)
    row_tuple.is_present = True
    count = <uint32_t>read_uint16(cursor)
    if count * LEAST_COLUMN > cursor.end - cursor.next:
        fail_truncated(cursor, count * LEAST_COLUMN)
    for _index in range(count):
        field = tuple_add(cursor, row_tuple)
        field.name = cursor.next
        name_size = <uint16_t>read_uint16(cursor)
        take(cursor, name_size + OID_SIZE)
        field.name_size = name_size + 2 + OID_SIZE
        field.type_size = 0
        read_uint32(cursor, &size)
        field.form = FORM_PLAIN
        field.size = size
        if size < RESERVED_SIZE:
            field.text = take(cursor, size)
        elif size == NULL_SIZE:
            field.form = FORM_NULL
            field.size = 0
        else:
            fail_wire(cursor, b"reserved size of a value", 4)
    return 0


cdef int scan_binary(Cursor *cursor, Row *row) except -1 nogil:
    """Read a row from the byte after its letter; the cursor ends with the record."""
    cdef uint8_t letter
    row.head = cursor.next
    take(cursor, <size_t>read_uint16(cursor))
    take(cursor, <size_t>read_uint16(cursor))
    row.head_size = cursor.next - row.head
    while cursor.next < cursor.end:
        letter = take(cursor, 1)[0]
        if letter == PART_NEW and row.op != RECORD_DELETE:
            read_part(cursor, &row.new)
        elif letter == PART_OLD and row.op != RECORD_INSERT:
            read_part(cursor, &row.old)
        else:
            fail_wire(cursor, b"unknown part of a row", 1)
    return 0
