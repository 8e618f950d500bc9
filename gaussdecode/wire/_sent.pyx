"""PostgreSQL's send formats to what a column holds, or to the text that the server would send.

Given the bytes of a value that was sent in binary, it is stored as its text would have been: the
same number, moment, bytes or string. What a column cannot hold (an infinity, a year before
Christ, an array of several dimensions) and what is held as text is spelled as the server
spells it under our settings (DateStyle ISO, IntervalStyle postgres, TimeZone UTC).

Nothing that stands in a value is believed before the bytes are there. What only the server could
spell (a float inside of an array of several dimensions) is said to be so, and not guessed.

References:
    PostgreSQL, the ``*_send`` and ``*_out`` functions of each type; ``datetime.c``,
    ``inet_net_ntop.c``, ``arrayfuncs.c``.
"""

from libc.math cimport NAN, isnan
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint16_t, uint64_t,
)
from libc.string cimport memcpy

from gaussdecode.wire._column cimport (
    ListMark, append_bytes, append_child_null, finish_child, list_begin, list_undo, put_offset,
)
from gaussdecode.wire._cursor cimport gd_swap16, gd_swap32, gd_swap64
from gaussdecode.wire._layout cimport (
    KIND_BINARY, KIND_BOOL, KIND_DATE, KIND_DECIMAL, KIND_FLOAT32, KIND_FLOAT64, KIND_INT16,
    KIND_INT32, KIND_INT64, KIND_INTERVAL, KIND_LIST, KIND_STRING, KIND_TIMESTAMP,
    KIND_TIMESTAMPTZ, buffer_append, buffer_fill, buffer_grow,
)
from gaussdecode.wire._times cimport GD_EPOCH_US
from gaussdecode.wire._values cimport HEADROOM, below_power, gd_pow10, uint128_t

cdef enum:
    EPOCH_DAYS = 10957          # 2000-01-01 since 1970
    FIRST_DAY = -719162         # 0001-01-01
    LAST_DAY = 2932896          # 9999-12-31
    NUMERIC_HEAD = 8
    NUMERIC_NEGATIVE = 0x4000
    NUMERIC_NAN = 0xC000
    NUMERIC_INFINITY = 0xD000
    NUMERIC_MINUS_INFINITY = 0xF000
    MOST_GROUPS = 9             # of four digits, which surely fit 128 bits
    UUID_BYTES = 16
    UUID_TEXT = 36
    MOST_DIMENSIONS = 6
    ARRAY_HEAD = 12
    VERSION = 1                 # of jsonb and jsonpath
    FAMILY_IPV4 = 2             # PGSQL_AF_INET
    FAMILY_IPV6 = 3

cdef extern from *:
    """
    static const uint8_t gd_sent_sizes[27] = {
        0, 0, 1, 2, 4, 8, 4, 4, 8, 0, 4, 8, 8, 16, 0, 0, 16, 8, 12, 0, 0, 0, 8, 8, 6, 0, 0};
    #define GD_DAY_US INT64_C(86400000000)
    """
    const uint8_t[27] gd_sent_sizes     # 0: it varies
    const int64_t GD_DAY_US


cdef inline uint16_t load_uint16(const uint8_t *data) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, data, 2)
    return gd_swap16(value)


cdef inline uint32_t load_uint32(const uint8_t *data) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, data, 4)
    return gd_swap32(value)


cdef inline uint64_t load_uint64(const uint8_t *data) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, data, 8)
    return gd_swap64(value)


cdef inline bint has_its_size(uint8_t send_format, size_t size) noexcept nogil:
    return gd_sent_sizes[send_format] == 0 or gd_sent_sizes[send_format] == size


# ---- values of a fixed width

