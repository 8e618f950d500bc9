"""Floats as PostgreSQL prints them from version 12 on, where extra_float_digits is above 0.

Given a float, the shortest digits that read back as it, and of those the nearest; what stands
exactly between two floats is no spelling of either, for the server does not rely on how a reader
rounds. The way is Schubfach's: three products with a power of ten of 128 bits decide it.

References:
    Raffaele Giulietti, "The Schubfach way to render doubles", 2022.
    PostgreSQL, ``src/common/d2s.c``, ``f2s.c`` and ``ryu_common.h`` (STRICTLY_SHORTEST).
"""

from libc.math cimport isinf, isnan, signbit
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from gaussdecode.wire._layout cimport buffer_append, buffer_grow
from gaussdecode.wire._values cimport uint128_t

cdef enum:
    LOWEST = -292               # powers of ten that a double can ask for
    HIGHEST = 324
    MOST_DIGITS = 17
    MOST_BYTES = 32             # of a float's text
    MANTISSA64 = 52
    MANTISSA32 = 23
    FIXED_FROM = -4             # exponents that are printed without one, as with %g
    FIXED_BELOW_64 = 15
    FIXED_BELOW_32 = 6

cdef struct Power:
    uint64_t high
    uint64_t low

cdef Power[HIGHEST - LOWEST + 1] powers


