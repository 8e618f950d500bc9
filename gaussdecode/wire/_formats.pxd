"""What a send format is, and the numbers in it: big-endian, as everything on the wire."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gaussdecode.wire._cursor cimport gd_swap16, gd_swap32, gd_swap64


# How a type's send function writes its values; the numbers are those of `formats.SendFormat`.
cdef enum SendFormat:
    SENT_NONE = 0           # binary is off
    SENT_TEXT = 1
    SENT_BOOL = 2
    SENT_INT2 = 3
    SENT_INT4 = 4
    SENT_INT8 = 5
    SENT_UINT4 = 6
    SENT_FLOAT4 = 7
    SENT_FLOAT8 = 8
    SENT_NUMERIC = 9
    SENT_DATE = 10
    SENT_TIMESTAMP = 11
    SENT_TIMESTAMPTZ = 12
    SENT_INTERVAL = 13
    SENT_BYTEA = 14
    SENT_VERSIONED = 15
    SENT_UUID = 16
    SENT_TIME = 17
    SENT_TIMETZ = 18
    SENT_BIT = 19
    SENT_INET = 20
    SENT_MACADDR = 21
    SENT_UINT8 = 22
    SENT_LSN = 23
    SENT_TID = 24
    SENT_CHAR = 25
    SENT_SNAPSHOT = 26
    SENT_TSVECTOR = 27
    SENT_TSQUERY = 28
    SENT_POINT = 29
    SENT_LSEG = 30
    SENT_PATH = 31
    SENT_BOX = 32
    SENT_POLYGON = 33
    SENT_LINE = 34
    SENT_CIRCLE = 35
    SENT_ARRAY = 36         # those from here on have parts
    SENT_VECTOR = 37
    SENT_RECORD = 38
    SENT_RANGE = 39
    SENT_MULTIRANGE = 40
    SENT_UNKNOWN = 41       # only the server knows the text

cdef enum Outcome:
    NOT_HELD = 0            # its column cannot hold it: only its text can be kept
    HELD = 1
    MALFORMED = 2           # no server sends this
    NO_TEXT = 3             # what its text is, only the server can tell

cdef enum:
    VERSION = 1             # of jsonb and jsonpath

cdef extern from *:
    """
    static const uint8_t gd_sent_sizes[42] = {
        0, 0, 1, 2, 4, 8, 4, 4, 8, 0, 4, 8, 8, 16, 0, 0, 16, 8, 12, 0, 0, 0, 8, 8, 6,
        1, 0, 0, 0, 16, 32, 0, 32, 0, 24, 24, 0, 0, 0, 0, 0, 0};
    """
    const uint8_t[42] gd_sent_sizes     # 0: it varies


cdef inline bint has_its_size(uint8_t send_format, size_t size) noexcept nogil:
    return gd_sent_sizes[send_format] == 0 or gd_sent_sizes[send_format] == size


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
