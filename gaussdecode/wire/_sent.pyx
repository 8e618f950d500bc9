"""PostgreSQL's send formats to what a column holds.

Given the bytes of a value that was sent in binary, it is stored as its text would have been: the
same number, moment, bytes or string. What a column cannot hold (an infinity, a year before
Christ, an array of several dimensions) and what is held as text goes the way of its text, which is
made in `_text.pyx`.

Nothing that stands in a value is believed before the bytes are there. What only the server could
spell is said to be so, and not guessed.
"""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t
from libc.string cimport memcpy

from gaussdecode.wire._column cimport (
    ListMark, append_bytes, append_child_null, fail_column, finish_child, list_begin, list_undo,
    put_offset,
)
from gaussdecode.wire._formats cimport (
    HELD, MALFORMED, NOT_HELD, SENT_ARRAY, SENT_BYTEA, SENT_DATE, SENT_INTERVAL, SENT_MULTIRANGE,
    SENT_NUMERIC, SENT_RECORD, SENT_TEXT, SENT_TIMESTAMP, SENT_TIMESTAMPTZ, SENT_TSVECTOR,
    SENT_UNKNOWN, SENT_UUID, SENT_VERSIONED, VERSION, has_its_size, load_uint16, load_uint32,
    load_uint64,
)
from gaussdecode.wire._layout cimport (
    KIND_BINARY, KIND_DATE, KIND_DECIMAL, KIND_FLOAT64, KIND_INTERVAL, KIND_LIST, KIND_STRING,
    KIND_TIMESTAMP, KIND_TIMESTAMPTZ, buffer_append, buffer_fill, buffer_grow,
)
from gaussdecode.wire._spell cimport (
    EPOCH_DAYS, GD_DAY_US, NUMERIC_HEAD, NUMERIC_NEGATIVE, check_numeric, is_infinite, put_uuid,
    put_value,
)
from gaussdecode.wire._text cimport ARRAY_HEAD, check_array, put_text
from gaussdecode.wire._times cimport GD_EPOCH_US
from gaussdecode.wire._values cimport HEADROOM, below_power, gd_pow10, uint128_t

cdef enum:
    FIRST_DAY = -719162         # 0001-01-01
    LAST_DAY = 2932896          # 9999-12-31
    MOST_GROUPS = 9             # of four digits, which surely fit 128 bits
    UUID_BYTES = 16
    MAX_OFFSET = 0x7FFFFFFF


cdef int sent_check(const SentNode *nodes, uint32_t count) except -1 nogil:
    """See `_sent.pxd`."""
    cdef uint32_t index
    for index in range(count):
        if nodes[index].format > SENT_UNKNOWN:
            return fail_column(b"unknown send format in a relation plan")
        if nodes[index].count == 0:
            if nodes[index].format >= SENT_ARRAY and nodes[index].format <= SENT_MULTIRANGE and (
                nodes[index].format != SENT_RECORD
            ):
                return fail_column(b"send format without its part in a relation plan")
        elif nodes[index].first == 0 or (
            <uint64_t>nodes[index].first + nodes[index].count > count - index
        ):
            return fail_column(b"parts of a send format outside of a relation plan")
    return 0


# ---- values of a fixed width

cdef inline int store_moment(
    uint8_t kind, uint8_t send_format, const uint8_t *data, uint8_t *target
) noexcept nogil:
    """Dates and timestamps of the years 1 to 9999; others keep their text."""
    cdef int64_t value
    cdef int32_t days
    if send_format == SENT_DATE and kind == KIND_DATE:
        value = <int64_t><int32_t>load_uint32(data) + EPOCH_DAYS
        if value < FIRST_DAY or value > LAST_DAY:
            return NOT_HELD
        days = <int32_t>value
        memcpy(target, &days, 4)
        return HELD
    if not (
        (send_format == SENT_TIMESTAMP and kind == KIND_TIMESTAMP)
        or (send_format == SENT_TIMESTAMPTZ and kind == KIND_TIMESTAMPTZ)
    ):
        return NOT_HELD
    value = <int64_t>load_uint64(data)
    if value < (FIRST_DAY - EPOCH_DAYS) * GD_DAY_US or (
        value >= (LAST_DAY + 1 - EPOCH_DAYS) * GD_DAY_US
    ):
        return NOT_HELD
    value += GD_EPOCH_US
    memcpy(target, &value, 8)
    return HELD


