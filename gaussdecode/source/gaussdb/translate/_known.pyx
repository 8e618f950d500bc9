"""The tables a translator knows, by the bytes that name them.

One record per spelling of a table, with the bytes of its columns as they were last sent:
a row belongs to the version if all of its new columns compare equal, one comparison each,
and if its old columns are the identity's, in order. Memory is bounded by the tables of the
database times the bytes of their headers; forgetting one costs a question to the slow path.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from gaussdecode.model.types import is_headless_hex, is_number_as_text
cdef enum:
    FIRST_SLOTS = 64

# ---- one table

cdef Known *known_create(size_t byte_count, uint32_t column_count) except NULL nogil:
    """Make an empty record with room for its bytes; `known_free` takes it back."""
    cdef Known *known = <Known *>calloc(1, sizeof(Known))
    if known != NULL:
        known.bytes = <uint8_t *>calloc(byte_count + 8, 1)
        known.columns = <KnownColumn *>calloc(column_count + 1, sizeof(KnownColumn))
    if known == NULL or known.bytes == NULL or known.columns == NULL:
        known_free(known)
        with gil:
            raise MemoryError("no memory for the description of a table")
    known.column_count = column_count
    known.size = sizeof(Known) + byte_count + column_count * sizeof(KnownColumn)
    return known


cdef void known_free(Known *known) noexcept nogil:
    if known != NULL:
        free(known.bytes)
        free(known.columns)
        free(known)


# ---- all tables

cdef uint64_t hash_of(const uint8_t *head, size_t size) noexcept nogil:
    """FNV-1a, with a last mix so that the low bits are good."""
    cdef uint64_t total = <uint64_t>0xCBF29CE484222325
    cdef size_t index
    for index in range(size):
        total = (total ^ head[index]) * <uint64_t>0x100000001B3
    return total ^ total >> 29


cdef Known **slot_of(
    const KnownTable *table, uint64_t hash, const uint8_t *head, size_t size
) noexcept nogil:
    """The slot that holds the head, or the empty one where it would go."""
    cdef size_t mask = table.slot_count - 1
    cdef size_t index = hash & mask
    cdef Known *known
    while True:
        known = table.slots[index]
        if known == NULL or known.hash == hash and known.head_size == size and (
            memcmp(known.bytes, head, size) == 0
        ):
            return &table.slots[index]
        index = (index + 1) & mask


cdef Known *table_find(
    const KnownTable *table, const uint8_t *head, size_t size
) noexcept nogil:
    if table.slot_count == 0:
        return NULL
    return slot_of(table, hash_of(head, size), head, size)[0]


cdef int grow_table(KnownTable *table) except -1 nogil:
    cdef size_t count = table.slot_count * 2 if table.slot_count else FIRST_SLOTS
    cdef KnownTable grown
    cdef size_t index
    cdef Known *known
    grown.slots = <Known **>calloc(count, sizeof(Known *))
    if grown.slots == NULL:
        with gil:
            raise MemoryError("no memory for the known tables")
    grown.slot_count = count
    for index in range(table.slot_count):
        known = table.slots[index]
        if known != NULL:
            slot_of(&grown, known.hash, known.bytes, known.head_size)[0] = known
    free(table.slots)
    table.slots = grown.slots
    table.slot_count = count
    return 0


cdef int table_put(KnownTable *table, Known *known) except -1 nogil:
    """Take a record over; one of the same head is freed."""
    cdef Known **slot
    known.hash = hash_of(known.bytes, known.head_size)
    if table.count * 2 >= table.slot_count:
        grow_table(table)
    slot = slot_of(table, known.hash, known.bytes, known.head_size)
    if slot[0] == NULL:
        table.count += 1
    else:
        known_free(slot[0])
    slot[0] = known
    return 0


cdef void table_free(KnownTable *table) noexcept nogil:
    cdef size_t index
    for index in range(table.slot_count):
        known_free(table.slots[index])
    free(table.slots)
    memset(table, 0, sizeof(KnownTable))


# ---- rows

cdef inline bint is_column(
    const Known *known, const KnownColumn *column, const Field *field
) noexcept nogil:
    """Whether a field is this column, spelled as it was."""
    if column.name_size != field.name_size or column.type_size != field.type_size:
        return False
    if field.name_size == 0 or not equal(
        known.bytes + column.name_offset, field.name, field.name_size
    ):
        return False
    return field.type_size == 0 or equal(
        known.bytes + column.type_offset, field.type, field.type_size
    )


cdef bint match_old(const Known *known, Row *row) noexcept nogil:
    """Find the old columns among the identity's, both in the order of the table."""
    cdef uint32_t next_column = 0
    cdef uint32_t index
    cdef Field *field
    for index in range(row.old.count):
        field = &row.old.fields[index]
        while next_column < known.column_count and not (
            known.columns[next_column].is_identity
            and is_column(known, &known.columns[next_column], field)
        ):
            next_column += 1
        if next_column == known.column_count:
            return False
        field.column = next_column
        next_column += 1
    if row.old.count == known.identity_count:
        return True
    return known.has_gaps and row.old.count < known.identity_count


