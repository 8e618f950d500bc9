"""Values of Arrow arrays in the server's text form: what its output functions print.

DateStyle is ISO, TimeZone UTC, IntervalStyle postgres, bytea_output hex, and floating-point numbers
are the shortest that read back. For GaussDB they have 18 or 9 digits, and numbers between -1 and 1
no zero before the point, as openGauss prints them up to 6.0.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport isinf, isnan
from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport atoi, calloc, free
from libc.string cimport memcmp, memcpy, memset, strcmp, strncmp, strrchr

from gaussdecode.wire._layout cimport Buffer, buffer_append, buffer_fill, buffer_grow
from gaussdecode.wire._values cimport uint128_t

cdef extern from *:
    """
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    """
    struct ArrowSchema:
        const char *format
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
    struct ArrowArray:
        int64_t length
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children

cdef enum:
    DAYS_OF_EPOCH = 719468      # from 0000-03-01 to 1970-01-01
    DAYS_OF_ERA = 146097        # 400 years
    FLOAT_ROOM = 40             # bytes of a number with 18 digits, and more

cdef int64_t SECOND_US = 1000000
cdef int64_t DAY_US = 86400 * 1000000LL
cdef const char *HEX_LOWER = b"0123456789abcdef"
cdef const char *HEX_UPPER = b"0123456789ABCDEF"


cdef int leaf_bind(Leaf *leaf, object array, Digits digits, LeafForm form) except -1:
    """Point a leaf at an array, which has to live as long as the leaf."""
    memset(leaf, 0, sizeof(Leaf))
    schema, content = array.__arrow_c_array__()
    bind(
        leaf,
        <const ArrowSchema *>PyCapsule_GetPointer(schema, b"arrow_schema"),
        <const ArrowArray *>PyCapsule_GetPointer(content, b"arrow_array"),
        0,
    )
    return mark(leaf, digits, form)


cdef int mark(Leaf *leaf, Digits digits, LeafForm form) except -1:
    cdef int index
    leaf.digits = digits
    if form == FORM_HEADLESS and leaf.kind == LEAF_BINARY:
        leaf.kind = LEAF_HEADLESS
    elif leaf.kind == LEAF_STRING and form == FORM_SHORTEST32:
        leaf.kind = LEAF_SHORTEST32
    elif leaf.kind == LEAF_STRING and form == FORM_SHORTEST64:
        leaf.kind = LEAF_SHORTEST64
    elif leaf.kind == LEAF_STRING and form == FORM_NUMERIC:
        leaf.kind = LEAF_NUMERIC
    for index in range(leaf.child_count):
        mark(&leaf.children[index], digits, form)
    return 0


cdef LeafKind kind_of(const char *format) except <LeafKind>-1:
    if strcmp(format, b"b") == 0:
        return LEAF_BOOL
    if strcmp(format, b"c") == 0:
        return LEAF_INT8
    if strcmp(format, b"s") == 0:
        return LEAF_INT16
    if strcmp(format, b"i") == 0:
        return LEAF_INT32
    if strcmp(format, b"l") == 0:
        return LEAF_INT64
    if strcmp(format, b"f") == 0:
        return LEAF_FLOAT32
    if strcmp(format, b"g") == 0:
        return LEAF_FLOAT64
    if strcmp(format, b"tdD") == 0:
        return LEAF_DATE
    if strcmp(format, b"tsu:") == 0:
        return LEAF_TIMESTAMP
    if strncmp(format, b"tsu:", 4) == 0:
        return LEAF_TIMESTAMPTZ
    if strcmp(format, b"u") == 0:
        return LEAF_STRING
    if strcmp(format, b"z") == 0:
        return LEAF_BINARY
    if strncmp(format, b"d:", 2) == 0:
        return LEAF_DECIMAL
    if strcmp(format, b"+s") == 0:
        return LEAF_STRUCT
    if strcmp(format, b"+l") == 0:
        return LEAF_LIST
    if strcmp(format, b"+m") == 0:
        return LEAF_MAP
    raise ValueError(f"no landed column has the Arrow format {(<bytes>format).decode()!r}")


cdef int bind(
    Leaf *leaf, const ArrowSchema *schema, const ArrowArray *array, int64_t shift
) except -1:
    cdef int64_t child
    if schema.dictionary != NULL:
        raise ValueError("a landed column is not dictionary-encoded")
    leaf.kind = kind_of(schema.format)
    leaf.length = array.length
    leaf.offset = array.offset + shift
    leaf.validity = <const uint8_t *>array.buffers[0]
    if array.n_buffers > 1:
        leaf.values = array.buffers[1]
    if array.n_buffers > 2:
        leaf.content = <const uint8_t *>array.buffers[2]
    if leaf.kind == LEAF_DECIMAL:
        leaf.scale = atoi(strrchr(schema.format, c",") + 1)
    if not schema.n_children:
        return 0
    leaf.children = <Leaf *>calloc(schema.n_children, sizeof(Leaf))
    if leaf.children == NULL:
        raise MemoryError
    leaf.child_count = <int>schema.n_children
    for child in range(schema.n_children):
        bind(
            &leaf.children[child],
            schema.children[child],
            array.children[child],
            leaf.offset if leaf.kind == LEAF_STRUCT else 0,
        )
    return 0


cdef void leaf_free(Leaf *leaf) noexcept:
    cdef int index
    for index in range(leaf.child_count):
        leaf_free(&leaf.children[index])
    free(leaf.children)
    leaf.children = NULL
    leaf.child_count = 0


cdef int print_unsigned(unsigned long long value, Buffer *out) except -1 nogil:
    cdef uint8_t[20] digits
    cdef int at = 20
    while True:
        at -= 1
        digits[at] = <uint8_t>(c"0" + value % 10)
        value //= 10
        if not value:
            return buffer_append(out, &digits[at], 20 - at)


cdef int print_integer(int64_t value, Buffer *out) except -1 nogil:
    if value < 0:
        buffer_append(out, b"-", 1)
        return print_unsigned(0 - <unsigned long long>value, out)
    return print_unsigned(<unsigned long long>value, out)


cdef int print_lsn(unsigned long long lsn, Buffer *out) except -1 nogil:
    """Append two hexadecimal halves, as ``16/B374D848``."""
    cdef char[24] text
    cdef int size = snprintf(
        text, 24, b"%X/%X", <unsigned int>(lsn >> 32), <unsigned int>lsn
    )
    return buffer_append(out, text, size)


cdef int print_padded(uint64_t value, int digits, Buffer *out) except -1 nogil:
    """Append a number with zeros before it; more digits stay."""
    cdef uint8_t[20] text
    cdef int at
    for at in range(digits - 1, -1, -1):
        text[at] = <uint8_t>(c"0" + value % 10)
        value //= 10
    if value:
        print_unsigned(value, out)
    return buffer_append(out, text, digits)


cdef int print_fraction(uint64_t micros, Buffer *out) except -1 nogil:
    """Append the fraction of a second, without zeros at its end."""
    cdef int digits = 6
    if not micros:
        return 0
    while micros % 10 == 0:
        micros //= 10
        digits -= 1
    buffer_append(out, b".", 1)
    return print_padded(micros, digits, out)


cdef int print_date(int64_t days, Buffer *out) except -1 nogil:
    """Append a date of the proleptic Gregorian calendar, years 1 to 9999."""
    cdef int64_t era, day, year_of_era, year, month
    days += DAYS_OF_EPOCH
    era = days // DAYS_OF_ERA
    if days % DAYS_OF_ERA < 0:
        era -= 1
    day = days - era * DAYS_OF_ERA
    year_of_era = (day - day // 1460 + day // 36524 - day // 146096) // 365
    year = year_of_era + era * 400
    day -= 365 * year_of_era + year_of_era // 4 - year_of_era // 100
    month = (5 * day + 2) // 153
    day += 1 - (153 * month + 2) // 5
    month += 3 if month < 10 else -9
    print_padded(year + (month <= 2), 4, out)
    buffer_append(out, b"-", 1)
    print_padded(month, 2, out)
    buffer_append(out, b"-", 1)
    return print_padded(day, 2, out)


cdef int print_clock(uint64_t micros, Buffer *out) except -1 nogil:
    """Append hours, minutes and seconds."""
    cdef uint64_t seconds = micros // SECOND_US
    print_padded(seconds // 3600, 2, out)
    buffer_append(out, b":", 1)
    print_padded(seconds // 60 % 60, 2, out)
    buffer_append(out, b":", 1)
    print_padded(seconds % 60, 2, out)
    return print_fraction(micros % SECOND_US, out)


cdef int print_timestamp(int64_t time_us, bint with_zone, Buffer *out) except -1 nogil:
    cdef int64_t days = time_us // DAY_US
    cdef int64_t rest = time_us % DAY_US
    if rest < 0:
        days -= 1
        rest += DAY_US
    print_date(days, out)
    buffer_append(out, b" ", 1)
    print_clock(rest, out)
    if with_zone:
        buffer_append(out, b"+00", 3)
    return 0


cdef int print_part(
    int64_t value, const char *unit, bint *is_first, bint *is_before, Buffer *out
) except -1 nogil:
    """Append one part of an interval: EncodeInterval's AddPostgresIntPart."""
    if not value:
        return 0
    if not is_first[0]:
        buffer_append(out, b" ", 1)
    if is_before[0] and value > 0:
        buffer_append(out, b"+", 1)
    print_integer(value, out)
    buffer_append(out, unit, 5 if unit[1] == c"y" else 4)
    if value != 1:
        buffer_append(out, b"s", 1)
    is_before[0] = value < 0
    is_first[0] = False
    return 0


