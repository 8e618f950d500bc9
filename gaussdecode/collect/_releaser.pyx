"""Releases whole transactions: their rows go into the accumulators of their tables.

The end of a transaction is known here, and so is the position of its rows. They are appended in the
order of the wire, those that are retained before those of the batch at hand; `gd_seq` counts rows,
truncate markers and transactional messages from 0 over all tables, after filters. Rows of
subtransactions that were rolled back are left out, and rows that an upsert took back.

After the rows of each batch, full row groups are handed to the listener, and all accumulators
together are kept to their budget. Whether a transaction is released, and when, is decided before.
"""

from libc.string cimport memchr, memcmp, memset

from gaussdecode.wire._layout cimport (
    EVENT_LARGE_ROW, EVENT_MESSAGE, EVENT_SEGMENT, EVENT_TAKEN_BACK, EVENT_TRUNCATE,
    TALLY_DELETE, TALLY_INSERT, TALLY_MESSAGE, TALLY_TRANSACTION, TALLY_TRUNCATE, Buffer,
    EntryHeader, PartHeader, buffer_free,
)
from gaussdecode.wire._tally cimport tally_clear, tally_ops
from gaussdecode.wire._values cimport append_escaped, is_utf8
from gaussdecode.collect._columns cimport GrowingColumn, column_append_value
from gaussdecode.collect._open cimport Batch, Retained, open_is_aborted
from gaussdecode.collect._sums cimport (
    BECAUSE_ABORTED, BECAUSE_EMPTY, BECAUSE_NOT_WANTED, BECAUSE_SPECULATIVE, count_segment,
)
from gaussdecode.ipc.clock cimport monotonic_ns

from gaussdecode.errors import LargeRowError, SequenceError

cdef const char *DDL_PREFIX = b"gaussdecode.ddl"
cdef enum:
    DDL_PREFIX_SIZE = 15
    STEP_SIZE = 4               # of what EVENT_SEGMENT adds to its LSN for a row


cdef inline const uint8_t *steps_of(const uint8_t *entry, const Event *segment) noexcept nogil:
    """What is to be added to the LSN of a segment for each row; NULL where it has none."""
    return entry + segment.payload_offset if segment.payload_size else NULL


