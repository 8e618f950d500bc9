"""Transactions that were prepared: they wait for their end, for days if need be.

The PREPARE of a transaction moves the boundary, so it must be in a file of its own before an entry
says so: `unkept` names those that are not, `dump` gives what is to be written, and `keep` lets go
of the memory. What sessions before kept is given back by `kept`, and taken over by `adopt`, with
the descriptions of its tables: the numbers of their versions are of another connection, and stand
for nothing here.

A transaction is known by its number and by its name, its global identifier. What its end means for
the position and for the sums is the matter of `_streams.pyx`.
"""

from libc.string cimport memcmp

from gaussdecode.wire._layout cimport (
    EVENT_LARGE_ROW, EVENT_SEGMENT, EVENT_TRUNCATE, TALLY_KINDS, EntryHeader, PartHeader,
    buffer_append,
)
from gaussdecode.wire._tally cimport tally_rows
from gaussdecode.collect._open cimport (
    open_abort, open_set_origin, opens_add, opens_find, opens_free, opens_move, opens_remove,
)

from gaussdecode.errors import SequenceError


cdef bint has_gid(
    const OpenTransaction *transaction, const uint8_t *entry, const Event *event
) noexcept nogil:
    """Whether a transaction has the name that an event says."""
    return transaction.gid.size == event.payload_size and memcmp(
        transaction.gid.data, entry + event.payload_offset, event.payload_size
    ) == 0


cdef int note_versions(const uint8_t[::1] entry, set versions) except -1:
    """Add the relation versions that events of a batch are of."""
    cdef const EntryHeader *header = <const EntryHeader *>&entry[0]
    cdef const Event *events = <const Event *>(&entry[0] + header.event_offset)
    cdef const PartHeader *parts = <const PartHeader *>(&entry[0] + header.part_offset)
    cdef uint32_t i
    for i in range(header.event_count):
        if events[i].kind == EVENT_SEGMENT:
            versions.add(parts[events[i].index].version)
        elif events[i].kind == EVENT_TRUNCATE or events[i].kind == EVENT_LARGE_ROW:
            versions.add(events[i].index)
    return 0


