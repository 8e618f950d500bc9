"""Canonical messages to columns: one raw batch in, one decoded batch out.

Given a raw batch (see `_layout.pxd`): whole messages, and the relation versions this
decoder has not been told yet. Promises a decoded batch with every event in wire order and
every row in the columns of its relation version, or an error that names the byte; what a
length or count claims is never believed before the bytes are there. It refuses to know
about sockets, rings, clocks, configuration, transactions that span batches and what
becomes of the rows.

The letters of the messages and what follows each are in `wire/letters.py`. Relation and Type
never get here: the reader keeps them. A batch is of one block (of a streamed or of a prepared
transaction), or of none. A GaussDB stream is translated before it gets here
(`source.gaussdb.translate`).

One decoder serves one process and is not safe to share between threads.
`tests/twins/canonical.py` is the plain twin.
"""

from libc.stdint cimport UINT32_MAX
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from gaussdecode.wire._cursor cimport (
    check_end, fail_wire, read_string, read_uint8, read_uint16, read_uint32, read_uint64, take,
)
from gaussdecode.wire._layout cimport (
    BLOCK_PREPARED, BLOCK_STREAMED, ENTRY_DATA, ENTRY_END, ENTRY_MAGIC, EVENT_BEGIN, EVENT_COMMIT,
    EVENT_COMMIT_PREPARED, EVENT_CSN, EVENT_HEARTBEAT, EVENT_KEEPALIVE, EVENT_LARGE_ROW,
    EVENT_MESSAGE, EVENT_NOTICE, EVENT_ORIGIN, EVENT_PREPARE, EVENT_RELATION,
    EVENT_ROLLBACK_PREPARED, EVENT_SEGMENT, EVENT_STREAM_ABORT, EVENT_STREAM_COMMIT,
    EVENT_STREAM_START, EVENT_TAKEN_BACK, EVENT_TRUNCATE, GAUSS_EVENT, RAW_MAGIC, RELATION_FILTERED,
    RELATION_STREAMED, TALLY_MESSAGE, TALLY_TRANSACTION, TALLY_TRUNCATE, EntryHeader, MessageHeader,
    Misfit, PartHeader, PlanColumn,
    RawRelation, Tally, buffer_align, buffer_append,
    buffer_fill, buffer_free, buffer_grow, buffer_move,
)
from gaussdecode.wire._letters cimport (
    CELL_BINARY, CELL_TEXT, IMAGE_KEY, IMAGE_NEW, IMAGE_NONE, IMAGE_OLD, LETTER_BEGIN,
    LETTER_COMMIT,
    LETTER_COMMIT_PREPARED, LETTER_DELETE, LETTER_GAUSS_BEGIN, LETTER_GAUSS_COMMIT,
    LETTER_HEARTBEAT, LETTER_INSERT, LETTER_MESSAGE, LETTER_NOTICE, LETTER_ORIGIN, LETTER_PREPARE,
    LETTER_PREPARE_BEGIN, LETTER_RELATION, LETTER_ROLLBACK_PREPARED, LETTER_STREAM_ABORT,
    LETTER_STREAM_COMMIT, LETTER_STREAM_PREPARE, LETTER_STREAM_START, LETTER_STREAM_STOP,
    LETTER_TRUNCATE, LETTER_TYPE, LETTER_UPDATE,
)
from gaussdecode.wire._part cimport (
    part_begin_row, part_create, part_fill_nulls, part_free, part_free_rows, part_read_new,
    part_read_old, part_reset, part_skip_tuple, part_sleep, part_wake, part_write,
)
from gaussdecode.wire._times cimport GD_EPOCH_US
from gaussdecode.wire._tally cimport tally_add, tally_clear, tally_dict, tally_equals, tally_ops

from gaussdecode.errors import AccountError, LargeRowError, StreamError

cdef enum:
    FIRST_SLOTS = 64
    MAX_KEPT_BYTES = 4 << 20        # of an event or payload buffer between batches; arbitrary
    MAX_RETAINED_BYTES = 64 << 20   # of all parts between batches; arbitrary
    MAX_ROW_BYTES = 1 << 30         # no server sends a longer message
    MOST_AWAKE = 1024               # tables that keep their columns between batches; arbitrary
    TRUNCATE_BITS = 3
    RAW_PADDING = 8                 # fewer bytes than this may follow the last message
    RELATION_UNREAD = 2             # flag: its rows are stepped over, whatever they hold

cdef enum:
    MAX_DIGITS = 10             # of a uint32

