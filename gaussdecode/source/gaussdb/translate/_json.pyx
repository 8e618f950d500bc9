"""Rows of the JSON style, which serial mppdb_decoding shares.

    {"table_name":"public.t","op_type":"UPDATE","columns_name":["a"],
    "columns_type":["integer"],"columns_val":["1"],"old_keys_name":[],"old_keys_type":[],
    "old_keys_val":[]}

(in one line): eight keys in this order, without blanks. Every value is a JSON string that
holds a SQL literal. The table is quoted where SQL wants it. Bytes from 0x80 on come as they
are in the database; a trail byte that looks like a backslash comes doubled, like any other.

References:
    openGauss, parallel_decode.cpp: parallel_decode_change_to_json(), PrintLiteral();
    cJSON 1.7: print_string_ptr().
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memset

from gaussdecode.wire._cursor cimport fail_truncated, fail_wire, take
from gaussdecode.wire._forms cimport (
    JSON_DELETE, JSON_INSERT, JSON_NAMES, JSON_OLD_NAMES, JSON_OLD_TYPES, JSON_OLD_VALUES,
    JSON_OPERATION, JSON_TABLE, JSON_TYPES, JSON_UPDATE, JSON_VALUES,
)
from gaussdecode.wire._layout cimport buffer_grow
from gaussdecode.wire._values cimport HEADROOM
from gaussdecode.source.gaussdb.translate._row cimport (
    Field, Tuple, accept, accept_word, expect, expect_word, set_literal, tuple_add,
)

cdef enum:
    SLACK = 16                  # a short value may be copied with what follows it


cdef inline const uint8_t *read_text(
    Cursor *cursor, size_t *size, bint *has_escape
) except NULL nogil:
    """Step over a string with its quotes; what is between them, as sent."""
    cdef const uint8_t *start
    cdef const uint8_t *quote = NULL
    cdef const uint8_t *escape
    cdef size_t left
    expect(cursor, b'"', 1)
    start = cursor.next
    has_escape[0] = False
    while True:
        if quote < cursor.next:  # not looked for again at each escape before it
            left = cursor.end - cursor.next
            quote = <const uint8_t *>memchr(cursor.next, c"\"", left) if left else NULL
            if quote == NULL:
                fail_truncated(cursor, left + 1)
                return NULL
        escape = <const uint8_t *>memchr(cursor.next, c"\\", quote - cursor.next)
        if escape == NULL:
            break
        has_escape[0] = True
        cursor.next = escape
        take(cursor, 2)
    size[0] = quote - start
    cursor.next = quote + 1
    return start


# ---- escapes

cdef int read_hex(Cursor *cursor) except -1 nogil:
    """Four hexadecimal digits."""
    cdef const uint8_t *digits = take(cursor, 4)
    cdef int value = 0
    cdef int index
    cdef uint8_t digit
    for index in range(4):
        digit = digits[index]
        if c"0" <= digit <= c"9":
            digit -= c"0"
        elif c"a" <= digit | 32 <= c"f":
            digit = (digit | 32) - c"a" + 10
        else:
            return fail_wire(cursor, b"unknown escape in a string", 4)
        value = value << 4 | digit
    return value


cdef int read_code_point(Cursor *cursor) except -1 nogil:
    """What follows a backslash and a u: one code point, from one escape or a pair."""
    cdef int high = read_hex(cursor)
    cdef int low
    if high < 0xD800 or high > 0xDFFF:
        return high
    if high > 0xDBFF or not accept(cursor, b"\\u", 2):
        return fail_wire(cursor, b"half of a surrogate pair", 0)
    low = read_hex(cursor)
    if low < 0xDC00 or low > 0xDFFF:
        return fail_wire(cursor, b"half of a surrogate pair", 0)
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)


cdef uint8_t *put_code_point(uint8_t *target, int code) noexcept nogil:
    if code < 0x80:
        target[0] = <uint8_t>code
        return target + 1
    if code < 0x800:
        target[0] = <uint8_t>(0xC0 | code >> 6)
        target[1] = <uint8_t>(0x80 | code & 63)
        return target + 2
    if code < 0x10000:
        target[0] = <uint8_t>(0xE0 | code >> 12)
        target[1] = <uint8_t>(0x80 | code >> 6 & 63)
        target[2] = <uint8_t>(0x80 | code & 63)
        return target + 3
    target[0] = <uint8_t>(0xF0 | code >> 18)
    target[1] = <uint8_t>(0x80 | code >> 12 & 63)
    target[2] = <uint8_t>(0x80 | code >> 6 & 63)
    target[3] = <uint8_t>(0x80 | code & 63)
    return target + 4


cdef uint8_t *put_escape(Cursor *cursor, Row *row, uint8_t *target) except NULL nogil:
    """Write what the escape whose backslash was stepped over stands for."""
    cdef uint8_t letter = take(cursor, 1)[0]
    cdef int code
    if letter == c"u":
        code = read_code_point(cursor)
        if code >= 0x80 and not row.is_utf8:
            fail_wire(cursor, b"escaped letter in a database that is not UTF-8", 0)
        return put_code_point(target, code)
    if letter == c"n":
        letter = c"\n"
    elif letter == c"t":
        letter = c"\t"
    elif letter == c"r":
        letter = c"\r"
    elif letter == c"b":
        letter = 8
    elif letter == c"f":
        letter = 12
    elif letter != c"\"" and letter != c"\\" and letter != c"/":
        fail_wire(cursor, b"unknown escape in a string", 1)
    target[0] = letter
    return target + 1


cdef int unescape(
    Cursor *cursor, Row *row, const uint8_t **text, size_t *size
) except -1 nogil:
    """Copy a string without its escapes into the row's scratch; never longer than before."""
    cdef uint8_t *start = row.scratch.data + row.scratch.size
    cdef uint8_t *target = start
    cdef Cursor inner
    inner.head = cursor.head
    inner.next = text[0]
    inner.end = text[0] + size[0]
    while inner.next < inner.end:
        if inner.next[0] != c"\\":
            target[0] = inner.next[0]
            target += 1
            inner.next += 1
        else:
            inner.next += 1
            target = put_escape(&inner, row, target)
    text[0] = start
    size[0] = target - start
    row.scratch.size += size[0]
    return 0