cdef inline int store_interval(const uint8_t *data, uint8_t *target) noexcept nogil:
    """Days and months before the time, which comes first on the wire.

    The ends of all three are infinite from PostgreSQL 17 on, and numbers before.
    """
    cdef int64_t micros = <int64_t>load_uint64(data)
    cdef int32_t days = <int32_t>load_uint32(data + 8)
    cdef int32_t months = <int32_t>load_uint32(data + 12)
    if is_infinite(micros, days, months):
        return NOT_HELD
    memcpy(target, &months, 4)
    memcpy(target + 4, &days, 4)
    memcpy(target + 8, &micros, 8)
    return HELD


cdef inline int read_groups(
    const uint8_t *data, unsigned int count, uint128_t *magnitude
) noexcept nogil:
    """The number that so many groups of four digits are."""
    cdef uint64_t total = 0
    cdef unsigned int index, group
    cdef unsigned int first = count if count < 4 else 4
    cdef bint is_damaged = False
    for index in range(first):
        group = load_uint16(data + 2 * index)
        is_damaged |= group > 9999
        total = total * 10000 + group
    magnitude[0] = total
    for index in range(first, count):
        group = load_uint16(data + 2 * index)
        is_damaged |= group > 9999
        magnitude[0] = magnitude[0] * 10000 + group
    return MALFORMED if is_damaged else HELD


cdef inline int drop_zeros(uint128_t *magnitude, int32_t count) noexcept nogil:
    """Divide by ten so many times; what is no zero cannot be dropped."""
    cdef uint64_t power = gd_pow10[count]
    cdef uint64_t narrow
    if magnitude[0] <= <uint64_t>-1:
        narrow = <uint64_t>magnitude[0]
        if narrow % power:
            return NOT_HELD
        magnitude[0] = narrow // power
        return HELD
    if magnitude[0] % power:
        return NOT_HELD
    magnitude[0] = magnitude[0] // power
    return HELD


cdef int store_numeric(
    const Column *column, const uint8_t *data, size_t size, uint8_t *target
) noexcept nogil:
    """Scale to an integer of 16 bytes; long ones go the way of their text."""
    cdef uint16_t count, sign
    cdef int32_t exponent
    cdef uint128_t magnitude
    if size < NUMERIC_HEAD:
        return MALFORMED
    count = load_uint16(data)
    sign = load_uint16(data + 4)
    if count > MOST_GROUPS or sign & ~NUMERIC_NEGATIVE:
        return NOT_HELD if check_numeric(data, size) == HELD else MALFORMED
    if size != NUMERIC_HEAD + 2 * <size_t>count:
        return MALFORMED
    if read_groups(data + NUMERIC_HEAD, count, &magnitude) != HELD:
        return MALFORMED
    exponent = 4 * (<int32_t><int16_t>load_uint16(data + 2) - <int32_t>count + 1) + column.scale
    if magnitude != 0 and exponent < 0:
        if exponent < -3 or drop_zeros(&magnitude, -exponent) != HELD:
            return NOT_HELD
    while exponent > 0 and magnitude != 0:
        if not below_power(magnitude, 37):
            return NOT_HELD
        magnitude = magnitude * 10
        exponent -= 1
    if not below_power(magnitude, column.precision):
        return NOT_HELD
    if sign:
        magnitude = 0 - magnitude
    memcpy(target, &magnitude, 16)
    return HELD


cdef inline int store_fixed(
    uint8_t kind, const Column *column, uint8_t send_format, const uint8_t *data, size_t size,
    uint8_t *target,
) noexcept nogil:
    """Write one value of a kind of a fixed width."""
    if not has_its_size(send_format, size):
        return MALFORMED
    if kind <= KIND_FLOAT64:
        return store_narrow(kind, send_format, data, target)
    if kind == KIND_DECIMAL and send_format == SENT_NUMERIC:
        return store_numeric(column, data, size, target)
    if kind == KIND_INTERVAL and send_format == SENT_INTERVAL:
        return store_interval(data, target)
    return store_moment(kind, send_format, data, target)


cdef int sent_store(
    Column *column, uint32_t row, const uint8_t *data, size_t size, Buffer *scratch
) except -1 nogil:
    """See `_sent.pxd`."""
    cdef const SentNode *node = column.sent
    cdef uint8_t send_format = node.format
    cdef int outcome
    if column.width:
        return store_fixed(
            column.kind, column, send_format, data, size,
            column.data.data + <size_t>row * column.width,
        )
    if column.kind == KIND_LIST and send_format == SENT_ARRAY:
        outcome = store_list(column, node + node.first, data, size, scratch)
        put_offset(column, row, column.child_count)
        return outcome
    if column.kind == KIND_BINARY and send_format == SENT_BYTEA:
        append_bytes(KIND_BINARY, &column.data, data, size, True)
        put_offset(column, row, column.data.size)
        return HELD
    if column.kind == KIND_STRING and is_plain(send_format):
        outcome = append_plain(&column.data, send_format, data, size)
        put_offset(column, row, column.data.size)
        return outcome
    return NOT_HELD


