"""Values in PostgreSQL's send formats (``binary``); see `_sent.pyx`."""

from libc.math cimport NAN, isnan
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from gaussdecode.wire._column cimport Column
from gaussdecode.wire._formats cimport (
    HELD, NOT_HELD, SENT_BOOL, SENT_FLOAT4, SENT_FLOAT8, SENT_INT2, SENT_INT4, SENT_INT8,
    SENT_UINT4, load_uint16, load_uint32, load_uint64,
)
from gaussdecode.wire._layout cimport (
    KIND_BOOL, KIND_FLOAT64, KIND_INT16, KIND_INT32, KIND_INT64, Buffer, SentNode,
)

# Refuse nodes of unknown formats, or whose parts are not among them.
cdef int sent_check(const SentNode *nodes, uint32_t count) except -1 nogil

# Store a value in its row. HELD, MALFORMED, or NOT_HELD: nothing is stored.
cdef int sent_store(
    Column *column, uint32_t row, const uint8_t *data, size_t size, Buffer *scratch
) except -1 nogil

# Find the text that the server would have sent: HELD, MALFORMED or NO_TEXT. It stands in the
# value itself, or in `scratch`, behind HEADROOM.
cdef int sent_text(
    const SentNode *node, const uint8_t *data, size_t size,
    Buffer *scratch, const uint8_t **text, size_t *text_size,
) except -1 nogil


cdef inline int store_narrow(
    uint8_t kind, uint8_t send_format, const uint8_t *data, uint8_t *target
) noexcept nogil:
    """Booleans, integers and floats, of their size."""
    cdef int16_t narrow
    cdef int32_t number
    cdef int64_t wide
    cdef float single
    cdef double real
    if kind == KIND_BOOL:
        if send_format != SENT_BOOL:
            return NOT_HELD
        target[0] = data[0] != 0
    elif kind == KIND_INT16:
        if send_format != SENT_INT2:
            return NOT_HELD
        narrow = <int16_t>load_uint16(data)
        memcpy(target, &narrow, 2)
    elif kind == KIND_INT32:
        if send_format != SENT_INT4:
            return NOT_HELD
        number = <int32_t>load_uint32(data)
        memcpy(target, &number, 4)
    elif kind == KIND_INT64:
        if send_format == SENT_INT8:
            wide = <int64_t>load_uint64(data)
        elif send_format == SENT_UINT4:
            wide = load_uint32(data)
        else:
            return NOT_HELD
        memcpy(target, &wide, 8)
    elif kind == KIND_FLOAT64:
        if send_format != SENT_FLOAT8:
            return NOT_HELD
        wide = <int64_t>load_uint64(data)
        memcpy(&real, &wide, 8)
        if isnan(real):         # one of them, as its text is
            real = NAN
        memcpy(target, &real, 8)
    else:
        if send_format != SENT_FLOAT4:
            return NOT_HELD
        number = <int32_t>load_uint32(data)
        memcpy(&single, &number, 4)
        if isnan(single):
            single = NAN
        memcpy(target, &single, 4)
    return HELD
