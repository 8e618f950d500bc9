"""Values in the server's text form to what a column holds; see `_values.pxd`.

What is read is what a server writes under bytea_output hex and extra_float_digits 3; a
GaussDB may leave out the zero before the point and write Inf and Nan. Any other form does
not fit and stays text. Times are in
`_times`; `tests/twins/values.py` is the plain twin of both.

References:
    PostgreSQL, src/backend/utils/adt/: numeric_out(), float8out(), byteaout().
"""

from libc.stdlib cimport strtod
from libc.string cimport memcmp, memcpy

from gaussdecode.wire._layout cimport buffer_append, buffer_grow

cdef extern from *:
    """
    #include <float.h>
    #include <math.h>
    #include <stdint.h>
    #include <string.h>

    static const long double gd_pow10l[28] = {
        1e0L, 1e1L, 1e2L, 1e3L, 1e4L, 1e5L, 1e6L, 1e7L, 1e8L, 1e9L, 1e10L, 1e11L, 1e12L, 1e13L,
        1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L,
        1e26L, 1e27L};
    static const double gd_pow10d[23] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
        1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

    /* 16: not a hexadecimal digit. */
    static const uint8_t gd_hex[256] = {
        [0 ... 255] = 16,
        ['0'] = 0, ['1'] = 1, ['2'] = 2, ['3'] = 3, ['4'] = 4, ['5'] = 5, ['6'] = 6, ['7'] = 7,
        ['8'] = 8, ['9'] = 9, ['a'] = 10, ['b'] = 11, ['c'] = 12, ['d'] = 13, ['e'] = 14,
        ['f'] = 15, ['A'] = 10, ['B'] = 11, ['C'] = 12, ['D'] = 13, ['E'] = 14, ['F'] = 15};

    /* mantissa * 10^exponent, rounded once; 0 when this way cannot decide.
       Both operands are exact in the 64-bit significand of x87, so the product is within
       half a unit of it; rounding that again is right unless it stands on a midpoint. */
    static int gd_round64(uint64_t mantissa, int exponent, double *value)
    {
        if (mantissa <= (1ULL << 53) && exponent >= -22 && exponent <= 22) {
            *value = exponent < 0 ? (double)mantissa / gd_pow10d[-exponent]
                                  : (double)mantissa * gd_pow10d[exponent];
            return 1;
        }
    #if LDBL_MANT_DIG == 64
        if (exponent >= -27 && exponent <= 27) {
            long double near = (long double)mantissa;
            uint64_t bits;
            near = exponent < 0 ? near / gd_pow10l[-exponent] : near * gd_pow10l[exponent];
            memcpy(&bits, &near, 8);
            bits &= 0x7FF;
            if (bits < 0x3FE || bits > 0x402) {
                *value = (double)near;
                return 1;
            }
        }
    #endif
        return 0;
    }

    static int gd_round32(uint64_t mantissa, int exponent, float *value)
    {
        if (mantissa <= (1ULL << 24) && exponent >= -10 && exponent <= 10) {
            *value = exponent < 0 ? (float)mantissa / (float)gd_pow10d[-exponent]
                                  : (float)mantissa * (float)gd_pow10d[exponent];
            return 1;
        }
    #if LDBL_MANT_DIG == 64
        if (exponent >= -27 && exponent <= 27) {
            long double near = (long double)mantissa;
            uint64_t bits;
            near = exponent < 0 ? near / gd_pow10l[-exponent] : near * gd_pow10l[exponent];
            if (near < 1.2e-38L || near > 3.4e38L)
                return 0;
            memcpy(&bits, &near, 8);
            bits &= 0xFFFFFFFFFF;
            if (bits < 0x7FFFFFFFFE || bits > 0x8000000002) {
                *value = (float)near;
                return 1;
            }
        }
    #endif
        return 0;
    }
    """
    const uint8_t[256] gd_hex
    bint gd_round64(uint64_t, int, double *) noexcept nogil
    bint gd_round32(uint64_t, int, float *) noexcept nogil
    float strtof(const char *, char **) noexcept nogil
    bint isinf(double) noexcept nogil
    const double NAN
    const double INFINITY


cdef enum:
    MAX_FLOAT_TEXT = 63     # the server writes at most 25; a longer text stays text
    MAX_DIGITS = 38         # of a decimal

cdef struct FloatText:
    uint64_t mantissa       # of the first 19 significant digits
    int exponent
    bint is_negative
    bint is_exact           # the mantissa holds all digits
    bint is_zero


# ---- text and bytes