cdef inline int store_narrow(
    uint8_t kind, uint8_t send_format, const uint8_t *data, uint8_t *target
) noexcept nogil:
    """Booleans, integers and floats."""
    cdef int16_t narrow
    cdef int32_t number
    cdef int64_t wide
    cdef float single
    cdef double real
    if send_format == SENT_INT4 and kind == KIND_INT32:
        number = <int32_t>load_uint32(data)
        memcpy(target, &number, 4)
    elif send_format == SENT_INT8 and kind == KIND_INT64:
        wide = <int64_t>load_uint64(data)
        memcpy(target, &wide, 8)
    elif send_format == SENT_INT2 and kind == KIND_INT16:
        narrow = <int16_t>load_uint16(data)
        memcpy(target, &narrow, 2)
    elif send_format == SENT_UINT4 and kind == KIND_INT64:
        wide = load_uint32(data)
        memcpy(target, &wide, 8)
    elif send_format == SENT_BOOL and kind == KIND_BOOL:
        target[0] = data[0] != 0
    elif send_format == SENT_FLOAT8 and kind == KIND_FLOAT64:
        wide = <int64_t>load_uint64(data)
        memcpy(&real, &wide, 8)
        if isnan(real):         # one of them, as its text is
            real = NAN
        memcpy(target, &real, 8)
    elif send_format == SENT_FLOAT4 and kind == KIND_FLOAT32:
        number = <int32_t>load_uint32(data)
        memcpy(&single, &number, 4)
        if isnan(single):
            single = NAN
        memcpy(target, &single, 4)
    else:
        return NOT_HELD
    return HELD


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
    if (days == INT32_MAX and months == INT32_MAX and micros == INT64_MAX) or (
        days == INT32_MIN and months == INT32_MIN and micros == INT64_MIN
    ):
        return NOT_HELD
    memcpy(target, &months, 4)
    memcpy(target + 4, &days, 4)
    memcpy(target + 8, &micros, 8)
    return HELD


cdef int check_numeric(const uint8_t *data, size_t size) noexcept nogil:
    """Whether it is one: its groups are there, and of four digits each."""
    cdef size_t index
    cdef uint16_t sign
    if size < NUMERIC_HEAD or size != NUMERIC_HEAD + 2 * <size_t>load_uint16(data):
        return MALFORMED
    sign = load_uint16(data + 4)
    if sign != 0 and sign != NUMERIC_NEGATIVE and (
        sign != NUMERIC_NAN and sign != NUMERIC_INFINITY and sign != NUMERIC_MINUS_INFINITY
    ):
        return MALFORMED
    for index in range(NUMERIC_HEAD, size, 2):
        if load_uint16(data + index) > 9999:
            return MALFORMED
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
    Column *column, uint32_t row, uint8_t send_format, uint8_t element_format,
    const uint8_t *data, size_t size, Buffer *scratch,
) except -1 nogil:
    """See `_sent.pxd`."""
    cdef int outcome
    if column.width:
        return store_fixed(
            column.kind, column, send_format, data, size,
            column.data.data + <size_t>row * column.width,
        )
    if column.kind == KIND_LIST and send_format == SENT_ARRAY:
        outcome = store_list(column, element_format, data, size, scratch)
        put_offset(column, row, column.child_count)
        return outcome
    if column.kind == KIND_BINARY and send_format == SENT_BYTEA:
        append_bytes(KIND_BINARY, &column.data, data, size, True)
        put_offset(column, row, column.data.size)
        return HELD
    if column.kind == KIND_STRING and send_format == SENT_UUID and size == UUID_BYTES:
        put_uuid(&column.data, data)
        put_offset(column, row, column.data.size)
        return HELD
    return NOT_HELD


# ---- lists

cdef int append_element(
    Column *column, uint8_t send_format, const uint8_t *data, size_t size, Buffer *scratch
) except -1 nogil:
    """Append one element of a list."""
    cdef const uint8_t *text = data
    cdef size_t text_size = size
    cdef int32_t end
    cdef int outcome
    if column.element_width:
        buffer_grow(&column.child_data, column.element_width)
        outcome = store_fixed(
            column.element, column, send_format, data, size,
            column.child_data.data + column.child_data.size,
        )
        if outcome != HELD:
            return outcome
        column.child_data.size += column.element_width
        return finish_child(column)
    if column.element == KIND_STRING:
        outcome = sent_text(send_format, SENT_NONE, data, size, scratch, &text, &text_size)
        if outcome != HELD:
            return outcome
    elif send_format != SENT_BYTEA:
        return NOT_HELD
    if not append_bytes(column.element, &column.child_data, text, text_size, True):
        return NOT_HELD
    end = <int32_t>column.child_data.size
    buffer_append(&column.child_offsets, &end, 4)
    return finish_child(column)


