"""The receive loop of a GaussDB or openGauss stream: our own socket, translated records.

Given what `source._receive` has, a `Translator`, and a socket whose server has answered
CopyBothResponse, or a mapped capture. Each CopyData is handed to the translator, which
gives canonical messages one by one; they go into the batches as pgoutput's do.

**Messages between CopyData.** A NoticeResponse goes to Python, which may answer with a message
to put in its place (`reply`). ParameterStatus and notifications are passed over. CommandComplete
(the server shuts down) or CopyDone end the copy. An ErrorResponse is kept for the error's
text and ends the stream as lost.

**Positions.** The position to confirm is the end of a commit record: headers, and in parallel
decoding keepalives, run ahead of transactions that were never sent. They are shown as
the server's WAL end and go no further. Serial decoding has sent every commit up to what a
keepalive tells; with auto-advance that goes in-band, and is confirmed when it has gone through
the log. Before a status leaves, its flushed position is compared with the last position that may
be confirmed; a higher one would make the server skip transactions for ever, so it ends the
session instead.

**Rest.** Up to `idle_lsn` the server has nothing more to send: in serial decoding where a keepalive
says so, in parallel decoding where one did and another followed with no data in between (heartbeats
are none), for the second comes a second later at the soonest and the first was the reader's
position, whose queues are short. Lag goes by it, and nothing else does in parallel decoding.

**Twice.** A CopyData that is the one before again, with the time at which it was sent, is
refused, and so is a record that stands in the log before one of its transaction that came
earlier. Several rows of one record of the log have one position: an equal one tells nothing.

**Statuses** are 65 bytes in native byte order, as server and client are little-endian on
every platform there is. One waits for the socket at most; the next is made after it has gone.

**Reading.** Without TLS by recv() into the inbox, with TLS by OpenSSL's SSL_read, both without the
GIL; by `SSLSocket` where OpenSSL cannot be called (see `openssl`). The inbox holds 4 MiB, or
the one message that is larger, for whose bytes room is made as they come; its declared length is
bounded.

**Returns** to Python for the shape of a row that is not known (`translator.describe`, then
`define`), for a notice, and in a capture for a table's recorded description.
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset, strerror

from gaussdecode.wire._tally cimport tally_message, tally_move
from gaussdecode.ipc.atomics cimport store_release
from gaussdecode.ipc.control cimport (
    WORD_HEARTBEAT_FLUSHED_LSN,
    WORD_HEARTBEAT_LSN,
    WORD_HEARTBEAT_TIME_US,
    WORD_HEARTBEATS,
    WORD_IDLE_LSN,
    WORD_NOTICES,
)
from gaussdecode.source._frames cimport (
    FROM_MAP,
    FROM_SOCKET,
    MESSAGE_HEADER,
    Inbox,
    read_uint32,
    read_uint64,
    release_frame,
)
from gaussdecode.source._receive cimport (
    CONNECTION_LOST,
    COPY_ENDED,
    GO_ON,
    HOLD,
    NEW_NOTICE,
    NEW_RELATION,
    TABLE_RECORDED,
    TRANSLATE,
    Receiver,
    fail_frame,
    fail_short,
    wall_us,
)
from gaussdecode.source._status cimport StatusClock, StatusNumbers
from gaussdecode.source.gaussdb.translate._translator cimport (
    END_OF_PAYLOAD,
    NEED_RELATION,
    PASSED_OVER,
    Translator,
)
from gaussdecode.wire._layout cimport buffer_append, buffer_free
from gaussdecode.wire._letters cimport LETTER_GAUSS_BEGIN, LETTER_GAUSS_COMMIT, LETTER_HEARTBEAT

import ssl

from gaussdecode.errors import SequenceError
from gaussdecode.protocol.gaussdb.reported import change_of
from gaussdecode.source.gaussdb.openssl import find_openssl

cdef extern from *:
    """
    #include <errno.h>
    static inline void gd_clear_errno(void) { errno = 0; }
    """
    void clear_errno "gd_clear_errno"() noexcept nogil

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    ssize_t send(int fd, const void *buffer, size_t size, int flags)
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL

cdef enum:
    DATA_HEADER = 25            # 'w', start lsn, end lsn, server time
    KEEPALIVE_SIZE = 33         # 'k', wal end, role, state, time, flags, padding
    STATUS_SIZE = 65            # 'r', five positions, role, state, time, reply, padding, flags
    HEARTBEAT_SIZE = 25         # 'h', lsn, flushed lsn, timestamp
    CSN_OFFSET = 9              # 'g', first lsn, csn, xid
    XID_OFFSET = 17
    TIME_OFFSET = 17            # of the server's time in the header of data
    COMPARED_BYTES = 65536      # of a CopyData; of a longer one the header and the size
    INBOX_BYTES = 4194304
    KEPT_BYTES = 8388608        # an inbox above this is given back when it is empty
    LEAST_ROOM = 262144         # for one read
    ENCRYPTED_BYTES = 262144    # read at most so much before others are looked at
    SSL_ERROR_WANT_READ = 2     # of openssl/ssl.h
    SSL_ERROR_WANT_WRITE = 3
    SSL_ERROR_ZERO_RETURN = 6
    REASON_BITS = 0x7FFFFF      # of an error's code; OpenSSL 1.1 has 12 of them
    UNEXPECTED_EOF = 294        # SSL_R_UNEXPECTED_EOF_WHILE_READING


cdef inline uint64_t read_native(const uint8_t *b) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, b, sizeof(value))
    return value


cdef inline void write_native(uint8_t *b, uint64_t value) noexcept nogil:
    memcpy(b, &value, sizeof(value))


cdef int fail_flush(uint64_t lsn, uint64_t limit) except -1 with gil:
    raise SequenceError(
        f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X} was to be confirmed, but the last commit received "
        f"ends at {limit >> 32:X}/{limit & 0xFFFFFFFF:X}: nothing is sent, and the slot stays"
    )


cdef int fail_double(uint64_t lsn) except -1 with gil:
    raise SequenceError(
        "the same message came twice, sent at the same time: its rows would land twice", lsn
    )


cdef int fail_step_back(uint64_t lsn, uint64_t before) except -1 with gil:
    raise SequenceError(
        f"a record came after one at {before >> 32:X}/{before & 0xFFFFFFFF:X} of its transaction "
        "and stands before it: it came twice, or out of order", lsn,
    )


cdef class GaussReceiver(Receiver):
    """Owns the stream of one session; see `source._receive` for the first arguments.

    Args:
        translator: knows the form of the stream.
        max_message_bytes: a longer message is refused.
        is_serial: keepalives tell how far all was sent.
        is_advancing: what a serial stream's keepalives tell may be confirmed.
    """

    def __cinit__(self, control, dispatcher, StatusClock clock not None,
                  Translator translator not None, size_t max_message_bytes=1 << 30,
                  bint is_serial=False, bint is_advancing=False):
        self.translator = translator
        self.is_serial = is_serial
        self.is_advancing = is_serial and is_advancing
        self.start_lsn = clock.durable_lsn
        self.frames.inbox.limit = max_message_bytes
        self.settings = {}
        self.output_next = STATUS_MESSAGE

    def __dealloc__(self):
        buffer_free(&self.last)

    def attach_socket(self, sock not None, const uint8_t[::1] pending not None, dict settings=None):
        """Read from a socket after its CopyBothResponse; it must be non-blocking.

        Args:
            sock: a ``socket.socket`` or ``ssl.SSLSocket``; nobody else may touch it.
            pending: what was received after the CopyBothResponse.
            settings: that the server has reported on this connection.
        """
        cdef Inbox *inbox = &self.frames.inbox
        self.settings = dict(settings or {})
        self.owner = sock
        self.tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self.is_encrypted = self.tls is not None
        self.use_socket(sock.fileno())
        found = None if self.tls is None else find_openssl(sock)
        if found is not None:
            self.use_openssl(found.functions, found.address)
        self.frames.origin = FROM_SOCKET
        self.resize(<size_t>pending.shape[0] + INBOX_BYTES)
        inbox.end = <size_t>pending.shape[0]
        if pending.shape[0]:
            memcpy(inbox.data, &pending[0], inbox.end)

    cdef int use_openssl(self, dict functions, size_t address) except -1:
        """Read through these from now on."""
        self.ssl_read = <SslRead><size_t>functions["SSL_read"]
        self.ssl_get_error = <SslGetError><size_t>functions["SSL_get_error"]
        self.err_clear = <ErrClear><size_t>functions["ERR_clear_error"]
        self.err_peek = <ErrPeek><size_t>functions["ERR_peek_last_error"]
        self.err_reason = <ErrReason><size_t>functions["ERR_reason_error_string"]
        self.ssl = <void *>address
        return 0

    @property
    def reads_openssl(self):
        """Whether TLS is read without Python."""
        return self.ssl != NULL

    def frame(self):
        """Copy of the held message's body: a notice's, or a recorded table's."""
        if self.frames.data == NULL:
            raise ValueError("no message is held")
        return self.frames.data[:self.frames.size]

    def reply(self, bytes message):
        """Let go of the held notice or table.

        Args:
            message: canonical, goes in-band in its place; None for nothing.
        """
        if self.frames.data == NULL:
            raise ValueError("no message is held")
        if message is None:
            release_frame(&self.frames)
            return
        self.answer = message
        self.answer_data = <const uint8_t *>PyBytes_AS_STRING(message)
        self.answer_size = <size_t>len(message)

    def define(self, definition not None, bytes record):
        """Answer `translator.describe`; the same record is translated next.

        Args:
            definition: of the shape that was asked for.
            record: of its relation version when that is new, else None.
        """
        if record is not None:
            self.dispatcher.add_relation(record)
        self.translator.define(definition)

    def start_from(self, uint64_t csn, uint64_t lsn):
        """Leave out rows before a position (option start-position).

        Args:
            csn: rows of transactions with a lower one are left out.
            lsn: of the transaction with this CSN, rows below it are left out.
        """
        self.from_csn = csn
        self.from_lsn = lsn

    # ---- frames

    cdef int take_data(self, const uint8_t *data, size_t size) except -1 nogil:
        cdef int outcome
        if not self.translator.is_open:
            if size < DATA_HEADER:
                fail_short(data[0], size)
            self.server_time_us = <int64_t>read_uint64(data + TIME_OFFSET)
            self.refuse_double(data, size)
            self.translator.start(data + DATA_HEADER, size - DATA_HEADER, read_uint64(data + 1))
        outcome = self.take_messages()
        if outcome == GO_ON:
            self.byte_count += size
        return outcome

    cdef int refuse_double(self, const uint8_t *data, size_t size) except -1 nogil:
        """See Twice in the head of this module; then this is the one before."""
        cdef size_t compared = size if size <= COMPARED_BYTES else DATA_HEADER
        if size == self.last_size and read_uint64(data + TIME_OFFSET) != 0 and (
            memcmp(data, self.last.data, compared) == 0
        ):
            fail_double(read_uint64(data + 1))
        self.last_size = size
        self.last.size = 0
        return buffer_append(&self.last, data, compared)

    cdef int refuse_step_back(self, uint8_t tag) except -1 nogil:
        """See Twice in the head of this module."""
        cdef uint64_t lsn = self.translator.lsn
        cdef bint is_boundary
        if 0 < lsn < self.record_lsn:
            fail_step_back(lsn, self.record_lsn)
        is_boundary = tag == LETTER_GAUSS_BEGIN or tag == LETTER_GAUSS_COMMIT
        self.record_lsn = 0 if is_boundary else lsn
        return 0

    cdef int take_messages(self) except -1 nogil:
        """Translate the payload on: to its end, to a closed batch, or to an unknown shape."""
        cdef int step
        while not self.dispatcher.is_waiting:
            if not self.is_pending:
                step = self.translate_next()
                if step == END_OF_PAYLOAD:
                    return GO_ON
                if step == PASSED_OVER or self.translator.tag != LETTER_HEARTBEAT:
                    self.told_lsn = 0  # data: see Rest in the head of this module
                if step == PASSED_OVER:
                    continue
                if step == NEED_RELATION:
                    self.cut(0, False)
                    return NEW_RELATION
                self.is_pending = True
                self.translator.leave_record(self.frames.origin == FROM_SOCKET)
            if self.pass_message(self.translator.tag) == HOLD:
                return HOLD
            self.is_pending = False
        return HOLD

    cdef int translate_next(self) except -1 nogil:
        """Take one record, a long one in the worker; many short ones are as long together."""
        cdef size_t size = self.translator.step_size()
        if self.is_long(size):
            return self.do_aside(TRANSLATE)
        self.walked += size
        if self.is_long(self.walked):
            self.walked = 0
            self.serve_clock()
        return self.translator.step()

    cdef uint64_t message_lsn(self) noexcept nogil:
        """Position of the record, where its style has one."""
        if self.translator.is_open and self.translator.lsn:
            return self.translator.lsn
        return Receiver.message_lsn(self)

    cdef int translate(self) except -2 nogil:
        return self.translator.step()

    cdef int pass_message(self, uint8_t tag) except -1 nogil:
        """Check the order of one canonical message, and give it to the dispatcher."""
        if tag == LETTER_HEARTBEAT:
            return self.note_heartbeat()
        if not self.has_room(self.translator.out.size):
            return HOLD
        self.refuse_step_back(tag)
        tally_move(&self.dispatcher.framed, &self.translator.framed)
        tally_move(&self.dispatcher.filtered, &self.translator.filtered)
        if tag == LETTER_GAUSS_COMMIT:
            self.close_transaction(tag, self.translator.end_lsn)
        elif tag == LETTER_GAUSS_BEGIN:
            self.open_transaction(tag, read_uint64(self.translator.out.data + XID_OFFSET))
            self.csn = read_uint64(self.translator.out.data + CSN_OFFSET)
        else:
            self.check_inside(tag)
            if self.is_before_start():
                tally_message(
                    &self.dispatcher.before_start, tag, self.translator.out.data,
                    self.translator.out.size,
                )
                return GO_ON
        self.add(self.translator.out.data, self.translator.out.size, True)
        self.message_count += 1
        return GO_ON

    cdef bint is_before_start(self) noexcept nogil:
        if self.csn == 0 or self.csn > self.from_csn:
            return False
        return self.csn < self.from_csn or self.translator.lsn < self.from_lsn

    cdef int note_heartbeat(self) except -1 nogil:
        """Show it; its positions run ahead like a keepalive's, so it goes no further."""
        cdef const uint8_t *data = self.translator.out.data
        cdef uint64_t *words = self.control.words
        if self.translator.out.size < HEARTBEAT_SIZE:
            fail_short(LETTER_HEARTBEAT, self.translator.out.size)
        self.heartbeat_count += 1
        store_release(words + <int>WORD_HEARTBEATS, self.heartbeat_count)
        store_release(words + <int>WORD_HEARTBEAT_LSN, read_uint64(data + 1))
        store_release(words + <int>WORD_HEARTBEAT_FLUSHED_LSN, read_uint64(data + 9))
        store_release(words + <int>WORD_HEARTBEAT_TIME_US, read_uint64(data + 17))
        return GO_ON

    cdef int take_keepalive(self, const uint8_t *data, size_t size) except -1 nogil:
        cdef uint64_t wal_end
        if size != KEEPALIVE_SIZE:
            fail_short(data[0], size)
        wal_end = read_native(data + 1)
        self.server_time_us = <int64_t>read_native(data + 17)
        self.byte_count += size
        if wal_end > self.server_wal_end:
            self.server_wal_end = wal_end
        if data[25]:
            self.clock.note_reply_requested()
        if not self.in_transaction:
            self.note_idle(wal_end)
        return self.pass_keepalive()

    cdef void note_idle(self, uint64_t wal_end) noexcept nogil:
        """See Rest in the head of this module."""
        cdef uint64_t idle = wal_end if self.is_serial else self.told_lsn
        self.told_lsn = wal_end
        if idle > self.idle_lsn:
            self.idle_lsn = idle
            store_release(self.control.words + <int>WORD_IDLE_LSN, idle)
            if self.is_advancing:
                self.offered_lsn = idle

    cdef int pass_keepalive(self) except -1 nogil:
        """Send the newest position of an idle serial stream in-band, once nothing is open."""
        cdef uint64_t lsn = self.offered_lsn
        if lsn == 0 or self.in_transaction or self.dispatcher.is_waiting:
            return GO_ON
        self.offered_lsn = 0
        if lsn <= self.end_lsn or lsn <= self.clock.durable_lsn:
            return GO_ON
        self.passed_lsn = lsn
        self.clock.note_written(lsn)
        return self.cut(lsn, False)

    cdef int take_other(self, uint8_t letter, const uint8_t *data, size_t size) except -1 nogil:
        if letter == c"N":
            return self.take_notice()
        if letter == c"T" and self.frames.origin == FROM_MAP:
            return TABLE_RECORDED
        if letter == c"S":
            return self.take_setting(data, size)
        if letter == c"A" or letter == c"Z":
            return GO_ON
        if letter == c"C" or letter == c"c":
            self.cut(0, False)
            return COPY_ENDED
        if letter == c"E":
            self.keep_error(data, size)
            self.cut(0, False)
            return CONNECTION_LOST
        return fail_frame(letter)

    cdef int take_setting(self, const uint8_t *data, size_t size) except -1 nogil:
        """End the session where values may be written in another way from here on."""
        with gil:
            self.failure = change_of(
                self.settings, PyBytes_FromStringAndSize(<const char *>data, <Py_ssize_t>size)
            )
            if self.failure is None:
                return GO_ON
        self.cut(0, False)
        return CONNECTION_LOST

    cdef int take_notice(self) except -1 nogil:
        """Ask Python about the held notice, or put the answer in its place."""
        if self.answer_data == NULL:
            self.notice_count += 1
            store_release(self.control.words + <int>WORD_NOTICES, self.notice_count)
            return NEW_NOTICE
        if not self.has_room(self.answer_size):
            return HOLD
        self.add(self.answer_data, self.answer_size, False)
        self.answer_data = NULL
        return GO_ON

    cdef int keep_error(self, const uint8_t *data, size_t size) except -1 nogil:
        with gil:
            self.server_error = PyBytes_FromStringAndSize(<const char *>data, <Py_ssize_t>size)
        return 0

    # ---- the socket

    cdef int make_room(self) except -1 nogil:
        """Room for a read after what the inbox holds, at most for the message it begins."""
        cdef Inbox *inbox = &self.frames.inbox
        cdef size_t held = inbox.end - inbox.start
        cdef size_t capacity = inbox.capacity
        cdef size_t need = INBOX_BYTES
        if held == 0:
            inbox.start = inbox.end = 0
            if capacity > KEPT_BYTES:
                free(inbox.data)
                inbox.data = NULL
                inbox.capacity = capacity = 0
        if capacity - inbox.end >= LEAST_ROOM:
            return 0
        if inbox.start:
            memmove(inbox.data, inbox.data + inbox.start, held)
            inbox.start = 0
            inbox.end = held
        if capacity - held >= LEAST_ROOM:
            return 0
        if held >= MESSAGE_HEADER:
            need = <size_t>read_uint32(inbox.data + 1) + MESSAGE_HEADER + LEAST_ROOM
        if need > 2 * capacity + INBOX_BYTES or need < held + LEAST_ROOM:
            need = 2 * capacity + INBOX_BYTES
        return self.resize(need)

    cdef int resize(self, size_t capacity) except -1 nogil:
        cdef uint8_t *moved = <uint8_t *>realloc(self.frames.inbox.data, capacity)
        if moved == NULL:
            with gil:
                raise MemoryError(f"no memory to receive a message: {capacity} bytes")
        self.frames.inbox.data = moved
        self.frames.inbox.capacity = capacity
        return 0

    cdef int fill(self) except -1 nogil:
        cdef Inbox *inbox = &self.frames.inbox
        cdef ssize_t count
        self.make_room()
        if self.is_encrypted:
            return self.fill_encrypted()
        count = recv(
            self.socket_fd, inbox.data + inbox.end, inbox.capacity - inbox.end, MSG_DONTWAIT
        )
        if count > 0:
            inbox.end += <size_t>count
            return True
        if count < 0 and (errno == EAGAIN or errno == EINTR):
            return True
        inbox.is_over = True
        if count < 0:
            with gil:
                self.failure = (<bytes>strerror(errno)).decode("utf-8", "replace")
        return False

    cdef int fill_encrypted(self) except -1 nogil:
        """Read until nothing is left in TLS, or for so long that others waited enough."""
        cdef Inbox *inbox = &self.frames.inbox
        cdef size_t limit = inbox.end + ENCRYPTED_BYTES
        cdef int count, error, number
        if self.ssl == NULL:
            return self.fill_through_python()
        if limit > inbox.capacity:
            limit = inbox.capacity
        while inbox.end < limit:
            self.err_clear()
            clear_errno()
            count = self.ssl_read(self.ssl, inbox.data + inbox.end, <int>(limit - inbox.end))
            if count <= 0:
                number = errno
                error = self.ssl_get_error(self.ssl, count)
                if error == SSL_ERROR_WANT_READ or error == SSL_ERROR_WANT_WRITE:
                    return True
                return self.fail_tls(error, number)
            inbox.end += <size_t>count
        if self.extra_reads < 1:
            self.extra_reads = 1
        return True

    cdef int fail_tls(self, int error, int number) except -1 nogil:
        """The stream is over: keep why, where the server has not just closed it."""
        cdef unsigned long code = self.err_peek()
        cdef const char *reason = self.err_reason(code) if code else NULL
        self.frames.inbox.is_over = True
        if error == SSL_ERROR_ZERO_RETURN or (code & REASON_BITS) == UNEXPECTED_EOF:
            return False
        with gil:
            if reason != NULL:
                self.failure = (<bytes>reason).decode("utf-8", "replace")
            elif number:
                self.failure = (<bytes>strerror(number)).decode("utf-8", "replace")
        return False

    cdef int fill_through_python(self) except -1 nogil:
        """The same by `ssl`, where its OpenSSL cannot be called."""
        cdef Inbox *inbox = &self.frames.inbox
        cdef size_t before = inbox.end
        with gil:
            try:
                while inbox.end < inbox.capacity and inbox.end - before < ENCRYPTED_BYTES:
                    view = PyMemoryView_FromMemory(
                        <char *>inbox.data + inbox.end,
                        <Py_ssize_t>(inbox.capacity - inbox.end), PyBUF_WRITE,
                    )
                    count = self.tls.recv_into(view)
                    if count == 0:
                        inbox.is_over = True
                        return False
                    inbox.end += <size_t>count
                self.extra_reads = max(self.extra_reads, 1)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return True
            except OSError as error:
                self.failure = error.strerror or str(error)
                inbox.is_over = True
                return False
        return True

    cdef int put_status(self, const StatusNumbers *status) except -1 nogil:
        cdef uint8_t *message = &self.output[MESSAGE_HEADER]
        cdef uint64_t limit = self.end_lsn if self.end_lsn > self.start_lsn else self.start_lsn
        if self.passed_lsn > limit:
            limit = self.passed_lsn
        if status.flushed_lsn > limit:
            fail_flush(status.flushed_lsn, limit)
        memset(&self.output[0], 0, STATUS_MESSAGE)
        self.output[0] = c"d"
        self.output[4] = STATUS_MESSAGE - 1
        message[0] = c"r"
        write_native(message + 1, limit)
        write_native(message + 9, limit)
        write_native(message + 17, status.flushed_lsn)
        write_native(message + 25, status.flushed_lsn)
        write_native(message + 33, status.flushed_lsn)
        write_native(message + 49, <uint64_t>wall_us())
        message[57] = status.reply_wanted or self.is_serial  # it tells nothing unasked
        self.output_next = 0
        self.is_output_full = True
        return 0

    cdef int push_output(self) except -1 nogil:
        cdef ssize_t count
        if self.is_encrypted:
            return self.push_encrypted()
        while self.output_next < STATUS_MESSAGE:
            count = send(
                self.socket_fd, &self.output[self.output_next],
                STATUS_MESSAGE - self.output_next, MSG_DONTWAIT | MSG_NOSIGNAL,
            )
            if count < 0 and errno == EINTR:
                continue
            if count < 0 and errno == EAGAIN:
                return True
            if count < 0:       # reading will tell
                break
            self.output_next += <size_t>count
        self.is_output_full = False
        return False

    cdef int push_encrypted(self) except -1 nogil:
        with gil:
            try:
                rest = <bytes>(<const char *>self.output)[self.output_next:STATUS_MESSAGE]
                while self.output_next < STATUS_MESSAGE:
                    self.output_next += <size_t>self.tls.send(rest)
                    rest = <bytes>(<const char *>self.output)[self.output_next:STATUS_MESSAGE]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return True
            except OSError:     # reading will tell
                pass
            self.is_output_full = False
        return False
