"""Values in the server's text form to what a column holds; the hot ones inline.

Each parser returns 1 and writes the value, or returns 0 when the column cannot hold it
exactly; then the caller keeps the text. Nothing is clamped, rounded or guessed.

Contract: `HEADROOM` readable bytes precede `text`. In a message they are its type,
OID, column count and the value's own length; scratch buffers reserve them.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gaussdecode.wire._layout cimport Buffer


cdef enum:
    HEADROOM = 8

cdef extern from *:
    """
    typedef unsigned __int128 gd_uint128;

    static const uint64_t gd_pow10[20] = {
        1ULL, 10ULL, 100ULL, 1000ULL, 10000ULL, 100000ULL, 1000000ULL, 10000000ULL,
        100000000ULL, 1000000000ULL, 10000000000ULL, 100000000000ULL, 1000000000000ULL,
        10000000000000ULL, 100000000000000ULL, 1000000000000000ULL,
        10000000000000000ULL, 100000000000000000ULL, 1000000000000000000ULL,
        10000000000000000000ULL};
    """
    ctypedef unsigned long long uint128_t "gd_uint128"
    const uint64_t[20] gd_pow10


cdef inline uint64_t load8(const uint8_t *bytes) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, bytes, 8)
    return word


cdef inline bint eight_digits(uint64_t word, uint64_t *value) noexcept nogil:
    """Convert eight ASCII digits, first character in the lowest byte."""
    cdef uint64_t high = <uint64_t>0xF0F0F0F0F0F0F0F0
    if ((word & high) | (((word + <uint64_t>0x0606060606060606) & high) >> 4)) != (
        <uint64_t>0x3333333333333333
    ):
        return False
    word = ((word & <uint64_t>0x0F0F0F0F0F0F0F0F) * 2561) >> 8
    word = ((word & <uint64_t>0x00FF00FF00FF00FF) * 6553601) >> 16
    value[0] = ((word & <uint64_t>0x0000FFFF0000FFFF) * <uint64_t>42949672960001) >> 32
    return True


cdef inline bint tail_digits(const uint8_t *end, size_t size, uint64_t *value) noexcept nogil:
    """Convert the last `size` (1 to 8) digits before `end`; reads the HEADROOM."""
    cdef uint64_t word = load8(end - 8)
    cdef unsigned int drop = 8 * (8 - <unsigned int>size)
    if drop:
        word = (word >> drop << drop) | (<uint64_t>0x3030303030303030 >> (64 - drop))
    return eight_digits(word, value)


cdef inline bint parse_digits(const uint8_t *text, size_t size, uint64_t *value) noexcept nogil:
    """Convert 1 to 19 digits and nothing else; a longer run does not fit."""
    cdef uint64_t low, middle
    if size - 1 < 8:
        return tail_digits(text + size, size, value)
    if size - 1 < 16:
        if not tail_digits(text + size, 8, &low):
            return False
        if not tail_digits(text + size - 8, size - 8, value):
            return False
        value[0] = value[0] * 100000000 + low
        return True
    if size - 1 >= 19:
        return False
    if not tail_digits(text + size, 8, &low) or not tail_digits(text + size - 8, 8, &middle):
        return False
    if not tail_digits(text + size - 16, size - 16, value):
        return False
    value[0] = (value[0] * 100000000 + middle) * 100000000 + low
    return True


cdef inline bint parse_int(
    const uint8_t *text, size_t size, uint64_t limit, int64_t *value
) noexcept nogil:
    """Convert an integer of at most `limit`, or `limit` + 1 below zero."""
    cdef uint64_t magnitude
    cdef bint is_negative = size > 0 and text[0] == c"-"
    if not parse_digits(text + is_negative, size - is_negative, &magnitude):
        return False
    if magnitude > limit + is_negative:
        return False
    value[0] = <int64_t>(0 - magnitude if is_negative else magnitude)
    return True


cdef inline bint is_ascii(const uint8_t *text, size_t size) noexcept nogil:
    """Eight bytes at a time; short texts use the HEADROOM, masked out."""
    cdef uint64_t seen = 0
    cdef const uint8_t *end = text + size
    if size == 0:
        return True
    while end - text > 8:
        seen |= load8(text)
        text += 8
    # 1 to 8 bytes are left: the last eight, less those that came before.
    seen |= load8(end - 8) >> (8 * (8 - <unsigned int>(end - text)))
    return (seen & <uint64_t>0x8080808080808080) == 0


cdef inline bint below_power(uint128_t magnitude, unsigned int digits) noexcept nogil:
    """Whether `magnitude` has at most `digits` digits."""
    if digits <= 19:
        return magnitude < gd_pow10[digits]
    return magnitude < <uint128_t>gd_pow10[19] * gd_pow10[digits - 19]


cdef bint is_utf8(const uint8_t *text, size_t size) noexcept nogil
cdef int append_escaped(Buffer *buffer, const uint8_t *text, size_t size) except -1 nogil
cdef bint parse_hex(const uint8_t *text, size_t size, uint8_t *target) noexcept nogil
cdef bint parse_float32(const uint8_t *text, size_t size, float *value) noexcept nogil
cdef bint parse_float64(const uint8_t *text, size_t size, double *value) noexcept nogil
cdef bint parse_decimal(
    const uint8_t *text, size_t size, unsigned int precision, unsigned int scale, uint8_t *target
) noexcept nogil