def _fill() -> None:
    """The 128 leading bits of every power of ten, rounded up."""
    for exponent in range(LOWEST, HIGHEST + 1):
        if exponent >= 0:
            power = 10**exponent
            surplus = power.bit_length() - 128
            bits = power << -surplus if surplus <= 0 else -(-power >> surplus)
        else:
            power = 10**-exponent
            bits = -((-1 << (power.bit_length() + 127)) // power)
        powers[exponent - LOWEST].high = bits >> 64
        powers[exponent - LOWEST].low = bits & 0xFFFFFFFFFFFFFFFF


_fill()


cdef inline uint64_t scaled(const Power *power, uint64_t number) noexcept nogil:
    """The product's leading bits; the last is 1 where it is not exact."""
    cdef uint128_t low = <uint128_t>power.low * number
    cdef uint128_t product = <uint128_t>power.high * number + <uint64_t>(low >> 64)
    return <uint64_t>(product >> 64) | (<uint64_t>product > 1)


cdef inline int32_t floor_log10_pow2(int32_t exponent, bint is_three_quarters) noexcept nogil:
    return (exponent * 1262611 - (524031 if is_three_quarters else 0)) >> 22


cdef inline int32_t floor_log2_pow10(int32_t exponent) noexcept nogil:
    return (exponent * 1741647) >> 19


cdef uint64_t shortest(
    uint64_t mantissa, int32_t exponent, bint is_uneven, int32_t *ten
) noexcept nogil:
    """Digits of mantissa * 2**exponent, which count 10**ten.

    Args:
        is_uneven: the float below is nearer than the one above.
    """
    cdef int32_t k = floor_log10_pow2(exponent, is_uneven)
    cdef int32_t shift = exponent + floor_log2_pow10(-k) + 1
    cdef const Power *power = &powers[-k - LOWEST]
    # All three count quarters of 10**k; the ends themselves are not within.
    cdef uint64_t value = scaled(power, 4 * mantissa << shift)
    cdef uint64_t lower = scaled(power, 4 * mantissa - 2 + is_uneven << shift) + 1
    cdef uint64_t upper = scaled(power, 4 * mantissa + 2 << shift) - 1
    cdef uint64_t digits = value // 4
    cdef uint64_t tens = digits // 10
    cdef bint is_within, is_next_within
    ten[0] = k
    if digits >= 10:
        is_within = lower <= 40 * tens
        is_next_within = 40 * tens + 40 <= upper
        if is_within != is_next_within:
            ten[0] = k + 1
            return tens + is_next_within
    is_within = lower <= 4 * digits
    is_next_within = 4 * digits + 4 <= upper
    if is_within != is_next_within:
        return digits + is_next_within
    if value == 4 * digits + 2:
        return digits + (digits & 1)
    return digits + (value > 4 * digits + 2)


cdef int put_decimal(
    Buffer *out, uint64_t digits, int32_t ten, int32_t fixed_below
) except -1 nogil:
    """Digits that count 10**ten, without the zeros at their end."""
    cdef uint8_t[MOST_DIGITS + 3] text
    cdef int32_t end = MOST_DIGITS + 3
    cdef int32_t at = end
    cdef int32_t count, exponent
    cdef uint8_t *to
    while digits % 10 == 0:
        digits //= 10
        ten += 1
    while digits:
        at -= 1
        text[at] = <uint8_t>(c"0" + digits % 10)
        digits //= 10
    count = end - at
    exponent = ten + count - 1
    buffer_grow(out, MOST_BYTES)
    to = out.data + out.size
    if exponent < FIXED_FROM or exponent >= fixed_below:
        to[0] = text[at]
        to += 1
        if count > 1:
            to[0] = c"."
            memcpy(to + 1, &text[at + 1], count - 1)
            to += count
        to[0] = c"e"
        to[1] = c"-" if exponent < 0 else c"+"
        to += 2
        exponent = -exponent if exponent < 0 else exponent
        if exponent >= 100:
            to[0] = <uint8_t>(c"0" + exponent // 100)
            to += 1
        to[0] = <uint8_t>(c"0" + exponent // 10 % 10)
        to[1] = <uint8_t>(c"0" + exponent % 10)
        to += 2
    elif exponent < 0:
        memset(to, c"0", 1 - exponent)
        to[1] = c"."
        memcpy(to + 1 - exponent, &text[at], count)
        to += count + 1 - exponent
    elif ten >= 0:
        memcpy(to, &text[at], count)
        memset(to + count, c"0", ten)
        to += count + ten
    else:
        memcpy(to, &text[at], exponent + 1)
        to[exponent + 1] = c"."
        memcpy(to + exponent + 2, &text[at + exponent + 1], count - exponent - 1)
        to += count + 1
    out.size = to - out.data
    return 0


cdef int put_special(Buffer *out, double value) except -1 nogil:
    """Sign, and the whole text of what has no digits; returns whether that is all."""
    if isnan(value):
        return buffer_append(out, b"NaN", 3) + 1
    if signbit(value):
        buffer_append(out, b"-", 1)
    if isinf(value):
        return buffer_append(out, b"Infinity", 8) + 1
    if value == 0:
        return buffer_append(out, b"0", 1) + 1
    return 0


cdef int put_float64(Buffer *out, double value) except -1 nogil:
    """As float8out does."""
    cdef uint64_t bits, mantissa
    cdef int32_t exponent, ten
    if put_special(out, value):
        return 0
    memcpy(&bits, &value, 8)
    mantissa = bits & ((<uint64_t>1 << MANTISSA64) - 1)
    exponent = <int32_t>(bits >> MANTISSA64 & 0x7FF)
    if exponent:
        bits = shortest(
            mantissa | <uint64_t>1 << MANTISSA64, exponent - 1075,
            mantissa == 0 and exponent > 1, &ten,
        )
    else:
        bits = shortest(mantissa, -1074, False, &ten)
    return put_decimal(out, bits, ten, FIXED_BELOW_64)


cdef int put_float32(Buffer *out, float value) except -1 nogil:
    """As float4out does."""
    cdef uint32_t bits, mantissa
    cdef int32_t exponent, ten
    cdef uint64_t digits
    if put_special(out, value):
        return 0
    memcpy(&bits, &value, 4)
    mantissa = bits & ((1 << MANTISSA32) - 1)
    exponent = <int32_t>(bits >> MANTISSA32 & 0xFF)
    if exponent:
        digits = shortest(
            mantissa | 1 << MANTISSA32, exponent - 150, mantissa == 0 and exponent > 1, &ten
        )
    else:
        digits = shortest(mantissa, -149, False, &ten)
    return put_decimal(out, digits, ten, FIXED_BELOW_32)
