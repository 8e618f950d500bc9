"""Layout of what passes between processes, and the growable buffer under it.

Native byte order, every offset counted from the first byte of its entry and rounded up
to 8. Written by one process and read by another of the same build. What is stored of it is in
`spool/`, which dies with the process, and in the files of prepared transactions, which say the
layout they were written in (`land.prepared`; its number is `BATCH_VERSION` of
`collect._assembler`).

A *raw batch* (reader -> decoder):

    RawHeader
    relation section   relation_count x (RawRelation, PlanColumn[column_count],
                       definition JSON), each padded to 8
    message section    message_count x (MessageHeader, payload), unpadded; `payload` is one
                       pgoutput message from its type byte, relations and types left out;
                       up to 7 bytes of padding may follow the last

A raw batch is of one kind: what a stream says between blocks, or of one block, whose transaction
`stream_xid` names. A block is a piece of a streamed transaction, where every row, truncate and
message has the id of its (sub)transaction after its letter, or a whole prepared transaction.

A raw batch carries every relation version its decoder has not been told yet. From then
on the decoder maps `oid` to `version`; the reader cuts the batch at each new version,
so that the mapping never changes inside a message section.

A *decoded batch* (decoder -> collector):

    EntryHeader
    Event[event_count]             in wire order
    PartHeader[part_count]         one per relation version with rows in this batch
    per part: ColumnHeader[new columns], then ColumnHeader[identity columns] (has_old),
              then their buffers
    payloads of events
"""

from libc.stdint cimport (
    int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *start, size_t size, int advice)
    int MADV_DONTNEED

cdef enum:
    PAGE_BYTES = 4096           # pages may be larger: then madvise refuses, and nothing is lost
    MOVED_BYTES = 4 << 20       # so much is moved rather than copied; arbitrary
    MOVE_STEP_BYTES = 1 << 20
    RAW_MAGIC = 0x42524447      # "GDRB"
    ENTRY_MAGIC = 0x42444447    # "GDDB"
    ALIGNMENT = 8
    OLD_COLUMN = 0x8000         # flag in Misfit.column: the value is of the old tuple

# What an entry is, for raw batches and decoded batches alike.
cdef enum EntryKind:
    ENTRY_DATA = 0
    ENTRY_END = 1               # nothing follows: the stream was closed on purpose
    ENTRY_ERROR = 2             # decoded only: payload is an error record (JSON)

# Of which kind of block a batch is.
cdef enum Block:
    BLOCK_NONE = 0
    BLOCK_STREAMED = 1
    BLOCK_PREPARED = 2

# How a column is held. The numbers are those of model.types.Kind.
cdef enum ColumnKind:
    KIND_BOOL = 1               # one byte per row, 0 or 1
    KIND_INT16 = 2
    KIND_INT32 = 3
    KIND_INT64 = 4
    KIND_FLOAT32 = 5
    KIND_FLOAT64 = 6
    KIND_DECIMAL = 7            # 16 bytes, little-endian two's complement, scaled
    KIND_DATE = 8               # int32 days since 1970-01-01
    KIND_TIMESTAMP = 9          # int64 microseconds since 1970-01-01, no time zone
    KIND_TIMESTAMPTZ = 10       # same, UTC
    KIND_STRING = 11            # int32 offsets + UTF-8
    KIND_BINARY = 12            # int32 offsets + bytes
    KIND_INTERVAL = 13          # int32 months, int32 days, int64 microseconds
    KIND_LIST = 14              # int32 offsets into the child column of kind `element`

cdef enum EventKind:
    # With flags 1 they are of a GaussDB stream, and what it does not send is 0: EVENT_BEGIN
    # has x first_lsn, EVENT_COMMIT has x xid.
    EVENT_BEGIN = 1             # x commit_lsn, y commit time (us since 1970), z xid, payload
    #                             uint64 first_lsn, or nothing
    EVENT_COMMIT = 2            # x commit_lsn, y end_lsn, z commit time
    # x LSN of the first row, or 0: not known. Then payload uint32[row_count], what is to be
    # added for each row; batches of early versions have neither.
    EVENT_SEGMENT = 3           # index part, first_row, row_count: rows in wire order
    EVENT_TRUNCATE = 4          # index version, flags option bits, x lsn; one event per table
    EVENT_MESSAGE = 5           # flags 1 = transactional, x lsn, payload prefix NUL content
    EVENT_ORIGIN = 6            # x origin lsn, payload name
    EVENT_KEEPALIVE = 7         # x wal_end, flags 1 = reply wanted
    EVENT_RELATION = 8          # index version, flags 1 = told in a block, payload definition JSON
    EVENT_CSN = 9               # x csn of the open transaction or 0, payload user name
    EVENT_NOTICE = 10           # index code (1 = rows may be missing), payload text
    EVENT_HEARTBEAT = 11        # x lsn, y flushed lsn, z timestamp (us since 1970)
    EVENT_STREAM_START = 12     # x xid, y lsn, flags 1 = first block, or all of a prepared one
    EVENT_STREAM_COMMIT = 13    # index xid, x commit_lsn, y end_lsn, z commit time
    EVENT_STREAM_ABORT = 14     # x xid, y xid of what was rolled back: all if equal
    # The payload of what follows is the global identifier of the transaction.
    EVENT_PREPARE = 15          # index xid, x prepare_lsn, y end_lsn, z prepare time
    EVENT_COMMIT_PREPARED = 16  # index xid, x commit_lsn, y end_lsn, z commit time
    EVENT_ROLLBACK_PREPARED = 17  # index xid, y end_lsn
    # A row of a prepared transaction that is too large to land: should the transaction commit.
    EVENT_LARGE_ROW = 18        # index version, x size, y limit, z column size, first_row column
    # A DELETE without an old tuple, of a table whose deletes have one: it takes back a row of its
    # transaction, which an upsert inserted.
    EVENT_TAKEN_BACK = 19       # index version, x lsn
    # Streamed, EVENT_SEGMENT, EVENT_TRUNCATE and EVENT_MESSAGE have z: the (sub)transaction.