cdef inline size_t sequence_size(const uint8_t *text, size_t left) noexcept nogil:
    """Bytes of the valid UTF-8 sequence at `text` (1 to 4), or 0."""
    cdef uint8_t first = text[0]
    cdef uint8_t second
    if first < 0x80:
        return 1
    if first < 0xC2 or left < 2:
        return 0
    second = text[1]
    if first < 0xE0:
        return 2 if second & 0xC0 == 0x80 else 0
    if left < 3 or text[2] & 0xC0 != 0x80:
        return 0
    if first < 0xF0:
        if second & 0xC0 != 0x80 or first == 0xE0 and second < 0xA0:
            return 0
        return 0 if first == 0xED and second > 0x9F else 3
    if left < 4 or text[3] & 0xC0 != 0x80 or second & 0xC0 != 0x80 or first > 0xF4:
        return 0
    if first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F:
        return 0
    return 4


cdef bint is_utf8(const uint8_t *text, size_t size) noexcept nogil:
    """Strict: no overlong form, no surrogate, nothing above U+10FFFF."""
    cdef const uint8_t *end = text + size
    cdef size_t step
    while text < end:
        if end - text >= 8 and load8(text) & <uint64_t>0x8080808080808080 == 0:
            text += 8
            continue
        step = sequence_size(text, end - text)
        if step == 0:
            return False
        text += step
    return True


cdef int append_escaped(Buffer *buffer, const uint8_t *text, size_t size) except -1 nogil:
    """Append as UTF-8: a byte outside any valid sequence as `\\xNN`, backslashes doubled."""
    cdef const char *digits = b"0123456789abcdef"
    cdef const uint8_t *end = text + size
    cdef uint8_t escape[4]
    cdef size_t step
    buffer_grow(buffer, size + (size >> 2))
    while text < end:
        step = sequence_size(text, end - text)
        if step == 0:
            escape[0] = c"\\"
            escape[1] = c"x"
            escape[2] = digits[text[0] >> 4]
            escape[3] = digits[text[0] & 15]
            buffer_append(buffer, escape, 4)
            text += 1
            continue
        if text[0] == c"\\":
            buffer_append(buffer, text, 1)
        buffer_append(buffer, text, step)
        text += step
    return 0


cdef bint parse_hex(const uint8_t *text, size_t size, uint8_t *target) noexcept nogil:
    """`\\x` and pairs of digits; writes (size - 2) / 2 bytes."""
    cdef const uint8_t *end = text + size
    cdef unsigned int high, low
    cdef unsigned int seen = 0
    if size < 2 or size & 1 or text[0] != c"\\" or text[1] != c"x":
        return False
    text += 2
    while text < end:
        high = gd_hex[text[0]]
        low = gd_hex[text[1]]
        seen |= high | low
        target[0] = <uint8_t>(high << 4 | low)
        text += 2
        target += 1
    return seen < 16


# ---- numbers

cdef bint scan_float(const uint8_t *text, size_t size, FloatText *scan) noexcept nogil:
    """Split `-?(D+(.D+)?|.D+)(e[+-]?D{1,4})?` into mantissa and exponent."""
    cdef size_t index = 0
    cdef size_t start
    cdef int digits = 0
    cdef int after_point = 0
    cdef bint seen_point = False
    cdef bint is_negative_power
    cdef int power = 0
    cdef uint8_t digit
    scan.mantissa = 0
    scan.exponent = 0
    scan.is_exact = True
    scan.is_negative = size > 0 and text[0] == c"-"
    index = start = scan.is_negative
    while index < size:
        digit = text[index] - c"0"
        if digit <= 9:
            if digits < 19:
                scan.mantissa = scan.mantissa * 10 + digit
                digits += scan.mantissa != 0
                scan.exponent -= seen_point
            else:
                scan.is_exact = False
                scan.exponent += not seen_point
            after_point += seen_point
        elif text[index] == c"." and not seen_point:
            seen_point = True
        else:
            break
        index += 1
    if index == start or seen_point and after_point == 0:
        return False
    scan.is_zero = scan.mantissa == 0
    if index == size:
        return True
    if text[index] != c"e":
        return False
    index += 1
    is_negative_power = index < size and text[index] == c"-"
    if is_negative_power or index < size and text[index] == c"+":
        index += 1
    if index == size or size - index > 4:
        return False
    while index < size:
        digit = text[index] - c"0"
        if digit > 9:
            return False
        power = power * 10 + digit
        index += 1
    scan.exponent += -power if is_negative_power else power
    return True


cdef inline bint read_fixed(const uint8_t *text, size_t size, FloatText *scan) noexcept nogil:
    """Read `-?D+(.D+)?` of at most 19 digits, as nearly all are written."""
    cdef uint64_t whole, fraction
    cdef size_t point = 0
    scan.is_negative = size > 0 and text[0] == c"-"
    text += scan.is_negative
    size -= scan.is_negative
    if size - 1 >= 20:
        return False
    while point < size and text[point] != c".":
        point += 1
    if not parse_digits(text, point, &whole):
        return False
    scan.exponent = 0
    scan.mantissa = whole
    if point < size:
        size -= point + 1
        if point + size > 19 or not parse_digits(text + point + 1, size, &fraction):
            return False
        scan.exponent = -<int>size
        scan.mantissa = whole * gd_pow10[size] + fraction
    scan.is_exact = True
    scan.is_zero = scan.mantissa == 0
    return True


