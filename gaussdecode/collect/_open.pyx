"""Transactions that have begun and not ended, and what is retained of each.

Given what the assembler finds of a transaction, they remember it until its end is known: what it
says of itself, the batches of its rows, and which of its subtransactions were rolled back. A
stream that interleaves has many of them; they are found by transaction id. They own their
memory, know no spool (the place of what was spooled is only a number here) and
judge nothing.
"""

from libc.stdlib cimport calloc, free, realloc

from gaussdecode.wire._layout cimport buffer_append, buffer_free
from gaussdecode.wire._tally cimport tally_clear

cdef extern from "<stdlib.h>" nogil:
    void *bsearch(
        const void *key, const void *base, size_t count, size_t size,
        int (*compare)(const void *, const void *) noexcept nogil
    )


cdef int fail_memory() except -1 with gil:
    raise MemoryError("no memory for an open transaction")


cdef void *grown(void *items, uint32_t *capacity, size_t size) except NULL nogil:
    """Make room for more items than there is room for now."""
    cdef uint32_t wider = 2 * capacity[0] + 16
    cdef void *moved = realloc(items, wider * size)
    if moved == NULL:
        fail_memory()
        return NULL
    capacity[0] = wider
    return moved


# ---- one transaction

cdef OpenTransaction *open_create(uint32_t stream_xid) except NULL nogil:
    cdef OpenTransaction *transaction = <OpenTransaction *>calloc(1, sizeof(OpenTransaction))
    if transaction == NULL:
        fail_memory()
        return NULL
    transaction.stream_xid = stream_xid
    transaction.xid = stream_xid
    open_begin(transaction)
    return transaction


cdef void open_begin(OpenTransaction *transaction) noexcept nogil:
    """Make it one of which nothing is known yet; nothing of it is retained."""
    transaction.flags = 0
    transaction.time_us = 0
    transaction.csn = 0
    transaction.commit_lsn = 0
    transaction.first_lsn = 0
    transaction.has_origin = False
    transaction.has_user = False
    transaction.user.size = 0
    transaction.is_excluded = False
    transaction.is_given_up = False
    transaction.taken_back = 0
    transaction.rows = 0
    transaction.lands_from = <uint64_t>-1
    transaction.aborted_count = 0
    tally_clear(&transaction.tally)


cdef void open_free(OpenTransaction *transaction) noexcept nogil:
    if transaction != NULL:
        open_forget(transaction)
        free(transaction.retained)
        free(transaction.aborted)
        buffer_free(&transaction.origin)
        buffer_free(&transaction.user)
        buffer_free(&transaction.gid)
        free(transaction)


cdef void open_forget(OpenTransaction *transaction) noexcept nogil:
    """Let go of what is retained in memory, and of where the rest was."""
    cdef uint32_t i
    for i in range(transaction.retained_count):
        batch_leave(transaction.retained[i].batch)
    transaction.retained_count = 0
    transaction.memory_bytes = 0
    transaction.spooled_bytes = 0


cdef Batch *batch_create(uint64_t size) except NULL nogil:
    """A batch that nobody retains yet, and that is nowhere."""
    cdef Batch *batch = <Batch *>calloc(1, sizeof(Batch))
    if batch == NULL:
        fail_memory()
        return NULL
    batch.size = size
    return batch


cdef void batch_leave(Batch *batch) noexcept nogil:
    """Somebody retains nothing of it any more; with the last of them it goes."""
    batch.users -= 1
    if batch.users == 0:
        free(batch.data)
        free(batch)


cdef Retained *open_retain(OpenTransaction *transaction, Batch *batch) except NULL nogil:
    """Retain a batch, all events of it; valid until the next."""
    cdef Retained *item
    if transaction.retained_count == transaction.retained_capacity:
        transaction.retained = <Retained *>grown(
            transaction.retained, &transaction.retained_capacity, sizeof(Retained)
        )
    item = &transaction.retained[transaction.retained_count]
    item.batch = batch
    item.first_event = 0
    item.stop_event = <uint32_t>-1
    item.taken_back = False
    batch.users += 1
    transaction.retained_count += 1
    return item


