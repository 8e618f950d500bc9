"""Fills raw batches and puts them into the decoders' rings, in turn.

Given: messages in wire order, and a record for each new relation version. Promises: batch
*k* goes to decoder *k* mod N; it begins with every relation version that its decoder has
not been told; versions never change inside it, because the caller cuts before it adds one;
nothing here waits. A batch holds whole messages up to `batch_bytes`, or one longer message
alone. One finished entry may wait for room; the caller does not fill on until it is stored.
The receiver counts what it frames in `framed`; a batch takes along what was counted since the
one before, so that those after can see whether it holds that.

The layout is in ``_layout.pxd``. Entry bytes belong to this object until `flush` has
copied them into the ring. With one decoder there is no decoder process: each
raw batch is decoded here, and the decoded one goes into the one ring.

Relation records are kept until every decoder has been told; a decoder is told when its
next batch is opened.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from gaussdecode.wire._layout cimport (
    ENTRY_DATA,
    ENTRY_END,
    ENTRY_ERROR,
    ENTRY_MAGIC,
    RAW_MAGIC,
    Buffer,
    EntryHeader,
    MessageHeader,
    RawHeader,
    buffer_align,
    buffer_append,
    buffer_fill,
    buffer_free,
    buffer_grow,
    buffer_move,
    stamp_entry,
)
from gaussdecode.wire._tally cimport tally_message, tally_move
from gaussdecode._wire cimport BatchDecoder
from gaussdecode.ipc.atomics cimport load_acquire
from gaussdecode.ipc.clock cimport monotonic_ns
from gaussdecode.ipc.ring cimport Ring

cdef enum:
    KEPT_BYTES = 8388608        # a batch buffer above this is given back after use
    FIRST_BYTES = 1024          # of a result buffer after a release; GaussDB's change log buffer


cdef class Dispatcher:
    """Where framed messages go.

    Args:
        rings: one raw ring per decoder; the decoded ring in serial mode.
        batch_bytes: a batch is closed when its messages reach this.
        decoder: decodes here (serial mode), or None.
        kept_bytes: a result buffer above this is released after use (serial mode).
    """

    def __cinit__(self, list rings not None, size_t batch_bytes=1 << 20,
                  BatchDecoder decoder=None, size_t kept_bytes=16 << 20):
        cdef Ring ring
        if not rings or (decoder is not None and len(rings) != 1):
            raise ValueError("a dispatcher needs a ring per decoder, and one for serial mode")
        for ring in rings:
            ring.length()
        self.rings = list(rings)
        self.decoder_count = <unsigned int>len(rings)
        self.batch_bytes = batch_bytes
        self.decoder = decoder
        self.kept_bytes = kept_bytes
        self.is_serial = decoder is not None
        self.first_version = 1
        self.told = <uint32_t *>calloc(self.decoder_count, sizeof(uint32_t))
        if self.told == NULL:
            raise MemoryError("no memory for the dispatcher")
        self.target = <Ring>self.rings[0]

    def __dealloc__(self):
        buffer_free(&self.batch)
        buffer_free(&self.decoded)
        buffer_free(&self.relations)
        buffer_free(&self.starts)
        free(self.told)

    def add_relation(self, bytes record not None):
        """Keep the record of the next relation version (RawRelation, columns, JSON).

        Raises:
            ValueError: messages of the batch being filled were not cut off before.
        """
        cdef uint64_t start = self.relations.size
        cdef const uint8_t *data = record
        if self.is_open:
            raise ValueError("a relation version inside a batch")
        buffer_append(&self.starts, &start, sizeof(uint64_t))
        buffer_append(&self.relations, data, <size_t>len(record))
        buffer_align(&self.relations)
        self.version_count += 1

    cdef int open_batch(self) except -1 nogil:
        cdef unsigned int index = <unsigned int>(self.dispatch_seq % self.decoder_count)
        self.batch.size = 0
        self.choose_target()
        buffer_fill(&self.batch, 0, sizeof(RawHeader))
        buffer_align(&self.batch)
        self.relation_count = 0
        self.message_count = 0
        self.tell_relations(index)
        self.message_offset = self.batch.size
        self.opened_ns = monotonic_ns()
        self.is_open = True
        return 0

    cdef int tell_relations(self, uint32_t decoder_index) except -1 nogil:
        cdef const uint64_t *starts = <const uint64_t *>self.starts.data
        cdef uint32_t known = self.told[decoder_index]
        cdef uint64_t start
        if known == self.version_count:
            return 0
        start = starts[known + 1 - self.first_version]
        buffer_append(&self.batch, self.relations.data + start, self.relations.size - start)
        self.relation_count = self.version_count - known
        self.told[decoder_index] = self.version_count
        self.forget_told()
        return 0

    cdef int forget_told(self) noexcept nogil:
        """Drop the records once every decoder knows all of them."""
        cdef unsigned int i
        for i in range(self.decoder_count):
            if self.told[i] != self.version_count:
                return 0
        self.first_version = self.version_count + 1
        self.relations.size = 0
        self.starts.size = 0
        return 0

    cdef bint fits(self, size_t size) noexcept nogil:
        """Whether a message may join the batch being filled."""
        if not self.is_open or self.message_count == 0:
            return True
        return (
            self.batch.size - self.message_offset + sizeof(MessageHeader) + size
            <= self.batch_bytes
        )

    cdef bint is_full(self) noexcept nogil:
        return self.is_open and self.batch.size - self.message_offset >= self.batch_bytes

    cdef int append(self, const uint8_t *data, size_t size, bint moves=False) except -1 nogil:
        cdef MessageHeader header
        cdef Buffer *batch = &self.batch
        header.size = <uint32_t>size
        header.lsn = self.message_lsn
        if not self.is_open:
            self.open_batch()
        buffer_grow(batch, sizeof(MessageHeader) + size)
        memcpy(batch.data + batch.size, &header, sizeof(MessageHeader))
        batch.size += sizeof(MessageHeader)
        self.message_count += 1
        if moves:
            return buffer_move(batch, data, size)
        memcpy(batch.data + batch.size, data, size)
        batch.size += size
        return 0

    cdef int cut(self, uint64_t keepalive_lsn, bint is_reply_wanted) except -1 nogil:
        cdef RawHeader *header
        if keepalive_lsn and not self.is_open:
            self.open_batch()
        if not self.is_open:
            return 0
        header = <RawHeader *>self.batch.data
        header.magic = RAW_MAGIC
        header.kind = ENTRY_DATA
        header.dispatch_seq = self.dispatch_seq
        header.relation_count = self.relation_count
        header.message_count = self.message_count
        header.message_offset = self.message_offset
        header.size = self.batch.size
        header.keepalive_lsn = keepalive_lsn
        header.keepalive_reply = is_reply_wanted
        header.stream_xid = self.stream_xid
        header.block = self.block
        header.opened_ns = self.opened_ns
        header.lsn = self.batch_lsn
        header.xid = self.batch_xid
        self.batch_lsn = self.batch_xid = 0
        tally_move(&header.framed, &self.framed)
        tally_move(&header.filtered, &self.filtered)
        tally_move(&header.before_start, &self.before_start)
        self.is_open = False
        self.offer()
        if self.is_serial:
            self.decode_batch()
        return 0

    cdef int offer(self) noexcept nogil:
        """Hand the entry in `batch` over to `flush`."""
        self.entry = self.batch.data
        self.entry_size = self.batch.size
        self.is_waiting = True
        return 0

    cdef int decode_batch(self) except -1 nogil:
        """Offer the decoded form instead."""
        cdef uint64_t start = monotonic_ns()
        self.is_waiting = False
        self.has_failed = True      # unless the next line returns
        self.decoder.decode(self.batch.data, self.batch.size, &self.decoded, True)
        self.has_failed = False
        stamp_entry(&self.decoded, start, monotonic_ns())
        self.entry = self.decoded.data
        self.entry_size = self.decoded.size
        self.is_waiting = True
        return 0

    cdef int choose_target(self) except -1 with gil:
        self.target = <Ring>self.rings[self.dispatch_seq % self.decoder_count]
        return 0

    cdef int flush(self) except -2 nogil:
        cdef int state
        while self.is_waiting:
            state = self.target.put(self.entry, self.entry_size, True)
            if state != 1:
                return state
            self.is_waiting = False
            self.dispatch_seq += 1
            if self.batch.capacity > KEPT_BYTES:
                buffer_free(&self.batch)
            if self.decoded.capacity > self.kept_bytes:
                buffer_free(&self.decoded)
                buffer_grow(&self.decoded, FIRST_BYTES)
            if self.ends_left:
                self.put_end()
        return 1

    cdef int put_end(self) except -1 nogil:
        """Make the next end entry the one that waits."""
        cdef RawHeader raw
        cdef EntryHeader decoded
        self.ends_left -= 1
        self.batch.size = 0
        memset(&raw, 0, sizeof(RawHeader))
        memset(&decoded, 0, sizeof(EntryHeader))
        self.choose_target()
        if not self.is_serial:
            raw.magic = RAW_MAGIC
            raw.kind = ENTRY_END
            raw.dispatch_seq = self.dispatch_seq
            raw.size = raw.message_offset = sizeof(RawHeader)
            buffer_append(&self.batch, &raw, sizeof(RawHeader))
        else:
            decoded.magic = ENTRY_MAGIC
            decoded.kind = ENTRY_END
            decoded.dispatch_seq = self.dispatch_seq
            decoded.size = decoded.event_offset = decoded.part_offset = sizeof(EntryHeader)
            buffer_append(&self.batch, &decoded, sizeof(EntryHeader))
        return self.offer()

    def begin_end(self):
        """Close the batch being filled; an end entry for every ring will follow it."""
        if self.is_ending:
            return
        self.cut(0, False)
        self.is_ending = True
        self.ends_left = self.decoder_count
        if not self.is_waiting:
            self.put_end()

    def close_batch(self):
        """Close the batch being filled, so that a relation version may follow."""
        self.cut(0, False)

    cdef bint target_is_empty(self) noexcept nogil:
        """Whether the ring that the open batch goes to holds nothing."""
        return load_acquire(&self.target.header.entries_out) == self.target.entries_in

    cdef int space_fd(self) noexcept nogil:
        return self.target.space_fd

    def put_error(self, bytes payload not None):
        """Offer a decoded entry that says why the bytes could not be decoded (serial mode)."""
        cdef EntryHeader decoded
        cdef const uint8_t *data = payload
        memset(&decoded, 0, sizeof(EntryHeader))
        decoded.magic = ENTRY_MAGIC
        decoded.kind = ENTRY_ERROR
        decoded.dispatch_seq = self.dispatch_seq
        decoded.event_offset = decoded.part_offset = sizeof(EntryHeader)
        decoded.size = sizeof(EntryHeader) + <size_t>len(payload)
        self.is_open = False
        self.batch.size = 0
        self.choose_target()
        buffer_append(&self.batch, &decoded, sizeof(EntryHeader))
        buffer_append(&self.batch, data, <size_t>len(payload))
        self.offer()

    # For tests.

    def add_message(self, bytes message not None, uint64_t lsn=0):
        """Append one message, cutting as the receive loop does."""
        cdef const uint8_t *data = message
        self.message_lsn = lsn
        if not self.fits(<size_t>len(message)):
            self.cut(0, False)
            if self.flush() != 1:
                raise BlockingIOError("the ring is full")
        tally_message(&self.framed, data[0], data, <size_t>len(message))
        self.append(data, <size_t>len(message))
        if self.is_full():
            self.cut(0, False)

    def try_flush(self):
        """Store what waits; False when there is no room, error when nobody reads."""
        cdef int state = self.flush()
        if state < 0:
            raise BrokenPipeError("the ring's consumer is gone")
        return state == 1