cdef inline bint parse_special(const uint8_t *text, size_t size, double *value) noexcept nogil:
    if size == 3 and (memcmp(text, b"NaN", 3) == 0 or memcmp(text, b"Nan", 3) == 0):
        value[0] = NAN
    elif size == 8 and memcmp(text, b"Infinity", 8) == 0 or (
        size == 3 and memcmp(text, b"Inf", 3) == 0
    ):
        value[0] = INFINITY
    elif size == 9 and memcmp(text, b"-Infinity", 9) == 0 or (
        size == 4 and memcmp(text, b"-Inf", 4) == 0
    ):
        value[0] = -INFINITY
    else:
        return False
    return True


cdef bint parse_float64(const uint8_t *text, size_t size, double *value) noexcept nogil:
    """Exactly rounded; a number that would become infinite or zero does not fit."""
    cdef FloatText scan
    cdef char copy[MAX_FLOAT_TEXT + 1]
    if size > MAX_FLOAT_TEXT:
        return False
    if not read_fixed(text, size, &scan) and not scan_float(text, size, &scan):
        return parse_special(text, size, value)
    if scan.is_exact and gd_round64(scan.mantissa, scan.exponent, value):
        if scan.is_negative:
            value[0] = -value[0]
        return True
    memcpy(copy, text, size)
    copy[size] = 0
    value[0] = strtod(copy, NULL)
    return not isinf(value[0]) and (value[0] != 0 or scan.is_zero)


cdef bint parse_float32(const uint8_t *text, size_t size, float *value) noexcept nogil:
    """As `parse_float64`, rounded once and to single precision."""
    cdef FloatText scan
    cdef double special
    cdef char copy[MAX_FLOAT_TEXT + 1]
    if size > MAX_FLOAT_TEXT:
        return False
    if not read_fixed(text, size, &scan) and not scan_float(text, size, &scan):
        if not parse_special(text, size, &special):
            return False
        value[0] = <float>special
        return True
    if scan.is_exact and gd_round32(scan.mantissa, scan.exponent, value):
        if scan.is_negative:
            value[0] = -value[0]
        return True
    memcpy(copy, text, size)
    copy[size] = 0
    value[0] = strtof(copy, NULL)
    return not isinf(value[0]) and (value[0] != 0 or scan.is_zero)


cdef bint long_decimal(
    const uint8_t *text, size_t size, unsigned int scale, uint128_t *magnitude
) noexcept nogil:
    """Read `D+(.D+)?` or `.D+` digit by digit; digits past the scale must be zeros."""
    cdef size_t index
    cdef unsigned int significant = 0
    cdef unsigned int fraction = 0
    cdef size_t point = size
    cdef uint8_t digit
    cdef uint128_t total = 0
    for index in range(size):
        if text[index] == c"." and point == size and index < size - 1:
            point = index
            continue
        digit = text[index] - c"0"
        if digit > 9:
            return False
        if point < size and fraction == scale:
            if digit != 0:
                return False
            continue
        fraction += point < size
        significant += significant > 0 or digit > 0
        if significant > MAX_DIGITS:
            return False
        total = total * 10 + digit
    while fraction < scale:
        fraction += 1
        significant += significant > 0
        if significant > MAX_DIGITS:
            return False
        total = total * 10
    magnitude[0] = total
    return size > 0


cdef bint parse_decimal(
    const uint8_t *text, size_t size, unsigned int precision, unsigned int scale, uint8_t *target
) noexcept nogil:
    """Scale to an integer of 16 bytes; NaN, infinities and too many digits do not fit.

    The server writes exactly `scale` digits after the point, so that the point's place
    is known and both halves are converted eight digits at a time.
    """
    cdef uint64_t whole, fraction
    cdef uint128_t magnitude
    cdef bint is_negative = size > 0 and text[0] == c"-"
    cdef size_t digits
    text += is_negative
    size -= is_negative
    digits = size - scale - 1
    if (
        scale > 0 and size > scale + 1 and digits <= 19 and text[digits] == c"."
        and parse_digits(text, digits, &whole)
        and parse_digits(text + digits + 1, scale, &fraction)
    ):
        magnitude = <uint128_t>whole * gd_pow10[scale] + fraction
    elif scale == 0 and parse_digits(text, size, &whole):
        magnitude = whole
    elif not long_decimal(text, size, scale, &magnitude):
        return False
    if not below_power(magnitude, precision):
        return False
    if is_negative:
        magnitude = 0 - magnitude
    memcpy(target, &magnitude, 16)
    return True