cdef class PreparedTransactions:
    """Those of one assembler.

    Args:
        listener: is told that a kept one has ended; see `Listener` in `_assembler.pyi`.
        relations: describes the tables of what is dumped.
        retained: has the batches of all transactions.
    """

    def __cinit__(self, listener, Relations relations, RetainedBatches retained):
        self.listener = listener
        self.relations = relations
        self.retained = retained
        self.waiting = {}

    def __dealloc__(self):
        opens_free(&self.opens)

    cdef bint has(self, uint32_t xid) noexcept nogil:
        return opens_find(&self.opens, xid) != NULL

    cdef bint is_known(self, const uint8_t *entry, const Event *event) except -1 nogil:
        """Whether a PREPARE is of a transaction that was prepared before."""
        cdef OpenTransaction *known = opens_find(&self.opens, event.index)
        if known != NULL and not has_gid(known, entry, event):
            self.fail(entry, event, b"PREPARE", b"is prepared under another name")
        return known != NULL

    cdef int take(
        self, OpenTransactions *streams, OpenTransaction *transaction, const uint8_t *entry,
        const Event *event,
    ) except -1 nogil:
        """Take a transaction over whose PREPARE has come."""
        transaction.gid.size = 0
        buffer_append(&transaction.gid, entry + event.payload_offset, event.payload_size)
        transaction.prepared_lsn = event.y
        transaction.prepared_us = event.z
        opens_move(streams, &self.opens, transaction)
        return self.tell(transaction)

    cdef OpenTransaction *find(self, const uint8_t *entry, const Event *event) noexcept nogil:
        """The prepared transaction with this number and this name, or NULL."""
        cdef OpenTransaction *transaction = opens_find(&self.opens, event.index)
        if transaction != NULL and not has_gid(transaction, entry, event):
            return NULL
        return transaction

    cdef int end(self, OpenTransaction *transaction) except -1 nogil:
        """It has ended, and is in the entry that tells so."""
        with gil:
            del self.waiting[transaction.stream_xid]
            if transaction.is_kept:
                self.listener.prepared_ended(self.retained.files.pop(transaction.stream_xid))
        opens_remove(&self.opens, transaction)
        return 0

    cdef int tell(self, const OpenTransaction *transaction) except -1 with gil:
        self.waiting[transaction.stream_xid] = (
            (<const char *>transaction.gid.data)[:transaction.gid.size], transaction.stream_xid,
            transaction.prepared_lsn, transaction.prepared_us, tally_rows(&transaction.tally),
        )
        return 0

    cdef int fail(
        self, const uint8_t *entry, const Event *event, const char *what, const char *why
    ) except -1 with gil:
        gid = (<const char *>entry + event.payload_offset)[:event.payload_size]
        raise SequenceError(
            f"{what.decode()} of transaction {event.index}, {gid.decode('utf-8', 'replace')!r}, "
            f"which {why.decode()}", event.y,
        )

    cdef OpenTransaction *adopt(self, file) except NULL:
        """Take over what an earlier session kept."""
        cdef OpenTransaction *transaction = opens_add(&self.opens, file.xid)
        cdef int i
        transaction.is_kept = True
        transaction.prepared_lsn = file.lsn
        transaction.prepared_us = file.time_us
        transaction.first_lsn = file.first_lsn
        buffer_append(&transaction.gid, <const char *>file.gid, len(file.gid))
        if file.origin is not None:
            origin = file.origin
            open_set_origin(transaction, <const uint8_t *><const char *>origin, len(origin))
        for xid in file.aborted:
            open_abort(transaction, xid)
        for i in range(TALLY_KINDS):
            transaction.tally.count[i] = file.tally[i]
        self.retained.point_into(transaction, file)
        self.tell(transaction)
        return transaction

    cdef OpenTransaction *of_number(self, uint32_t xid) except NULL:
        cdef OpenTransaction *transaction = opens_find(&self.opens, xid)
        if transaction == NULL:
            raise KeyError(xid)
        return transaction

    cdef list unkept(self):
        """See `Assembler.unkept`."""
        cdef uint32_t i
        found = [
            (self.opens.items[i].prepared_lsn, self.opens.items[i].stream_xid)
            for i in range(self.opens.count) if not self.opens.items[i].is_kept
        ]
        return [xid for _, xid in sorted(found)]

    cdef tuple dump(self, uint32_t xid):
        """See `Assembler.dump`."""
        cdef OpenTransaction *transaction = self.of_number(xid)
        cdef uint32_t i
        facts = {
            "xid": xid,
            "lsn": transaction.prepared_lsn,
            "time_us": transaction.prepared_us,
            "first_lsn": transaction.first_lsn,
            "gid": (<const char *>transaction.gid.data)[:transaction.gid.size],
            "origin": (<const char *>transaction.origin.data)[:transaction.origin.size]
            if transaction.has_origin else None,
            "aborted": [transaction.aborted[i] for i in range(transaction.aborted_count)],
            "tally": [transaction.tally.count[i] for i in range(TALLY_KINDS)],
        }
        return facts, self.batches(xid, transaction.retained_count, facts)

    def batches(self, uint32_t xid, uint32_t count, dict facts):
        """Give them one after the other, and say at the end what tables they are of; see `dump`."""
        cdef uint32_t i
        versions = set()
        for i in range(count):
            batch = self.retained.view(opens_find(&self.opens, xid), i)
            note_versions(batch, versions)
            yield memoryview(batch)
        facts["relations"] = {
            version: self.relations.described(version) for version in sorted(versions)
        }

    cdef int keep(self, file) except -1:
        """See `Assembler.keep`."""
        cdef OpenTransaction *transaction = self.of_number(file.xid)
        self.retained.keep(transaction, file)
        transaction.is_kept = True
        return 0

    cdef list told(self):
        """See `Assembler.prepared_transactions`."""
        return sorted(self.waiting.values(), key=lambda one: one[2])

    cdef int forget(self) except -1:
        opens_free(&self.opens)
        self.waiting = {}
        return 0
