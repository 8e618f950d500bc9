"""The receive loop of a PostgreSQL stream: libpq's connection, pgoutput's messages.

Given what `source._receive` has, and a libpq connection in CopyBoth or a mapped capture.
It looks at the letter of a message and at the positions of commits.

**Reading.** libpq reads 16 KiB at a time. Under TLS it reads one record, which may be one message,
and what TLS has read ahead does not show in the socket: it is asked for first.

**Keepalives.** With a transaction open they only move the positions we show. With none open,
everything the server has sent lies before them; then they go in-band after it, at most one
a second unless the server wants a reply.

**Blocks.** Streamed transactions come in blocks between S and E, prepared ones as one block
between b and P; blocks do not nest and have no other
messages between them. A block is a transaction that is open: while one is, keepalives are not
passed on. It has batches of its own, so that a batch is of one transaction or of none; those
between blocks hold the ends of such transactions, which decide what becomes of their rows.

**Returns** to Python for a new Relation or Type message (held; `frame` shows it, `define`
lets go). Repeats of a Type are dropped.

**Gaps.** When libpq passes on that the server leaves changes out, `cut_off` is called, from
inside the call that would give the next frame. From then on no frame is taken: a commit or a
keepalive after the gap would move the position beyond it.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.wire._tally cimport tally_message
from gaussdecode.source._frames cimport (
    FROM_LIBPQ,
    read_uint32,
    read_uint64,
    release_frame,
    write_uint64,
)
from gaussdecode.source.postgresql._known cimport KnownMessages
from gaussdecode.source._libpq cimport (
    consume_input_t,
    flush_t,
    freemem_t,
    get_copy_data_t,
    put_copy_data_t,
)
from gaussdecode.source._receive cimport (
    CONNECTION_LOST,
    GO_ON,
    HOLD,
    NEW_RELATION,
    NEW_TYPE,
    fail_order,
    fail_short,
    wall_us,
)
from gaussdecode.source._pace cimport PACE_FIRST_NARROW, Pacer
from gaussdecode.source._status cimport StatusNumbers
from gaussdecode.wire._letters cimport (
    LETTER_BEGIN, LETTER_COMMIT, LETTER_COMMIT_PREPARED, LETTER_MESSAGE, LETTER_PREPARE,
    LETTER_PREPARE_BEGIN, LETTER_RELATION, LETTER_ROLLBACK_PREPARED, LETTER_STREAM_ABORT,
    LETTER_STREAM_COMMIT, LETTER_STREAM_PREPARE, LETTER_STREAM_START, LETTER_STREAM_STOP,
    LETTER_TYPE,
)
from gaussdecode.wire._layout cimport BLOCK_NONE, BLOCK_PREPARED, BLOCK_STREAMED

from gaussdecode.errors import WireError

cdef enum:
    DATA_HEADER = 25            # 'w', start lsn, end lsn, server time
    KEEPALIVE_SIZE = 18         # 'k', wal end, server time, reply wanted
    STATUS_SIZE = 34            # 'r', three positions, client time, reply wanted
    BEGIN_SIZE = 21             # 'B', commit lsn, commit time, xid
    COMMIT_SIZE = 26            # 'C', flags, commit lsn, end lsn, commit time
    START_SIZE = 6              # 'S', xid, flags
    STREAM_COMMIT_SIZE = 30     # 'c', xid, flags, commit lsn, end lsn, commit time
    PREPARE_BEGIN_SIZE = 30     # 'b', two positions, time, xid, gid
    PREPARED_SIZE = 31          # 'P', 'p' and 'K': the same after flags
    ROLLBACK_SIZE = 39          # 'r': one more time
    XID_SIZE = 4
    KEEPALIVE_GAP_US = 1000000


cdef int fail_long(uint8_t tag) except -1 with gil:
    raise WireError(f"bytes after the end of message {chr(tag)!r}", 1)


cdef class PostgresReceiver(Receiver):
    """Owns the stream of one session; see `source._receive` for the first arguments.

    Args:
        known: what relations and types were seen; None for a registry without a limit.
    """

    def __cinit__(self, control, dispatcher, clock, KnownMessages known=None):
        self.known = known if known is not None else KnownMessages()

    def attach_connection(self, owner not None, size_t connection, dict functions not None,
                          int socket_fd, bint is_encrypted, size_t ssl=0, size_t has_pending=0):
        """Read from a libpq connection that is in CopyBoth and non-blocking.

        Args:
            owner: kept alive as long as this object.
            connection: address of the ``PGconn``.
            functions: addresses by name, from `source.postgresql.libpq`.
            socket_fd: its socket.
            is_encrypted: TLS or GSS encryption is on.
            ssl: address of the ``SSL`` that reads ahead; 0 for none.
            has_pending: address of SSL_has_pending of its library.
        """
        self.owner = owner
        self.frames.origin = FROM_LIBPQ
        self.frames.pq.get_copy_data = <get_copy_data_t><size_t>functions["PQgetCopyData"]
        self.frames.pq.consume_input = <consume_input_t><size_t>functions["PQconsumeInput"]
        self.frames.pq.put_copy_data = <put_copy_data_t><size_t>functions["PQputCopyData"]
        self.frames.pq.flush = <flush_t><size_t>functions["PQflush"]
        self.frames.pq.freemem = <freemem_t><size_t>functions["PQfreemem"]
        self.frames.pq.connection = <void *>connection
        self.is_encrypted = is_encrypted
        self.tells_hidden = ssl != 0
        self.ssl = <void *>ssl
        self.has_pending = <ssl_has_pending_t>has_pending
        self.use_socket(socket_fd)
        if not is_encrypted:
            self.narrow_window()
            if self.is_narrow:
                self.pacer = Pacer(PACE_FIRST_NARROW)

    def frame(self):
        """Copy of the held Relation or Type message, from its letter on."""
        if self.frames.data == NULL or self.frames.size < DATA_HEADER:
            raise ValueError("no message is held")
        return self.frames.data[DATA_HEADER:self.frames.size]

    @property
    def is_in_block(self):
        """Whether the held message is of a transaction that may yet be rolled back."""
        return self.block != BLOCK_NONE

    @property
    def has_xid(self):
        """Whether the held message says whose it is: its block is of an open transaction."""
        return self.block == BLOCK_STREAMED

    def define(self, uint32_t oid, bytes record):
        """Let go of the held message; the repeats of a type will be dropped from now on.

        Args:
            oid: of the relation or type.
            record: of the new relation version, or None for a type.
        """
        cdef const uint8_t *data = self.frames.data + DATA_HEADER
        cdef size_t at = 1 + self.xid_size()
        cdef size_t size = self.frames.size - DATA_HEADER
        if self.frames.data == NULL:
            raise ValueError("no message is held")
        if record is None:
            self.known.remember(data[0], oid, data + at, size - at)
        else:
            self.dispatcher.add_relation(record)
        release_frame(&self.frames)

    def cut_off(self):
        """Take no frame any more, not even those that libpq holds; any thread state will do."""
        self.is_cut_off = True

    # ---- frames

    cdef int take_data(self, const uint8_t *data, size_t size) except -1 nogil:
        cdef int outcome
        if self.is_cut_off:
            return self.leave_off()
        if size <= DATA_HEADER:
            fail_short(data[0], size)
        outcome = self.take_message(data + DATA_HEADER, size - DATA_HEADER)
        if outcome == GO_ON:
            self.clock.note_written(read_uint64(data + 1))
            self.server_time_us = <int64_t>read_uint64(data + 17)
            self.message_count += 1
            self.byte_count += size
        return outcome

    cdef int leave_off(self) except -1 nogil:
        """End with what came before the gap."""
        self.cut(0, False)
        return CONNECTION_LOST

    cdef int take_message(self, const uint8_t *data, size_t size) except -1 nogil:
        """Check the order of one message of the plug-in, and give it to the dispatcher."""
        cdef uint8_t tag = data[0]
        if tag == LETTER_RELATION:
            return self.describe(data, size, NEW_RELATION)
        if tag == LETTER_TYPE:
            return self.describe(data, size, NEW_TYPE)
        if tag == LETTER_STREAM_STOP:
            return self.take_stream_stop(size)
        if tag == LETTER_PREPARE and self.block == BLOCK_PREPARED:
            self.end_block()
            return HOLD
        if not self.has_room(size):
            return HOLD
        if tag == LETTER_COMMIT:
            self.take_commit(data, size)
        elif tag == LETTER_BEGIN:
            if size < BEGIN_SIZE:
                fail_short(tag, size)
            self.open_transaction(tag, read_uint32(data + 17))
        elif tag == LETTER_STREAM_START or tag == LETTER_PREPARE_BEGIN:
            if self.dispatcher.is_open:
                self.cut(0, False)
                return HOLD
            self.begin_block(data, size)
        elif tag == LETTER_STREAM_COMMIT:
            self.take_stream_commit(data, size)
        elif tag == LETTER_STREAM_ABORT:
            self.check_outside(tag)
        elif tag == LETTER_COMMIT_PREPARED:
            self.take_commit_prepared(data, size)
        elif tag == LETTER_PREPARE or tag == LETTER_STREAM_PREPARE or (
            tag == LETTER_ROLLBACK_PREPARED
        ):
            self.take_prepared(data, size)
        elif tag != LETTER_MESSAGE:
            self.check_inside(tag)
        if size > self.xid_size():
            tally_message(
                &self.dispatcher.framed, tag, data + self.xid_size(), size - self.xid_size()
            )
        self.add(data, size, self.frames.origin == FROM_LIBPQ)
        return GO_ON

    cdef int take_commit(self, const uint8_t *data, size_t size) except -1 nogil:
        self.check_inside(data[0])
        if self.block != BLOCK_NONE:
            fail_order(data[0], True)
        if size < COMMIT_SIZE:
            fail_short(data[0], size)
        return self.close_transaction(data[0], read_uint64(data + 10))

    # ---- blocks, and the ends of their transactions

    cdef inline size_t xid_size(self) noexcept nogil:
        """Bytes between the letter of a change and what it says."""
        return XID_SIZE if self.block == BLOCK_STREAMED else 0

    cdef int check_outside(self, uint8_t tag) except -1 nogil:
        if self.in_transaction:
            fail_order(tag, True)
        return 0

    cdef int begin_block(self, const uint8_t *data, size_t size) except -1 nogil:
        """The batch of the block begins with its message S or b."""
        cdef bint is_prepared = data[0] == LETTER_PREPARE_BEGIN
        cdef uint32_t xid
        if size < <size_t>(PREPARE_BEGIN_SIZE if is_prepared else START_SIZE):
            fail_short(data[0], size)
        xid = read_uint32(data + (25 if is_prepared else 1))
        if xid == 0:
            fail_order(data[0], False)
        self.open_transaction(data[0], xid)
        self.block = BLOCK_PREPARED if is_prepared else BLOCK_STREAMED
        self.dispatcher.stream_xid = xid
        self.dispatcher.block = self.block
        return 0

    cdef int take_stream_stop(self, size_t size) except -1 nogil:
        if self.block != BLOCK_STREAMED:
            fail_order(LETTER_STREAM_STOP, self.in_transaction)
        if size != 1:
            fail_long(LETTER_STREAM_STOP)
        return self.end_block()

    cdef int end_block(self) except -1 nogil:
        """What follows is in a batch of its own."""
        self.cut(0, False)
        self.block = self.dispatcher.block = BLOCK_NONE
        self.dispatcher.stream_xid = 0
        self.in_transaction = False
        self.xid = 0
        return GO_ON

    cdef int take_prepared(self, const uint8_t *data, size_t size) except -1 nogil:
        """A transaction is prepared, or is rolled back after that.

        One that was prepared before the slot was told of such transactions comes with its commit,
        and stands before what came already.
        """
        cdef uint64_t end_lsn
        self.check_outside(data[0])
        if size < <size_t>(
            ROLLBACK_SIZE if data[0] == LETTER_ROLLBACK_PREPARED else PREPARED_SIZE
        ):
            fail_short(data[0], size)
        end_lsn = read_uint64(data + 10)
        if end_lsn > self.end_lsn:
            self.end_lsn = end_lsn
            self.clock.note_written(end_lsn)
        return 0

    cdef int take_commit_prepared(self, const uint8_t *data, size_t size) except -1 nogil:
        if size < PREPARED_SIZE:
            fail_short(data[0], size)
        self.open_transaction(data[0], read_uint32(data + 26))
        return self.close_transaction(data[0], read_uint64(data + 10))

    cdef int take_stream_commit(self, const uint8_t *data, size_t size) except -1 nogil:
        if size < STREAM_COMMIT_SIZE:
            fail_short(data[0], size)
        self.open_transaction(data[0], read_uint32(data + 1))
        return self.close_transaction(data[0], read_uint64(data + 14))

    cdef int describe(self, const uint8_t *data, size_t size, int outcome) except -1 nogil:
        """Drop a repeated Type; hold another one, or a Relation, for Python.

        A Relation like the one before may mean that a column was dropped and made anew: only
        the catalogue can tell, so it is a version of its own, and begins a batch.
        """
        cdef size_t at = 1 + self.xid_size()
        if size < at + 4:
            fail_short(data[0], size)
        if outcome == NEW_RELATION:
            self.cut(0, False)
        elif self.known.is_repeat(data[0], read_uint32(data + at), data + at, size - at):
            return GO_ON
        return outcome

    cdef int take_keepalive(self, const uint8_t *data, size_t size) except -1 nogil:
        cdef uint64_t wal_end
        cdef bint is_reply_wanted
        if self.is_cut_off:
            return self.leave_off()
        if size != KEEPALIVE_SIZE:
            fail_short(data[0], size)
        wal_end = read_uint64(data + 1)
        is_reply_wanted = data[17] != 0
        self.server_time_us = <int64_t>read_uint64(data + 9)
        self.byte_count += size
        if wal_end > self.server_wal_end:
            self.server_wal_end = wal_end
        self.clock.note_written(wal_end)
        if is_reply_wanted:
            self.clock.note_reply_requested()
        self.offered_lsn = wal_end
        self.offered_reply = self.offered_reply or is_reply_wanted
        return self.pass_keepalive()

    cdef int pass_keepalive(self) except -1 nogil:
        """Send the newest keepalive in-band, once nothing is open and it is time.

        A server that shuts down asks as fast as it is answered: one per position will do.
        """
        cdef bint is_urgent
        if self.in_transaction or self.dispatcher.is_waiting or self.offered_lsn == 0:
            return GO_ON
        if self.offered_lsn <= self.clock.durable_lsn or self.offered_lsn < self.end_lsn:
            self.offered_lsn = 0
            return GO_ON
        is_urgent = self.offered_reply and (
            self.offered_lsn > self.keepalive_lsn or not self.keepalive_reply
        )
        if not is_urgent and self.now_us - self.keepalive_us < KEEPALIVE_GAP_US:
            return GO_ON
        self.keepalive_lsn = self.offered_lsn
        self.keepalive_reply = self.offered_reply
        self.keepalive_us = self.now_us
        self.offered_lsn = 0
        self.offered_reply = False
        return self.cut(self.keepalive_lsn, self.keepalive_reply)

    # ---- the connection

    cdef bint holds_input(self) noexcept nogil:
        return self.has_pending(self.ssl) != 0

    cdef int fill(self) except -1 nogil:
        return self.frames.pq.consume_input(self.frames.pq.connection) != 0

    cdef int put_status(self, const StatusNumbers *status) except -1 nogil:
        cdef uint8_t[STATUS_SIZE] message
        message[0] = c"r"
        write_uint64(message + 1, status.written_lsn)
        write_uint64(message + 9, status.flushed_lsn)
        write_uint64(message + 17, status.flushed_lsn)
        write_uint64(message + 25, <uint64_t>wall_us())
        message[33] = status.reply_wanted
        self.frames.pq.put_copy_data(
            self.frames.pq.connection, <const char *>message, STATUS_SIZE
        )
        return 0

    cdef int push_output(self) except -1 nogil:
        return self.frames.pq.flush(self.frames.pq.connection) == 1