cdef int open_set_origin(
    OpenTransaction *transaction, const uint8_t *data, size_t size
) except -1 nogil:
    transaction.origin.size = 0
    buffer_append(&transaction.origin, data, size)
    transaction.has_origin = True
    return 0


cdef int open_abort(OpenTransaction *transaction, uint32_t subxid) except -1 nogil:
    """Remember that a subtransaction was rolled back; they are kept sorted."""
    cdef uint32_t at
    if open_is_aborted(transaction, subxid):
        return 0
    if transaction.aborted_count == transaction.aborted_capacity:
        transaction.aborted = <uint32_t *>grown(
            transaction.aborted, &transaction.aborted_capacity, sizeof(uint32_t)
        )
    at = transaction.aborted_count
    while at and transaction.aborted[at - 1] > subxid:  # ids mostly rise
        transaction.aborted[at] = transaction.aborted[at - 1]
        at -= 1
    transaction.aborted[at] = subxid
    transaction.aborted_count += 1
    return 0


cdef int compare_xids(const void *left, const void *right) noexcept nogil:
    cdef uint32_t a = (<const uint32_t *>left)[0]
    cdef uint32_t b = (<const uint32_t *>right)[0]
    return (a > b) - (a < b)


cdef bint open_is_aborted(const OpenTransaction *transaction, uint64_t xid) noexcept nogil:
    """Whether what this (sub)transaction did was rolled back."""
    cdef uint32_t key = <uint32_t>xid
    if transaction.aborted_count == 0:
        return False
    return bsearch(
        &key, transaction.aborted, transaction.aborted_count, sizeof(uint32_t), compare_xids
    ) != NULL


# ---- those that are streamed, and those that are prepared

cdef OpenTransaction *opens_find(OpenTransactions *opens, uint32_t stream_xid) noexcept nogil:
    """The one with this id, or NULL."""
    cdef uint32_t i
    if opens.last < opens.count and opens.items[opens.last].stream_xid == stream_xid:
        return opens.items[opens.last]
    for i in range(opens.count):
        if opens.items[i].stream_xid == stream_xid:
            opens.last = i
            return opens.items[i]
    return NULL


cdef OpenTransaction *opens_add(OpenTransactions *opens, uint32_t stream_xid) except NULL nogil:
    cdef OpenTransaction *transaction
    opens_reserve(opens)
    transaction = open_create(stream_xid)
    opens_append(opens, transaction)
    return transaction


cdef int opens_reserve(OpenTransactions *opens) except -1 nogil:
    """See that there is room for one more."""
    if opens.count == opens.capacity:
        opens.items = <OpenTransaction **>grown(
            opens.items, &opens.capacity, sizeof(OpenTransaction *)
        )
    return 0


cdef void opens_append(OpenTransactions *opens, OpenTransaction *transaction) noexcept nogil:
    opens.items[opens.count] = transaction
    opens.last = opens.count
    opens.count += 1


cdef int opens_move(
    OpenTransactions *opens, OpenTransactions *to, OpenTransaction *transaction
) except -1 nogil:
    """Take one of them over to others."""
    opens_reserve(to)
    opens_take(opens, transaction)
    opens_append(to, transaction)
    return 0


cdef void opens_take(OpenTransactions *opens, OpenTransaction *transaction) noexcept nogil:
    """Let one of them go that somebody else frees."""
    cdef uint32_t i
    for i in range(opens.count):
        if opens.items[i] == transaction:
            opens.count -= 1
            opens.items[i] = opens.items[opens.count]
            return


cdef void opens_remove(OpenTransactions *opens, OpenTransaction *transaction) noexcept nogil:
    """Free one of them."""
    opens_take(opens, transaction)
    open_free(transaction)


cdef void opens_free(OpenTransactions *opens) noexcept nogil:
    cdef uint32_t i
    for i in range(opens.count):
        open_free(opens.items[i])
    free(opens.items)
    opens.items = NULL
    opens.count = opens.capacity = 0