cdef int store_list(
    Column *column, uint8_t element_format, const uint8_t *data, size_t size, Buffer *scratch
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
        outcome = append_element(column, element_format, data, length, scratch)
        data += length
    if outcome != HELD or data != end:
        list_undo(column, &mark)
    return outcome


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
        if length == <uint32_t>-1:
            continue
        if length > <uint64_t>(end - data):
            return MALFORMED
        data += length
    return HELD if data == end else MALFORMED


# ---- the server's text

cdef inline int put(Buffer *out, uint8_t byte) except -1 nogil:
    buffer_grow(out, 1)
    out.data[out.size] = byte
    out.size += 1
    return 0


cdef int put_number(Buffer *out, uint64_t number, unsigned int least) except -1 nogil:
    """Digits, with zeros before them up to `least`."""
    cdef uint8_t[20] digits
    cdef unsigned int at = 20
    while number or 20 - at < least or at == 20:
        at -= 1
        digits[at] = <uint8_t>(c"0" + number % 10)
        number //= 10
    return buffer_append(out, &digits[at], 20 - at)


cdef int put_hex(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    cdef size_t index
    cdef const char *digits = b"0123456789abcdef"
    buffer_grow(out, 2 * size)
    for index in range(size):
        out.data[out.size] = digits[data[index] >> 4]
        out.data[out.size + 1] = digits[data[index] & 15]
        out.size += 2
    return 0


cdef int put_short_hex(Buffer *out, uint32_t number, bint is_upper) except -1 nogil:
    """Without zeros before it."""
    cdef const char *digits = b"0123456789ABCDEF" if is_upper else b"0123456789abcdef"
    cdef int shift = 28
    while shift and number >> shift == 0:
        shift -= 4
    while shift >= 0:
        put(out, digits[number >> shift & 15])
        shift -= 4
    return 0


cdef int put_day(Buffer *out, int64_t days) except -1 nogil:
    """Year, month and day of a day since 1970; returns whether it is before Christ.

    Years begin in March here, so that a leap day is a year's last (Howard Hinnant,
    "chrono-Compatible Low-Level Date Algorithms").
    """
    cdef int64_t shifted = days + 719468
    cdef int64_t era = (shifted if shifted >= 0 else shifted - 146096) // 146097
    cdef int64_t day = shifted - era * 146097
    cdef int64_t year_of_era = (day - day // 1460 + day // 36524 - day // 146096) // 365
    cdef int64_t day_of_year = day - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef int64_t month_index = (5 * day_of_year + 2) // 153
    cdef int64_t month = month_index + 3 if month_index < 10 else month_index - 9
    cdef int64_t year = year_of_era + era * 400 + (month <= 2)
    cdef bint is_before_christ = year <= 0
    put_number(out, <uint64_t>(1 - year if is_before_christ else year), 4)
    put(out, c"-")
    put_number(out, <uint64_t>month, 2)
    put(out, c"-")
    put_number(out, <uint64_t>(day_of_year - (153 * month_index + 2) // 5 + 1), 2)
    return is_before_christ


cdef int put_clock(Buffer *out, int64_t micros) except -1 nogil:
    """HH:MM:SS, and the fraction without the zeros at its end."""
    cdef int64_t seconds = micros // 1000000
    cdef int64_t fraction = micros % 1000000
    put_number(out, <uint64_t>(seconds // 3600), 2)
    put(out, c":")
    put_number(out, <uint64_t>(seconds // 60 % 60), 2)
    put(out, c":")
    put_number(out, <uint64_t>(seconds % 60), 2)
    if fraction:
        put(out, c".")
        put_number(out, <uint64_t>fraction, 6)
        while out.data[out.size - 1] == c"0":
            out.size -= 1
    return 0


cdef int put_zone(Buffer *out, int32_t west) except -1 nogil:
    """Of a time: what is sent counts seconds west of Greenwich."""
    cdef int64_t seconds = -<int64_t>west if west < 0 else west
    put(out, c"-" if west > 0 else c"+")
    put_number(out, <uint64_t>(seconds // 3600), 2)
    if seconds % 3600:
        put(out, c":")
        put_number(out, <uint64_t>(seconds // 60 % 60), 2)
    if seconds % 60:
        put(out, c":")
        put_number(out, <uint64_t>(seconds % 60), 2)
    return 0


cdef int put_moment(Buffer *out, uint8_t send_format, const uint8_t *data) except -1 nogil:
    """A date or a timestamp, also one that is infinite or before Christ."""
    cdef int64_t value, days
    cdef bint is_date = send_format == SENT_DATE
    cdef bint is_before_christ
    value = <int32_t>load_uint32(data) if is_date else <int64_t>load_uint64(data)
    if value == (INT32_MAX if is_date else INT64_MAX):
        return buffer_append(out, b"infinity", 8)
    if value == (INT32_MIN if is_date else INT64_MIN):
        return buffer_append(out, b"-infinity", 9)
    days = value
    if not is_date:
        days = (value if value >= 0 else value - (GD_DAY_US - 1)) // GD_DAY_US
    is_before_christ = put_day(out, days + EPOCH_DAYS)
    if not is_date:
        put(out, c" ")
        put_clock(out, value - days * GD_DAY_US)
        if send_format == SENT_TIMESTAMPTZ:
            buffer_append(out, b"+00", 3)
    if is_before_christ:
        buffer_append(out, b" BC", 3)
    return 0


cdef inline uint16_t group_at(const uint8_t *data, int32_t count, int32_t index) noexcept nogil:
    """Four digits of a numeric; zeros where none are sent."""
    return load_uint16(data + NUMERIC_HEAD + 2 * index) if 0 <= index < count else 0


cdef int put_numeric(Buffer *out, const uint8_t *data) except -1 nogil:
    """Digits up to the scale that is sent with it."""
    cdef int32_t count = load_uint16(data)
    cdef int32_t weight = <int16_t>load_uint16(data + 2)
    cdef uint16_t sign = load_uint16(data + 4)
    cdef int32_t scale = load_uint16(data + 6)
    cdef int32_t index
    cdef size_t point
    if sign == NUMERIC_NAN:
        return buffer_append(out, b"NaN", 3)
    if sign == NUMERIC_NEGATIVE or sign == NUMERIC_MINUS_INFINITY:
        put(out, c"-")
    if sign == NUMERIC_INFINITY or sign == NUMERIC_MINUS_INFINITY:
        return buffer_append(out, b"Infinity", 8)
    put_number(out, group_at(data, count, 0) if weight >= 0 else 0, 1)
    for index in range(1, weight + 1):
        put_number(out, group_at(data, count, index), 4)
    if scale:
        put(out, c".")
        point = out.size
        index = weight + 1
        while out.size - point < <size_t>scale:
            put_number(out, group_at(data, count, index), 4)
            index += 1
        out.size = point + scale
    return 0


cdef inline uint64_t hex_of(const uint8_t *data) noexcept nogil:
    """Eight hex digits of four bytes, all at once; the first in the lowest byte."""
    cdef uint32_t word
    cdef uint64_t spread, above_nine
    memcpy(&word, data, 4)
    spread = word
    spread = (spread | spread << 16) & <uint64_t>0x0000FFFF0000FFFF
    spread = (spread | spread << 8) & <uint64_t>0x00FF00FF00FF00FF
    spread = (spread >> 4 & <uint64_t>0x000F000F000F000F) | (
        (spread & <uint64_t>0x000F000F000F000F) << 8
    )
    above_nine = (spread + <uint64_t>0x0606060606060606) >> 4 & <uint64_t>0x0101010101010101
    return spread + <uint64_t>0x3030303030303030 + above_nine * 0x27


cdef int put_uuid(Buffer *out, const uint8_t *data) except -1 nogil:
    """In groups of 8, 4, 4, 4 and 12 digits."""
    cdef uint64_t first = hex_of(data), second = hex_of(data + 4)
    cdef uint64_t third = hex_of(data + 8), fourth = hex_of(data + 12)
    cdef uint8_t *at
    buffer_grow(out, UUID_TEXT)
    at = out.data + out.size
    out.size += UUID_TEXT
    memcpy(at, &first, 8)
    memcpy(at + 9, &second, 4)
    memcpy(at + 14, <uint8_t *>&second + 4, 4)
    memcpy(at + 19, &third, 4)
    memcpy(at + 24, <uint8_t *>&third + 4, 4)
    memcpy(at + 28, &fourth, 8)
    at[8] = at[13] = at[18] = at[23] = c"-"
    return 0


cdef int put_bits(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    cdef uint32_t count, index
    if size < 4:
        return MALFORMED
    count = load_uint32(data)
    if count > <uint32_t>INT32_MAX or size - 4 != (<size_t>count + 7) // 8:
        return MALFORMED
    for index in range(count):
        put(out, c"1" if data[4 + index // 8] & (128 >> index % 8) else c"0")
    return HELD


cdef int put_ipv4(Buffer *out, const uint8_t *data) except -1 nogil:
    cdef int index
    for index in range(4):
        if index:
            put(out, c".")
        put_number(out, data[index], 1)
    return 0


cdef int put_ipv6(Buffer *out, const uint8_t *data) except -1 nogil:
    """The longest run of zeros becomes ::, and an address of version 4 inside is shown as one."""
    cdef int index
    cdef int run = 0
    cdef int best = -1
    cdef int best_size = 1
    for index in range(8):
        run = run + 1 if load_uint16(data + 2 * index) == 0 else 0
        if run > best_size:
            best, best_size = index - run + 1, run
    for index in range(8):
        if best >= 0 and best <= index < best + best_size:
            if index == best:
                put(out, c":")
            continue
        if index:
            put(out, c":")
        if index == 6 and best == 0 and (
            best_size == 6 or (best_size == 5 and load_uint16(data + 10) == 0xFFFF)
        ):
            return put_ipv4(out, data + 12)
        put_short_hex(out, load_uint16(data + 2 * index), False)
    if best >= 0 and best + best_size == 8:
        put(out, c":")
    return 0


cdef int put_address(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    """An inet or cidr: family, length of the mask, whether it is a cidr, bytes of the address."""
    cdef uint8_t most
    if size < 4 or size - 4 != data[3]:
        return MALFORMED
    if data[0] == FAMILY_IPV4 and data[3] == 4:
        most = 32
        put_ipv4(out, data + 4)
    elif data[0] == FAMILY_IPV6 and data[3] == 16:
        most = 128
        put_ipv6(out, data + 4)
    else:
        return MALFORMED
    if data[1] > most or data[2] > 1:
        return MALFORMED
    if data[1] < most or data[2]:
        put(out, c"/")
        put_number(out, data[1], 1)
    return HELD


cdef int put_hardware(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    cdef size_t index
    if size != 6 and size != 8:
        return MALFORMED
    for index in range(size):
        if index:
            put(out, c":")
        put_hex(out, data + index, 1)
    return HELD


cdef int put_integer(Buffer *out, uint8_t send_format, const uint8_t *data) except -1 nogil:
    cdef int64_t value
    if send_format == SENT_INT2:
        value = <int16_t>load_uint16(data)
    elif send_format == SENT_INT4:
        value = <int32_t>load_uint32(data)
    elif send_format == SENT_UINT4:
        value = load_uint32(data)
    else:
        value = <int64_t>load_uint64(data)
    if value < 0 and send_format != SENT_UINT8:
        put(out, c"-")
        return put_number(out, 0 - <uint64_t>value, 1)
    return put_number(out, <uint64_t>value, 1)


cdef int put_value(
    Buffer *out, uint8_t send_format, const uint8_t *data, size_t size
) except -1 nogil:
    """Append what the server would print of a value that is no array."""
    if not has_its_size(send_format, size):
        return MALFORMED
    if send_format == SENT_TEXT:
        buffer_append(out, data, size)
    elif send_format == SENT_VERSIONED:
        if size == 0 or data[0] != VERSION:
            return MALFORMED
        buffer_append(out, data + 1, size - 1)
    elif send_format == SENT_BOOL:
        put(out, c"t" if data[0] else c"f")
    elif send_format == SENT_NUMERIC:
        if check_numeric(data, size) != HELD:
            return MALFORMED
        put_numeric(out, data)
    elif send_format == SENT_DATE or send_format == SENT_TIMESTAMP or (
        send_format == SENT_TIMESTAMPTZ
    ):
        put_moment(out, send_format, data)
    elif send_format == SENT_BYTEA:
        buffer_append(out, b"\\x", 2)
        put_hex(out, data, size)
    elif send_format == SENT_UUID:
        put_uuid(out, data)
    elif send_format == SENT_TIME or send_format == SENT_TIMETZ:
        return put_time(out, send_format, data)
    elif send_format == SENT_BIT:
        return put_bits(out, data, size)
    elif send_format == SENT_INET:
        return put_address(out, data, size)
    elif send_format == SENT_MACADDR:
        return put_hardware(out, data, size)
    elif send_format == SENT_LSN:
        put_short_hex(out, load_uint32(data), True)
        put(out, c"/")
        put_short_hex(out, load_uint32(data + 4), True)
    elif send_format == SENT_TID:
        put(out, c"(")
        put_number(out, load_uint32(data), 1)
        put(out, c",")
        put_number(out, load_uint16(data + 4), 1)
        put(out, c")")
    elif SENT_INT2 <= send_format <= SENT_UINT4 or send_format == SENT_UINT8:
        put_integer(out, send_format, data)
    else:
        return NO_TEXT
    return HELD


cdef int put_time(Buffer *out, uint8_t send_format, const uint8_t *data) except -1 nogil:
    cdef int64_t micros = <int64_t>load_uint64(data)
    if micros < 0 or micros > GD_DAY_US:
        return MALFORMED
    put_clock(out, micros)
    if send_format == SENT_TIMETZ:
        put_zone(out, <int32_t>load_uint32(data + 8))
    return HELD


cdef int sent_text(
    uint8_t send_format, uint8_t element_format, const uint8_t *data, size_t size,
    Buffer *scratch, const uint8_t **text, size_t *text_size,
) except -1 nogil:
    """See `_sent.pxd`."""
    cdef int outcome
    if send_format == SENT_TEXT:
        text[0] = data
        text_size[0] = size
        return HELD
    scratch.size = 0
    buffer_fill(scratch, 0, HEADROOM)
    if send_format == SENT_ARRAY:
        outcome = put_array(scratch, element_format, data, size)
    else:
        outcome = put_value(scratch, send_format, data, size)
    text[0] = scratch.data + HEADROOM
    text_size[0] = scratch.size - HEADROOM
    return outcome


# ---- arrays as text

cdef inline bint needs_quotes(const uint8_t *text, size_t size) noexcept nogil:
    cdef size_t index
    cdef uint8_t byte
    for index in range(size):
        byte = text[index]
        if byte == c"{" or byte == c"}" or byte == c"\"" or byte == c"\\" or byte == c",":
            return True
        if byte == c" " or 9 <= byte <= 13:
            return True
    return size == 0 or (
        size == 4 and text[0] | 32 == c"n" and text[1] | 32 == c"u"
        and text[2] | 32 == c"l" and text[3] | 32 == c"l"
    )


cdef int quote_from(Buffer *out, size_t start) except -1 nogil:
    """Put what stands from `start` on into quotes, where the server would."""
    cdef size_t size = out.size - start
    cdef size_t more = 2
    cdef size_t index, at
    if not needs_quotes(out.data + start, size):
        return 0
    for index in range(start, out.size):
        more += out.data[index] == c"\"" or out.data[index] == c"\\"
    buffer_grow(out, more)
    at = out.size + more
    index = out.size
    out.size = at
    at -= 1
    out.data[at] = c"\""
    while index > start:
        index -= 1
        at -= 1
        out.data[at] = out.data[index]
        if out.data[index] == c"\"" or out.data[index] == c"\\":
            at -= 1
            out.data[at] = c"\\"
    out.data[start] = c"\""
    return 0


cdef int put_array(
    Buffer *out, uint8_t element_format, const uint8_t *data, size_t size
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
        if length == <uint32_t>-1:
            buffer_append(out, b"NULL", 4)
        else:
            outcome = put_value(out, element_format, data, length)
            if outcome != HELD:
                return outcome
            quote_from(out, start)
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
        put(out, c",")


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
