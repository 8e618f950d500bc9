"""Shows what the server sends again, so that it can be compared with what landed.

A transaction that has landed and comes again is not released, but counted: how many rows of it
would land, and of which tables. The listener is shown each of them, and told once everything up to
the position has come, before anything else is released. Then there is nothing to count any more.
"""

from libc.stdlib cimport free

from gaussdecode.wire._layout cimport (
    EVENT_MESSAGE, EVENT_SEGMENT, EVENT_TAKEN_BACK, EVENT_TRUNCATE, GAUSS_EVENT, EntryHeader,
    Event, PartHeader,
)
from gaussdecode.collect._columns cimport Accumulator
from gaussdecode.collect._open cimport IN_MEMORY, Batch, open_is_aborted


cdef inline uint64_t count_inserts(const uint8_t *ops, uint64_t rows) noexcept nogil:
    cdef uint64_t i, count = 0
    for i in range(rows):
        count += ops[i] == c"I"
    return count


cdef inline void count_table(
    OpenTransaction *transaction, PyObject *found, uint64_t rows
) noexcept nogil:
    """Count rows of a table, if it is one that lands."""
    if found != NULL:
        transaction.rows += rows
        if (<Accumulator>found).lands_from < transaction.lands_from:
            transaction.lands_from = (<Accumulator>found).lands_from


cdef class Comparison:
    """The comparison at the beginning of one session.

    Args:
        listener: is shown what comes again; see `Listener` in `_assembler.pyi`.
        relations: say what rows would land.
        retained: has the batches of streamed transactions.
        is_running: there is something to compare with.
    """

    def __cinit__(
        self, listener, Relations relations, RetainedBatches retained, bint is_running
    ):
        self.listener = listener
        self.relations = relations
        self.retained = retained
        self.is_running = is_running

    cdef int begin(self) except -1 with gil:
        """A transaction begins."""
        self.inserted = {}
        return 0

    cdef int count_rows(
        self, OpenTransaction *transaction, const uint8_t *entry, uint32_t first, uint32_t stop,
        uint64_t lsn,
    ) except -1 nogil:
        """Count the rows of an open transaction that would land."""
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef const Event *events = <const Event *>(entry + header.event_offset)
        cdef const PartHeader *parts = <const PartHeader *>(entry + header.part_offset)
        cdef PyObject *found
        cdef uint32_t i
        for i in range(first, stop):
            if open_is_aborted(transaction, events[i].z):
                continue
            if events[i].kind == EVENT_SEGMENT:
                found = self.relations.find_or_recall(parts[events[i].index].version, lsn)
                count_table(transaction, found, events[i].row_count)
                if transaction.flags & GAUSS_EVENT and found != NULL:
                    self.note_inserted(found, count_inserts(
                        entry + parts[events[i].index].op_offset + events[i].first_row,
                        events[i].row_count,
                    ))
            elif events[i].kind == EVENT_TAKEN_BACK:
                found = self.relations.find_or_recall(events[i].index, lsn)
                if found != NULL:
                    count_table(transaction, found, 1)
                    transaction.rows -= 2 * self.note_taken_back(found)
            elif events[i].kind == EVENT_TRUNCATE:
                found = self.relations.find_or_recall(events[i].index, lsn)
                count_table(transaction, found, 1)
                if transaction.flags & GAUSS_EVENT and found != NULL:
                    self.note_truncated(found)
            elif events[i].kind == EVENT_MESSAGE:
                transaction.rows += 1
                transaction.lands_from = 0
        return 0

    cdef int count_retained(self, OpenTransaction *transaction, uint64_t lsn) except -1 nogil:
        """Count the rows of a streamed transaction that would land."""
        cdef uint32_t i
        cdef Batch *batch
        for i in range(transaction.retained_count):
            batch = transaction.retained[i].batch
            if batch.data == NULL:
                self.retained.fetch(transaction, batch)
            self.count_rows(
                transaction, batch.data, 0, (<EntryHeader *>batch.data).event_count, lsn
            )
            if batch.place != IN_MEMORY:
                free(batch.data)
                batch.data = NULL
        return 0

    cdef int show(
        self, const OpenTransaction *transaction, const Stamp *stamp, bint is_left_out
    ) except -1 with gil:
        """Show the listener an ended transaction, which has landed before.

        With `is_left_out` none of its rows did.
        """
        self.listener.resent(
            <uint64_t>stamp.lsn, stamp.xid, stamp.time_us,
            0 if is_left_out else transaction.rows,
            bool(transaction.has_origin), <uint64_t>stamp.lsn < transaction.lands_from,
            (<const char *>transaction.user.data)[:transaction.user.size]
            if transaction.has_user else b"",
            stamp.csn,
        )
        return 0

    cdef int finish(self) except -1 with gil:
        """All that has landed came again; tell the listener."""
        self.listener.caught_up()
        self.is_running = False
        return 0

    cdef int note_inserted(self, PyObject *found, uint64_t rows) except -1 with gil:
        """Count rows of a table that may be taken back."""
        table = (<Accumulator>found).table.directory
        self.inserted[table] = self.inserted.get(table, 0) + rows
        return 0

    cdef int note_truncated(self, PyObject *found) except -1 with gil:
        """What was inserted before a TRUNCATE is not taken back."""
        self.inserted.pop((<Accumulator>found).table.directory, None)
        return 0

    cdef int note_taken_back(self, PyObject *found) except -1 with gil:
        """1 where a DELETE of which only the table is said takes a row back, else 0."""
        table = (<Accumulator>found).table.directory
        rows = self.inserted.get(table, 0)
        self.inserted[table] = max(rows - 1, 0)
        return 1 if rows else 0
