"""Counting what a stream holds, by kind; see `Tally` in `_layout.pxd`.

Each stage counts by itself what it sees, and compares with what the one before says it gave.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.wire._layout cimport (
    TALLY_DELETE, TALLY_INSERT, TALLY_KINDS, TALLY_MESSAGE, TALLY_TRANSACTION, TALLY_TRUNCATE,
    TALLY_UPDATE, Tally,
)
from gaussdecode.wire._letters cimport (
    LETTER_COMMIT, LETTER_DELETE, LETTER_GAUSS_COMMIT, LETTER_INSERT, LETTER_MESSAGE,
    LETTER_COMMIT_PREPARED, LETTER_STREAM_COMMIT, LETTER_TRUNCATE, LETTER_UPDATE,
)


cdef inline void tally_message(
    Tally *tally, uint8_t tag, const uint8_t *data, size_t size
) noexcept nogil:
    """Count one canonical message by its letter; a TRUNCATE by the tables it names.

    Its count stands after one byte of `data`: the letter, or the last of a transaction's id.
    """
    if tag == LETTER_INSERT:
        tally.count[<int>TALLY_INSERT] += 1
    elif tag == LETTER_UPDATE:
        tally.count[<int>TALLY_UPDATE] += 1
    elif tag == LETTER_DELETE:
        tally.count[<int>TALLY_DELETE] += 1
    elif tag == LETTER_COMMIT or tag == LETTER_GAUSS_COMMIT or tag == LETTER_STREAM_COMMIT or (
        tag == LETTER_COMMIT_PREPARED
    ):
        tally.count[<int>TALLY_TRANSACTION] += 1
    elif tag == LETTER_MESSAGE:
        tally.count[<int>TALLY_MESSAGE] += 1
    elif tag == LETTER_TRUNCATE and size >= 5:
        tally.count[<int>TALLY_TRUNCATE] += (
            <uint32_t>data[1] << 24 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 8 | data[4]
        )


cdef inline void tally_ops(Tally *tally, const uint8_t *ops, uint32_t size) noexcept nogil:
    """Count rows by their operations."""
    cdef uint32_t i, inserts = 0, updates = 0, deletes = 0
    for i in range(size):
        inserts += ops[i] == LETTER_INSERT
        updates += ops[i] == LETTER_UPDATE
        deletes += ops[i] == LETTER_DELETE
    tally.count[<int>TALLY_INSERT] += inserts
    tally.count[<int>TALLY_UPDATE] += updates
    tally.count[<int>TALLY_DELETE] += deletes


cdef inline void tally_add(Tally *tally, const Tally *other) noexcept nogil:
    cdef int i
    for i in range(TALLY_KINDS):
        tally.count[i] += other.count[i]


cdef inline void tally_subtract(Tally *tally, const Tally *other) noexcept nogil:
    cdef int i
    for i in range(TALLY_KINDS):
        tally.count[i] -= other.count[i]


cdef inline void tally_clear(Tally *tally) noexcept nogil:
    cdef int i
    for i in range(TALLY_KINDS):
        tally.count[i] = 0


cdef inline void tally_move(Tally *tally, Tally *other) noexcept nogil:
    """Add another, which begins again."""
    tally_add(tally, other)
    tally_clear(other)


cdef inline bint tally_equals(const Tally *tally, const Tally *other) noexcept nogil:
    cdef int i
    for i in range(TALLY_KINDS):
        if tally.count[i] != other.count[i]:
            return False
    return True


cdef inline uint64_t tally_rows(const Tally *tally) noexcept nogil:
    """All but the transactions themselves."""
    cdef int i
    cdef uint64_t total = 0
    for i in range(TALLY_INSERT, TALLY_KINDS):
        total += tally.count[i]
    return total


cdef inline dict tally_dict(const Tally *tally):
    """What is not 0, by the names of `model.account`."""
    cdef int i = 0
    counts = {}
    for name in ("transactions", "I", "U", "D", "T", "messages"):
        if tally.count[i]:
            counts[name] = tally.count[i]
        i += 1
    return counts