cdef extern from *:
    """
    #define GD_TIME_NOT_SENT ((uint64_t)INT64_MIN)
    #define GD_MAX_INT64 ((uint64_t)INT64_MAX)
    """
    const uint64_t GD_TIME_NOT_SENT
    const uint64_t GD_MAX_INT64


cdef inline uint64_t time_of(uint64_t sent) noexcept nogil:
    """Microseconds since 1970 of a GaussDB commit; 0 when they were not sent."""
    return 0 if sent == GD_TIME_NOT_SENT else sent + GD_EPOCH_US


cdef int read_int63(Cursor *cursor, uint64_t *out) except -1 nogil:
    """A number that lands as int64."""
    read_uint64(cursor, out)
    if out[0] > GD_MAX_INT64:
        fail_wire(cursor, b"a number that does not fit 63 bits", 8)
    return 0


cdef int fail_sums(
    uint64_t dispatch_seq, const Tally *framed, const Tally *seen
) except -1 with gil:
    raise AccountError(
        f"the reader counted {tally_dict(framed)} in batch {dispatch_seq}, the decoder found "
        f"{tally_dict(seen)} in it: nothing of it lands"
    )


cdef int keep_small(Buffer *buffer) except -1 nogil:
    """Empty a buffer, and give it back when only a huge message needed its size."""
    if buffer.capacity > MAX_KEPT_BYTES:
        buffer_free(buffer)
    buffer.size = 0
    return 0