# ---- arrays

cdef inline bint has_next(Cursor *cursor, bint is_first) except -1 nogil:
    """Whether another element follows; the closing bracket is stepped over."""
    if accept(cursor, b"]", 1):
        return False
    if not is_first:
        expect(cursor, b",", 1)
    return True


cdef int read_names(Cursor *cursor, Tuple *row_tuple) except -1 nogil:
    cdef Field *field
    cdef size_t size
    cdef bint has_escape
    while has_next(cursor, row_tuple.count == 0):
        field = tuple_add(cursor, row_tuple)
        field.name = read_text(cursor, &size, &has_escape)
        field.name_size = <uint32_t>size
        if size == 0:
            fail_wire(cursor, b"no name where one must be", 0)
    return 0


cdef int read_types(Cursor *cursor, Tuple *row_tuple) except -1 nogil:
    cdef uint32_t index = 0
    cdef size_t size
    cdef bint has_escape
    while has_next(cursor, index == 0):
        if index == row_tuple.count:
            fail_wire(cursor, b"more types than columns", 0)
        row_tuple.fields[index].type = read_text(cursor, &size, &has_escape)
        row_tuple.fields[index].type_size = <uint32_t>size
        index += 1
    if index != row_tuple.count:
        fail_wire(cursor, b"fewer types than columns", 0)
    return 0


cdef int read_value(Cursor *cursor, Row *row, Field *field) except -1 nogil:
    """Read one string and the literal in it."""
    cdef const uint8_t *text
    cdef size_t size
    cdef bint has_escape
    text = read_text(cursor, &size, &has_escape)
    if has_escape:
        unescape(cursor, row, &text, &size)
    if not set_literal(field, text, size):
        fail_wire(cursor, b"string without a literal", 0)
    return 0


cdef int read_values(Cursor *cursor, Row *row, Tuple *row_tuple) except -1 nogil:
    cdef uint32_t index = 0
    while has_next(cursor, index == 0):
        if index == row_tuple.count:
            fail_wire(cursor, b"more values than columns", 0)
        read_value(cursor, row, &row_tuple.fields[index])
        index += 1
    if index != row_tuple.count:
        fail_wire(cursor, b"fewer values than columns", 0)
    return 0


cdef int read_operation(Cursor *cursor, Row *row) except -1 nogil:
    if accept_word(cursor, JSON_INSERT):
        row.op = c"I"
    elif accept_word(cursor, JSON_UPDATE):
        row.op = c"U"
    else:
        expect_word(cursor, JSON_DELETE)
        row.op = c"D"
    return 0


cdef int scan_json(Cursor *cursor, Row *row) except -1 nogil:
    """Read a row from its first brace on; an array without elements is no tuple."""
    cdef bint has_escape
    row.scratch.size = 0
    buffer_grow(&row.scratch, HEADROOM + (cursor.end - cursor.next) + SLACK)
    row.scratch.size = HEADROOM
    memset(row.scratch.data, 0, HEADROOM)
    expect_word(cursor, JSON_TABLE)
    row.head = read_text(cursor, &row.head_size, &has_escape)
    expect_word(cursor, JSON_OPERATION)
    read_operation(cursor, row)
    expect_word(cursor, JSON_NAMES)
    read_names(cursor, &row.new)
    expect_word(cursor, JSON_TYPES)
    read_types(cursor, &row.new)
    expect_word(cursor, JSON_VALUES)
    read_values(cursor, row, &row.new)
    expect_word(cursor, JSON_OLD_NAMES)
    read_names(cursor, &row.old)
    expect_word(cursor, JSON_OLD_TYPES)
    read_types(cursor, &row.old)
    expect_word(cursor, JSON_OLD_VALUES)
    read_values(cursor, row, &row.old)
    expect(cursor, b"}", 1)
    if cursor.next != cursor.end:
        fail_wire(cursor, b"bytes after the end of the row", 0)
    if row.op == c"D" and row.new.count or row.op == c"I" and row.old.count:
        fail_wire(cursor, b"tuple that its operation does not have", 0)
    row.new.is_present = row.op != c"D"
    row.old.is_present = row.old.count > 0
    row.hides_bare = True
    return 0
