"""The nogil side of `source._dispatch`."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.wire._layout cimport Buffer, Tally
from gaussdecode._wire cimport BatchDecoder
from gaussdecode.ipc.ring cimport Ring


cdef class Dispatcher:
    cdef readonly list rings
    cdef readonly unsigned int decoder_count
    cdef readonly uint64_t dispatch_seq  # of the batch being filled
    cdef readonly size_t batch_bytes
    cdef Ring target            # of the batch being filled or waiting
    cdef BatchDecoder decoder   # serial mode, else None
    cdef Buffer decoded         # serial mode: the decoded batch
    cdef Buffer batch           # header, relations, messages
    cdef Buffer relations       # records that some decoder has not been told
    cdef Buffer starts          # uint64 offset of each in `relations`
    cdef uint32_t first_version  # of the first record there
    cdef readonly uint32_t version_count
    cdef uint32_t *told         # per decoder: highest version it knows
    cdef size_t message_offset
    cdef uint32_t message_count
    cdef uint32_t relation_count
    cdef Tally framed           # by the receiver, since the last cut
    cdef Tally filtered         # of these, what it did not append: rows nobody wants,
    cdef Tally before_start     # rows before the position to start from
    cdef uint64_t message_lsn   # of the message that is appended next; 0 not known
    cdef uint64_t batch_lsn     # of the first message of the batch,
    cdef uint64_t batch_xid     # and of its transaction; for errors
    cdef uint32_t stream_xid    # whose block the messages are of, or 0; changes between batches,
    cdef uint32_t block         # and of which kind it is
    cdef bint is_open           # a batch is being filled
    cdef uint64_t opened_ns     # since then
    cdef readonly bint is_waiting  # a finished entry waits for room
    cdef const uint8_t *entry   # that entry
    cdef size_t entry_size
    cdef readonly unsigned int ends_left
    cdef bint is_ending
    cdef size_t kept_bytes      # serial mode: a result buffer above this is released
    cdef bint is_serial
    cdef readonly bint has_failed  # serial mode: the last batch could not be decoded

    cdef int open_batch(self) except -1 nogil
    # With `moves` the message is the caller's own and not read again: see buffer_move.
    cdef int append(self, const uint8_t *data, size_t size, bint moves=*) except -1 nogil
    cdef bint fits(self, size_t size) noexcept nogil
    cdef bint is_full(self) noexcept nogil
    # Close the batch; it waits for room until `flush` says 1. An empty one is dropped.
    cdef int cut(self, uint64_t keepalive_lsn, bint is_reply_wanted) except -1 nogil
    # 1 = nothing waits. 0 = no room in the ring. -1 = the ring's consumer is gone.
    cdef int flush(self) except -2 nogil
    cdef bint target_is_empty(self) noexcept nogil
    cdef int space_fd(self) noexcept nogil
    cdef int tell_relations(self, uint32_t decoder_index) except -1 nogil
    cdef int forget_told(self) noexcept nogil
    cdef int offer(self) noexcept nogil
    cdef int decode_batch(self) except -1 nogil
    cdef int choose_target(self) except -1 nogil
    cdef int put_end(self) except -1 nogil
