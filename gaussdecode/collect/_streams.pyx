"""Transactions whose rows come in blocks: those that are streamed, and those that are prepared.

Streamed. Any number of transactions are open beside the one that began with a BEGIN whose rows come
in blocks, as batches of their own. They are retained likewise until their end is known, and stand
for nothing before: they move no position, and their relations are registered when rows of theirs
are released (`_relations.pyx`). Rows of subtransactions that were rolled back are left out as they
are released. The end of a session ends them; the server sends them again. A rollback of a
transaction nobody knows is a server's slip and is counted; a commit of one would be a loss, and is
an error. The server does not say which subtransaction a logical message is of: a transaction with
both messages and such a rollback is refused (`InexactStreamError`).

Prepared. A transaction that was prepared waits for its end beside these (`_prepared.pyx`). Its
PREPARE moves the boundary. It lands at its COMMIT PREPARED as any other. One that the server sends
once more while it is kept is left out as it comes: in blocks, which may have no end of their own
but that of the one that is kept.
"""

from gaussdecode.wire._layout cimport (
    EVENT_LARGE_ROW, EVENT_MESSAGE, EVENT_ORIGIN, EVENT_RELATION, EVENT_SEGMENT,
    EVENT_STREAM_START, EVENT_TRUNCATE, TALLY_MESSAGE, TALLY_TRUNCATE, EntryHeader, Tally,
)
from gaussdecode.wire._tally cimport tally_add, tally_clear
from gaussdecode.collect._open cimport (
    open_abort, open_create, open_free, open_set_origin, opens_add, opens_find, opens_free,
    opens_remove,
)
from gaussdecode.collect._sums cimport BECAUSE_ABORTED, BECAUSE_RESENT, count_segment

from gaussdecode.errors import InexactStreamError, SequenceError


