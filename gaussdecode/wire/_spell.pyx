"""Values in PostgreSQL's send formats to the text that the server would send, those without parts.

Given the bytes of a value, its text is appended as the server spells it under our settings
(DateStyle ISO, IntervalStyle postgres, TimeZone UTC, extra_float_digits 3, bytea_output hex).
Nothing that stands in a value is believed before the bytes are there. What goes by the server's
version is said to have no text here, and not guessed.

References:
    PostgreSQL, the ``*_send`` and ``*_out`` functions of each type; ``datetime.c``,
    ``inet_net_ntop.c``, ``geo_ops.c``.
"""

from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint16_t, uint32_t,
    uint64_t,
)
from libc.string cimport memcpy, strlen

from gaussdecode.wire._formats cimport (
    HELD, MALFORMED, NO_TEXT, SENT_BIT, SENT_BOOL, SENT_BOX, SENT_BYTEA, SENT_CHAR, SENT_CIRCLE,
    SENT_DATE, SENT_FLOAT4, SENT_FLOAT8, SENT_INET, SENT_INT2, SENT_INT4, SENT_INT8, SENT_INTERVAL,
    SENT_LINE, SENT_LSEG, SENT_LSN, SENT_MACADDR, SENT_NUMERIC, SENT_PATH, SENT_POINT,
    SENT_POLYGON, SENT_SNAPSHOT, SENT_TEXT, SENT_TID, SENT_TIME, SENT_TIMESTAMP, SENT_TIMESTAMPTZ,
    SENT_TIMETZ, SENT_UINT4, SENT_UINT8, SENT_UUID, SENT_VERSIONED, VERSION, has_its_size,
    load_uint16, load_uint32, load_uint64,
)
from gaussdecode.wire._layout cimport buffer_append, buffer_grow
from gaussdecode.wire._shortest cimport put_float32, put_float64

cdef enum:
    NUMERIC_NAN = 0xC000
    NUMERIC_INFINITY = 0xD000
    NUMERIC_MINUS_INFINITY = 0xF000
    FAMILY_IPV4 = 2             # PGSQL_AF_INET
    FAMILY_IPV6 = 3
    POINT_BYTES = 16
    SNAPSHOT_HEAD = 20

# ---- characters

cdef int put_number(Buffer *out, uint64_t number, unsigned int least) except -1 nogil:
    """Digits, with zeros before them up to `least`."""
    cdef uint8_t[20] digits
    cdef unsigned int at = 20
    while number >= 100:
        at -= 2
        gd_two(&digits[at], <unsigned int>(number % 100))
        number //= 100
    if number >= 10:
        at -= 2
        gd_two(&digits[at], <unsigned int>number)
    elif number or at == 20:
        at -= 1
        digits[at] = <uint8_t>(c"0" + number)
    while 20 - at < least:
        at -= 1
        digits[at] = c"0"
    return buffer_append(out, &digits[at], 20 - at)