cdef class BatchDecoder:
    """Decodes raw batches, and remembers the relation versions it was told.

    Args:
        most_awake: tables that keep columns and buffers between batches; of the others only
            the plan is kept, from which their next row makes them again.
        max_row_bytes: a row whose message is larger is refused; at least what a batch holds, so
            that such a row is alone in its batch, and the batch's position is its own.
        defers_large_rows: one of a prepared transaction becomes an event: it may be rolled back.
    """

    def __cinit__(
        self, size_t most_awake=MOST_AWAKE, size_t max_row_bytes=MAX_ROW_BYTES,
        bint defers_large_rows=False,
    ) -> None:
        self.most_awake = most_awake
        self.defers_large_rows = defers_large_rows
        self.max_row_bytes = max_row_bytes
        self.slots = <Part **>calloc(FIRST_SLOTS, sizeof(Part *))
        if self.slots == NULL:
            raise MemoryError("no memory for the table of relations")
        self.slot_count = FIRST_SLOTS

    def __dealloc__(self) -> None:
        cdef size_t index
        if self.slots != NULL:
            for index in range(self.slot_count):
                part_free(self.slots[index])
        free(self.slots)
        free(self.used)
        buffer_free(&self.events)
        buffer_free(&self.payloads)
        buffer_free(&self.result)

    def decode_bytes(self, raw not None) -> bytes:
        """Decode one raw batch; the same as `decode`, for use from Python.

        Args:
            raw: a whole raw batch, bytes-like.

        Returns:
            One decoded batch.

        Raises:
            TruncatedError: a field reaches past the end of its message or section.
            WireError: anything else that does not follow the format.
        """
        cdef const uint8_t[::1] view = raw
        cdef const uint8_t *data = &view[0] if view.shape[0] else NULL
        keep_small(&self.result)
        with nogil:
            self.decode(data, view.shape[0], &self.result)
        return (<const char *>self.result.data)[:self.result.size]

    def blamed(self):
        """Whose row could not be decoded, after an error.

        Returns:
            OID of the relation, and its description in JSON where the same batch holds it,
            else empty; None when it was no row of a relation.
        """
        cdef const Event *event = <const Event *>self.events.data
        cdef size_t index
        if self.last == NULL:
            return None
        for index in range(self.events.size // sizeof(Event)):
            if event[index].kind == EVENT_RELATION and event[index].index == self.last.version:
                start = event[index].payload_offset
                size = event[index].payload_size
                return self.last.oid, (<const char *>self.payloads.data)[start:start + size]
        return self.last.oid, b""

    def locate(self, error):
        """Tell an error of the protocol where in the stream it stands."""
        if isinstance(error, StreamError):
            error.place(self.lsn, self.xid)

    # ---- one batch

    cdef int decode(
        self, const uint8_t *data, size_t size, Buffer *out, bint moves=False
    ) except -1 nogil:
        """See `_wire.pxd`."""
        cdef RawHeader header
        cdef Cursor cursor
        cdef Event *event
        self.reset()
        self.moves = moves
        out.size = 0
        cursor.head = cursor.next = data
        cursor.end = data + size
        memcpy(&header, take(&cursor, sizeof(RawHeader)), sizeof(RawHeader))
        if header.magic != RAW_MAGIC or header.size != size:
            fail_wire(&cursor, b"not a raw batch", sizeof(RawHeader))
        self.lsn = header.lsn
        self.xid = header.xid
        self.has_xids = header.block == BLOCK_STREAMED
        self.is_prepared = header.block == BLOCK_PREPARED
        self.change_xid = 0
        if header.kind == ENTRY_DATA:
            if header.message_offset < sizeof(RawHeader) or header.message_offset > size:
                fail_wire(&cursor, b"message section outside of its batch", 0)
            cursor.end = data + header.message_offset
            self.read_relations(&cursor, header.relation_count)
            cursor.next = cursor.end
            cursor.end = data + size
            self.read_messages(&cursor, header.message_count)
            self.check_sums(&header)
            if header.keepalive_lsn:
                event = self.add_event(EVENT_KEEPALIVE)
                event.flags = header.keepalive_reply != 0
                event.x = header.keepalive_lsn
        elif header.kind != ENTRY_END:
            fail_wire(&cursor, b"unknown kind of raw batch", sizeof(RawHeader))
        self.write_entry(&header, out)
        return header.kind

    cdef int reset(self) except -1 nogil:
        """Forget the rows of the batch before; the relations stay."""
        cdef size_t index
        cdef Part *part
        for index in range(self.used_count):
            part = self.used[index]
            self.retained -= part.held_bytes
            part_reset(part)
            self.retained += part.held_bytes
        if self.retained > MAX_RETAINED_BYTES:
            for index in range(self.slot_count):
                if self.slots[index] != NULL:
                    part_free_rows(self.slots[index])
            self.retained = 0
        if self.awake_count > self.most_awake:
            self.lull()
        self.used_count = 0
        self.segment = NULL
        tally_clear(&self.decoded)
        tally_clear(&self.filtered)
        self.last = NULL
        keep_small(&self.events)
        keep_small(&self.payloads)
        return 0

    cdef void lull(self) noexcept nogil:
        """Send tables to sleep that were quiet for long; no batch is being decoded."""
        cdef Part *part
        while self.awake_count > self.most_awake:
            part = self.slots[self.hand]
            self.hand = (self.hand + 1) & (self.slot_count - 1)
            if part == NULL or part.columns == NULL:
                continue
            if part.was_used:
                part.was_used = False
                continue
            self.retained -= part.held_bytes
            part_sleep(part)
            self.awake_count -= 1

    cdef int check_sums(self, const RawHeader *header) except -1 nogil:
        """See that what was decoded and what the reader left out is what it framed."""
        cdef Tally seen = self.decoded
        tally_add(&seen, &header.filtered)
        tally_add(&seen, &header.before_start)
        if not tally_equals(&seen, &header.framed):
            fail_sums(header.dispatch_seq, &header.framed, &seen)
        return 0

    cdef int read_relations(self, Cursor *cursor, uint32_t count) except -1 nogil:
        cdef RawRelation relation
        cdef Cursor record
        cdef const PlanColumn *plan
        cdef const uint8_t *definition
        cdef Event *event
        cdef uint32_t _index
        for _index in range(count):
            record.head = cursor.head
            record.next = cursor.next
            record.end = cursor.end
            memcpy(&relation, take(&record, sizeof(RawRelation)), sizeof(RawRelation))
            record.next = cursor.next
            record.end = take(cursor, relation.size) + relation.size
            take(&record, sizeof(RawRelation))
            plan = <const PlanColumn *>take(&record, relation.column_count * sizeof(PlanColumn))
            definition = take(&record, relation.definition_size)
            self.add_part(part_create(&relation, plan))
            event = self.add_event(EVENT_RELATION)
            event.index = relation.version
            event.flags = relation.flags & RELATION_STREAMED != 0
            self.add_payload(event, definition, relation.definition_size)
        return 0

    cdef int read_messages(self, Cursor *cursor, uint32_t count) except -1 nogil:
        cdef Cursor message
        cdef MessageHeader header
        cdef uint32_t _index
        for _index in range(count):
            memcpy(&header, take(cursor, sizeof(MessageHeader)), sizeof(MessageHeader))
            message.head = message.next = take(cursor, header.size)
            message.end = message.head + header.size
            self.message_lsn = header.lsn
            self.read_message(&message)
        if cursor.end - cursor.next >= RAW_PADDING:
            fail_wire(cursor, b"bytes after the last message of a batch", 0)
        return 0

    # ---- messages

    cdef int read_message(self, Cursor *cursor) except -1 nogil:
        cdef uint8_t tag = take(cursor, 1)[0]
        if tag == LETTER_INSERT or tag == LETTER_UPDATE or tag == LETTER_DELETE:
            self.read_row(cursor, tag)
            return check_end(cursor)
        self.last = NULL                # nothing but a row is to be blamed on a relation
        if tag == LETTER_BEGIN:
            self.read_begin(cursor)
        elif tag == LETTER_COMMIT:
            self.read_commit(cursor)
        elif tag == LETTER_ORIGIN:
            self.read_origin(cursor)
        elif tag == LETTER_TRUNCATE:
            self.read_truncate(cursor)
        elif tag == LETTER_MESSAGE:
            self.read_logical(cursor)
        elif tag == LETTER_STREAM_START:
            self.read_stream_start(cursor)
        elif tag == LETTER_STREAM_COMMIT:
            self.read_stream_commit(cursor)
        elif tag == LETTER_STREAM_ABORT:
            self.read_stream_abort(cursor)
        elif tag == LETTER_PREPARE_BEGIN:
            self.read_prepare_begin(cursor)
        elif tag == LETTER_PREPARE or tag == LETTER_STREAM_PREPARE:
            self.read_prepared(cursor, EVENT_PREPARE)
        elif tag == LETTER_COMMIT_PREPARED:
            self.decoded.count[<int>TALLY_TRANSACTION] += 1
            self.read_prepared(cursor, EVENT_COMMIT_PREPARED)
        elif tag == LETTER_ROLLBACK_PREPARED:
            self.read_prepared(cursor, EVENT_ROLLBACK_PREPARED)
        elif tag == LETTER_GAUSS_BEGIN:
            self.read_gauss_begin(cursor)
        elif tag == LETTER_GAUSS_COMMIT:
            self.read_gauss_commit(cursor)
        elif tag == LETTER_NOTICE:
            self.read_notice(cursor)
        elif tag == LETTER_HEARTBEAT:
            self.read_heartbeat(cursor)
        elif tag == LETTER_RELATION or tag == LETTER_TYPE or tag == LETTER_STREAM_STOP:
            fail_wire(cursor, b"message that is the reader's inside a batch", 1)
        else:
            fail_wire(cursor, b"unknown type of message", 1)
        return check_end(cursor)

    cdef int read_begin(self, Cursor *cursor) except -1 nogil:
        cdef Event *event = self.add_event(EVENT_BEGIN)
        cdef uint64_t lsn, time
        cdef uint32_t xid
        read_uint64(cursor, &lsn)
        read_uint64(cursor, &time)
        read_uint32(cursor, &xid)
        event.x = lsn
        event.y = time + GD_EPOCH_US
        event.z = xid
        self.xid = xid
        if self.message_lsn:
            self.add_payload(event, &self.message_lsn, sizeof(self.message_lsn))
        return 0

    cdef int read_commit(self, Cursor *cursor) except -1 nogil:
        self.read_end(cursor, self.add_event(EVENT_COMMIT))
        self.xid = 0
        return 0

    cdef int read_end(self, Cursor *cursor, Event *event) except -1 nogil:
        """Where and when a transaction committed."""
        cdef uint64_t commit_lsn, end_lsn, time
        self.decoded.count[<int>TALLY_TRANSACTION] += 1
        if read_uint8(cursor) != 0:
            fail_wire(cursor, b"unknown flags of a commit", 1)
        read_uint64(cursor, &commit_lsn)
        read_uint64(cursor, &end_lsn)
        read_uint64(cursor, &time)
        event.x = commit_lsn
        event.y = end_lsn
        event.z = time + GD_EPOCH_US
        return 0

    cdef int read_origin(self, Cursor *cursor) except -1 nogil:
        cdef Event *event = self.add_event(EVENT_ORIGIN)
        cdef const uint8_t *name
        cdef uint64_t lsn
        cdef size_t size
        read_uint64(cursor, &lsn)
        name = read_string(cursor, &size)
        event.x = lsn
        return self.add_payload(event, name, size)

    cdef int read_row(self, Cursor *cursor, uint8_t op) except -1 nogil:
        cdef Part *part
        cdef uint32_t oid
        cdef uint8_t old_tag = 0
        cdef uint8_t tag
        cdef bint is_kept
        if cursor.end - cursor.next < <Py_ssize_t>sizeof(oid):
            self.last = NULL
        if self.has_xids:
            self.read_change_xid(cursor)
        read_uint32(cursor, &oid)
        part = self.part_of(cursor, oid)
        is_kept = not part.flags & (RELATION_FILTERED | RELATION_UNREAD)
        tally_ops(&self.decoded, &op, 1)
        if op == LETTER_DELETE and cursor.next < cursor.end and cursor.next[0] == IMAGE_NONE:
            return self.take_back(cursor, part)
        if <size_t>(cursor.end - cursor.head) > self.max_row_bytes and is_kept:
            self.refuse_large(cursor, part, op)
            cursor.next = cursor.end
            return 0
        if is_kept:
            if part.columns == NULL:
                part_wake(part)
                self.awake_count += 1
            part_begin_row(part, op)
        else:
            tally_ops(&self.filtered, &op, 1)
        if part.flags & RELATION_UNREAD:
            cursor.next = cursor.end
            return 0
        tag = take(cursor, 1)[0]
        if op != LETTER_INSERT and (tag == IMAGE_KEY or tag == IMAGE_OLD):
            old_tag = tag
            if is_kept:
                part_read_old(part, cursor, tag)
            else:
                part_skip_tuple(part, cursor, True)
            if op == LETTER_UPDATE:
                tag = take(cursor, 1)[0]
        if op == LETTER_DELETE:
            if old_tag == 0:
                fail_wire(cursor, b"delete without an old tuple", 1)
            if is_kept:
                part_fill_nulls(part)
        else:
            if tag != IMAGE_NEW:
                fail_wire(cursor, b"no new tuple where one must be", 1)
            if is_kept:
                part_read_new(part, cursor, old_tag, self.moves)
            else:
                part_skip_tuple(part, cursor, False)
        if is_kept:
            self.extend_segment(part)
        return 0

    cdef int take_back(self, Cursor *cursor, const Part *part) except -1 nogil:
        """A DELETE of a row that an upsert inserted, and of which nothing is said."""
        cdef Event *event
        cdef uint8_t op = LETTER_DELETE
        cursor.next += 1
        if part.flags & (RELATION_FILTERED | RELATION_UNREAD):
            tally_ops(&self.filtered, &op, 1)
        else:
            event = self.add_event(EVENT_TAKEN_BACK)
            event.index = part.version
            event.x = self.message_lsn
        return 0

    cdef int refuse_large(self, const Cursor *cursor, Part *part, uint8_t op) except -1 nogil:
        """Refuse a row, and say which column it owes its size to; nothing of it is kept."""
        cdef Cursor at = cursor[0]
        cdef Event *event
        cdef uint32_t size
        cdef uint32_t largest = 0
        cdef int column = 0
        cdef int index
        cdef uint8_t tag
        while at.next < at.end:
            take(&at, 1)
            for index in range(read_uint16(&at)):
                tag = take(&at, 1)[0]
                if tag == CELL_TEXT or tag == CELL_BINARY:
                    read_uint32(&at, &size)
                    take(&at, size)
                    if size > largest:
                        largest = size
                        column = index
        if not (self.is_prepared and self.defers_large_rows):
            return self.fail_large(cursor, column, largest)
        tally_ops(&self.filtered, &op, 1)
        event = self.add_event(EVENT_LARGE_ROW)
        event.index = part.version
        event.first_row = column
        event.x = cursor.end - cursor.head
        event.y = self.max_row_bytes
        event.z = largest
        return 0

    cdef int fail_large(
        self, const Cursor *cursor, int column, uint32_t column_size
    ) except -1 with gil:
        raise LargeRowError(
            cursor.end - cursor.head, self.max_row_bytes, column, column_size,
        )

    cdef int read_truncate(self, Cursor *cursor) except -1 nogil:
        """One event per table; the count is believed only as far as there are bytes."""
        cdef uint32_t _index, count, oid
        cdef uint8_t bits
        cdef Part *part
        cdef Event *event
        self.read_change_xid(cursor)
        read_uint32(cursor, &count)
        bits = take(cursor, 1)[0]
        if bits & ~TRUNCATE_BITS:
            fail_wire(cursor, b"unknown flags of a truncate", 1)
        for _index in range(count):
            read_uint32(cursor, &oid)
            part = self.part_of(cursor, oid)
            self.last = NULL
            self.decoded.count[<int>TALLY_TRUNCATE] += 1
            if part.flags & RELATION_FILTERED:
                self.filtered.count[<int>TALLY_TRUNCATE] += 1
            else:
                event = self.add_event(EVENT_TRUNCATE)
                event.index = part.version
                event.flags = bits
                event.x = self.message_lsn
                event.z = self.change_xid
        return 0

    cdef int read_logical(self, Cursor *cursor) except -1 nogil:
        cdef Event *event = self.add_event(EVENT_MESSAGE)
        cdef const uint8_t *prefix
        cdef const uint8_t *content
        cdef uint64_t lsn
        cdef uint32_t content_size
        cdef size_t size
        cdef uint8_t flags
        self.read_change_xid(cursor)
        flags = take(cursor, 1)[0]
        self.decoded.count[<int>TALLY_MESSAGE] += 1
        if flags > 1:
            fail_wire(cursor, b"unknown flags of a logical message", 1)
        read_uint64(cursor, &lsn)
        prefix = read_string(cursor, &size)
        read_uint32(cursor, &content_size)
        content = take(cursor, content_size)
        event.flags = flags
        event.x = lsn
        event.z = self.change_xid
        self.add_payload(event, prefix, size + 1)
        event.payload_size += content_size
        if self.moves:
            return buffer_move(&self.payloads, content, content_size)
        return buffer_append(&self.payloads, content, content_size)

    # ---- transactions that are streamed while they are open

    cdef int read_change_xid(self, Cursor *cursor) except -1 nogil:
        """In a block of a streamed transaction: whose the change is that follows."""
        if self.has_xids:
            read_uint32(cursor, &self.change_xid)
            if self.change_xid == 0:
                fail_wire(cursor, b"change of transaction 0", 4)
        return 0

    cdef int read_stream_start(self, Cursor *cursor) except -1 nogil:
        cdef Event *event = self.add_event(EVENT_STREAM_START)
        cdef uint32_t xid
        cdef uint8_t flags
        read_uint32(cursor, &xid)
        flags = read_uint8(cursor)
        if flags > 1:
            fail_wire(cursor, b"unknown flags of a block", 1)
        event.x = xid
        event.y = self.message_lsn
        event.flags = flags
        return 0

    cdef int read_stream_commit(self, Cursor *cursor) except -1 nogil:
        cdef Event *event = self.add_event(EVENT_STREAM_COMMIT)
        read_uint32(cursor, &event.index)
        return self.read_end(cursor, event)

    cdef int read_stream_abort(self, Cursor *cursor) except -1 nogil:
        """Where it was rolled back, and when, is only sent with streaming=parallel."""
        cdef Event *event = self.add_event(EVENT_STREAM_ABORT)
        cdef uint32_t xid, subxid
        cdef uint64_t lsn, time
        read_uint32(cursor, &xid)
        read_uint32(cursor, &subxid)
        event.x = xid
        event.y = subxid
        if cursor.next != cursor.end:
            read_uint64(cursor, &lsn)
            read_uint64(cursor, &time)
        return 0

    # ---- prepared transactions

    cdef int read_prepare_begin(self, Cursor *cursor) except -1 nogil:
        """What its PREPARE says once more is checked, and left to that."""
        cdef Event *event = self.add_event(EVENT_STREAM_START)
        cdef uint64_t number
        cdef uint32_t xid
        cdef size_t size
        read_uint64(cursor, &number)
        read_uint64(cursor, &number)
        read_uint64(cursor, &number)
        read_uint32(cursor, &xid)
        read_string(cursor, &size)
        event.x = xid
        event.y = self.message_lsn
        event.flags = 1
        return 0

    cdef int read_prepared(self, Cursor *cursor, uint8_t kind) except -1 nogil:
        """What becomes of a prepared transaction; `kind` of its event."""
        cdef Event *event = self.add_event(kind)
        cdef uint64_t first_lsn, end_lsn, time
        cdef const uint8_t *gid
        cdef size_t size
        if read_uint8(cursor) != 0:
            fail_wire(cursor, b"unknown flags of a prepared transaction", 1)
        read_uint64(cursor, &first_lsn)
        read_uint64(cursor, &end_lsn)
        read_uint64(cursor, &time)
        if kind == EVENT_ROLLBACK_PREPARED:     # that was of the prepare
            read_uint64(cursor, &time)
        read_uint32(cursor, &event.index)
        gid = read_string(cursor, &size)
        event.x = first_lsn
        event.y = end_lsn
        event.z = time + GD_EPOCH_US
        return self.add_payload(event, gid, size)

    # ---- messages of a translated GaussDB stream

    cdef int read_gauss_begin(self, Cursor *cursor) except -1 nogil:
        """BEGIN, then what else it says as events of their own."""
        cdef Event *event = self.add_event(EVENT_BEGIN)
        cdef uint64_t first_lsn, csn, xid, time
        cdef uint32_t origin
        cdef const uint8_t *user
        cdef size_t size
        read_uint64(cursor, &first_lsn)
        read_int63(cursor, &csn)
        read_int63(cursor, &xid)
        read_uint64(cursor, &time)
        read_uint32(cursor, &origin)
        user = read_string(cursor, &size)
        event.flags = GAUSS_EVENT
        event.x = first_lsn
        event.y = time_of(time)
        event.z = xid
        self.xid = xid
        if csn or size:
            self.add_csn(csn, user, size)
        if origin:
            self.add_origin(origin)
        return 0

    cdef int add_csn(self, uint64_t csn, const uint8_t *user, size_t size) except -1 nogil:
        cdef Event *event = self.add_event(EVENT_CSN)
        event.x = csn
        return self.add_payload(event, user, size)

    cdef int add_origin(self, uint32_t origin) except -1 nogil:
        """An origin without a name: its number in decimal."""
        cdef Event *event = self.add_event(EVENT_ORIGIN)
        cdef uint8_t[MAX_DIGITS] digits
        cdef size_t at = MAX_DIGITS
        while origin:
            at -= 1
            digits[at] = <uint8_t>(c"0" + origin % 10)
            origin //= 10
        return self.add_payload(event, &digits[at], MAX_DIGITS - at)

    cdef int read_gauss_commit(self, Cursor *cursor) except -1 nogil:
        cdef Event *event
        cdef uint64_t end_lsn, xid, time, csn
        read_uint64(cursor, &end_lsn)
        read_int63(cursor, &xid)
        read_uint64(cursor, &time)
        read_int63(cursor, &csn)
        self.decoded.count[<int>TALLY_TRANSACTION] += 1
        if csn:
            self.add_csn(csn, NULL, 0)
        event = self.add_event(EVENT_COMMIT)
        event.flags = GAUSS_EVENT
        event.x = xid
        event.y = end_lsn
        event.z = time_of(time)
        self.xid = 0
        return 0

    cdef int read_notice(self, Cursor *cursor) except -1 nogil:
        cdef Event *event = self.add_event(EVENT_NOTICE)
        cdef uint32_t size
        event.index = read_uint8(cursor)
        read_uint32(cursor, &size)
        return self.add_payload(event, take(cursor, size), size)

    cdef int read_heartbeat(self, Cursor *cursor) except -1 nogil:
        cdef Event *event = self.add_event(EVENT_HEARTBEAT)
        cdef uint64_t lsn, flushed_lsn, time
        read_uint64(cursor, &lsn)
        read_uint64(cursor, &flushed_lsn)
        read_uint64(cursor, &time)
        event.x = lsn
        event.y = flushed_lsn
        event.z = time
        return 0

    # ---- events and segments

    cdef Event *add_event(self, uint8_t kind) except NULL nogil:
        """Append an event, valid until the next; it ends the open segment."""
        cdef Event *event
        self.segment = NULL
        buffer_grow(&self.events, sizeof(Event))
        event = <Event *>(self.events.data + self.events.size)
        self.events.size += sizeof(Event)
        memset(event, 0, sizeof(Event))
        event.kind = kind
        return event

    cdef int add_payload(self, Event *event, const void *data, size_t size) except -1 nogil:
        event.payload_offset = self.payloads.size
        event.payload_size = size
        return buffer_append(&self.payloads, data, size)

    cdef int extend_segment(self, Part *part) except -1 nogil:
        """Complete a row: it belongs to the open segment, or opens one."""
        cdef Event *event = NULL
        cdef uint32_t step
        if self.segment == part:
            event = <Event *>(self.events.data + self.events.size) - 1
        if event == NULL or event.z != self.change_xid or not self.is_near(event):
            if not part.is_used:
                self.use_part(part)
            event = self.add_event(EVENT_SEGMENT)
            event.index = part.index
            event.first_row = part.row_count
            event.x = self.message_lsn
            event.z = self.change_xid
            event.payload_offset = self.payloads.size
            self.segment = part
        if event.x:
            step = <uint32_t>(self.message_lsn - event.x)
            buffer_append(&self.payloads, &step, sizeof(step))
            event.payload_size += sizeof(step)
        event.row_count += 1
        part.row_count += 1
        return 0

    cdef bint is_near(self, const Event *segment) noexcept nogil:
        """Whether the LSN of the message at hand can be told by that of a segment."""
        if segment.x == 0:
            return self.message_lsn == 0
        return self.message_lsn - segment.x <= UINT32_MAX   # a lower one wraps, and is above it

    cdef int use_part(self, Part *part) except -1 nogil:
        cdef size_t capacity
        cdef void *moved
        if self.used_count == self.used_capacity:
            capacity = self.used_capacity * 2 + 16
            moved = realloc(self.used, capacity * sizeof(Part *))
            if moved == NULL:
                with gil:
                    raise MemoryError("no memory for the parts of a batch")
            self.used = <Part **>moved
            self.used_capacity = capacity
        part.index = <uint32_t>self.used_count
        part.is_used = True
        part.was_used = True
        self.used[self.used_count] = part
        self.used_count += 1
        return 0

    # ---- relations

    cdef Part **slot_of(self, uint32_t oid) noexcept nogil:
        """The slot that holds the OID, or the empty one where it would go."""
        cdef size_t mask = self.slot_count - 1
        cdef size_t index = (oid * <uint64_t>0x9E3779B97F4A7C15 >> 32) & mask
        while self.slots[index] != NULL and self.slots[index].oid != oid:
            index = (index + 1) & mask
        return &self.slots[index]

    cdef Part *part_of(self, Cursor *cursor, uint32_t oid) except NULL nogil:
        cdef Part *part = self.last
        if part == NULL or part.oid != oid:
            part = self.slot_of(oid)[0]
            self.last = part
            if part == NULL:
                fail_wire(cursor, b"row of a relation that was not described", 4)
                return NULL
        return part

    cdef int add_part(self, Part *part) except -1 nogil:
        """Take a new version; the one before of the same table describes no later row."""
        cdef Part **slot
        if self.part_count * 2 >= self.slot_count:
            self.grow_slots()
        slot = self.slot_of(part.oid)
        if slot[0] == NULL:
            self.part_count += 1
        else:
            self.retained -= slot[0].held_bytes
            self.awake_count -= slot[0].columns != NULL
            part_free(slot[0])
        slot[0] = part
        self.last = NULL
        return 0

    cdef int grow_slots(self) except -1 nogil:
        cdef Part **before = self.slots
        cdef size_t count = self.slot_count
        cdef size_t index
        cdef Part **grown = <Part **>calloc(count * 2, sizeof(Part *))
        if grown == NULL:
            with gil:
                raise MemoryError("no memory for the table of relations")
        self.slots = grown
        self.slot_count = count * 2
        self.hand = 0
        for index in range(count):
            if before[index] != NULL:
                self.slot_of(before[index].oid)[0] = before[index]
        free(before)
        return 0

    # ---- the entry

    cdef int write_entry(self, const RawHeader *header, Buffer *out) except -1 nogil:
        cdef EntryHeader entry
        cdef Event *event
        cdef Part *part
        cdef size_t index, payloads
        memset(&entry, 0, sizeof(EntryHeader))
        entry.magic = ENTRY_MAGIC
        entry.kind = header.kind
        entry.dispatch_seq = header.dispatch_seq
        entry.event_count = <uint32_t>(self.events.size // sizeof(Event))
        entry.part_count = <uint32_t>self.used_count
        if header.kind == ENTRY_DATA:
            entry.wire_bytes = (
                header.size - header.message_offset
                - header.message_count * sizeof(self.message_lsn)
            )
            self.wire_bytes += entry.wire_bytes
        entry.opened_ns = header.opened_ns
        entry.framed = header.framed
        entry.filtered = header.filtered
        tally_add(&entry.filtered, &self.filtered)
        entry.before_start = header.before_start
        entry.stream_xid = header.stream_xid
        entry.block = header.block
        buffer_fill(out, 0, sizeof(EntryHeader))
        buffer_align(out)
        entry.event_offset = out.size
        buffer_append(out, self.events.data, self.events.size)
        buffer_align(out)
        entry.part_offset = out.size
        buffer_fill(out, 0, self.used_count * sizeof(PartHeader))
        for index in range(self.used_count):
            part = self.used[index]
            part_write(part, out, entry.part_offset + index * sizeof(PartHeader))
            entry.row_count += part.row_count
            self.misfit_count += part.misfits.size // sizeof(Misfit)
            self.invalid_count += part.invalid_count
        buffer_align(out)
        payloads = out.size
        buffer_move(out, self.payloads.data, self.payloads.size)
        buffer_align(out)
        event = <Event *>(out.data + entry.event_offset)
        for index in range(entry.event_count):
            if event[index].payload_size:
                event[index].payload_offset += payloads
        entry.size = out.size
        memcpy(out.data, &entry, sizeof(EntryHeader))
        self.row_count += entry.row_count
        return 0
