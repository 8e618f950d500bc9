"""Pieces of canonical messages; see `_emit.pyx`. Integers are big-endian."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gaussdecode.wire._cursor cimport gd_swap16, gd_swap32, gd_swap64
from gaussdecode.wire._layout cimport Buffer, buffer_append


cdef int append_single(Buffer *out, const uint8_t *text, size_t size) except -1 nogil
cdef int append_number(Buffer *out, const uint8_t *text, size_t size) except -1 nogil


cdef inline void put_uint32(uint8_t *target, uint32_t value) noexcept nogil:
    value = gd_swap32(value)
    memcpy(target, &value, 4)


cdef inline int append_uint32(Buffer *out, uint32_t value) except -1 nogil:
    value = gd_swap32(value)
    return buffer_append(out, &value, 4)


cdef inline int append_uint64(Buffer *out, uint64_t value) except -1 nogil:
    value = gd_swap64(value)
    return buffer_append(out, &value, 8)


cdef inline int append_byte(Buffer *out, uint8_t value) except -1 nogil:
    return buffer_append(out, &value, 1)


cdef inline int append_count(Buffer *out, uint8_t tag, uint32_t count) except -1 nogil:
    """Begin a tuple."""
    cdef uint16_t narrow = gd_swap16(<uint16_t>count)
    append_byte(out, tag)
    return buffer_append(out, &narrow, 2)