cdef class Streams:
    """Those of one session.

    Args:
        relations: are told of the tables in blocks.
        retained: keeps the batches of blocks.
        tallies: counts what stands in them as open.
        comparison: counts rows of what landed before.
        ends: is told of ends.
        prepared: takes over what is prepared.
    """

    def __cinit__(
        self, Relations relations, RetainedBatches retained, Sums tallies, Comparison comparison,
        Ends ends, PreparedTransactions prepared,
    ):
        self.relations = relations
        self.retained = retained
        self.tallies = tallies
        self.comparison = comparison
        self.ends = ends
        self.prepared = prepared

    def __dealloc__(self):
        opens_free(&self.opens)

    cdef void forget(self) noexcept:
        opens_free(&self.opens)

    cdef int absorb(self, const uint8_t *entry, uint64_t size, bint moves) except -1 nogil:
        """Take in a batch of a block of a streamed or a prepared transaction."""
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef const Event *events = <const Event *>(entry + header.event_offset)
        cdef OpenTransaction *transaction = opens_find(&self.opens, header.stream_xid)
        cdef Tally tally
        cdef uint32_t i
        cdef bint has_changes = False
        tally_clear(&tally)
        for i in range(header.event_count):
            if events[i].kind == EVENT_STREAM_START:
                if events[i].x != header.stream_xid:
                    self.fail_block(header.stream_xid, b"begins as another's")
                if events[i].flags and transaction != NULL:
                    self.fail_block(header.stream_xid, b"begins again")
                if not events[i].flags and transaction == NULL:
                    self.fail_block(header.stream_xid, b"goes on that never began")
                if transaction == NULL:
                    transaction = opens_add(&self.opens, header.stream_xid)
                    transaction.first_lsn = events[i].y
            elif events[i].kind == EVENT_RELATION:
                self.relations.register(entry, &events[i], False)
            elif transaction == NULL:
                self.fail_block(header.stream_xid, b"goes on that never began")
            elif events[i].kind == EVENT_ORIGIN:
                open_set_origin(
                    transaction, entry + events[i].payload_offset, events[i].payload_size
                )
            elif events[i].kind == EVENT_SEGMENT:
                has_changes = True
                count_segment(&tally, entry, &events[i])
            elif events[i].kind == EVENT_TRUNCATE:
                has_changes = True
                tally.count[<int>TALLY_TRUNCATE] += 1
            elif events[i].kind == EVENT_LARGE_ROW:
                has_changes = True      # it was counted as left out
            elif events[i].kind == EVENT_MESSAGE and events[i].flags & 1:
                has_changes = True
                tally.count[<int>TALLY_MESSAGE] += 1
            else:
                self.ends.fail_order(&events[i], NULL)
        if self.prepared.has(header.stream_xid):
            tally_add(&self.tallies.left_out[<int>BECAUSE_RESENT], &tally)
        elif has_changes:
            tally_add(&transaction.tally, &tally)
            tally_add(&self.tallies.open, &tally)
            self.retained.retain(transaction, entry, size, 0, moves)
        return 0

    cdef int fail_block(self, uint32_t stream_xid, const char *what) except -1 with gil:
        raise SequenceError(
            f"a block of transaction {stream_xid} {what.decode()}", self.ends.boundary_lsn
        )

    cdef int commit(self, const uint8_t *entry, const Event *event) except -1 nogil:
        """A streamed transaction committed: all of it is retained."""
        cdef OpenTransaction *transaction = opens_find(&self.opens, event.index)
        if transaction == NULL:
            with gil:
                raise SequenceError(
                    f"a COMMIT of streamed transaction {event.index}, which never began", event.y
                )
        if self.prepared.has(event.index):
            with gil:
                raise SequenceError(
                    f"a COMMIT of streamed transaction {event.index}, which is prepared", event.y
                )
        self.check_exact(transaction, event)
        self.tallies.close(&transaction.tally)
        if self.comparison.is_running and event.y <= self.ends.resume_lsn:
            self.comparison.count_retained(transaction, self.ends.boundary_lsn)
        self.ends.end(transaction, event, entry, 0, 0, False)
        self.streamed_count += 1
        opens_remove(&self.opens, transaction)
        return 0

    cdef int abort(self, const Event *event) except -1 nogil:
        """A streamed transaction was rolled back, or a part of it."""
        cdef OpenTransaction *transaction = opens_find(&self.opens, <uint32_t>event.x)
        if transaction == NULL:
            self.stray_count += 1
            return 0
        if event.x != event.y:
            return open_abort(transaction, <uint32_t>event.y)
        self.tallies.close(&transaction.tally)
        self.tallies.leave_out(BECAUSE_ABORTED, &transaction.tally)
        self.aborted_count += 1
        self.retained.drop(transaction)
        opens_remove(&self.opens, transaction)
        return 0

    # ---- prepared transactions -----------------------------------------------------

    cdef int prepare(self, const uint8_t *entry, const Event *event) except -1 nogil:
        """All of a transaction has come, and waits for its end."""
        cdef OpenTransaction *transaction = opens_find(&self.opens, event.index)
        if transaction == NULL:
            self.prepared.fail(entry, event, b"PREPARE", b"never began")
        if event.y > self.ends.resume_lsn:
            self.ends.catch_up()
        if self.prepared.is_known(entry, event):
            return self.drop_again(event.index)
        if event.y > self.ends.resume_lsn:
            self.check_exact(transaction, event)
        self.prepared.take(&self.opens, transaction, entry, event)
        self.ends.move_boundary(event.y)
        return 0

    cdef int drop_again(self, uint32_t xid) except -1 nogil:
        """Let go of blocks of a transaction that was prepared before them, and ends elsewhere.

        A server that begins behind a PREPARE may stream its rows once more, and then send its
        COMMIT or ROLLBACK PREPARED alone.
        """
        cdef OpenTransaction *transaction = opens_find(&self.opens, xid)
        if transaction == NULL:
            return 0
        self.tallies.close(&transaction.tally)
        self.tallies.leave_out(BECAUSE_RESENT, &transaction.tally)
        self.retained.drop(transaction)
        opens_remove(&self.opens, transaction)
        return 0

    cdef int commit_prepared(self, const uint8_t *entry, const Event *event) except -1 nogil:
        cdef OpenTransaction *transaction = self.prepared.find(entry, event)
        if transaction == NULL:
            if event.y > self.ends.resume_lsn:
                self.prepared.fail(
                    entry, event, b"COMMIT PREPARED",
                    b"is not kept in the landing: somebody else confirmed its PREPARE, and "
                    b"the server does not send its rows again. Begin a new landing with a snapshot",
                )
            return self.pass_ended(event)
        self.check_exact(transaction, event)
        self.tallies.close(&transaction.tally)
        if self.comparison.is_running and event.y <= self.ends.resume_lsn and (
            not transaction.is_kept
        ):
            self.comparison.count_retained(transaction, self.ends.boundary_lsn)
        self.ends.end(transaction, event, entry, 0, 0, False)
        self.drop_again(event.index)
        return self.prepared.end(transaction)

    cdef int pass_ended(self, const Event *event) except -1 nogil:
        """A prepared transaction that landed; the server sends its end again, and no more."""
        cdef OpenTransaction *transaction = open_create(event.index)
        try:
            self.ends.end(transaction, event, NULL, 0, 0, False)
        finally:
            open_free(transaction)
        return self.drop_again(event.index)

    cdef int rollback_prepared(self, const uint8_t *entry, const Event *event) except -1 nogil:
        cdef OpenTransaction *transaction = self.prepared.find(entry, event)
        if event.y > self.ends.resume_lsn:
            self.ends.catch_up()
        self.ends.move_boundary(event.y)
        self.drop_again(event.index)
        if transaction == NULL:
            self.stray_count += 1
            return 0
        self.tallies.close(&transaction.tally)
        self.tallies.leave_out(BECAUSE_ABORTED, &transaction.tally)
        self.aborted_count += 1
        self.retained.drop(transaction)
        return self.prepared.end(transaction)

    cdef int check_exact(
        self, const OpenTransaction *transaction, const Event *event
    ) except -1 nogil:
        """See that the rows of a transaction, which ends here, can be told from those undone."""
        if transaction.aborted_count and transaction.tally.count[<int>TALLY_MESSAGE] and (
            self.comparison.is_running or event.y > self.ends.resume_lsn
        ):
            self.fail_inexact(event)
        return 0

    cdef int fail_inexact(self, const Event *event) except -1 with gil:
        raise InexactStreamError(
            f"transaction {event.index}, which ends at {event.y >> 32:X}/"
            f"{event.y & 0xFFFFFFFF:X}, sends logical messages and rolled a savepoint "
            "back: while it streams, the server does not say which of them are the "
            "savepoint's; whole (source.streaming: off) it can be told",
            event.y,
        )