cdef enum EventFlag:
    GAUSS_EVENT = 1             # of BEGIN and COMMIT

cdef enum RelationFlag:
    RELATION_FILTERED = 1       # known, but its rows are to be skipped
    RELATION_STREAMED = 4       # of a transaction that has not committed

# What is counted of a stream. The names are those of model.account.
cdef enum TallyKind:
    TALLY_TRANSACTION = 0       # a commit
    TALLY_INSERT = 1
    TALLY_UPDATE = 2
    TALLY_DELETE = 3
    TALLY_TRUNCATE = 4          # one per table that is named
    TALLY_MESSAGE = 5
    TALLY_KINDS = 6

cdef packed struct Tally:
    uint64_t count[TALLY_KINDS]

# Moments are monotonic nanoseconds, of the same clock in all processes; 0 is not known.
# `framed` counts what the reader found in the stream, `filtered` and `before_start` what of
# it is not in the messages any more; all three since the batch before.
cdef packed struct RawHeader:
    uint32_t magic
    uint32_t kind
    uint64_t dispatch_seq
    uint32_t relation_count
    uint32_t message_count
    uint64_t message_offset     # first byte of the message section
    uint64_t size               # of the whole entry
    uint64_t keepalive_lsn      # not 0: nothing is open at the end of this batch, and the
    uint32_t keepalive_reply    # server has read the WAL up to here; emitted as last event
    uint32_t stream_xid         # whose block it is of; 0: of none
    uint64_t lsn                # of the first message, for errors; 0 not known
    uint64_t xid                # of the transaction it is of, or 0
    uint64_t opened_ns          # when its first message came
    Tally framed
    Tally filtered              # rows of tables that nobody wants
    Tally before_start          # rows before the position to start from
    uint32_t block              # a Block
    uint32_t reserved

cdef packed struct RawRelation:
    uint32_t size               # of this record with columns and JSON, padded
    uint32_t oid
    uint32_t version
    uint32_t flags
    uint16_t column_count
    uint16_t encoding           # of its values: number in encoding.ENCODINGS, 0 for UTF-8
    uint32_t definition_size    # bytes of JSON

cdef packed struct MessageHeader:
    uint32_t size               # of the payload
    uint64_t lsn                # that the server sent with it; 0 not known

cdef packed struct PlanColumn:
    uint8_t kind
    uint8_t element             # kind of a list's elements, else 0
    uint8_t precision
    uint8_t scale
    uint8_t is_identity         # its old value is sent, and lands in gd_old
    uint8_t[3] reserved

cdef packed struct EntryHeader:
    uint32_t magic
    uint32_t kind
    uint64_t dispatch_seq
    uint64_t size
    uint32_t event_count
    uint32_t part_count
    uint64_t event_offset
    uint64_t part_offset
    uint64_t wire_bytes         # of the message section it came from
    uint64_t row_count
    uint64_t opened_ns          # as the reader said
    uint64_t taken_ns           # when decoding it began
    uint64_t decoded_ns         # and ended
    Tally framed                # as the reader said
    Tally filtered              # by the reader and by the decoder
    Tally before_start
    uint32_t stream_xid         # as the reader said
    uint32_t block              # same

cdef packed struct Event:
    uint8_t kind
    uint8_t flags
    uint16_t reserved
    uint32_t index
    uint32_t first_row
    uint32_t row_count
    uint64_t x
    uint64_t y
    uint64_t z
    uint64_t payload_offset
    uint64_t payload_size

cdef packed struct PartHeader:
    uint32_t version
    uint32_t row_count
    uint32_t new_column_count
    uint32_t old_column_count   # 0: no row of this part has an old tuple
    uint64_t column_offset      # ColumnHeader[new_column_count + old_column_count]
    uint64_t op_offset          # uint8[row_count]: 'I', 'U' or 'D'
    uint64_t old_present_offset  # uint8[row_count], only with old_column_count
    uint64_t key_changed_offset  # uint8[row_count]: K tuple differs from the new key; 0 = none
    uint64_t unchanged_offset   # Unchanged[unchanged_count], rising row, then column
    uint64_t misfit_offset      # Misfit[misfit_count], rising row
    uint32_t unchanged_count
    uint32_t misfit_count

