"""GaussDB's stream to the decoders' messages, while it is walked anyway.

Given the payloads of CopyData in order, and a `Definition` for each shape of row that is
new. Promises: each record becomes one canonical message (or none, where nobody wants the
table) that says the same in every style and batching; the repeated names and types of a row
are compared and dropped, one comparison per column; values are copied once, un-quoted and
in UTF-8. It refuses to know sockets, clocks, the catalogue and what becomes of the messages.

| style | payload |
|---|---|
| b | records, each ended by P, or by F the last; after a P a u32 0 ends the payload too |
| t, j batched | statements (u32 size, u64 lsn, text), then u32 0 |
| t, j unbatched | one statement |
| s, q | one statement of a serial plug-in: mppdb_decoding, sql_decoding |

A binary record is u32 size, u64 lsn, a letter and its body; the separator is not in the
size. Sizes of statements include the LSN. A binary heartbeat may come without size and LSN.

Canonical messages (integers big-endian; I U D T M as in `tests/twins/canonical.py`):

| letter | message | layout after the letter |
|---|---|---|
| b | Begin | u64 first_lsn, u64 csn, u64 xid, i64 commit time, u32 origin id, str user |
| c | Commit | u64 end_lsn, u64 xid, i64 commit time, u64 csn |
| h | Heartbeat | u64 lsn, u64 flushed lsn, i64 time (microseconds since 1970; 0 not known) |

What was not sent is 0, an empty user, or a time of INT64_MIN; times count microseconds since
2000. Serial plug-ins send the CSN with the commit only. A DELETE without an old tuple becomes
a K tuple of NULLs, under a relation without identity, and of a table that has one a D with the
letter of no tuple (see `source.gaussdb.identity`, upserts). A DDL statement becomes a transactional
logical message with the prefix `gaussdecode.ddl`, word for word: one of a serial plug-in, and of
enable-ddl-decoding one that begins with `{"TDDL"` or `{"JDDL"` in every style. How style b frames
them is not documented. So with that option a record in a transaction that is not known is such
a message too, byte for byte; without it, it is damage.

A version costs memory for its table's spelling; above `memory_limit` all are forgotten but the
newest, and asked for again.

`tests/twins/gaussformats.py` is the plain twin.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from gaussdecode.wire._cursor cimport (
    fail_truncated, fail_wire, gd_swap32, read_uint32, read_uint64, take,
)
from gaussdecode.wire._layout cimport (
    MOVED_BYTES, TALLY_MESSAGE, TALLY_TRANSACTION, TALLY_TRUNCATE, buffer_append, buffer_free,
    buffer_grow, buffer_move, give_back,
)
from gaussdecode.wire._letters cimport (
    CELL_NULL, CELL_TEXT, CELL_UNCHANGED, IMAGE_KEY, IMAGE_NEW, IMAGE_NONE, IMAGE_OLD,
    LETTER_GAUSS_BEGIN,
    LETTER_GAUSS_COMMIT, LETTER_HEARTBEAT, LETTER_INSERT, LETTER_MESSAGE, LETTER_TRUNCATE,
    STYLE_BINARY,
    STYLE_JSON, STYLE_SERIAL, STYLE_SQL, STYLE_TEXT,
)
from gaussdecode.wire._tally cimport tally_ops
from gaussdecode.wire._forms cimport (
    NULL_SIZE, RECORD_BEGIN, RECORD_COMMIT, RECORD_DELETE, RECORD_HEARTBEAT, RECORD_INSERT,
    RECORD_UPDATE, SEPARATOR_LAST, SEPARATOR_NEXT, WORD_BEGIN, WORD_CASCADE, WORD_COMMIT,
    WORD_HEARTBEAT, WORD_NO_FLAGS, WORD_PARALLEL_COMMIT, WORD_RESTART, WORD_TABLE,
)
from gaussdecode.wire._values cimport HEADROOM, is_ascii
from gaussdecode.source.gaussdb.translate._binary cimport scan_binary
from gaussdecode.source.gaussdb.translate._emit cimport (
    append_byte, append_count, append_number, append_single, append_uint32, append_uint64,
    put_uint32,
)
from gaussdecode.source.gaussdb.translate._json cimport scan_json
from gaussdecode.source.gaussdb.translate._known cimport (
    equal, fill_columns, is_bare, known_create, known_matches, lacks_old, sent_of, span, spans,
    spelling_of, table_find, table_free, table_put,
)
from gaussdecode.source.gaussdb.translate._row cimport (
    FORM_DOUBLED, FORM_FALSE, FORM_NULL, FORM_PLAIN, FORM_TRUE, FORM_UNCHANGED, accept,
    accept_word, expect, read_identifier, row_clear, row_free,
)
from gaussdecode.source.gaussdb.translate._sql cimport scan_sql
from gaussdecode.source.gaussdb.translate._statement cimport (
    Heartbeat, boundary_clear, read_binary_begin, read_binary_heartbeat, read_binary_parts,
    read_text_begin, read_text_commit, read_text_heartbeat,
)
from gaussdecode.source.gaussdb.translate._text cimport scan_text

from gaussdecode.errors import SequenceError
from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.protocol.gaussdb.names import shape_of

cdef enum:
    MAX_KEPT_BYTES = 4 << 20    # of a message's buffer between messages; arbitrary
    LSN_SIZE = 8
    HEARTBEAT_SIZE = 25         # without size and LSN
    VALUE_HEAD = 5              # a letter and a size
    TUPLE_HEAD = 3              # a letter and a number of columns,
    ROW_HEAD = 8                # and of a canonical row a letter and an OID before it
    SHORT = 16                  # bytes copied at once where so many may be read
    CASCADE = 1
    RESTART_IDENTITY = 2

cdef extern from *:
    """
    #define GD_DDL_PREFIX "gaussdecode.ddl"
    """
    const char *DDL_PREFIX "GD_DDL_PREFIX"
    const size_t DDL_PREFIX_SIZE "sizeof(GD_DDL_PREFIX)"


cdef class Translator:
    """Translates one connection's stream.

    Args:
        style: b'b', b't', b'j', b's' (serial mppdb_decoding) or b'q' (sql_decoding).
        is_batched: sending-batch is 1; says how texts are framed.
        encoding: server_encoding.
        memory_limit: bytes of descriptions above which they are forgotten; 0 for no limit.
        takes_ddl: enable-ddl-decoding is on.

    Raises:
        SourceRefusedError: an encoding that is not supported.
    """

    def __cinit__(
        self, bytes style not None, bint is_batched, str encoding not None,
        size_t memory_limit=0, bint takes_ddl=False,
    ):
        if len(style) != 1 or style not in b"btjsq":
            raise ValueError(f"no style {style!r}")
        self.style = style[0]
        self.memory_limit = memory_limit
        self.takes_ddl = takes_ddl
        self.is_binary = self.style == STYLE_BINARY
        self.is_framed = is_batched and (self.style == STYLE_TEXT or self.style == STYLE_JSON)
        self.transcoder = Transcoder(encoding)
        self.row.is_utf8 = self.transcoder.handle == NULL

    def __dealloc__(self):
        row_free(&self.row)
        table_free(&self.known)
        buffer_free(&self.out)
        buffer_free(&self.single)

    # ---- payloads

    cdef int start(self, const uint8_t *payload, size_t size, uint64_t header_lsn) except -1 nogil:
        """See `_translator.pxd`."""
        if self.is_open:
            self.fail_order(b"payload before the end of the one before")
        self.payload.head = self.payload.next = payload
        self.payload.end = payload + size
        if size == 0:
            fail_truncated(&self.payload, 1)
        self.header_lsn = header_lsn
        self.is_open = True
        self.is_last = False
        return 0

    cdef int step(self) except -1 nogil:
        """See `_translator.pxd`."""
        if not self.is_open:
            return END_OF_PAYLOAD
        if self.out.capacity > MAX_KEPT_BYTES:
            buffer_free(&self.out)
        self.out.size = 0
        if self.is_held:
            return self.truncate() if self.row.op == c"T" else self.end_row()
        return self.take_binary() if self.is_binary else self.take_text()

    cdef size_t step_size(self) noexcept nogil:
        """See `_translate.pxd`."""
        cdef Cursor payload = self.payload
        cdef size_t left = payload.end - payload.next
        cdef uint32_t size
        if self.is_held:
            return self.record_size
        if (self.is_binary or self.is_framed) and left >= sizeof(size):
            size = (
                <uint32_t>payload.next[0] << 24 | <uint32_t>payload.next[1] << 16
                | <uint32_t>payload.next[2] << 8 | payload.next[3]
            )
            left = size if size < left else left
        self.record_size = left
        return left

    cdef void leave_record(self, bint moves) noexcept nogil:
        """See `_translate.pxd`."""
        if self.out.size < MOVED_BYTES:
            return
        buffer_free(&self.row.scratch)
        buffer_free(&self.single)
        if moves:
            give_back(self.payload.head, self.payload.next - self.payload.head)

    cdef int take_binary(self) except -1 nogil:
        """Take the next record with its separator."""
        cdef uint32_t size
        cdef Cursor *payload = &self.payload
        if self.is_last:
            self.is_open = False
            return END_OF_PAYLOAD
        if payload.next < payload.end and payload.next[0] == RECORD_HEARTBEAT:
            self.record = payload[0]
            payload.next = take(payload, HEARTBEAT_SIZE) + HEARTBEAT_SIZE
            self.record.next += 1
            self.record.end = payload.next
            self.read_separator()
            self.lsn = 0
            return self.take_heartbeat()
        read_uint32(payload, &size)
        if size == 0:
            if payload.next != payload.end:
                fail_wire(payload, b"bytes after the end of the payload", 0)
            self.is_open = False
            return END_OF_PAYLOAD
        self.record.head = payload.head
        self.record.next = take(payload, size)
        self.record.end = payload.next
        self.read_separator()
        self.record_count += 1
        return self.read_record()

    cdef int read_separator(self) except -1 nogil:
        """Step over P or F; nothing follows an F."""
        cdef uint8_t separator = take(&self.payload, 1)[0]
        if separator == SEPARATOR_LAST:
            if self.payload.next != self.payload.end:
                fail_wire(&self.payload, b"bytes after the end of the payload", 0)
            self.is_last = True
        elif separator != SEPARATOR_NEXT:
            fail_wire(&self.payload, b"unknown separator after a record", 1)
        return 0

    cdef int read_record(self) except -1 nogil:
        """Read one binary record from its LSN on."""
        cdef Cursor *record = &self.record
        cdef Boundary boundary
        cdef uint8_t letter
        read_uint64(record, &self.lsn)
        letter = take(record, 1)[0]
        if letter == LETTER_INSERT and self.take_like_last():
            return TRANSLATED
        if letter == RECORD_INSERT or letter == RECORD_UPDATE or letter == RECORD_DELETE:
            row_clear(&self.row, letter)
            scan_binary(record, &self.row)
            return self.take_row()
        boundary_clear(&boundary, self.lsn)
        if letter == RECORD_BEGIN:
            read_binary_begin(record, &boundary)
            return self.begin(&boundary)
        if letter == RECORD_COMMIT:
            read_binary_parts(record, &boundary)
            return self.commit(&boundary)
        if letter == RECORD_HEARTBEAT:
            return self.take_heartbeat()
        if self.takes_ddl and self.in_transaction:
            record.next -= 1
            return self.emit_ddl(self.is_ddl())
        return fail_wire(record, b"unknown type of record", 1)

    cdef bint take_like_last(self) except -1 nogil:
        """Translate an inserted row whose table, columns and types are those of the row before.

        That is what most rows are, and it takes one walk. Of anything else, also of what is
        damaged, nothing is taken: the record is read with all care then.
        """
        cdef Cursor *record = &self.record
        cdef const Known *known = self.last
        cdef const uint8_t *text = record.next
        cdef Buffer *out = &self.out
        cdef uint64_t unconverted_count = self.unconverted_count
        cdef size_t left
        if known == NULL or known.is_filtered or not self.in_transaction:
            return False
        left = record.end - text
        if left < known.head_size + TUPLE_HEAD or (
            memcmp(known.bytes, text, known.head_size) != 0
        ):
            return False
        text += known.head_size
        if text[0] != IMAGE_NEW or <uint32_t>(text[1] << 8 | text[2]) != known.column_count:
            return False
        buffer_grow(out, left + ROW_HEAD + SHORT)
        append_byte(out, LETTER_INSERT)
        append_uint32(out, known.oid)
        append_count(out, IMAGE_NEW, known.column_count)
        if not self.emit_like_last(known, text + TUPLE_HEAD):
            out.size = 0
            self.unconverted_count = unconverted_count
            return False
        record.next = record.end
        self.tag = LETTER_INSERT
        tally_ops(&self.framed, &self.tag, 1)
        return True

    cdef bint emit_like_last(self, const Known *known, const uint8_t *text) except -1 nogil:
        """Write the values of a new tuple that ends the record; False if it is another one."""
        cdef const uint8_t *end = self.record.end
        cdef const KnownColumn *column = known.columns
        cdef const KnownColumn *last = known.columns + known.column_count
        cdef Field field
        cdef uint32_t size
        while column < last:
            if <size_t>(end - text) < column.name_size + sizeof(size) or column.name_size == 0:
                return False
            if not equal(known.bytes + column.name_offset, text, column.name_size):
                return False
            text += column.name_size
            memcpy(&size, text, sizeof(size))
            size = gd_swap32(size)
            text += sizeof(size)
            field.text = text
            field.size = size
            field.form = FORM_PLAIN
            if size == NULL_SIZE:
                field.size = 0
                field.form = FORM_NULL
            elif size > <size_t>(end - text):
                return False
            text += field.size
            self.emit_value(column, &field)
            column += 1
        return text == end

    cdef int take_text(self) except -1 nogil:
        """Take the next statement."""
        cdef uint32_t size
        cdef Cursor *payload = &self.payload
        if self.is_last:
            self.is_open = False
            return END_OF_PAYLOAD
        self.record = payload[0]
        if self.is_framed:
            read_uint32(payload, &size)
            if size == 0:
                if payload.next != payload.end:
                    fail_wire(payload, b"bytes after the end of the payload", 0)
                self.is_open = False
                return END_OF_PAYLOAD
            if size < LSN_SIZE:
                fail_wire(payload, b"statement shorter than its LSN", 4)
            self.record.next = take(payload, size)
            self.record.end = payload.next
            read_uint64(&self.record, &self.lsn)
        else:
            self.lsn = self.header_lsn
            payload.next = payload.end
            self.is_last = True
        self.record_count += 1
        return self.read_statement()

    cdef int read_statement(self) except -1 nogil:
        """Read one statement from its first word on."""
        cdef Cursor *record = &self.record
        cdef Boundary boundary
        cdef bint is_serial = self.style == STYLE_SERIAL
        row_clear(&self.row, 0)
        self.is_json = False
        if self.takes_ddl and self.is_ddl():
            return self.emit_ddl(True)
        if record.next < record.end and record.next[0] == c"{" and (
            is_serial or self.style == STYLE_JSON
        ):
            self.is_json = True
            scan_json(record, &self.row)
            return self.take_row()
        if self.style != STYLE_JSON and accept_word(record, WORD_TABLE):
            scan_text(
                record, &self.row, NULL if self.last == NULL else self.last.bytes,
                0 if self.last == NULL else self.last.head_size,
            )
            return self.begin_truncate() if self.row.op == c"T" else self.take_row()
        if self.style == STYLE_SQL and record.next < record.end and (
            record.next[0] == c"i" or record.next[0] == c"d"
        ):
            scan_sql(record, &self.row)
            return self.take_row()
        boundary_clear(&boundary, self.lsn)
        if accept_word(record, WORD_BEGIN):
            read_text_begin(record, &boundary, self.style)
            return self.begin(&boundary)
        if accept_word(record, WORD_PARALLEL_COMMIT) or accept_word(record, WORD_COMMIT):
            read_text_commit(record, &boundary, self.style)
            return self.commit(&boundary)
        if accept_word(record, WORD_HEARTBEAT):
            return self.take_heartbeat()
        if is_serial and accept(record, b"prefix: ", 8):
            record.next -= 8
            return self.emit_ddl(True)
        if self.style == STYLE_SQL and accept(record, b"message: prefix ", 16):
            record.next -= 16
            return self.emit_ddl(True)
        if self.takes_ddl and self.in_transaction:
            return self.emit_ddl(False)
        return fail_wire(record, b"unknown statement", 0)

    # ---- boundaries

    cdef void note_parts(self, const Boundary *boundary) noexcept nogil:
        self.unknown_part_count += boundary.unknown_parts
        self.unread_time_count += boundary.unread_times

    cdef int begin(self, const Boundary *boundary) except -1 nogil:
        cdef Buffer *out = &self.out
        if self.in_transaction:
            self.fail_order(b"a BEGIN inside a transaction")
        self.in_transaction = True
        self.begin_count += 1
        self.xid = boundary.xid
        self.note_parts(boundary)
        self.lsn = boundary.lsn
        self.tag = LETTER_GAUSS_BEGIN
        append_byte(out, LETTER_GAUSS_BEGIN)
        append_uint64(out, boundary.lsn)
        append_uint64(out, boundary.csn)
        append_uint64(out, boundary.xid)
        append_uint64(out, <uint64_t>boundary.time)
        append_uint32(out, boundary.origin)
        if boundary.user_size and not self.transcoder.append(
            out, boundary.user, boundary.user_size
        ):
            self.unconverted_count += 1
        append_byte(out, 0)
        return TRANSLATED

    cdef int commit(self, const Boundary *boundary) except -1 nogil:
        cdef Buffer *out = &self.out
        if not self.in_transaction:
            self.fail_order(b"a COMMIT outside of a transaction")
        self.in_transaction = False
        self.xid = 0
        self.framed.count[<int>TALLY_TRANSACTION] += 1
        self.note_parts(boundary)
        self.end_lsn = self.lsn
        self.tag = LETTER_GAUSS_COMMIT
        append_byte(out, LETTER_GAUSS_COMMIT)
        append_uint64(out, self.lsn)
        append_uint64(out, boundary.xid)
        append_uint64(out, <uint64_t>boundary.time)
        append_uint64(out, boundary.csn)
        return TRANSLATED

    cdef int take_heartbeat(self) except -1 nogil:
        """Read what follows the letter or the word."""
        cdef Buffer *out = &self.out
        cdef Heartbeat heartbeat
        heartbeat.lsn = self.lsn
        heartbeat.flushed_lsn = 0
        heartbeat.time = 0
        if self.is_binary:
            read_binary_heartbeat(&self.record, &heartbeat)
            if self.record.next != self.record.end:
                fail_wire(&self.record, b"bytes after the end of the record", 0)
        else:
            read_text_heartbeat(&self.record, &heartbeat)
        self.heartbeat_count += 1
        self.tag = LETTER_HEARTBEAT
        append_byte(out, LETTER_HEARTBEAT)
        append_uint64(out, heartbeat.lsn)
        append_uint64(out, heartbeat.flushed_lsn)
        append_uint64(out, <uint64_t>heartbeat.time)
        return TRANSLATED

    cdef bint is_ddl(self) noexcept nogil:
        """Whether the rest of the record is what enable-ddl-decoding sends as text."""
        cdef const uint8_t *text = self.record.next
        cdef const uint8_t *end = self.record.end
        if text == end or text[0] != c"{":
            return False
        text += 1
        while text < end and text[0] == c" ":
            text += 1
        return end - text >= 6 and (
            memcmp(text, b"\"TDDL\"", 6) == 0 or memcmp(text, b"\"JDDL\"", 6) == 0
        )

    cdef int emit_ddl(self, bint is_text) except -1 nogil:
        """Pass the rest of the record on as a transactional logical message."""
        cdef Buffer *out = &self.out
        cdef size_t start, size = self.record.end - self.record.next
        if not self.in_transaction:
            self.fail_order(b"a DDL statement outside of a transaction")
        self.tag = LETTER_MESSAGE
        self.framed.count[<int>TALLY_MESSAGE] += 1
        buffer_append(out, b"M\x01", 2)
        append_uint64(out, self.lsn)
        buffer_append(out, DDL_PREFIX, DDL_PREFIX_SIZE)
        append_uint32(out, 0)
        start = out.size
        if not is_text:
            buffer_append(out, self.record.next, size)
        elif not self.transcoder.append(out, self.record.next, size):
            self.unconverted_count += 1
        put_uint32(out.data + start - 4, <uint32_t>(out.size - start))
        return TRANSLATED

    # ---- rows

    cdef Known *find(self) noexcept nogil:
        """The version of the table that the row names, or NULL."""
        cdef Known *known = self.last
        if known == NULL or known.head_size != self.row.head_size or (
            memcmp(known.bytes, self.row.head, known.head_size) != 0
        ):
            known = table_find(&self.known, self.row.head, self.row.head_size)
            self.last = known
        return known

    cdef int ask(self) except -1 nogil:
        """Hold the row until its relation is defined; once, then it must do."""
        if self.is_answered:
            return fail_wire(&self.record, b"row that its relation does not describe", 0)
        self.is_held = True
        return NEED_RELATION

    cdef int take_row(self) except -1 nogil:
        """Count the row that has been read, once, whatever becomes of it."""
        tally_ops(&self.framed, &self.row.op, 1)
        return self.end_row()

    cdef int end_row(self) except -1 nogil:
        """Translate the row that has been read, or ask for its relation."""
        cdef Known *known
        if not self.in_transaction:
            self.fail_order(b"a row outside of a transaction")
        known = self.find()
        if known == NULL or not (
            known.is_filtered or known_matches(known, &self.row, self.begin_count)
        ):
            return self.ask()
        self.is_held = self.is_answered = False
        if known.is_filtered:
            self.filtered_count += 1
            tally_ops(&self.filtered, &self.row.op, 1)
            return PASSED_OVER
        return self.emit_row(known)

    cdef int emit_row(self, const Known *known) except -1 nogil:
        cdef Buffer *out = &self.out
        cdef Row *row = &self.row
        cdef uint32_t index
        self.tag = row.op
        append_byte(out, row.op)
        append_uint32(out, known.oid)
        if known.is_speculative and lacks_old(known, row):
            append_byte(out, IMAGE_NONE)
            return TRANSLATED
        if row.old.is_present or row.op == c"D" or is_bare(known, row):
            self.emit_old(known)
        if row.new.is_present:
            append_count(out, IMAGE_NEW, known.column_count)
            for index in range(row.new.count):
                self.emit_value(&known.columns[index], &row.new.fields[index])
        return TRANSLATED

    cdef int emit_old(self, const Known *known) except -1 nogil:
        """Write the old tuple with all columns of the table, those not sent as NULL."""
        cdef Buffer *out = &self.out
        cdef uint32_t index
        cdef uint32_t sent = 0
        cdef Tuple *old = &self.row.old
        append_count(out, IMAGE_OLD if known.is_full else IMAGE_KEY, known.column_count)
        buffer_grow(out, known.column_count)
        for index in range(known.column_count):
            if sent < old.count and old.fields[sent].column == index:
                if old.fields[sent].form == FORM_UNCHANGED:
                    fail_wire(&self.record, b"unchanged value in an old tuple", 0)
                self.emit_value(&known.columns[index], &old.fields[sent])
                sent += 1
            else:
                append_byte(out, CELL_NULL)
        return 0

    cdef inline int emit_value(
        self, const KnownColumn *column, const Field *field
    ) except -1 nogil:
        cdef Buffer *out = &self.out
        cdef uint8_t *target
        cdef size_t size = field.size
        if field.form == FORM_NULL:
            return append_byte(out, CELL_NULL)
        buffer_grow(out, VALUE_HEAD + SHORT + size)
        target = out.data + out.size
        if field.form != FORM_PLAIN or column.is_hex or column.is_number or (
            self.transcoder.handle != NULL and not is_ascii(field.text, size)
        ):
            return self.emit_other(column, field)
        target[0] = CELL_TEXT
        put_uint32(target + 1, <uint32_t>size)
        if size <= SHORT and <size_t>self.payload.end - <size_t>field.text >= SHORT:
            memcpy(target + VALUE_HEAD, field.text, SHORT)
        elif size >= MOVED_BYTES and self.is_own(field.text):
            out.size += VALUE_HEAD
            return buffer_move(out, field.text, size)
        elif size:
            memcpy(target + VALUE_HEAD, field.text, size)
        out.size += VALUE_HEAD + size
        return 0

    cdef bint is_own(self, const uint8_t *text) noexcept nogil:
        """Whether a text is our copy, unescaped; it is written once."""
        cdef Buffer *scratch = &self.row.scratch
        return scratch.data != NULL and scratch.data <= text < scratch.data + scratch.capacity

    cdef int emit_other(self, const KnownColumn *column, const Field *field) except -1 nogil:
        """Write a word, or a text that is not sent as it must be."""
        cdef Buffer *out = &self.out
        cdef size_t start
        if field.form == FORM_UNCHANGED:
            return append_byte(out, CELL_UNCHANGED)
        buffer_append(out, b"t\0\0\0\0", VALUE_HEAD)
        start = out.size
        if field.form == FORM_TRUE or field.form == FORM_FALSE:
            append_byte(out, c"t" if field.form == FORM_TRUE else c"f")
        else:
            if column.is_hex:
                buffer_append(out, b"\\x", 2)
            self.emit_text(column, field)
        put_uint32(out.data + start - 4, <uint32_t>(out.size - start))
        return 0

    cdef int emit_text(self, const KnownColumn *column, const Field *field) except -1 nogil:
        """Write a text in UTF-8, its doubled quotes single."""
        cdef const uint8_t *text = field.text
        cdef size_t size = field.size
        cdef Buffer *single = &self.single
        if field.form == FORM_DOUBLED:
            single.size = 0
            buffer_grow(single, HEADROOM + size)
            memset(single.data, 0, HEADROOM)
            single.size = HEADROOM
            append_single(single, text, size)
            text = single.data + HEADROOM
            size = single.size - HEADROOM
        if column.is_number:
            return append_number(&self.out, text, size)
        if self.transcoder.handle == NULL or is_ascii(text, size):
            if field.form == FORM_DOUBLED:
                return buffer_move(&self.out, text, size)
            return buffer_append(&self.out, text, size)
        if not self.transcoder.append(&self.out, text, size):
            self.unconverted_count += 1
        return 0

    # ---- truncate

    cdef int begin_truncate(self) except -1 nogil:
        if not self.in_transaction:
            self.fail_order(b"a TRUNCATE outside of a transaction")
        self.tables.head = self.record.head
        self.tables.next = self.row.head
        self.tables.end = self.row.head + self.row.head_size
        return self.truncate()

    cdef int truncate(self) except -1 nogil:
        """Write one message for all tables of the list, once each of them is known."""
        cdef Buffer *out = &self.out
        cdef Cursor tables = self.tables
        cdef Cursor flags = self.record
        cdef Known *known
        cdef uint32_t count = 0
        buffer_append(out, b"T\0\0\0\0\0", 6)
        while True:
            self.row.head = tables.next
            read_identifier(&tables)
            expect(&tables, b".", 1)
            read_identifier(&tables)
            self.row.head_size = tables.next - self.row.head
            known = table_find(&self.known, self.row.head, self.row.head_size)
            if known == NULL:
                return self.ask()
            self.is_held = self.is_answered = False
            append_uint32(out, known.oid)
            count += 1
            if not accept(&tables, b", ", 2):
                break
        expect(&tables, b":", 1)
        if tables.next != tables.end:
            fail_wire(&tables, b"statement that does not follow its style", 0)
        put_uint32(out.data + 1, count)
        if not accept_word(&flags, WORD_NO_FLAGS):
            if accept_word(&flags, WORD_RESTART):
                out.data[5] |= RESTART_IDENTITY
            if accept_word(&flags, WORD_CASCADE):
                out.data[5] |= CASCADE
        if flags.next != flags.end:
            fail_wire(&flags, b"unknown flags of a truncate", 0)
        self.tag = LETTER_TRUNCATE
        self.framed.count[<int>TALLY_TRUNCATE] += count
        return TRANSLATED

    # ---- the slow path

    cdef int fail_order(self, const char *what) except -1 with gil:
        raise SequenceError(what.decode("ascii"))

    def describe(self):
        """Say what the held row looks like.

        Returns:
            The shape of the row after which `step` said NEED_RELATION.

        Raises:
            WireError: a name whose spelling does not follow the style.
        """
        if not self.is_held:
            raise ValueError("no row is held")
        style = "j" if self.is_json else chr(self.style)
        return shape_of(
            style,
            chr(self.row.op),
            span(self.row.head, self.row.head_size),
            spans(&self.row.new),
            spans(&self.row.old),
            self.text_of,
        )

    def text_of(self, bytes raw not None):
        """A name in UTF-8; bytes that are no letters escaped."""
        converted, _ = self.transcoder.transcode_bytes(raw)
        return converted.decode("utf-8", "backslashreplace")

    def define(self, definition not None):
        """Remember how rows of the held row's shape are to be translated.

        Args:
            definition: for the shape that `describe` gave.
        """
        cdef Known *before
        cdef Known *known
        if not self.is_held:
            raise ValueError("no row is held")
        relation = definition.relation
        before = table_find(&self.known, self.row.head, self.row.head_size)
        spelled = self.spellings(definition.relation, before)
        size = sum([len(name) + len(kind) for name, kind in spelled])
        known = known_create(self.row.head_size + <size_t>size, len(relation.columns))
        known.head_size = self.row.head_size
        memcpy(known.bytes, self.row.head, known.head_size)
        known.oid = relation.oid
        known.version = relation.version
        known.is_filtered = relation.is_filtered
        known.has_gaps = definition.has_gaps
        known.takes_bare = definition.takes_bare
        known.is_full = relation.identity is ReplicaIdentity.FULL
        if self.row.op == c"D" and not self.row.old.is_present:
            known.judged_in = self.begin_count
            known.is_speculative = definition.is_speculative
        fill_columns(known, relation.columns, spelled)
        self.last = NULL
        self.held_bytes += known.size - (before.size if before != NULL else 0)
        if self.memory_limit and self.held_bytes > self.memory_limit:
            table_free(&self.known)
            self.held_bytes = known.size
        table_put(&self.known, known)
        self.is_answered = True

    cdef list spellings(self, object relation, const Known *before):
        """Per column, name and type as sent: in the held row, or before in this version."""
        count = len(relation.columns)
        spelled = [(b"", b"")] * count
        if before != NULL and before.version == <uint32_t>relation.version:
            for index in range(count):
                spelled[index] = spelling_of(before, index)
        if self.row.new.count == count and not self.row.is_positional:
            for index in range(count):
                spelled[index] = sent_of(&self.row.new.fields[index])
        if self.row.old.is_present:
            places = {column.name: index for index, column in enumerate(relation.columns)}
            for index, column in enumerate(self.describe().old):
                if column.name in places:
                    spelled[places[column.name]] = sent_of(&self.row.old.fields[index])
        return spelled

    # ---- for tests and benches

    def count_messages(self, list payloads not None):
        """Translate payloads whose shapes are all known; returns the number of messages."""
        cdef const uint8_t *data
        cdef bytes payload
        cdef size_t size
        cdef size_t count = 0
        cdef int state
        for payload in payloads:
            data = payload
            size = len(payload)
            with nogil:
                self.start(data, size, 0)
                state = TRANSLATED
                while state == TRANSLATED or state == PASSED_OVER:
                    state = self.step()
                    count += state == TRANSLATED
            if state != END_OF_PAYLOAD:
                raise ValueError("a new shape")
        return count

    def feed_bytes(self, payload not None, uint64_t header_lsn=0, define=None):
        """Translate one payload.

        Args:
            payload: of one CopyData, after its header; bytes-like.
            header_lsn: of that header.
            define: gives the definition of a new shape; without it a new shape is an error.

        Returns:
            The canonical messages.

        Raises:
            WireError: bytes that do not follow the format.
            SequenceError: records in an order that cannot be.
            ValueError: a new shape and no `define`.
        """
        cdef const uint8_t[::1] view = payload
        cdef const uint8_t *data = &view[0] if view.shape[0] else NULL
        cdef int state
        messages = []
        self.start(data, view.shape[0], header_lsn)
        while True:
            with nogil:
                state = self.step()
            if state == END_OF_PAYLOAD:
                return messages
            if state == TRANSLATED:
                messages.append(span(self.out.data, self.out.size))
            elif state == PASSED_OVER:
                continue
            elif define is None:
                raise ValueError("a new shape, and nobody to define it")
            else:
                self.define(define(self.describe()))
