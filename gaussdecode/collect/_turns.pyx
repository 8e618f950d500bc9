"""Whose turn it is among transactions that have ended: the least CSN's, then the earliest commit's.

A binary heap. It owns the transactions in it; who takes one out owns that.
"""

from libc.stdint cimport UINT64_MAX
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from gaussdecode.collect._open cimport open_free


cdef inline bint is_before(const Finished *left, const Finished *right) noexcept nogil:
    if left.transaction.csn != right.transaction.csn:
        return left.transaction.csn < right.transaction.csn
    return left.commit.y < right.commit.y


cdef int turns_push(Turns *turns, const Finished *finished) except -1 nogil:
    """Take a transaction over; it stays the caller's when there is no memory."""
    cdef uint32_t wider, at = turns.count, above
    cdef void *moved
    if turns.count == turns.capacity:
        wider = 2 * turns.capacity + 64
        moved = realloc(turns.items, wider * sizeof(Finished))
        if moved == NULL:
            with gil:
                raise MemoryError("no memory for transactions that wait for their turn")
        turns.items = <Finished *>moved
        turns.capacity = wider
    turns.count += 1
    while at:
        above = (at - 1) // 2
        if not is_before(finished, &turns.items[above]):
            break
        turns.items[at] = turns.items[above]
        at = above
    turns.items[at] = finished[0]
    return 0


cdef int turns_part(Turns *turns, uint64_t csn, Turns *later) except -1 nogil:
    """Hand those from a CSN on over to others, which have none yet."""
    cdef Turns all = turns[0]
    cdef Turns earlier
    cdef uint32_t i
    memset(&earlier, 0, sizeof(Turns))
    for i in range(all.count):
        turns_push(later if all.items[i].transaction.csn >= csn else &earlier, &all.items[i])
    free(all.items)
    turns[0] = earlier
    return 0


cdef uint64_t turns_begin(const Turns *turns, uint64_t lsn) noexcept nogil:
    """Up to where in the log, and no further than `lsn`, nobody's commit record stands."""
    cdef uint32_t i
    cdef uint64_t begin = lsn
    for i in range(turns.count):
        if turns.items[i].commit.y <= lsn:
            begin = min(begin, turns.items[i].before_lsn)
    return begin


cdef uint64_t turns_least(const Turns *turns) noexcept nogil:
    """The CSN whose turn is next; the largest number when nobody waits."""
    return turns.items[0].transaction.csn if turns.count else UINT64_MAX


cdef Finished turns_pop(Turns *turns) noexcept nogil:
    """Give the next one away; there must be one."""
    cdef Finished first = turns.items[0]
    cdef Finished last
    cdef uint32_t at = 0, below
    turns.count -= 1
    last = turns.items[turns.count]
    while True:
        below = 2 * at + 1
        if below >= turns.count:
            break
        if below + 1 < turns.count and is_before(&turns.items[below + 1], &turns.items[below]):
            below += 1
        if not is_before(&turns.items[below], &last):
            break
        turns.items[at] = turns.items[below]
        at = below
    turns.items[at] = last
    return first


cdef void turns_free(Turns *turns) noexcept nogil:
    cdef uint32_t i
    for i in range(turns.count):
        open_free(turns.items[i].transaction)
    free(turns.items)
    turns.items = NULL
    turns.count = turns.capacity = 0