cdef int print_interval(int64_t months, int64_t days, int64_t micros, Buffer *out) except -1 nogil:
    cdef bint is_first = True
    cdef bint is_before = False
    print_part(months // 12, b" year", &is_first, &is_before, out)
    print_part(months % 12, b" mon", &is_first, &is_before, out)
    print_part(days, b" day", &is_first, &is_before, out)
    if not is_first and not micros:
        return 0
    if not is_first:
        buffer_append(out, b" ", 1)
    if micros < 0:
        buffer_append(out, b"-", 1)
    elif is_before:
        buffer_append(out, b"+", 1)
    return print_clock(0 - <uint64_t>micros if micros < 0 else <uint64_t>micros, out)


cdef int print_decimal(
    const uint8_t *value, int scale, bint is_gauss, Buffer *out
) except -1 nogil:
    """Append a number of 16 bytes, little-endian two's complement."""
    cdef uint128_t magnitude
    cdef uint8_t[48] digits
    cdef int at = 48
    cdef int count = 0
    cdef bint has_zero
    memcpy(&magnitude, value, 16)
    has_zero = not is_gauss or magnitude == 0
    if value[15] & 0x80:
        magnitude = 0 - magnitude
        buffer_append(out, b"-", 1)
    while magnitude or count <= scale:
        if count == scale and scale:
            at -= 1
            digits[at] = c"."
            if not has_zero and not magnitude:
                break
        at -= 1
        digits[at] = <uint8_t>(c"0" + <int>(magnitude % 10))
        magnitude //= 10
        count += 1
    return buffer_append(out, &digits[at], 48 - at)


cdef int print_shortest(const uint8_t *text, size_t size, int limit, Buffer *out) except -1 nogil:
    """Append a number that Arrow printed in its shortest form, as the server prints it.

    The digits are the same. The server writes an exponent from `limit` digits before the point
    on: 15, or 6 for a number of 4 bytes.
    """
    cdef uint8_t[24] digits     # 17 at most are not zeros at an end
    cdef int count = 0
    cdef int point = 0          # digits before the point
    cdef int exponent = 0
    cdef bint is_after = False
    cdef bint is_below = False
    cdef const uint8_t *end = text + size
    if text < end and text[0] == c"-":
        buffer_append(out, b"-", 1)
        text += 1
    if end - text == 3 and memcmp(text, b"nan", 3) == 0:
        return buffer_append(out, b"NaN", 3)
    if end - text == 3 and memcmp(text, b"inf", 3) == 0:
        return buffer_append(out, b"Infinity", 8)
    while text < end and text[0] != c"e":
        if text[0] == c".":
            is_after = True
        else:
            if count < 24 and (count or text[0] != c"0"):
                digits[count] = text[0]
                count += 1
                point += not is_after
            elif is_after:
                point -= 1
        text += 1
    if text < end:
        text += 1
        is_below = text < end and text[0] == c"-"
        if text < end and (text[0] == c"-" or text[0] == c"+"):
            text += 1
        while text < end:
            exponent = exponent * 10 + text[0] - c"0"
            text += 1
    point += -exponent if is_below else exponent
    while count and digits[count - 1] == c"0":
        count -= 1
    if not count:
        return buffer_append(out, b"0", 1)
    exponent = point - 1
    if exponent < -4 or exponent >= limit:
        buffer_append(out, digits, 1)
        if count > 1:
            buffer_append(out, b".", 1)
            buffer_append(out, &digits[1], count - 1)
        buffer_append(out, b"e-" if exponent < 0 else b"e+", 2)
        return print_padded(-exponent if exponent < 0 else exponent, 2, out)
    if point <= 0:
        buffer_append(out, b"0.", 2)
        buffer_fill(out, c"0", -point)
        return buffer_append(out, digits, count)
    if count <= point:
        buffer_append(out, digits, count)
        return buffer_fill(out, c"0", point - count)
    buffer_append(out, digits, point)
    buffer_append(out, b".", 1)
    return buffer_append(out, &digits[point], count - point)


cdef int print_digits(double value, int digits, Buffer *out) except -1 nogil:
    """Append a floating-point number as openGauss does: so many digits, no zero before a point."""
    cdef char[FLOAT_ROOM] text
    cdef char *start = text
    cdef int size
    if isnan(value):
        return buffer_append(out, b"NaN", 3)
    if isinf(value):
        return buffer_append(out, b"Infinity", 8) if value > 0 else buffer_append(
            out, b"-Infinity", 9
        )
    size = snprintf(text, FLOAT_ROOM, b"%.*g", digits, value)
    if text[0] == c"-":
        buffer_append(out, b"-", 1)
        start += 1
        size -= 1
    if size > 1 and start[0] == c"0" and start[1] == c".":
        start += 1
        size -= 1
    return buffer_append(out, start, size)


cdef int print_numeric(const uint8_t *text, size_t size, Buffer *out) except -1 nogil:
    """Append a numeric without the zero before its point; that of a zero stays."""
    cdef size_t at = size > 0 and text[0] == c"-"
    cdef size_t index
    cdef bint is_zero = True
    for index in range(at, size):
        is_zero = is_zero and (text[index] == c"0" or text[index] == c".")
    if not is_zero and size > at + 1 and text[at] == c"0" and text[at + 1] == c".":
        buffer_append(out, text, at)
        at += 1
        return buffer_append(out, text + at, size - at)
    return buffer_append(out, text, size)


cdef int print_hex(
    const uint8_t *data, size_t size, const char *digits, Buffer *out
) except -1 nogil:
    cdef size_t index
    cdef uint8_t *target
    buffer_grow(out, 2 * size)
    target = out.data + out.size
    for index in range(size):
        target[2 * index] = <uint8_t>digits[data[index] >> 4]
        target[2 * index + 1] = <uint8_t>digits[data[index] & 15]
    out.size += 2 * size
    return 0


cdef bint element_needs_quotes(const uint8_t *text, size_t size) noexcept nogil:
    """Whether `array_out` puts an element in double quotes."""
    cdef size_t index
    cdef uint8_t letter
    if not size:
        return True
    if size == 4 and (
        text[0] | 32 == c"n" and text[1] | 32 == c"u" and text[2] | 32 == c"l"
        and text[3] | 32 == c"l"
    ):
        return True
    for index in range(size):
        letter = text[index]
        if (
            letter == c'"' or letter == c"\\" or letter == c"{" or letter == c"}"
            or letter == c"," or letter == c" " or 9 <= letter <= 13
        ):
            return True
    return False


cdef int print_element(Buffer *out, size_t start) except -1 nogil:
    """Quote an element that stands from `start` to the end, where it needs it."""
    cdef size_t size = out.size - start
    cdef size_t extra = 2
    cdef size_t index, _index
    cdef uint8_t *source
    cdef uint8_t *target
    if not element_needs_quotes(out.data + start, size):
        return 0
    for index in range(start, out.size):
        extra += out.data[index] == c'"' or out.data[index] == c"\\"
    buffer_grow(out, extra)
    source = out.data + out.size
    target = source + extra
    out.size += extra
    target -= 1
    target[0] = c'"'
    for _index in range(size):  # backwards: the text moves up in its own place
        source -= 1
        target -= 1
        target[0] = source[0]
        if source[0] == c'"' or source[0] == c"\\":
            target -= 1
            target[0] = c"\\"
    out.data[start] = c'"'
    return 0


cdef int print_list(const Leaf *leaf, int64_t row, Buffer *out) except -1 nogil:
    cdef int64_t index, first, end
    cdef size_t start
    leaf_range(leaf, row, &first, &end)
    buffer_append(out, b"{", 1)
    for index in range(first, end):
        if index > first:
            buffer_append(out, b",", 1)
        if leaf_is_null(leaf.children, index):
            buffer_append(out, b"NULL", 4)
            continue
        start = out.size
        leaf_print(leaf.children, index, out)
        print_element(out, start)
    return buffer_append(out, b"}", 1)


cdef int leaf_print(const Leaf *leaf, int64_t row, Buffer *out) except -1 nogil:
    """Append the text of a value that is not NULL."""
    cdef int64_t at = row + leaf.offset
    cdef Piece piece
    if leaf.kind == LEAF_BOOL:
        return buffer_append(
            out, b"t" if (<const uint8_t *>leaf.values)[at >> 3] >> (at & 7) & 1 else b"f", 1
        )
    if leaf.kind == LEAF_INT8:
        return print_integer((<const int8_t *>leaf.values)[at], out)
    if leaf.kind == LEAF_INT16:
        return print_integer((<const int16_t *>leaf.values)[at], out)
    if leaf.kind == LEAF_INT32:
        return print_integer((<const int32_t *>leaf.values)[at], out)
    if leaf.kind == LEAF_INT64:
        return print_integer((<const int64_t *>leaf.values)[at], out)
    if leaf.kind == LEAF_FLOAT32:
        return print_digits(
            (<const float *>leaf.values)[at], 6 if leaf.digits == DIGITS_ROUNDED else 9, out
        )
    if leaf.kind == LEAF_FLOAT64:
        return print_digits(
            (<const double *>leaf.values)[at], 15 if leaf.digits == DIGITS_ROUNDED else 18, out
        )
    if leaf.kind == LEAF_DECIMAL:
        return print_decimal(
            <const uint8_t *>leaf.values + 16 * at, leaf.scale, leaf.digits != DIGITS_SHORTEST, out
        )
    if leaf.kind == LEAF_DATE:
        return print_date((<const int32_t *>leaf.values)[at], out)
    if leaf.kind == LEAF_TIMESTAMP or leaf.kind == LEAF_TIMESTAMPTZ:
        return print_timestamp(
            (<const int64_t *>leaf.values)[at], leaf.kind == LEAF_TIMESTAMPTZ, out
        )
    if leaf.kind == LEAF_LIST:
        return print_list(leaf, row, out)
    if leaf.kind == LEAF_STRUCT:
        return print_interval(
            (<const int32_t *>leaf.children[0].values)[row + leaf.children[0].offset],
            (<const int32_t *>leaf.children[1].values)[row + leaf.children[1].offset],
            (<const int64_t *>leaf.children[2].values)[row + leaf.children[2].offset],
            out,
        )
    piece = leaf_bytes(leaf, row)
    if leaf.kind == LEAF_SHORTEST64:
        return print_shortest(piece.data, piece.size, 15, out)
    if leaf.kind == LEAF_SHORTEST32:
        return print_shortest(piece.data, piece.size, 6, out)
    if leaf.kind == LEAF_NUMERIC:
        return print_numeric(piece.data, piece.size, out)
    if leaf.kind == LEAF_BINARY:
        buffer_append(out, b"\\x", 2)
        return print_hex(piece.data, piece.size, HEX_LOWER, out)
    if leaf.kind == LEAF_HEADLESS:
        return print_hex(piece.data, piece.size, HEX_UPPER, out)
    return buffer_append(out, piece.data, piece.size)
