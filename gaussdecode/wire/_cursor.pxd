"""A read pointer inside one message, and the only bounds check under every parser.

All integers on the wire are big-endian. An inline function here either returns a field
and steps over it, or raises through a cold function and moves nothing.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy


cdef extern from *:
    """
    #define gd_swap16(x) __builtin_bswap16(x)
    #define gd_swap32(x) __builtin_bswap32(x)
    #define gd_swap64(x) __builtin_bswap64(x)
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "this package supports little-endian machines only"
    #endif
    """
    uint16_t gd_swap16(uint16_t) noexcept nogil
    uint32_t gd_swap32(uint32_t) noexcept nogil
    uint64_t gd_swap64(uint64_t) noexcept nogil


cdef struct Cursor:
    const uint8_t *head     # first byte of the message
    const uint8_t *next     # next byte to read
    const uint8_t *end      # one past the last byte


cdef int fail_truncated(Cursor *cursor, size_t need) except -1 with gil
cdef int fail_wire(Cursor *cursor, const char *reason, size_t back) except -1 with gil


cdef inline const uint8_t *take(Cursor *cursor, size_t size) except NULL nogil:
    """Step over `size` bytes and return their start; the only bounds check."""
    cdef const uint8_t *field = cursor.next
    if size > <size_t>(cursor.end - field):
        fail_truncated(cursor, size)
        return NULL
    cursor.next = field + size
    return field


cdef inline int read_uint8(Cursor *cursor) except -1 nogil:
    return take(cursor, 1)[0]


cdef inline int read_uint16(Cursor *cursor) except -1 nogil:
    cdef uint16_t value
    memcpy(&value, take(cursor, 2), 2)
    return gd_swap16(value)


cdef inline int read_uint32(Cursor *cursor, uint32_t *value) except -1 nogil:
    memcpy(value, take(cursor, 4), 4)
    value[0] = gd_swap32(value[0])
    return 0


cdef inline int read_uint64(Cursor *cursor, uint64_t *value) except -1 nogil:
    memcpy(value, take(cursor, 8), 8)
    value[0] = gd_swap64(value[0])
    return 0


cdef inline const uint8_t *read_string(Cursor *cursor, size_t *size) except NULL nogil:
    """Step over a NUL-terminated string; `size` is without the NUL."""
    cdef size_t left = cursor.end - cursor.next
    cdef const uint8_t *nul = NULL
    if left:
        nul = <const uint8_t *>memchr(cursor.next, 0, left)
    if nul == NULL:
        fail_truncated(cursor, left + 1)
        return NULL
    size[0] = nul - cursor.next
    return take(cursor, size[0] + 1)


cdef inline int check_end(Cursor *cursor) except -1 nogil:
    """A message ends exactly at its length."""
    if cursor.next != cursor.end:
        fail_wire(cursor, b"bytes after the end of the message", 0)
    return 0
