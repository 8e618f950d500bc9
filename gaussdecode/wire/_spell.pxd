"""Text of values without parts; see `_spell.pyx`."""

from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t,
)
from libc.string cimport memcpy

from gaussdecode.wire._layout cimport Buffer, buffer_grow

cdef enum:
    EPOCH_DAYS = 10957          # 2000-01-01 since 1970
    NUMERIC_HEAD = 8
    NUMERIC_NEGATIVE = 0x4000
    UUID_TEXT = 36

cdef extern from *:
    """
    #define GD_DAY_US INT64_C(86400000000)

    typedef uint8_t gd_bytes16 __attribute__((vector_size(16)));
    #ifdef __clang__
    #define GD_INTERLEAVE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
    #else
    #define GD_INTERLEAVE(a, b, ...) __builtin_shuffle(a, b, (gd_bytes16){__VA_ARGS__})
    #endif

    /* The 32 hex digits of 16 bytes. */
    static inline void gd_hex16(const uint8_t *data, uint8_t *digits) {
        gd_bytes16 bytes, high, low;
        memcpy(&bytes, data, 16);
        high = bytes >> 4;
        low = bytes & 15;
        high += '0' + ((gd_bytes16)(high > 9) & 39);
        low += '0' + ((gd_bytes16)(low > 9) & 39);
        bytes = GD_INTERLEAVE(high, low,
            0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        memcpy(digits, &bytes, 16);
        bytes = GD_INTERLEAVE(high, low,
            8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        memcpy(digits + 16, &bytes, 16);
    }

    /* Two digits of a number below 100. */
    static inline void gd_two(uint8_t *to, unsigned int number) {
        to[0] = (uint8_t)('0' + number / 10);
        to[1] = (uint8_t)('0' + number % 10);
    }
    """
    const long long GD_DAY_US
    void gd_hex16(const uint8_t *data, uint8_t *digits) noexcept nogil
    void gd_two(uint8_t *to, unsigned int number) noexcept nogil


cdef inline int put(Buffer *out, uint8_t byte) except -1 nogil:
    buffer_grow(out, 1)
    out.data[out.size] = byte
    out.size += 1
    return 0


cdef inline int put_uuid(Buffer *out, const uint8_t *data) except -1 nogil:
    """In groups of 8, 4, 4, 4 and 12 digits."""
    cdef uint8_t[32] digits
    cdef uint8_t *to
    gd_hex16(data, digits)
    buffer_grow(out, UUID_TEXT)
    to = out.data + out.size
    out.size += UUID_TEXT
    memcpy(to, digits, 8)
    memcpy(to + 9, &digits[8], 4)
    memcpy(to + 14, &digits[12], 4)
    memcpy(to + 19, &digits[16], 4)
    memcpy(to + 24, &digits[20], 12)
    to[8] = to[13] = to[18] = to[23] = c"-"
    return 0


cdef inline bint is_infinite(int64_t micros, int32_t days, int32_t months) noexcept nogil:
    """Whether an interval is, from PostgreSQL 17 on; before that these are numbers."""
    return (days == INT32_MAX and months == INT32_MAX and micros == INT64_MAX) or (
        days == INT32_MIN and months == INT32_MIN and micros == INT64_MIN
    )


cdef int check_numeric(const uint8_t *data, size_t size) noexcept nogil
cdef int put_number(Buffer *out, uint64_t number, unsigned int least) except -1 nogil

# Append what the server would print: HELD, MALFORMED or NO_TEXT.
cdef int put_value(
    Buffer *out, uint8_t send_format, const uint8_t *data, size_t size
) except -1 nogil
