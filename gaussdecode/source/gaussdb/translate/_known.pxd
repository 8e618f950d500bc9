"""The tables a translator knows, by the bytes that name them; see `_known.pyx`."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from gaussdecode.wire._values cimport load8
from gaussdecode.source.gaussdb.translate._row cimport Field, Row, Tuple


cdef struct KnownColumn:
    uint32_t name_offset        # in `bytes`, as sent
    uint32_t name_size          # 0: never seen in a row yet
    uint32_t type_offset
    uint32_t type_size
    bint is_identity
    bint is_hex                 # hexadecimal without the prefix that marks it
    bint is_number              # a numeric that is held as text

cdef struct Known:
    uint8_t *bytes              # the head, then names and types
    size_t head_size
    size_t size                 # of all of its memory
    uint64_t hash
    uint32_t oid
    uint32_t version
    uint32_t column_count
    uint32_t identity_count
    bint is_filtered
    bint has_gaps               # old tuples may leave NULLs out
    bint takes_bare             # an old tuple without columns is a row of NULLs
    bint is_full                # all columns are the identity because the table says so
    uint64_t judged_in          # transaction that a DELETE without an old tuple was judged in,
    bint is_speculative         # and whether it takes back what an upsert inserted
    KnownColumn *columns

cdef struct KnownTable:         # a hash table; a power of two of slots
    Known **slots
    size_t slot_count
    size_t count


cdef Known *known_create(size_t byte_count, uint32_t column_count) except NULL nogil
cdef void known_free(Known *known) noexcept nogil
cdef void table_free(KnownTable *table) noexcept nogil
cdef Known *table_find(
    const KnownTable *table, const uint8_t *head, size_t size
) noexcept nogil
cdef int table_put(KnownTable *table, Known *known) except -1 nogil
cdef bint is_bare(const Known *known, const Row *row) noexcept nogil
cdef bint lacks_old(const Known *known, const Row *row) noexcept nogil
cdef bint known_matches(const Known *known, Row *row, uint64_t transaction) noexcept nogil

cdef bytes span(const uint8_t *data, size_t size)
cdef tuple spelling_of(const Known *known, uint32_t index)
cdef tuple sent_of(const Field *field)
cdef list spans(const Tuple *row_tuple)
cdef int fill_columns(Known *known, object columns, list spelled) except -1


cdef inline bint equal(const uint8_t *one, const uint8_t *other, size_t size) noexcept nogil:
    """As memcmp, without its call for what is short; sizes from 8 on overlap at the end."""
    if size < 8:
        return memcmp(one, other, size) == 0
    while size > 8:
        if load8(one) != load8(other):
            return False
        size -= 8
        if size < 8:
            one -= 8 - size
            other -= 8 - size
            size = 8
        one += 8
        other += 8
    return load8(one) == load8(other)