cdef bint is_bare(const Known *known, const Row *row) noexcept nogil:
    """Whether the row has an old tuple of NULLs alone, which does not show."""
    return known.takes_bare and row.hides_bare and row.op != c"I"


cdef bint lacks_old(const Known *known, const Row *row) noexcept nogil:
    """Whether a deleted row has no old tuple, though its table has an identity."""
    return row.op == c"D" and not row.old.is_present and known.identity_count > 0


cdef bint known_matches(const Known *known, Row *row, uint64_t transaction) noexcept nogil:
    """Whether this version describes the row; then its fields know their columns.

    What a DELETE without an old tuple is, only the catalogue says, in each transaction anew.
    """
    cdef uint32_t index
    if row.new.is_present:
        if row.new.count != known.column_count:
            return False
        if not row.is_positional:
            for index in range(row.new.count):
                if not is_column(known, &known.columns[index], &row.new.fields[index]):
                    return False
    elif row.op != c"D":
        return False
    if row.old.is_present:
        # No column where the table has some: all were NULL, or the server lost the tuple.
        if row.old.count == 0 and known.column_count:
            return known.takes_bare
        return match_old(known, row)
    return not lacks_old(known, row) or known.judged_in == transaction


# ---- the slow path

cdef bytes span(const uint8_t *data, size_t size):
    return (<const char *>data)[:size]


cdef tuple spelling_of(const Known *known, uint32_t index):
    cdef const KnownColumn *column = &known.columns[index]
    return (
        span(known.bytes + column.name_offset, column.name_size),
        span(known.bytes + column.type_offset, column.type_size),
    )


cdef tuple sent_of(const Field *field):
    return span(field.name, field.name_size), span(field.type, field.type_size)


cdef list spans(const Tuple *row_tuple):
    """Names and types of a tuple as sent, or None without one."""
    if not row_tuple.is_present:
        return None
    return [sent_of(&row_tuple.fields[index]) for index in range(row_tuple.count)]


cdef int fill_columns(Known *known, object columns, list spelled) except -1:
    """Write the columns' bytes behind the head, and what their values need."""
    cdef KnownColumn *column
    cdef const uint8_t *data
    cdef uint32_t offset = <uint32_t>known.head_size
    for index, (described, (name, kind)) in enumerate(zip(columns, spelled)):
        column = &known.columns[index]
        column.name_offset = offset
        column.name_size = len(name)
        data = name
        memcpy(known.bytes + offset, data, column.name_size)
        offset += column.name_size
        column.type_offset = offset
        column.type_size = len(kind)
        data = kind
        memcpy(known.bytes + offset, data, column.type_size)
        offset += column.type_size
        column.is_identity = described.is_identity
        column.is_hex = is_headless_hex(described.type_oid)
        column.is_number = is_number_as_text(described.type_oid, described.type)
        known.identity_count += column.is_identity
    return 0
