"""What is retained of open transactions: in memory, in the spool, or in a file.

The batches of a transaction are retained until its end is known: in memory up to `memory_limit`
bytes of each and `total_limit` of all, then in the spool. What is retained of a prepared
transaction may be in a file of its own, which is read as the spool is.

Shared. Where the landing is in the order of commit sequence numbers, many small transactions that
have ended stand in one batch, and each waits for its turn. The batch is kept once, and is given
back with the last of them. One that came back from the spool stays in memory until another one
comes back, since the next turn is likely to be in it.

Nothing here looks into a batch, but for where its rows begin.
"""

from libc.stdint cimport UINT64_MAX
from libc.stdlib cimport free, malloc

from gaussdecode.wire._layout cimport Buffer, EntryHeader, PartHeader, buffer_append, buffer_move
from gaussdecode.collect._open cimport (
    IN_FILE, IN_MEMORY, IN_SPOOL, batch_create, batch_leave, open_forget, open_retain,
)

from gaussdecode.collect.spool import NoRoomError


cdef class RetainedBatches:
    """Batches of all transactions of one assembler.

    Args:
        spool: see `SpoolLike` in `_assembler.pyi`.
        memory_limit: bytes of an open transaction kept in memory.
        total_limit: bytes of all open transactions kept in memory; None for no limit.
        is_shared: keep a batch once for all transactions in it.
    """

    def __cinit__(self, spool, uint64_t memory_limit, total_limit, bint is_shared):
        self.spool = spool
        self.files = {}
        self.memory_limit = memory_limit
        self.total_limit = UINT64_MAX if total_limit is None else total_limit
        self.is_shared = is_shared

    cdef int retain(
        self, OpenTransaction *transaction, const uint8_t *entry, uint64_t size,
        uint32_t first_event, bint moves,
    ) except -1 nogil:
        """Keep a batch, from one of its events on, until its transaction's end comes.

        With `moves` the entry is our own, and its rows are not read again.
        """
        cdef Batch *batch
        if self.is_shared:
            batch = self.share(transaction, entry, size)
            if batch == NULL:
                return 0
        else:
            batch = self.make_batch(transaction, entry, size, moves)
        open_retain(transaction, batch).first_event = first_event
        return 0

    cdef Batch *make_batch(
        self, OpenTransaction *transaction, const uint8_t *entry, uint64_t size, bint moves
    ) except NULL nogil:
        """Keep a batch for a transaction: in memory, or where memory may hold no more of it."""
        cdef Batch *batch = batch_create(size)
        cdef bint is_filled = False
        try:
            self.fill_batch(batch, transaction, entry, moves)
            is_filled = True
        finally:
            if not is_filled:
                free(batch.data)
                free(batch)
        return batch

    cdef int fill_batch(
        self, Batch *batch, OpenTransaction *transaction, const uint8_t *entry, bint moves
    ) except -1 nogil:
        cdef const EntryHeader *header = <const EntryHeader *>entry
        cdef uint64_t size = batch.size, head
        cdef Buffer kept
        if (
            transaction.memory_bytes + size > self.memory_limit
            or self.memory_bytes + size > self.total_limit
        ):
            with gil:
                self.spooling = (
                    transaction.xid, transaction.commit_lsn,
                    transaction.memory_bytes + transaction.spooled_bytes,
                )
                batch.offset = self.spool.write(<const uint8_t[:size]>entry)
            batch.place = IN_SPOOL
            self.spooled_batches += 1
            if transaction.spooled_bytes == 0:
                self.spooled_count += 1
            transaction.spooled_bytes += size
            self.spooled_bytes += size
        else:
            batch.data = <uint8_t *>malloc(size)
            if batch.data == NULL:
                with gil:
                    raise MemoryError("no memory for an open transaction")
            kept.data = batch.data
            kept.size = 0
            kept.capacity = size
            head = size
            if moves:           # but what stands before the rows: it is looked at once more
                head = header.part_offset + header.part_count * sizeof(PartHeader)
            buffer_append(&kept, entry, head)
            buffer_move(&kept, entry + head, size - head)
            transaction.memory_bytes += size
            self.memory_bytes += size
        return 0

    cdef Batch *share(
        self, OpenTransaction *transaction, const uint8_t *entry, uint64_t size
    ) except? NULL nogil:
        """The batch at hand, kept once for all; NULL where this one was given up: no room."""
        if self.shared == NULL:
            self.make_shared(transaction, entry, size)
        return self.shared

    cdef int make_shared(
        self, OpenTransaction *transaction, const uint8_t *entry, uint64_t size
    ) except -1 with gil:
        try:
            self.shared = self.make_batch(transaction, entry, size, False)
        except NoRoomError:
            return 0
        self.shared.users = 1       # while it is at hand
        return 0

    cdef int leave_shared(self) except -1 nogil:
        """The batch at hand is done with; who has a turn in it retains it."""
        cdef Batch *batch = self.shared
        self.shared = NULL
        return 0 if batch == NULL else self.leave(batch)

    cdef int leave(self, Batch *batch) except -1 nogil:
        """A transaction retains it no more; the last one gives its memory or spool back."""
        if batch.users == 1:
            if batch == self.fetched:
                self.fetched = NULL
            if batch.place == IN_MEMORY:
                self.memory_bytes -= batch.size
            elif batch.place == IN_SPOOL:
                self.spooled_bytes -= batch.size
                self.spooled_batches -= 1
                with gil:
                    self.spool.free(batch.offset, batch.size)
        batch_leave(batch)
        return 0

    cdef int drop(self, OpenTransaction *transaction) except -1 nogil:
        """Give memory and spool back."""
        while transaction.retained_count:
            transaction.retained_count -= 1
            self.leave(transaction.retained[transaction.retained_count].batch)
        open_forget(transaction)
        return 0

    cdef int fetch(self, const OpenTransaction *transaction, Batch *batch) except -1 with gil:
        """Bring a batch back from the spool, or from the file of a prepared transaction."""
        store = self.spool if batch.place == IN_SPOOL else self.files[transaction.stream_xid]
        cdef uint8_t *data = <uint8_t *>malloc(batch.size)
        if data == NULL:
            raise MemoryError("no memory to read a spooled batch")
        try:
            store.read_into(batch.offset, <uint8_t[:batch.size]>data)
        except BaseException:
            free(data)
            raise
        batch.data = data       # freed with the transaction, also when what follows fails
        return 0

    cdef void unfetch(self, Batch *batch) noexcept nogil:
        """Its rows were released: what others have no turn in is not needed any more."""
        if batch.users == 1:
            free(batch.data)
            batch.data = NULL
        elif batch.place == IN_SPOOL and batch != self.fetched:
            if self.fetched != NULL:
                free(self.fetched.data)
                self.fetched.data = NULL
            self.fetched = batch    # the next turn is likely to be in it

    cdef int point_into(self, OpenTransaction *transaction, file) except -1:
        """Have all that is retained be what is in a file."""
        cdef Batch *batch
        self.files[file.xid] = file
        for offset, size in file.places:
            batch = batch_create(size)
            batch.offset = offset
            batch.place = IN_FILE
            open_retain(transaction, batch)
        return 0

    cdef int keep(self, OpenTransaction *transaction, file) except -1:
        """All that is retained of a prepared transaction is in a file; let go of the rest."""
        self.drop(transaction)
        return self.point_into(transaction, file)

    cdef view(self, const OpenTransaction *transaction, uint32_t index):
        """One batch; of what is in memory a view, valid for as long as it is retained."""
        cdef Batch *batch = transaction.retained[index].batch
        if batch.data != NULL:
            return <uint8_t[:batch.size]>batch.data
        data = bytearray(batch.size)
        self.spool.read_into(batch.offset, memoryview(data))
        return data

    cdef int forget(self) except -1:
        """All transactions were freed."""
        self.fetched = NULL
        self.files = {}
        self.memory_bytes = 0
        self.spooled_bytes = 0
        self.spooled_batches = 0
        return 0