cdef inline bint is_plain(uint8_t send_format) noexcept nogil:
    """Whether all that is printed of it is ASCII."""
    return send_format < SENT_TSVECTOR and send_format != SENT_TEXT and (
        send_format != SENT_VERSIONED
    )


cdef inline int append_plain(
    Buffer *out, uint8_t send_format, const uint8_t *data, size_t size
) except -1 nogil:
    """Append the text of a value; nothing where it is not known."""
    cdef size_t start = out.size
    cdef int outcome
    if send_format == SENT_UUID and size == UUID_BYTES:
        put_uuid(out, data)
        outcome = HELD
    else:
        outcome = put_value(out, send_format, data, size)
    if outcome != HELD:
        out.size = start
    elif out.size > MAX_OFFSET:
        fail_column(b"a column of one batch is larger than 2 GiB")
    return outcome


# ---- lists

cdef int append_element(
    Column *column, const SentNode *node, const uint8_t *data, size_t size, Buffer *scratch
) except -1 nogil:
    """Append one element of a list."""
    cdef const uint8_t *text = data
    cdef size_t text_size = size
    cdef int outcome
    if column.element_width:
        buffer_grow(&column.child_data, column.element_width)
        outcome = store_fixed(
            column.element, column, node.format, data, size,
            column.child_data.data + column.child_data.size,
        )
        if outcome != HELD:
            return outcome
        column.child_data.size += column.element_width
        return finish_child(column)
    if column.element == KIND_STRING and is_plain(node.format):
        outcome = append_plain(&column.child_data, node.format, data, size)
        if outcome != HELD:
            return outcome
        return end_element(column)
    if column.element == KIND_STRING:
        outcome = sent_text(node, data, size, scratch, &text, &text_size)
        if outcome != HELD:
            return outcome
    elif node.format != SENT_BYTEA:
        return NOT_HELD
    if not append_bytes(column.element, &column.child_data, text, text_size, True):
        return NOT_HELD
    return end_element(column)


cdef inline int end_element(Column *column) except -1 nogil:
    """Note where an element ends whose bytes were appended."""
    cdef int32_t end = <int32_t>column.child_data.size
    buffer_append(&column.child_offsets, &end, 4)
    return finish_child(column)


cdef int store_list(
    Column *column, const SentNode *of, const uint8_t *data, size_t size, Buffer *scratch
) except -1 nogil:
    """Append the elements; of a list that is not held nothing stays."""
    cdef ListMark mark
    cdef const uint8_t *end = data + size
    cdef uint32_t count, length
    cdef int outcome = HELD
    if check_array(data, size) != HELD:
        return MALFORMED
    list_begin(column, &mark)
    if load_uint32(data) == 0:
        return HELD
    if load_uint32(data) != 1 or load_uint32(data + ARRAY_HEAD + 4) != 1:
        return NOT_HELD
    count = load_uint32(data + ARRAY_HEAD)
    data += ARRAY_HEAD + 8
    while count and outcome == HELD:
        count -= 1
        length = load_uint32(data)
        data += 4
        if length == <uint32_t>-1:
            append_child_null(column)
            continue
        outcome = append_element(column, of, data, length, scratch)
        data += length
    if outcome != HELD or data != end:
        list_undo(column, &mark)
    return outcome


cdef int sent_text(
    const SentNode *node, const uint8_t *data, size_t size,
    Buffer *scratch, const uint8_t **text, size_t *text_size,
) except -1 nogil:
    """See `_sent.pxd`."""
    cdef int outcome
    if node.format == SENT_TEXT or node.format == SENT_VERSIONED:
        if node.format == SENT_VERSIONED:
            if size == 0 or data[0] != VERSION:
                return MALFORMED
            data += 1
            size -= 1
        text[0] = data
        text_size[0] = size
        return HELD
    scratch.size = 0
    buffer_fill(scratch, 0, HEADROOM)
    outcome = put_text(scratch, node, data, size)
    text[0] = scratch.data + HEADROOM
    text_size[0] = scratch.size - HEADROOM
    return outcome