cdef packed struct ColumnHeader:
    uint8_t kind
    uint8_t element
    uint16_t reserved
    uint32_t null_count         # 0: no validity bytes are present
    uint64_t validity_offset    # uint8[row_count], 1 = valid
    uint64_t offsets_offset     # int32[row_count + 1], from 0; strings, binaries, lists
    uint64_t data_offset
    uint64_t data_size
    uint32_t child_count        # lists: elements in the child column
    uint32_t child_null_count
    uint64_t child_validity_offset
    uint64_t child_offsets_offset
    uint64_t child_data_offset
    uint64_t child_data_size

cdef packed struct Unchanged:
    uint32_t row
    uint32_t column

cdef packed struct Misfit:      # original text of a value that its column cannot hold
    uint32_t row
    uint16_t column             # index in the relation; OLD_COLUMN set for an old value
    uint16_t reserved
    uint64_t text_offset        # UTF-8, invalid bytes escaped as \xNN
    uint64_t text_size

cdef struct Buffer:
    uint8_t *data
    size_t size
    size_t capacity


cdef inline int buffer_grow(Buffer *buffer, size_t extra) except -1 nogil:
    """Make room for `extra` more bytes; growth is by half, so appending is linear."""
    cdef size_t need = buffer.size + extra
    cdef size_t capacity = buffer.capacity
    cdef void *moved
    if need <= capacity:
        return 0
    capacity += capacity >> 1
    if capacity < need:
        capacity = need
    capacity = (capacity + 63) & ~<size_t>63
    moved = realloc(buffer.data, capacity)
    if moved == NULL:
        with gil:
            raise MemoryError(f"no memory for a buffer of {capacity} bytes")
    buffer.data = <uint8_t *>moved
    buffer.capacity = capacity
    return 0


cdef inline int buffer_append(Buffer *buffer, const void *data, size_t size) except -1 nogil:
    buffer_grow(buffer, size)
    if size:
        memcpy(buffer.data + buffer.size, data, size)
    buffer.size += size
    return 0


cdef inline void give_back(const void *data, size_t size) noexcept nogil:
    """Give the kernel the pages that lie within bytes which nobody reads again.

    They stay allocated, and read as zeros.
    """
    cdef uintptr_t start = (<uintptr_t>data + PAGE_BYTES - 1) & ~<uintptr_t>(PAGE_BYTES - 1)
    cdef uintptr_t stop = (<uintptr_t>data + size) & ~<uintptr_t>(PAGE_BYTES - 1)
    if start < stop:
        madvise(<void *>start, stop - start, MADV_DONTNEED)


cdef inline int buffer_move(Buffer *buffer, const void *data, size_t size) except -1 nogil:
    """Append bytes of our own that nobody reads again; many take no memory twice."""
    cdef const uint8_t *source = <const uint8_t *>data
    cdef size_t step
    if size < MOVED_BYTES:
        return buffer_append(buffer, data, size)
    buffer_grow(buffer, size)
    while size:
        step = size if size < MOVE_STEP_BYTES else MOVE_STEP_BYTES
        memcpy(buffer.data + buffer.size, source, step)
        give_back(source, step)
        buffer.size += step
        source += step
        size -= step
    return 0


cdef inline int buffer_fill(Buffer *buffer, int value, size_t size) except -1 nogil:
    buffer_grow(buffer, size)
    if size:
        memset(buffer.data + buffer.size, value, size)
    buffer.size += size
    return 0


cdef inline int buffer_align(Buffer *buffer) except -1 nogil:
    """Pad with zeros to the next multiple of `ALIGNMENT`."""
    return buffer_fill(buffer, 0, (ALIGNMENT - buffer.size % ALIGNMENT) % ALIGNMENT)


cdef inline void buffer_free(Buffer *buffer) noexcept nogil:
    free(buffer.data)
    buffer.data = NULL
    buffer.size = 0
    buffer.capacity = 0


cdef inline void stamp_entry(Buffer *buffer, uint64_t taken_ns, uint64_t decoded_ns) noexcept nogil:
    """Say in a decoded batch when it was decoded."""
    cdef EntryHeader *header = <EntryHeader *>buffer.data
    header.taken_ns = taken_ns
    header.decoded_ns = decoded_ns


cdef inline size_t kind_width(uint8_t kind) noexcept nogil:
    """Bytes per row of a fixed-width kind; 0 for strings, binaries and lists."""
    if kind == KIND_BOOL:
        return 1
    if kind == KIND_INT16:
        return 2
    if kind == KIND_INT32 or kind == KIND_FLOAT32 or kind == KIND_DATE:
        return 4
    if kind == KIND_DECIMAL or kind == KIND_INTERVAL:
        return 16
    if kind == KIND_STRING or kind == KIND_BINARY or kind == KIND_LIST:
        return 0
    return 8
