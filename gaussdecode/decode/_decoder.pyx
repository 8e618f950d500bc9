"""The loop of a decoder process: raw ring, decode, decoded ring, without the GIL.

Promises one decoded batch for every raw batch, in order. A raw batch is given back to the
reader as soon as it is decoded, before there is room for the result: until then the
result is in memory of our own. It refuses to know what started it and what its end means.

Deadlock: it waits for room only while it holds no raw batch, and for input only while it
holds no result. The collector never waits for a decoder whose turn it is not, so that
one who waits here waits for somebody who can go on.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from gaussdecode.wire._layout cimport (
    ENTRY_END, ENTRY_ERROR, ENTRY_MAGIC, Buffer, EntryHeader, RawHeader, buffer_append,
    buffer_free, buffer_grow, stamp_entry,
)
from gaussdecode._wire cimport BatchDecoder
from gaussdecode.ipc.clock cimport monotonic_ns
from gaussdecode.ipc.control cimport (
    DECODER_BATCHES, DECODER_BUSY_NS, DECODER_HEARTBEAT_NS, DECODER_MISFITS, DECODER_ROWS,
    DECODER_WAITED_INPUT_NS, DECODER_WAITED_OUTPUT_NS, DECODER_WIRE_BYTES, Control,
    DecoderWord, decoder_word,
)
from gaussdecode.ipc.ring cimport Ring

import json

from gaussdecode.errors import ChildError, attributed, to_record

cdef enum:
    HEARTBEAT_MS = 500          # longest wait between two heartbeats; arbitrary
    FIRST_BYTES = 1024          # of a result buffer after a release; GaussDB's change log buffer


cdef class DecoderLoop:
    """Moves batches from one ring to the other until the end.

    Args:
        raw: consumer's end of the raw ring.
        decoded: producer's end of the decoded ring.
        control: counters and heartbeat go to the words of this decoder.
        decoder_index: which decoder this is, from 0.
        kept_bytes: a result buffer above this is released after use.
        max_row_bytes: a larger row is refused.
        defers_large_rows: see `BatchDecoder`.
    """

    cdef Ring raw
    cdef Ring decoded
    cdef Control control
    cdef BatchDecoder decoder
    cdef unsigned int decoder_index
    cdef size_t kept_bytes
    cdef readonly uint64_t release_count    # result buffers given back
    cdef Buffer out
    cdef uint64_t dispatch_seq      # of the last raw batch taken

    def __cinit__(
        self, Ring raw not None, Ring decoded not None, Control control not None,
        unsigned int decoder_index, size_t kept_bytes=16 << 20, size_t max_row_bytes=1 << 30,
        bint defers_large_rows=False,
    ):
        self.raw = raw
        self.decoded = decoded
        self.control = control
        self.decoder = BatchDecoder(
            max_row_bytes=max_row_bytes, defers_large_rows=defers_large_rows
        )
        self.decoder_index = decoder_index
        self.kept_bytes = kept_bytes

    def __dealloc__(self):
        buffer_free(&self.out)

    def run(self):
        """Decode until the end of the stream has been passed on.

        Raises:
            WireError: a batch could not be decoded; the collector has been told in place.
            ChildError: the reader or the collector is gone.
        """
        try:
            with nogil:
                self.loop()
        except ChildError:
            raise
        except Exception as error:
            self.decoder.locate(error)
            error = attributed(error, self.decoder.blamed())
            self.pass_on(error)
            raise error from None

    cdef int pass_on(self, error) except -1:
        """Say in place of a decoded batch why there is none."""
        cdef bytes payload = json.dumps(to_record(error)).encode()
        cdef const uint8_t *text = payload
        cdef EntryHeader header
        memset(&header, 0, sizeof(EntryHeader))
        header.magic = ENTRY_MAGIC
        header.kind = ENTRY_ERROR
        header.dispatch_seq = self.dispatch_seq
        header.event_offset = header.part_offset = sizeof(EntryHeader)
        header.size = sizeof(EntryHeader) + <size_t>len(payload)
        self.out.size = 0
        buffer_append(&self.out, &header, sizeof(EntryHeader))
        buffer_append(&self.out, text, <size_t>len(payload))
        with nogil:
            self.send()
        return 0

    cdef int loop(self) except -1 nogil:
        cdef const uint8_t *data = NULL
        cdef size_t size = 0
        cdef uint64_t start, end
        cdef int kind
        while True:
            self.receive(&data, &size)
            start = monotonic_ns()
            if size >= sizeof(RawHeader):
                self.dispatch_seq = (<const RawHeader *>data).dispatch_seq
            kind = self.decoder.decode(data, size, &self.out, True)
            self.raw.release()
            end = monotonic_ns()
            stamp_entry(&self.out, start, end)
            self.count(DECODER_BUSY_NS, end - start)
            self.send()
            self.count_batch()
            if kind == ENTRY_END:
                return 0

    cdef int receive(self, const uint8_t **data, size_t *size) except -1 nogil:
        """Take the next raw batch, however long it takes to come."""
        cdef uint64_t start = 0
        cdef int got = self.raw.get(data, size)
        while got == 0:
            start = monotonic_ns()
            self.set_word(DECODER_HEARTBEAT_NS, start)
            self.raw.wait_data(HEARTBEAT_MS)
            self.count(DECODER_WAITED_INPUT_NS, monotonic_ns() - start)
            got = self.raw.get(data, size)
        if got < 0:
            with gil:
                raise ChildError("the reader ended without closing its stream")
        return 0

    cdef int send(self) except -1 nogil:
        """Store the result, and give its memory back when it is more than what is kept."""
        cdef uint64_t start
        cdef int put = self.decoded.put(self.out.data, self.out.size, True)
        while put == 0:
            start = monotonic_ns()
            self.set_word(DECODER_HEARTBEAT_NS, start)
            self.decoded.wait_space(HEARTBEAT_MS)
            self.count(DECODER_WAITED_OUTPUT_NS, monotonic_ns() - start)
            put = self.decoded.put(self.out.data, self.out.size, True)
        if put < 0:
            with gil:
                raise ChildError("the collector is gone")
        if self.out.capacity > self.kept_bytes:
            buffer_free(&self.out)
            buffer_grow(&self.out, FIRST_BYTES)
            self.release_count += 1
        return 0

    cdef int count_batch(self) except -1 nogil:
        self.count(DECODER_BATCHES, 1)
        self.set_word(DECODER_WIRE_BYTES, self.decoder.wire_bytes)
        self.set_word(DECODER_ROWS, self.decoder.row_count)
        self.set_word(DECODER_MISFITS, self.decoder.misfit_count)
        return self.set_word(DECODER_HEARTBEAT_NS, monotonic_ns())

    cdef int count(self, DecoderWord word, uint64_t amount) except -1 nogil:
        self.control.add(decoder_word(self.decoder_index, word), amount)
        return 0

    cdef int set_word(self, DecoderWord word, uint64_t value) except -1 nogil:
        return self.control.set(decoder_word(self.decoder_index, word), value)
