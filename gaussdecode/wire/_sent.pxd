"""Values in PostgreSQL's send formats (``binary``); see `_sent.pyx`."""

from libc.stdint cimport uint8_t, uint32_t

from gaussdecode.wire._column cimport Column
from gaussdecode.wire._layout cimport Buffer


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
    SENT_ARRAY = 25
    SENT_UNKNOWN = 26       # only the server knows the text

cdef enum Outcome:
    NOT_HELD = 0            # its column cannot hold it: only its text can be kept
    HELD = 1
    MALFORMED = 2           # no server sends this
    NO_TEXT = 3             # what its text is, only the server can tell

# Store a value in its row. HELD, MALFORMED, or NOT_HELD: nothing is stored.
cdef int sent_store(
    Column *column, uint32_t row, uint8_t send_format, uint8_t element_format,
    const uint8_t *data, size_t size, Buffer *scratch,
) except -1 nogil

# Find the text that the server would have sent: HELD, MALFORMED or NO_TEXT. It stands in the
# value itself, or in `scratch`, behind HEADROOM.
cdef int sent_text(
    uint8_t send_format, uint8_t element_format, const uint8_t *data, size_t size,
    Buffer *scratch, const uint8_t **text, size_t *text_size,
) except -1 nogil