cdef class Releaser:
    """Rows of ended transactions in, rows in accumulators out.

    Args:
        tables: gives the accumulator of rows without an identity; see `TableSource` in
            `_assembler.pyi`.
        listener: is told what happens; see `Listener` there.
        transactions: accumulator of one row per transaction (origin, user, rows).
        messages: accumulator of logical messages (transactional, prefix, content).
        ddl: accumulator of those in a transaction that our event triggers write (content).
        relations: accumulators of the connection's relation versions.
        retained: has the batches that are released.
        tallies: counts what landed and what did not.
        skip_empty: no row in `transactions` for a transaction without rows.
        row_limit, byte_limit: size of a row group.
        budget: bytes of all accumulators together.
    """

    def __cinit__(
        self, tables, listener, Accumulator transactions, Accumulator messages,
        Accumulator ddl, Relations relations, RetainedBatches retained, Sums tallies,
        bint skip_empty, uint64_t row_limit, uint64_t byte_limit, uint64_t budget,
    ):
        self.tables = tables
        self.listener = listener
        self.transactions = transactions
        self.messages = messages
        self.ddl = ddl
        self.relations = relations
        self.retained = retained
        self.tallies = tallies
        self.upserts = Upserts(relations, retained)
        self.skip_empty = skip_empty
        self.row_limit = row_limit
        self.byte_limit = byte_limit
        self.budget = budget

    cdef int land(
        self, OpenTransaction *transaction, Stamp *stamp, const uint8_t *entry, uint32_t first,
        uint32_t commit, bint moves,
    ) except -1 nogil:
        """Release what is retained of a transaction, and events `first` .. `commit`."""
        cdef int64_t seq = 0
        tally_clear(&transaction.tally)
        if transaction.taken_back:
            self.upserts.pair(transaction, entry, first, commit, stamp.lsn)
        if transaction.is_kept:
            self.release_kept(transaction, stamp, &seq)
        else:
            self.release_retained(transaction, stamp, &seq)
        if commit:
            self.release_events(
                transaction, entry, transaction.retained_count, first, commit, stamp, &seq,
                moves,
            )
        self.retained.drop(transaction)
        if seq or not self.skip_empty:
            self.land_transaction(transaction, stamp, seq)
            if self.waiting_commit_us == 0:
                self.waiting_commit_us = stamp.time_us
            self.count_waiting()
        else:
            self.empty_count += 1
            self.tallies.count_left_out(BECAUSE_EMPTY, TALLY_TRANSACTION)
        self.row_count += seq
        self.transaction_count += 1
        return 0

    cdef int land_message(
        self, const uint8_t *entry, const Event *event, Stamp *stamp
    ) except -1 nogil:
        """Land a logical message that is part of no transaction."""
        self.append_message(entry, event, stamp, -1)
        self.count_waiting()
        return 0

    cdef int release_retained(
        self, OpenTransaction *transaction, Stamp *stamp, int64_t *seq
    ) except -1 nogil:
        """Release what was retained, in order, one spooled batch in memory at a time."""
        cdef uint32_t i
        cdef Retained *item
        cdef Batch *batch
        for i in range(transaction.retained_count):
            item = &transaction.retained[i]
            batch = item.batch
            if batch.data == NULL:
                self.retained.fetch(transaction, batch)
            self.release_events(
                transaction, batch.data, i, item.first_event,
                min(item.stop_event, (<EntryHeader *>batch.data).event_count), stamp, seq,
                batch.users == 1,
            )
            self.keep_to_budget(batch.data)
            self.retained.unfetch(batch)
        return 0

    cdef int release_kept(
        self, OpenTransaction *transaction, Stamp *stamp, int64_t *seq
    ) except -1 with gil:
        """Release what is in a file, whose relation versions are those of another connection."""
        cdef Relations relations = self.relations
        self.relations = relations.of_file(self.retained.files[transaction.stream_xid])
        try:
            with nogil:
                self.release_retained(transaction, stamp, seq)
        finally:
            self.relations = relations
        return 0

    cdef int release_events(
        self, const OpenTransaction *transaction, const uint8_t *entry, uint32_t piece,
        uint32_t first, uint32_t stop, Stamp *stamp, int64_t *seq, bint moves,
    ) except -1 nogil:
        """Append the rows of events `first` .. `stop` to their accumulators.

        With `moves` the entry is our own, and these rows are not read again. `piece` numbers what
        is retained of the transaction.
        """
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef const Event *events = <const Event *>(entry + header.event_offset)
        cdef const PartHeader *parts = <const PartHeader *>(entry + header.part_offset)
        cdef const Event *event
        cdef PyObject *found
        cdef uint32_t i
        for i in range(first, stop):
            event = &events[i]
            if event.kind == EVENT_SEGMENT:
                if open_is_aborted(transaction, event.z):
                    count_segment(&self.tallies.left_out[<int>BECAUSE_ABORTED], entry, event)
                    continue
                found = self.relations.find_or_recall(parts[event.index].version, stamp.lsn)
                if found == NULL:
                    count_segment(&self.tallies.left_out[<int>BECAUSE_NOT_WANTED], entry, event)
                    continue
                if not (<Accumulator>found).is_current:
                    self.change_over(found)
                if transaction.taken_back and self.append_others(
                    found, entry, piece, i, stamp, seq
                ):
                    continue
                count_segment(&self.tallies.landed, entry, event)
                (<Accumulator>found).append(
                    entry, &parts[event.index], event.first_row, event.row_count,
                    stamp, seq[0], moves, event.x, steps_of(entry, event),
                )
                seq[0] += event.row_count
            elif event.kind == EVENT_TRUNCATE:
                if open_is_aborted(transaction, event.z):
                    self.tallies.count_left_out(BECAUSE_ABORTED, TALLY_TRUNCATE)
                    continue
                found = self.relations.find_or_recall(event.index, stamp.lsn)
                if found == NULL:
                    self.tallies.count_left_out(BECAUSE_NOT_WANTED, TALLY_TRUNCATE)
                else:
                    self.tallies.count_landed(TALLY_TRUNCATE)
                    if not (<Accumulator>found).is_current:
                        self.change_over(found)
                    (<Accumulator>found).append_marker(c'T', stamp, seq[0], event.x)
                    with gil:
                        self.listener.truncated(
                            <object>found, stamp.lsn, seq[0], event.flags
                        )
                    seq[0] += 1
            elif event.kind == EVENT_TAKEN_BACK:
                self.release_taken_back(event, piece, i, stamp, seq)
            elif event.kind == EVENT_MESSAGE:
                self.append_message(entry, event, stamp, seq[0])
                seq[0] += 1
            elif event.kind == EVENT_LARGE_ROW:
                found = self.relations.find_or_recall(event.index, stamp.lsn)
                if found != NULL:
                    self.fail_large(found, event, stamp)
        return 0

    cdef int change_over(self, PyObject *found) except -1 with gil:
        """Have rows of its table under another schema leave first."""
        self.listener.change_over(<object>found)
        return 0

    cdef int fail_large(
        self, PyObject *found, const Event *event, const Stamp *stamp
    ) except -1 with gil:
        """A row that was too large when its transaction was prepared, which has committed."""
        relation = (<Accumulator>found).table.relation
        raise LargeRowError(
            event.x, event.y, event.first_row, event.z, relation.columns[event.first_row].name,
            stamp.lsn, stamp.xid, relation.oid, (relation.namespace, relation.name),
        )

    cdef void count_waiting(self) noexcept nogil:
        if self.waiting_count == 0:
            self.waiting_since_ns = <int64_t>monotonic_ns()
            self.wants_attention = True  # an entry is due so long from now, or at once
        self.waiting_count += 1

    cdef int append_message(
        self, const uint8_t *entry, const Event *event, Stamp *stamp, int64_t seq
    ) except -1 nogil:
        """Land a logical message; `seq` -1 where it is part of no transaction."""
        cdef const uint8_t *prefix = entry + event.payload_offset
        cdef const uint8_t *nul = <const uint8_t *>memchr(prefix, 0, event.payload_size)
        cdef uint8_t transactional = event.flags & 1
        cdef uint64_t row = self.messages.row_count, prefix_size, size
        if nul == NULL:
            with gil:
                raise SequenceError("a logical message without the end of its prefix", stamp.lsn)
        prefix_size = nul - prefix
        size = event.payload_size - prefix_size - 1
        if transactional and prefix_size == DDL_PREFIX_SIZE and (
            memcmp(prefix, DDL_PREFIX, DDL_PREFIX_SIZE) == 0
        ):
            column_append_value(&self.ddl.columns[0], self.ddl.row_count, nul + 1, size, False)
            self.ddl.stamp_rows(1, stamp, seq)
            self.ddl.note_lsns(1, event.x, NULL)
            self.ddl.row_count += 1
            with gil:
                self.tables.ddl_came((<const char *>nul + 1)[:size], stamp.lsn, seq)
        else:
            column_append_value(&self.messages.columns[0], row, &transactional, 1, False)
            column_append_value(&self.messages.columns[1], row, prefix, prefix_size, False)
            column_append_value(&self.messages.columns[2], row, nul + 1, size, False)
            self.messages.stamp_rows(1, stamp, seq)
            self.messages.note_lsns(1, event.x, NULL)
            self.messages.row_count += 1
        self.tallies.count_landed(TALLY_MESSAGE)
        return 0

    cdef int land_transaction(
        self, const OpenTransaction *transaction, Stamp *stamp, int64_t rows
    ) except -1 nogil:
        """One row in the table of transactions."""
        cdef uint64_t row = self.transactions.row_count
        column_append_value(
            &self.transactions.columns[0], row, transaction.origin.data,
            transaction.origin.size, not transaction.has_origin,
        )
        column_append_value(
            &self.transactions.columns[1], row, transaction.user.data, transaction.user.size,
            not transaction.has_user,
        )
        column_append_value(&self.transactions.columns[2], row, &rows, sizeof(rows), False)
        column_append_value(
            &self.transactions.columns[3], row, &transaction.first_lsn,
            sizeof(transaction.first_lsn), transaction.first_lsn == 0,
        )
        column_append_value(
            &self.transactions.columns[4], row, &stamp.commit_lsn, sizeof(stamp.commit_lsn),
            stamp.commit_lsn == 0,
        )
        self.append_gid(transaction, row)
        self.transactions.stamp_rows(1, stamp, 0)
        self.transactions.row_count += 1
        self.tallies.count_landed(TALLY_TRANSACTION)
        return 0

    cdef int append_gid(self, const OpenTransaction *transaction, uint64_t row) except -1 nogil:
        """The global identifier of a prepared transaction; bytes that are no letters escaped."""
        cdef const Buffer *gid = &transaction.gid
        cdef GrowingColumn *column = &self.transactions.columns[5]
        cdef Buffer text
        if transaction.prepared_lsn == 0 or is_utf8(gid.data, gid.size):
            return column_append_value(
                column, row, gid.data, gid.size, transaction.prepared_lsn == 0
            )
        memset(&text, 0, sizeof(Buffer))
        try:
            append_escaped(&text, gid.data, gid.size)
            return column_append_value(column, row, text.data, text.size, False)
        finally:
            buffer_free(&text)

    cdef int append_others(
        self, PyObject *found, const uint8_t *entry, uint32_t piece, uint32_t index, Stamp *stamp,
        int64_t *seq,
    ) except -1 with gil:
        """Append the rows of a segment but for those taken back; 0: none was, nothing is done."""
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef const Event *event = &(<const Event *>(entry + header.event_offset))[index]
        cdef const PartHeader *part = (
            &(<const PartHeader *>(entry + header.part_offset))[event.index]
        )
        cdef const uint8_t *ops = entry + part.op_offset
        cdef const uint8_t *steps = steps_of(entry, event)
        cdef uint32_t row = event.first_row, end = event.first_row + event.row_count, stop
        left_out = self.upserts.taken_back.get((piece, index))
        if left_out is None:
            return 0
        for stop in [*sorted(left_out), end]:
            if stop > row:
                tally_ops(&self.tallies.landed, ops + row, stop - row)
                (<Accumulator>found).append(
                    entry, part, row, stop - row, stamp, seq[0], False, event.x,
                    NULL if steps == NULL else steps + (row - event.first_row) * STEP_SIZE,
                )
                seq[0] += stop - row
            row = stop + 1
        self.tallies.left_out[<int>BECAUSE_SPECULATIVE].count[<int>TALLY_INSERT] += <uint64_t>(
            len(left_out)
        )
        return 1

    cdef int release_taken_back(
        self, const Event *event, uint32_t piece, uint32_t index, Stamp *stamp, int64_t *seq
    ) except -1 with gil:
        """A DELETE of which only the table is said: what it took back is not there, or it lands."""
        cdef PyObject *found = self.relations.find_or_recall(event.index, stamp.lsn)
        if found == NULL:
            self.tallies.count_left_out(BECAUSE_NOT_WANTED, TALLY_DELETE)
        elif (piece, index) in self.upserts.taken_back:
            self.tallies.count_left_out(BECAUSE_SPECULATIVE, TALLY_DELETE)
        else:
            keyless = self.tables.keyless(<object>found)
            found = <PyObject *>keyless
            if not (<Accumulator>found).is_current:
                self.change_over(found)
            self.tallies.count_landed(TALLY_DELETE)
            (<Accumulator>found).append_marker(c"D", stamp, seq[0], event.x)
            self.measure_one(found)
            seq[0] += 1
        return 0

    cdef int keep_to_budget(self, const uint8_t *entry) except -1 nogil:
        """After an entry's rows: hand over full row groups, keep to the budget."""
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef const PartHeader *parts = <const PartHeader *>(entry + header.part_offset)
        cdef PyObject *found
        cdef uint32_t i
        for i in range(header.part_count):
            found = self.relations.find(parts[i].version)
            if found != NULL:
                self.measure_one(found)
        self.measure_one(<PyObject *>self.transactions)
        self.measure_one(<PyObject *>self.messages)
        self.measure_one(<PyObject *>self.ddl)
        if self.held_bytes > self.budget:
            with gil:
                self.listener.relieve()
            self.wants_attention = True
        return 0

    cdef int measure_one(self, PyObject *found) except -1 nogil:
        cdef uint64_t before = (<Accumulator>found).byte_count
        (<Accumulator>found).measure()
        self.held_bytes += (<Accumulator>found).byte_count - before
        if (<Accumulator>found).row_count >= self.row_limit or (
            (<Accumulator>found).byte_count >= self.byte_limit
        ):
            with gil:
                self.listener.flush(<object>found)
            self.wants_attention = True
        return 0
