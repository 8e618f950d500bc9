"""The nogil side of `_wire`; the module's docstring explains it."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.wire._cursor cimport Cursor
from gaussdecode.wire._layout cimport Buffer, Event, RawHeader, Tally
from gaussdecode.wire._part cimport Part


@cython.final
cdef class BatchDecoder:
    cdef Part **slots               # open addressing by OID; a power of two of them
    cdef size_t slot_count
    cdef size_t part_count          # tables known
    cdef size_t most_awake          # tables that keep their columns between batches
    cdef readonly size_t awake_count
    cdef size_t hand                # of the clock that chooses who sleeps
    cdef Part *last                 # part of the row before
    cdef Part **used                # parts with rows in this batch, in order of their first
    cdef size_t used_count
    cdef size_t used_capacity
    cdef Part *segment              # part of the open segment, the last event
    cdef Buffer events
    cdef Buffer payloads            # offsets of event payloads count from here until the end
    cdef Buffer result              # of decode_bytes
    cdef size_t retained            # bytes all parts hold on to
    cdef size_t max_row_bytes
    cdef bint defers_large_rows     # of prepared transactions
    cdef bint is_prepared           # this batch is of one
    cdef bint moves                 # this batch is not read again
    cdef uint64_t lsn               # of the first message of this batch; 0 not known
    cdef uint64_t xid               # of the open transaction, or 0
    cdef bint has_xids              # each change says whose it is
    cdef uint32_t change_xid        # then, of the change at hand
    cdef uint64_t message_lsn       # of the message at hand; 0 not known
    cdef Tally decoded              # of this batch
    cdef Tally filtered             # of these, what becomes no event
    cdef readonly uint64_t row_count        # decoded since the start
    cdef readonly uint64_t wire_bytes
    cdef readonly uint64_t misfit_count     # values kept as text beside their row
    cdef readonly uint64_t invalid_count    # of these, texts that were not UTF-8

    # Decode one raw batch of `size` bytes; `data` is not needed any more afterwards. `out`
    # is emptied and filled with one decoded batch. Returns its ENTRY_ kind.
    # With `moves` the batch is the caller's own and not read again: see buffer_move.
    cdef int decode(
        self, const uint8_t *data, size_t size, Buffer *out, bint moves=*
    ) except -1 nogil

    cdef int reset(self) except -1 nogil
    cdef void lull(self) noexcept nogil
    cdef int check_sums(self, const RawHeader *header) except -1 nogil
    cdef int read_relations(self, Cursor *cursor, uint32_t count) except -1 nogil
    cdef int read_messages(self, Cursor *cursor, uint32_t count) except -1 nogil
    cdef int read_message(self, Cursor *cursor) except -1 nogil
    cdef int read_begin(self, Cursor *cursor) except -1 nogil
    cdef int read_commit(self, Cursor *cursor) except -1 nogil
    cdef int read_end(self, Cursor *cursor, Event *event) except -1 nogil
    cdef int read_origin(self, Cursor *cursor) except -1 nogil
    cdef int read_row(self, Cursor *cursor, uint8_t op) except -1 nogil
    cdef int take_back(self, Cursor *cursor, const Part *part) except -1 nogil
    cdef int refuse_large(self, const Cursor *cursor, Part *part, uint8_t op) except -1 nogil
    cdef int fail_large(
        self, const Cursor *cursor, int column, uint32_t column_size
    ) except -1 with gil
    cdef int read_truncate(self, Cursor *cursor) except -1 nogil
    cdef int read_logical(self, Cursor *cursor) except -1 nogil
    cdef int read_change_xid(self, Cursor *cursor) except -1 nogil
    cdef int read_stream_start(self, Cursor *cursor) except -1 nogil
    cdef int read_stream_commit(self, Cursor *cursor) except -1 nogil
    cdef int read_stream_abort(self, Cursor *cursor) except -1 nogil
    cdef int read_prepare_begin(self, Cursor *cursor) except -1 nogil
    cdef int read_prepared(self, Cursor *cursor, uint8_t kind) except -1 nogil
    cdef int read_gauss_begin(self, Cursor *cursor) except -1 nogil
    cdef int read_gauss_commit(self, Cursor *cursor) except -1 nogil
    cdef int read_notice(self, Cursor *cursor) except -1 nogil
    cdef int read_heartbeat(self, Cursor *cursor) except -1 nogil
    cdef int add_csn(self, uint64_t csn, const uint8_t *user, size_t size) except -1 nogil
    cdef int add_origin(self, uint32_t origin) except -1 nogil
    cdef Event *add_event(self, uint8_t kind) except NULL nogil
    cdef int add_payload(self, Event *event, const void *data, size_t size) except -1 nogil
    cdef int extend_segment(self, Part *part) except -1 nogil
    cdef bint is_near(self, const Event *segment) noexcept nogil
    cdef int use_part(self, Part *part) except -1 nogil
    cdef Part **slot_of(self, uint32_t oid) noexcept nogil
    cdef Part *part_of(self, Cursor *cursor, uint32_t oid) except NULL nogil
    cdef int add_part(self, Part *part) except -1 nogil
    cdef int grow_slots(self) except -1 nogil
    cdef int write_entry(self, const RawHeader *header, Buffer *out) except -1 nogil
