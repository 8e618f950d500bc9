"""Dates, times and intervals in the server's text form; the contract is that of `_values`."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t


cdef extern from *:
    """
    #define GD_EPOCH_US INT64_C(946684800000000)
    """
    const int64_t GD_EPOCH_US   # 2000-01-01 UTC, from which the wire counts, since 1970


# The date that was read last: the next one is likely to be the same. Zeros are none.
cdef struct Day:
    uint64_t head               # its first eight characters,
    uint16_t tail               # and the other two
    int32_t number              # days since 1970-01-01


cdef bint parse_date(const uint8_t *text, size_t size, Day *last, int32_t *value) noexcept nogil
cdef bint parse_timestamp(
    const uint8_t *text, size_t size, bint has_zone, Day *last, int64_t *value
) noexcept nogil
cdef bint parse_interval(const uint8_t *text, size_t size, uint8_t *target) noexcept nogil
