"""Any value in its send format to the text that the server would send, parts and all.

Arrays, composites and ranges are spelled part by part, each put into quotes where the server would
put it. How deep they stand in each other is bounded by their types, not by the bytes.

References:
    PostgreSQL, ``arrayfuncs.c`` (array_out, array_send), ``rowtypes.c`` (record_out,
    record_send), ``rangetypes.c`` (range_deparse, range_send), ``multirangetypes.c``, ``int.c``.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from gaussdecode.wire._formats cimport (
    HELD, MALFORMED, NO_TEXT, SENT_ARRAY, SENT_MULTIRANGE, SENT_RANGE, SENT_RECORD, SENT_TSQUERY,
    SENT_TSVECTOR, SENT_VECTOR, load_uint32,
)
from gaussdecode.wire._layout cimport buffer_append, buffer_grow
from gaussdecode.wire._search cimport put_tsquery, put_tsvector
from gaussdecode.wire._spell cimport put, put_number, put_value

cdef enum:
    MOST_DIMENSIONS = 6
    NULL_SIZE = 0xFFFFFFFF
    FIELD_HEAD = 8              # of a composite: type and size
    RANGE_EMPTY = 1
    RANGE_LOWER_INCLUSIVE = 2
    RANGE_UPPER_INCLUSIVE = 4
    RANGE_LOWER_INFINITE = 8
    RANGE_UPPER_INFINITE = 16
    # What makes a part be put into quotes.
    IN_ARRAY = 1
    IN_RECORD = 2
    IN_RANGE = 4

cdef extern from *:
    """
    static const uint8_t gd_quoted_in[256] = {
        ['\\t'] = 7, ['\\n'] = 7, ['\\v'] = 7, ['\\f'] = 7, ['\\r'] = 7, [' '] = 7,
        ['"'] = 7, ['\\\\'] = 7, ['{'] = 1, ['}'] = 1, [','] = 6, ['('] = 6, [')'] = 6,
        ['['] = 4, [']'] = 4};
    """
    const uint8_t[256] gd_quoted_in


cdef int put_text(
    Buffer *out, const SentNode *node, const uint8_t *data, size_t size
) except -1 nogil:
    """See `_text.pxd`."""
    if node.format < SENT_TSVECTOR:
        return put_value(out, node.format, data, size)
    if node.format == SENT_ARRAY:
        return put_array(out, node, data, size)
    if node.format == SENT_RECORD:
        return put_record(out, node, data, size)
    if node.format == SENT_RANGE:
        return put_range(out, node + node.first, data, size)
    if node.format == SENT_MULTIRANGE:
        return put_multirange(out, node + node.first, data, size)
    if node.format == SENT_VECTOR:
        return put_vector(out, node + node.first, data, size)
    if node.format == SENT_TSVECTOR:
        return put_tsvector(out, data, size)
    if node.format == SENT_TSQUERY:
        return put_tsquery(out, data, size)
    return put_value(out, node.format, data, size)


# ---- quotes

cdef bint needs_quotes(
    const uint8_t *text, size_t size, uint8_t place, uint8_t delimiter
) noexcept nogil:
    cdef size_t index
    for index in range(size):
        if gd_quoted_in[text[index]] & place or text[index] == delimiter:
            return True
    return size == 0 or (
        place == IN_ARRAY and size == 4 and text[0] | 32 == c"n" and text[1] | 32 == c"u"
        and text[2] | 32 == c"l" and text[3] | 32 == c"l"
    )


cdef int quote_from(Buffer *out, size_t start, uint8_t place, uint8_t delimiter) except -1 nogil:
    """Put what stands from `start` on into quotes, where the server would.

    In an array a backslash stands before quotes and backslashes, elsewhere they are doubled.
    """
    cdef size_t more = 2
    cdef size_t index, at
    if not needs_quotes(out.data + start, out.size - start, place, delimiter):
        return 0
    for index in range(start, out.size):
        more += out.data[index] == c"\"" or out.data[index] == c"\\"
    buffer_grow(out, more)
    index = out.size
    at = out.size + more - 1
    out.size += more
    out.data[at] = c"\""
    while index > start:
        index -= 1
        at -= 1
        out.data[at] = out.data[index]
        if out.data[index] == c"\"" or out.data[index] == c"\\":
            at -= 1
            out.data[at] = c"\\" if place == IN_ARRAY else out.data[index]
    out.data[start] = c"\""
    return 0


# ---- arrays

cdef int check_array(const uint8_t *data, size_t size) noexcept nogil:
    """Whether it is one: each element is there, and nothing after the last."""
    cdef const uint8_t *end = data + size
    cdef uint32_t dimensions, length, _index
    cdef uint64_t count = 1
    if size < ARRAY_HEAD:
        return MALFORMED
    dimensions = load_uint32(data)
    if dimensions > MOST_DIMENSIONS or size < ARRAY_HEAD + 8 * <size_t>dimensions:
        return MALFORMED
    data += ARRAY_HEAD
    if dimensions == 0:
        return HELD if data == end else MALFORMED
    for _index in range(dimensions):
        count *= load_uint32(data)
        if count > size:
            return MALFORMED
        data += 8
    while count:
        count -= 1
        if end - data < 4:
            return MALFORMED
        length = load_uint32(data)
        data += 4
        if length == NULL_SIZE:
            continue
        if length > <uint64_t>(end - data):
            return MALFORMED
        data += length
    return HELD if data == end else MALFORMED


cdef int put_array(
    Buffer *out, const SentNode *node, const uint8_t *data, size_t size
) except -1 nogil:
    """Dimensions where one does not begin with 1, then the elements in braces."""
    cdef uint32_t[MOST_DIMENSIONS] sizes
    cdef uint32_t[MOST_DIMENSIONS] done
    cdef uint32_t dimensions, index, depth, length
    cdef uint64_t count = 1
    cdef bint is_shifted = False
    cdef size_t start
    cdef int outcome
    if check_array(data, size) != HELD:
        return MALFORMED
    dimensions = load_uint32(data)
    data += ARRAY_HEAD
    for index in range(dimensions):
        sizes[index] = load_uint32(data + 8 * index)
        done[index] = 0
        count *= sizes[index]
        is_shifted |= load_uint32(data + 8 * index + 4) != 1
    if dimensions == 0 or count == 0:
        return buffer_append(out, b"{}", 2) + HELD
    if is_shifted:
        for index in range(dimensions):
            put_bounds(out, <int32_t>load_uint32(data + 8 * index + 4), sizes[index])
        put(out, c"=")
    data += 8 * dimensions
    depth = 0
    while True:
        while depth < dimensions:
            put(out, c"{")
            depth += 1
        start = out.size
        length = load_uint32(data)
        data += 4
        if length == NULL_SIZE:
            buffer_append(out, b"NULL", 4)
        else:
            outcome = put_text(out, node + node.first, data, length)
            if outcome != HELD:
                return outcome
            quote_from(out, start, IN_ARRAY, node.delimiter)
            data += length
        done[depth - 1] += 1
        while depth and done[depth - 1] == sizes[depth - 1]:
            put(out, c"}")
            depth -= 1
            done[depth] = 0
            if depth:
                done[depth - 1] += 1
        if depth == 0:
            return HELD
        put(out, node.delimiter)


cdef int put_bounds(Buffer *out, int32_t low, uint32_t size) except -1 nogil:
    cdef int64_t bound
    cdef int index
    put(out, c"[")
    for index in range(2):
        bound = low if index == 0 else <int64_t>low + size - 1
        if bound < 0:
            put(out, c"-")
        put_number(out, <uint64_t>(-bound if bound < 0 else bound), 1)
        put(out, c"]" if index else c":")
    return 0


cdef int put_vector(
    Buffer *out, const SentNode *of, const uint8_t *data, size_t size
) except -1 nogil:
    """An int2vector or an oidvector: numbers with blanks between them."""
    cdef uint32_t count, index, length
    cdef int outcome
    if check_array(data, size) != HELD or load_uint32(data) > 1:
        return MALFORMED
    count = load_uint32(data + ARRAY_HEAD) if load_uint32(data) else 0
    data += ARRAY_HEAD + 8
    for index in range(count):
        length = load_uint32(data)
        if length == NULL_SIZE:
            return MALFORMED
        if index:
            put(out, c" ")
        outcome = put_text(out, of, data + 4, length)
        if outcome != HELD:
            return outcome
        data += 4 + length
    return HELD


# ---- composites

cdef const SentNode *part_of_type(const SentNode *node, uint32_t oid) noexcept nogil:
    """How values of a type are sent in a composite; NULL where it had no such attribute."""
    cdef const SentNode *part = node + node.first
    cdef uint32_t _index
    for _index in range(node.count):
        if part.oid == oid:
            return part
        part += 1
    return NULL


cdef int put_record(
    Buffer *out, const SentNode *node, const uint8_t *data, size_t size
) except -1 nogil:
    """Fields in parentheses; each says its type, for a composite may have changed."""
    cdef const uint8_t *end = data + size
    cdef const SentNode *part
    cdef uint32_t count, index, length
    cdef size_t start
    cdef int outcome
    if size < 4:
        return MALFORMED
    count = load_uint32(data)
    data += 4
    put(out, c"(")
    for index in range(count):
        if end - data < FIELD_HEAD:
            return MALFORMED
        part = part_of_type(node, load_uint32(data))
        length = load_uint32(data + 4)
        data += FIELD_HEAD
        if index:
            put(out, c",")
        if length == NULL_SIZE:
            continue
        if length > <uint64_t>(end - data):
            return MALFORMED
        if part == NULL:
            return NO_TEXT
        start = out.size
        outcome = put_text(out, part, data, length)
        if outcome != HELD:
            return outcome
        quote_from(out, start, IN_RECORD, c",")
        data += length
    put(out, c")")
    return HELD if data == end else MALFORMED


# ---- ranges

cdef int put_bound(
    Buffer *out, const SentNode *of, const uint8_t **data, const uint8_t *end
) except -1 nogil:
    """One bound, and step over it."""
    cdef uint32_t length
    cdef size_t start = out.size
    cdef int outcome
    if end - data[0] < 4:
        return MALFORMED
    length = load_uint32(data[0])
    data[0] += 4
    if length > <uint64_t>(end - data[0]):
        return MALFORMED
    outcome = put_text(out, of, data[0], length)
    if outcome == HELD:
        quote_from(out, start, IN_RANGE, c",")
        data[0] += length
    return outcome


cdef int put_range(
    Buffer *out, const SentNode *of, const uint8_t *data, size_t size
) except -1 nogil:
    """Bounds that are there, in the brackets that say whether they are within."""
    cdef const uint8_t *end = data + size
    cdef uint8_t flags
    cdef int outcome
    if size == 0 or data[0] >= 2 * RANGE_UPPER_INFINITE:
        return MALFORMED
    flags = data[0]
    data += 1
    if flags & RANGE_EMPTY:
        buffer_append(out, b"empty", 5)
        return HELD if data == end else MALFORMED
    put(out, c"[" if flags & RANGE_LOWER_INCLUSIVE else c"(")
    if not flags & RANGE_LOWER_INFINITE:
        outcome = put_bound(out, of, &data, end)
        if outcome != HELD:
            return outcome
    put(out, c",")
    if not flags & RANGE_UPPER_INFINITE:
        outcome = put_bound(out, of, &data, end)
        if outcome != HELD:
            return outcome
    put(out, c"]" if flags & RANGE_UPPER_INCLUSIVE else c")")
    return HELD if data == end else MALFORMED


cdef int put_multirange(
    Buffer *out, const SentNode *of, const uint8_t *data, size_t size
) except -1 nogil:
    """Ranges in braces, none of which needs quotes."""
    cdef const uint8_t *end = data + size
    cdef uint32_t count, index, length
    cdef int outcome
    if size < 4:
        return MALFORMED
    count = load_uint32(data)
    data += 4
    put(out, c"{")
    for index in range(count):
        if end - data < 4:
            return MALFORMED
        length = load_uint32(data)
        data += 4
        if length > <uint64_t>(end - data):
            return MALFORMED
        if index:
            put(out, c",")
        outcome = put_text(out, of, data, length)
        if outcome != HELD:
            return outcome
        data += length
    put(out, c"}")
    return HELD if data == end else MALFORMED
