"""Upserts taken back: rows that were inserted and deleted, and that neither land.

An `INSERT ... ON DUPLICATE KEY` of a GaussDB that another session overtakes is sent as an INSERT
and a DELETE of which nothing but the table is said. It takes back the last row that its transaction
inserted into the table and that was not taken back yet: neither lands. Of a transaction that has
such DELETEs, all that is retained is looked at once before it is released. One without an inserted
row before it is a DELETE of a table without an identity.
"""

from cpython.ref cimport PyObject
from libc.stdlib cimport free

from gaussdecode.wire._layout cimport (
    EVENT_SEGMENT, EVENT_TAKEN_BACK, EVENT_TRUNCATE, EntryHeader, Event, PartHeader,
)
from gaussdecode.collect._columns cimport Accumulator
from gaussdecode.collect._open cimport Batch, Retained


cdef class Upserts:
    """What the transaction that is released took back."""

    def __cinit__(self, Relations relations, RetainedBatches retained):
        self.relations = relations
        self.retained = retained

    cdef int pair(
        self, OpenTransaction *transaction, const uint8_t *entry, uint32_t first, uint32_t commit,
        uint64_t lsn,
    ) except -1 with gil:
        """Find the rows that a transaction took back, in what is retained and in `entry`.

        `taken_back` is then, by piece and event: of a segment its rows that do not land, of a
        DELETE None where it has such a row. The piece of `entry` is behind those retained.

        From the end to the beginning, so that memory goes by the DELETEs that have no row yet. A
        piece without a DELETE is not looked at while there are none.
        """
        cdef uint32_t i
        cdef Retained *item
        cdef Batch *batch
        cdef bint was_away
        cdef dict waiting = {}
        self.taken_back = {}
        if commit:
            self.pair_events(entry, transaction.retained_count, first, commit, waiting, lsn)
        for i in reversed(range(transaction.retained_count)):
            item = &transaction.retained[i]
            if not (item.taken_back or waiting):
                continue
            batch = item.batch
            was_away = batch.data == NULL
            if was_away:
                self.retained.fetch(transaction, batch)
            self.pair_events(
                batch.data, i, item.first_event,
                min(item.stop_event, (<EntryHeader *>batch.data).event_count), waiting, lsn,
            )
            if was_away:
                free(batch.data)
                batch.data = NULL
        return 0

    cdef int pair_events(
        self, const uint8_t *entry, uint32_t piece, uint32_t first, uint32_t stop,
        dict waiting, uint64_t lsn,
    ) except -1:
        """Go on backwards with what one piece holds.

        Args:
            waiting: by table, piece and event of each DELETE behind this piece that has no row yet,
                the last to come first; a table that has none is not in it.
        """
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef const Event *events = <const Event *>(entry + header.event_offset)
        cdef const PartHeader *parts = <const PartHeader *>(entry + header.part_offset)
        cdef const uint8_t *ops
        cdef PyObject *found
        cdef uint32_t i, row
        for i in reversed(range(first, stop)):
            if events[i].kind == EVENT_TAKEN_BACK:
                found = self.relations.find_or_recall(events[i].index, lsn)
                if found != NULL:
                    table = (<Accumulator>found).table.directory
                    waiting.setdefault(table, []).append((piece, i))
            elif not waiting:
                continue
            elif events[i].kind == EVENT_TRUNCATE:
                found = self.relations.find_or_recall(events[i].index, lsn)
                if found != NULL:
                    waiting.pop((<Accumulator>found).table.directory, None)
            elif events[i].kind == EVENT_SEGMENT:
                found = self.relations.find_or_recall(parts[events[i].index].version, lsn)
                if found == NULL:
                    continue
                table = (<Accumulator>found).table.directory
                deletes = waiting.get(table)
                if deletes is None:
                    continue
                ops = entry + parts[events[i].index].op_offset
                row = events[i].first_row + events[i].row_count
                while row > events[i].first_row and deletes:
                    row -= 1
                    if ops[row] == c"I":
                        self.taken_back[deletes.pop()] = None
                        self.taken_back.setdefault((piece, i), set()).add(row)
                if not deletes:
                    del waiting[table]
        return 0
