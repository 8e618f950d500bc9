"""Columns of Arrow arrays, and their values as the server prints them.

The arrays come through Arrow's C data interface (capsules), which pyarrow checks: buffers are as
long as their offsets say. A row is checked by the caller, against `length`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from gaussdecode.wire._layout cimport Buffer

cdef enum LeafKind:
    LEAF_BOOL
    LEAF_INT8
    LEAF_INT16
    LEAF_INT32
    LEAF_INT64
    LEAF_FLOAT32
    LEAF_FLOAT64
    LEAF_SHORTEST32             # text of Arrow's own shortest form of a float32
    LEAF_SHORTEST64             # same, float64
    LEAF_DECIMAL
    LEAF_DATE
    LEAF_TIMESTAMP
    LEAF_TIMESTAMPTZ
    LEAF_STRING
    LEAF_NUMERIC
    LEAF_BINARY
    LEAF_HEADLESS               # bytes as GaussDB prints raw and blob
    LEAF_STRUCT                 # months, days, micros where it is a value
    LEAF_LIST
    LEAF_MAP


cdef enum Digits:               # of numbers
    DIGITS_SHORTEST             # as PostgreSQL prints them
    DIGITS_EXACT                # as openGauss does: 18 or 9, no zero before the point
    DIGITS_ROUNDED              # same, 15 or 6


cdef struct Leaf:
    LeafKind kind
    Digits digits
    int scale                   # of a decimal
    int64_t length
    int64_t offset              # of element 0 in the buffers
    const uint8_t *validity     # NULL: no value is NULL
    const void *values          # or int32 offsets
    const uint8_t *content
    int child_count
    Leaf *children


cdef enum LeafForm:             # where the array alone does not tell how its values print
    FORM_PLAIN = 0
    FORM_HEADLESS = 1
    FORM_SHORTEST32 = 2
    FORM_SHORTEST64 = 3
    FORM_NUMERIC = 4            # text of a numeric, as GaussDB prints it


cdef struct Piece:              # bytes that live elsewhere
    const uint8_t *data
    size_t size


cdef inline bint leaf_is_null(const Leaf *leaf, int64_t row) noexcept nogil:
    cdef int64_t at = row + leaf.offset
    return leaf.validity != NULL and not leaf.validity[at >> 3] >> (at & 7) & 1


cdef inline Piece leaf_bytes(const Leaf *leaf, int64_t row) noexcept nogil:
    """Bytes of a string or binary, as they are."""
    cdef const int32_t *offsets = <const int32_t *>leaf.values + leaf.offset + row
    cdef Piece piece
    piece.data = leaf.content + offsets[0]
    piece.size = offsets[1] - offsets[0]
    return piece


cdef inline void leaf_range(
    const Leaf *leaf, int64_t row, int64_t *first, int64_t *end
) noexcept nogil:
    """Elements of a list or map."""
    cdef const int32_t *offsets = <const int32_t *>leaf.values + leaf.offset + row
    first[0] = offsets[0]
    end[0] = offsets[1]


cdef int leaf_bind(Leaf *leaf, object array, Digits digits, LeafForm form) except -1
cdef void leaf_free(Leaf *leaf) noexcept
cdef int leaf_print(const Leaf *leaf, int64_t row, Buffer *out) except -1 nogil
cdef int print_integer(int64_t value, Buffer *out) except -1 nogil
cdef int print_unsigned(unsigned long long value, Buffer *out) except -1 nogil
cdef int print_lsn(unsigned long long lsn, Buffer *out) except -1 nogil
cdef int print_timestamp(int64_t time_us, bint with_zone, Buffer *out) except -1 nogil
