"""One row as sent, and the SQL literals and identifiers that all texts have in common.

A scanner (`_binary`, `_text`, `_json`, `_sql`) fills a `Row` with spans into its
record; nothing is copied but JSON values with escapes. The spans live as long as the payload.

Literals: `null`, `true`, `false`, `unchanged-toast-datum`, a bare number, `'text'` with
quotes doubled, `B'101'`. Backslashes mean nothing. Every encoding a server can have keeps
the bytes below 0x30 for ASCII alone, so that quotes, blanks and commas can be looked for
byte by byte; `[`, `]`, `{` and `\\` cannot, inside of quotes.

References:
    openGauss, parallel_decode.cpp: PrintLiteral(); ruleutils.cpp: quote_identifier().
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp

from gaussdecode.wire._cursor cimport fail_truncated, fail_wire, take
from gaussdecode.wire._forms cimport (
    VALUE_FALSE, VALUE_NULL, VALUE_TRUE, VALUE_UNCHANGED, Word,
)
from gaussdecode.wire._layout cimport buffer_free

cdef enum:
    FIRST_FIELDS = 32


cdef int row_clear(Row *row, uint8_t op) except -1 nogil:
    """Begin a row; memory stays."""
    row.op = op
    row.is_positional = False
    row.hides_bare = False
    row.head = NULL
    row.head_size = 0
    row.new.count = row.old.count = 0
    row.new.is_present = row.old.is_present = False
    row.scratch.size = 0
    return 0


cdef void row_free(Row *row) noexcept nogil:
    free(row.new.fields)
    free(row.old.fields)
    row.new.fields = row.old.fields = NULL
    row.new.capacity = row.old.capacity = 0
    buffer_free(&row.scratch)


cdef int grow_tuple(Tuple *row_tuple) except -1 nogil:
    cdef uint32_t capacity = row_tuple.capacity * 2 if row_tuple.capacity else FIRST_FIELDS
    cdef void *moved = realloc(row_tuple.fields, capacity * sizeof(Field))
    if moved == NULL:
        with gil:
            raise MemoryError("no memory for the columns of a row")
    row_tuple.fields = <Field *>moved
    row_tuple.capacity = capacity
    return 0


cdef Field *tuple_add(Cursor *cursor, Tuple *row_tuple) except NULL nogil:
    """Append a field; its members are the caller's to set."""
    if row_tuple.count == row_tuple.capacity:
        grow_tuple(row_tuple)
    if row_tuple.count == MAX_COLUMNS:
        fail_wire(cursor, b"more columns than a table can have", 0)
        return NULL
    row_tuple.count += 1
    return &row_tuple.fields[row_tuple.count - 1]


# ---- words

cdef bint accept(Cursor *cursor, const char *text, size_t size) noexcept nogil:
    """Step over `text` if it is next."""
    if <size_t>(cursor.end - cursor.next) < size or memcmp(cursor.next, text, size) != 0:
        return False
    cursor.next += size
    return True


cdef int expect(Cursor *cursor, const char *text, size_t size) except -1 nogil:
    """Step over `text`, which must be next."""
    cdef size_t left = cursor.end - cursor.next
    if left < size and memcmp(cursor.next, text, left) == 0:
        return fail_truncated(cursor, size)
    if left < size or memcmp(cursor.next, text, size) != 0:
        return fail_wire(cursor, b"statement that does not follow its style", 0)
    cursor.next += size
    return 0


cdef inline int skip_quoted(Cursor *cursor, uint8_t quote) except -1 nogil:
    """Step over what stands between quotes and the closing one; 1: quotes stood doubled."""
    cdef const uint8_t *found
    cdef size_t left
    cdef int is_doubled = 0
    while True:
        left = cursor.end - cursor.next
        found = <const uint8_t *>memchr(cursor.next, quote, left) if left else NULL
        if found == NULL:
            return fail_truncated(cursor, left + 1)
        cursor.next = found + 1
        if cursor.next == cursor.end or cursor.next[0] != quote:
            return is_doubled
        cursor.next += 1
        is_doubled = 1


cdef int read_identifier(Cursor *cursor) except -1 nogil:
    """Step over one SQL identifier: quoted, or small letters, digits and underscores."""
    cdef const uint8_t *start = cursor.next
    cdef uint8_t byte
    if take(cursor, 1)[0] == c"\"":
        skip_quoted(cursor, c"\"")
        return 0
    cursor.next = start
    while cursor.next < cursor.end:
        byte = cursor.next[0]
        if not (c"a" <= byte <= c"z" or c"0" <= byte <= c"9" or byte == c"_"):
            break
        cursor.next += 1
    if cursor.next == start:
        fail_wire(cursor, b"no name where one must be", 0)
    return 0


cdef inline bint is_word(const uint8_t *text, size_t size, Word word) noexcept nogil:
    return size == word.size and memcmp(text, word.text, word.size) == 0


cdef inline void classify(Field *field) noexcept nogil:
    """Tell the words from the numbers."""
    cdef const uint8_t *text = field.text
    if is_word(text, field.size, VALUE_NULL):
        field.form = FORM_NULL
    elif is_word(text, field.size, VALUE_TRUE):
        field.form = FORM_TRUE
    elif is_word(text, field.size, VALUE_FALSE):
        field.form = FORM_FALSE
    elif is_word(text, field.size, VALUE_UNCHANGED):
        field.form = FORM_UNCHANGED


cdef int read_literal(Cursor *cursor, Field *field) except -1 nogil:
    """Read one value; a bare one ends before a blank, comma, bracket, semicolon or the end."""
    cdef const uint8_t *start = cursor.next
    cdef uint8_t byte
    field.form = FORM_PLAIN
    byte = take(cursor, 1)[0]
    if byte == c"B" and cursor.next < cursor.end and cursor.next[0] == c"'":
        cursor.next += 1
        start += 1
        byte = c"'"
    if byte == c"'":
        if skip_quoted(cursor, c"'"):
            field.form = FORM_DOUBLED
        field.text = start + 1
        field.size = cursor.next - start - 2
        return 0
    cursor.next = start
    while cursor.next < cursor.end:
        byte = cursor.next[0]
        if byte == c" " or byte == c"," or byte == c")" or byte == c";":
            break
        cursor.next += 1
    if cursor.next == start:
        fail_wire(cursor, b"no value where one must be", 0)
    field.text = start
    field.size = cursor.next - start
    classify(field)
    return 0


cdef bint set_literal(Field *field, const uint8_t *text, size_t size) noexcept nogil:
    """Take a text that is one literal as a whole; False when it is none."""
    cdef const uint8_t *quote = text
    cdef const uint8_t *last = text + size - 1
    field.form = FORM_PLAIN
    field.text = text
    field.size = size
    if size == 0:
        return False
    if text[0] == c"B" and size > 1 and text[1] == c"'":
        quote += 1
    if quote[0] != c"'":
        classify(field)
        return True
    if last == quote or last[0] != c"'":
        return False
    field.text = quote + 1
    field.size = last - field.text
    while True:
        quote = <const uint8_t *>memchr(quote + 1, c"'", last - quote)
        if quote == last:
            return True
        if quote[1] != c"'" or quote + 1 == last:
            return False
        field.form = FORM_DOUBLED
        quote += 1