cdef int put_hex(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    cdef size_t index
    cdef const char *digits = b"0123456789abcdef"
    cdef uint8_t *to
    buffer_grow(out, 2 * size)
    to = out.data + out.size
    out.size += 2 * size
    while size >= 16:
        gd_hex16(data, to)
        data += 16
        to += 32
        size -= 16
    for index in range(size):
        to[2 * index] = digits[data[index] >> 4]
        to[2 * index + 1] = digits[data[index] & 15]
    return 0


cdef int put_short_hex(Buffer *out, uint32_t number, bint is_upper) except -1 nogil:
    """Without zeros before it."""
    cdef const char *digits = b"0123456789ABCDEF" if is_upper else b"0123456789abcdef"
    cdef int shift = 0
    while shift < 28 and number >> shift >= 16:
        shift += 4
    buffer_grow(out, 8)
    while shift >= 0:
        out.data[out.size] = digits[number >> shift & 15]
        out.size += 1
        shift -= 4
    return 0


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
    cdef uint8_t *to
    put_number(out, <uint64_t>(1 - year if is_before_christ else year), 4)
    buffer_grow(out, 6)
    to = out.data + out.size
    to[0] = to[3] = c"-"
    gd_two(to + 1, <unsigned int>month)
    gd_two(to + 4, <unsigned int>(day_of_year - (153 * month_index + 2) // 5 + 1))
    out.size += 6
    return is_before_christ


cdef int put_clock(Buffer *out, uint64_t micros) except -1 nogil:
    """HH:MM:SS, and the fraction without the zeros at its end."""
    cdef uint64_t seconds = micros // 1000000
    cdef unsigned int fraction = <unsigned int>(micros % 1000000)
    cdef unsigned int rest = <unsigned int>(seconds % 3600)
    cdef uint8_t *to
    put_number(out, seconds // 3600, 2)
    buffer_grow(out, 13)
    to = out.data + out.size
    to[0] = to[3] = c":"
    gd_two(to + 1, rest // 60)
    gd_two(to + 4, rest % 60)
    out.size += 6
    if fraction:
        to[6] = c"."
        gd_two(to + 7, fraction // 10000)
        gd_two(to + 9, fraction // 100 % 100)
        gd_two(to + 11, fraction % 100)
        out.size += 7
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
        put_clock(out, <uint64_t>(value - days * GD_DAY_US))
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


cdef int put_bits(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    """Eight at a time: each bit is brought to the highest place of a byte of its own."""
    cdef uint64_t spread
    cdef uint32_t count
    cdef size_t index
    if size < 4:
        return MALFORMED
    count = load_uint32(data)
    if count > <uint32_t>INT32_MAX or size - 4 != (<size_t>count + 7) // 8:
        return MALFORMED
    buffer_grow(out, 8 * (size - 4))
    for index in range(size - 4):
        spread = data[4 + index] * <uint64_t>0x8040201008040201 & <uint64_t>0x8080808080808080
        spread = (spread >> 7) + <uint64_t>0x3030303030303030
        memcpy(out.data + out.size + 8 * index, &spread, 8)
    out.size += count
    return HELD


cdef int put_ipv4(Buffer *out, const uint8_t *data) except -1 nogil:
    cdef uint8_t *to
    cdef int index
    cdef uint8_t part
    buffer_grow(out, 16)
    to = out.data + out.size
    for index in range(4):
        part = data[index]
        if part >= 100:
            to[0] = <uint8_t>(c"0" + part // 100)
            to += 1
        if part >= 10:
            to[0] = <uint8_t>(c"0" + part // 10 % 10)
            to += 1
        to[0] = <uint8_t>(c"0" + part % 10)
        to[1] = c"."
        to += 2
    out.size = to - 1 - out.data
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
    cdef const char *digits = b"0123456789abcdef"
    cdef uint8_t *to
    cdef size_t index
    if size != 6 and size != 8:
        return MALFORMED
    buffer_grow(out, 24)
    to = out.data + out.size
    for index in range(size):
        to[3 * index] = digits[data[index] >> 4]
        to[3 * index + 1] = digits[data[index] & 15]
        to[3 * index + 2] = c":"
    out.size += 3 * size - 1
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
    """See `_spell.pxd`."""
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
    elif send_format in (SENT_INT2, SENT_INT4, SENT_INT8, SENT_UINT4, SENT_UINT8):
        put_integer(out, send_format, data)
    elif send_format == SENT_FLOAT8:
        put_coordinate(out, data)
    elif send_format == SENT_FLOAT4:
        put_real(out, data)
    elif send_format == SENT_NUMERIC:
        if check_numeric(data, size) != HELD:
            return MALFORMED
        put_numeric(out, data)
    elif send_format in (SENT_DATE, SENT_TIMESTAMP, SENT_TIMESTAMPTZ):
        put_moment(out, send_format, data)
    elif send_format == SENT_INTERVAL:
        return put_interval(out, data)
    elif send_format == SENT_BYTEA:
        buffer_append(out, b"\\x", 2)
        put_hex(out, data, size)
    elif send_format == SENT_UUID:
        put_uuid(out, data)
    elif send_format in (SENT_TIME, SENT_TIMETZ):
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
    elif send_format == SENT_CHAR:
        return put_char(out, data[0])
    elif send_format == SENT_SNAPSHOT:
        return put_snapshot(out, data, size)
    else:
        return put_shape(out, send_format, data, size)
    return HELD


cdef int put_char(Buffer *out, uint8_t byte) except -1 nogil:
    """Of a "char": how a byte that is no ASCII is printed, goes by the server's version."""
    if byte >= 128:
        return NO_TEXT
    if byte:
        put(out, byte)
    return HELD


cdef int put_snapshot(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    cdef uint64_t count, index
    if size < SNAPSHOT_HEAD:
        return MALFORMED
    count = load_uint32(data)
    if size - SNAPSHOT_HEAD != 8 * count:
        return MALFORMED
    put_number(out, load_uint64(data + 4), 1)
    put(out, c":")
    put_number(out, load_uint64(data + 12), 1)
    put(out, c":")
    for index in range(count):
        if index:
            put(out, c",")
        put_number(out, load_uint64(data + SNAPSHOT_HEAD + 8 * index), 1)
    return HELD


# ---- intervals

cdef int put_unit(
    Buffer *out, int64_t value, const char *unit, bint *is_first, bint *is_before
) except -1 nogil:
    """Years, months or days, where there are any; a plus after what is negative."""
    if value == 0:
        return 0
    if not is_first[0]:
        put(out, c" ")
    if value < 0:
        put(out, c"-")
    elif is_before[0]:
        put(out, c"+")
    put_number(out, <uint64_t>(-value if value < 0 else value), 1)
    put(out, c" ")
    buffer_append(out, unit, strlen(unit))
    if value != 1:
        put(out, c"s")
    is_first[0] = False
    is_before[0] = value < 0
    return 0


cdef int put_interval(Buffer *out, const uint8_t *data) except -1 nogil:
    """In the style of PostgreSQL; ends of all three are infinite from version 17 on."""
    cdef int64_t micros = <int64_t>load_uint64(data)
    cdef int32_t days = <int32_t>load_uint32(data + 8)
    cdef int32_t months = <int32_t>load_uint32(data + 12)
    cdef bint is_first = True
    cdef bint is_before = False
    if is_infinite(micros, days, months):
        return NO_TEXT
    put_unit(out, months // 12, b"year", &is_first, &is_before)
    put_unit(out, months % 12, b"mon", &is_first, &is_before)
    put_unit(out, days, b"day", &is_first, &is_before)
    if micros or is_first:
        if not is_first:
            put(out, c" ")
        if micros < 0:
            put(out, c"-")
        elif is_before:
            put(out, c"+")
        put_clock(out, 0 - <uint64_t>micros if micros < 0 else <uint64_t>micros)
    return HELD


# ---- shapes

cdef int put_coordinate(Buffer *out, const uint8_t *data) except -1 nogil:
    cdef uint64_t bits = load_uint64(data)
    cdef double value
    memcpy(&value, &bits, 8)
    return put_float64(out, value)


cdef int put_real(Buffer *out, const uint8_t *data) except -1 nogil:
    cdef uint32_t bits = load_uint32(data)
    cdef float value
    memcpy(&value, &bits, 4)
    return put_float32(out, value)


cdef int put_points(Buffer *out, const uint8_t *data, size_t count) except -1 nogil:
    cdef size_t index
    for index in range(count):
        buffer_append(out, b",(", 2) if index else put(out, c"(")
        put_coordinate(out, data + POINT_BYTES * index)
        put(out, c",")
        put_coordinate(out, data + POINT_BYTES * index + 8)
        put(out, c")")
    return 0


cdef int put_outline(
    Buffer *out, bint is_closed, const uint8_t *data, size_t size
) except -1 nogil:
    """Points behind their number, in the brackets of a path."""
    cdef size_t count
    if size < 4:
        return MALFORMED
    count = load_uint32(data)
    if size - 4 != POINT_BYTES * count:
        return MALFORMED
    put(out, c"(" if is_closed else c"[")
    put_points(out, data + 4, count)
    put(out, c")" if is_closed else c"]")
    return HELD


cdef int put_shape(
    Buffer *out, uint8_t send_format, const uint8_t *data, size_t size
) except -1 nogil:
    if send_format == SENT_PATH:
        if size == 0 or data[0] > 1:
            return MALFORMED
        return put_outline(out, data[0], data + 1, size - 1)
    if send_format == SENT_POLYGON:
        return put_outline(out, True, data, size)
    if send_format == SENT_POINT or send_format == SENT_BOX:
        put_points(out, data, size // POINT_BYTES)
    elif send_format == SENT_LSEG:
        put(out, c"[")
        put_points(out, data, 2)
        put(out, c"]")
    elif send_format == SENT_LINE:
        put(out, c"{")
        put_coordinate(out, data)
        put(out, c",")
        put_coordinate(out, data + 8)
        put(out, c",")
        put_coordinate(out, data + 16)
        put(out, c"}")
    elif send_format == SENT_CIRCLE:
        put(out, c"<")
        put_points(out, data, 1)
        put(out, c",")
        put_coordinate(out, data + 16)
        put(out, c">")
    else:
        return NO_TEXT
    return HELD


cdef int put_time(Buffer *out, uint8_t send_format, const uint8_t *data) except -1 nogil:
    cdef int64_t micros = <int64_t>load_uint64(data)
    if micros < 0 or micros > GD_DAY_US:
        return MALFORMED
    put_clock(out, <uint64_t>micros)
    if send_format == SENT_TIMETZ:
        put_zone(out, <int32_t>load_uint32(data + 8))
    return HELD
