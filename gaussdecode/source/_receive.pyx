"""The receive loop: one thread, one connection, no GIL.

Given: a connection in CopyBoth (or a mapped capture), a dispatcher, and the shared control
words. Promises: whole messages reach the dispatcher in wire order; the server hears from
us in time, whatever the rings do; nothing waits for longer than its own timer. Refuses to
know what rows hold: it looks at the letter of a message and at the positions of commits.

**One turn** (`step`). 1. Read the clock and the control words, send a status if one is due.
2. If a finished batch waits for room, try to store it; while it cannot be, nothing is read
from the socket. 3. Take the frames that libpq holds complete. 4. Close the batch if it is
time; else wait for input.

**When a batch is closed.** At `batch_bytes`; before a message that would exceed them; at a
new relation version; at a keepalive that goes in-band; 5 ms after its first message; or
earlier when the socket and its decoder's ring are empty and the last batch was closed 5 ms
ago. So a lone transaction leaves at once, and a steady stream makes 200 batches a second.

**Waiting.** libpq reads 16 KiB at a time, so a nap after every read would cap the rate. With
32 KiB or more in the socket (FIONREAD) it reads on. With less it naps for 300 us, so that
the server can gather more; with nothing it sleeps until the socket is readable. On a busy
machine a nap lasts longer than it was told, and the socket's buffer would fill and stop the
server: a nap that gathers 64 KiB is halved the next time. All sleeps are bounded by the
timers and by 100 ms, the time after which control words are looked at.
Under TLS, bytes may lie decrypted inside libpq where neither poll nor FIONREAD sees them:
before the socket counts as empty, libpq is asked twice more (a record is 16 KiB, one read
takes 8 KiB of it at least), and no sleep is longer than 20 ms.

**Keepalives.** With a transaction open they only move the positions we show. With none open,
everything the server has sent lies before them; then they go in-band behind it, at most one
a second unless the server wants a reply.

**Returns** to Python for a new Relation or Type message (held; `frame` shows it, `define`
lets go), for a stop, and at every kind of end. It may be called again after the first two.
`finish` then puts the end entries, keeps the connection alive until main says that all is
landed, and returns.

**Failure.** A send that fails is not reported: what the server sent before it died is still
to be read, and reading reports it. After a broken read, the messages that libpq holds
complete are taken first. Silence counts only while the loop reads.

**Deadlocks avoided.** Status depends on no ring. The loop waits for a ring or for the socket,
never inside a call. Main waits for the end entries, which come after any outcome; `finish`
waits for main's word, which main gives also when it gives up.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from gaussdecode.ipc.atomics cimport load_acquire, store_release
from gaussdecode.ipc.control cimport (
    WORD_BATCHES,
    WORD_BUSY_NS,
    WORD_CONFIRMED_LSN,
    WORD_DURABLE_LSN,
    WORD_FINISHED,
    WORD_LAST_RECEIVE_NS,
    WORD_LAST_SERVER_TIME_US,
    WORD_READER_HEARTBEAT_NS,
    WORD_RECEIVED_BYTES,
    WORD_RECEIVED_LSN,
    WORD_RECEIVED_MESSAGES,
    WORD_RELATIONS,
    WORD_SERVER_WAL_END,
    WORD_STALLED_NS,
    WORD_STATUS_SENT_COUNT,
    WORD_STOP_REQUESTED,
    WORD_TRANSACTION_OPEN,
    WORD_WAITED_NS,
    Control,
)
from gaussdecode.source._dispatch cimport Dispatcher
from gaussdecode.source._frames cimport (
    FRAME_DAMAGED,
    FRAME_END,
    FRAME_NONE,
    FRAME_READY,
    Frames,
    FrameState,
    next_frame,
    read_uint32,
    read_uint64,
    release_frame,
    write_uint64,
)
from gaussdecode.source._known cimport KnownMessages
from gaussdecode.source._libpq cimport (
    consume_input_t,
    flush_t,
    freemem_t,
    get_copy_data_t,
    put_copy_data_t,
)
from gaussdecode.source._status cimport StatusClock, StatusNumbers

import enum

from gaussdecode.errors import SequenceError, TruncatedError, WireError

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *mask)
    enum:
        POLLIN
        POLLOUT

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)
    enum:
        FIONREAD

cdef enum:
    DATA_HEADER = 25            # 'w', start lsn, end lsn, server time
    KEEPALIVE_SIZE = 18         # 'k', wal end, server time, reply wanted
    STATUS_SIZE = 34            # 'r', three positions, client time, reply wanted
    COMMIT_SIZE = 26            # 'C', flags, commit lsn, end lsn, commit time
    LITTLE_BYTES = 32768        # nap only when less is waiting
    NAP_US = 300                # longest nap
    NAP_STEP_US = 10
    BATCH_US = 5000
    LOOK_US = 100000            # control words are read at least so often
    LOOK_ENCRYPTED_US = 20000
    KEEPALIVE_GAP_US = 1000000
    EXTRA_READS = 2


class End(enum.IntEnum):
    """Why `Receiver.run` came back."""

    RELATION = NEW_RELATION
    TYPE = NEW_TYPE
    STOP = STOPPED
    COPY = COPY_ENDED
    LOST = CONNECTION_LOST
    SILENT = SERVER_SILENT
    DECODER = DECODER_GONE
    DONE = FINISHED


cdef inline int64_t epoch_us() noexcept nogil:
    """2000-01-01 UTC in microseconds since 1970."""
    return 946684800000000


cdef inline void show(uint64_t *words, int word, uint64_t value) noexcept nogil:
    store_release(words + word, value)


cdef inline int64_t monotonic_us() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef inline int64_t wall_us() noexcept nogil:
    """Microseconds since 2000, as data for the server; never used for waiting."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000 - epoch_us()


cdef int fail_short(uint8_t tag, size_t size) except -1 with gil:
    raise TruncatedError(f"message {chr(tag)!r} is cut off", size)


cdef int fail_frame(uint8_t letter) except -1 with gil:
    raise WireError(f"unknown replication message type {letter:#04x}", 0)


cdef int fail_damaged(size_t offset) except -1 with gil:
    raise WireError("the capture file is cut off or damaged", offset)


cdef int fail_order(uint8_t tag, bint in_transaction) except -1 with gil:
    where = "inside a transaction" if in_transaction else "outside of a transaction"
    raise SequenceError(f"message {chr(tag)!r} {where}: the stream breaks the protocol")


cdef int fail_commit(uint64_t end_lsn, uint64_t before) except -1 with gil:
    raise SequenceError(
        f"a commit ends at {end_lsn >> 32:X}/{end_lsn & 0xFFFFFFFF:X}, not above the one before, "
        f"{before >> 32:X}/{before & 0xFFFFFFFF:X}"
    )


cdef class Receiver:
    """Owns the stream of one session.

    Args:
        control: the shared words.
        dispatcher: where messages go.
        clock: decides about statuses; its times are `now_us`.
        known: what relations and types were seen; None for a registry without a limit.
    """

    def __cinit__(self, Control control not None, Dispatcher dispatcher not None,
                  StatusClock clock not None, KnownMessages known=None):
        self.control = control
        self.dispatcher = dispatcher
        self.clock = clock
        self.known = known if known is not None else KnownMessages()
        self.socket_fd = -1
        self.nap_us = NAP_US
        self.begun_us = self.now_us = monotonic_us()
        self.received_us = self.now_us
        memset(&self.frames, 0, sizeof(Frames))

    def __dealloc__(self):
        release_frame(&self.frames)

    def attach_connection(self, owner not None, size_t connection, dict functions not None,
                          int socket_fd, bint is_encrypted):
        """Read from a libpq connection that is in CopyBoth and non-blocking.

        Args:
            owner: kept alive as long as this object.
            connection: address of the ``PGconn``.
            functions: addresses by name, from `source.libpq`.
            socket_fd: its socket.
            is_encrypted: TLS or GSS encryption is on.
        """
        self.owner = owner
        self.frames.pq.get_copy_data = <get_copy_data_t><size_t>functions["PQgetCopyData"]
        self.frames.pq.consume_input = <consume_input_t><size_t>functions["PQconsumeInput"]
        self.frames.pq.put_copy_data = <put_copy_data_t><size_t>functions["PQputCopyData"]
        self.frames.pq.flush = <flush_t><size_t>functions["PQflush"]
        self.frames.pq.freemem = <freemem_t><size_t>functions["PQfreemem"]
        self.frames.pq.connection = <void *>connection
        self.socket_fd = socket_fd
        self.is_encrypted = is_encrypted
        self.is_connected = True

    def attach_capture(self, const uint8_t[::1] frames not None):
        """Read the frames of a capture file: little-endian uint32 size and payload each."""
        self.owner = frames
        self.frames.map = &frames[0] if frames.shape[0] else NULL
        self.frames.map_size = <size_t>frames.shape[0]

    def run(self):
        """Receive until something happens that Python must see.

        Returns:
            What it is, an `End`.

        Raises:
            WireError: bytes that are no replication message, or a damaged capture.
            SequenceError: messages in an order that the protocol forbids.
        """
        cdef Outcome outcome
        with nogil:
            outcome = self.loop()
            self.publish_counters()
        return End(outcome)

    def finish(self):
        """Put the end entries; keep the connection alive until main says that all is landed.

        Returns:
            ``End.DONE``, or ``End.DECODER`` when a ring has no reader any more.
        """
        cdef Outcome outcome
        release_frame(&self.frames)
        self.dispatcher.begin_end()
        with nogil:
            outcome = self.end_loop()
            self.publish_counters()
        return End(outcome)

    def frame(self):
        """Copy of the held Relation or Type message, from its letter on."""
        if self.frames.data == NULL or self.frames.size < DATA_HEADER:
            raise ValueError("no message is held")
        return self.frames.data[DATA_HEADER:self.frames.size]

    def define(self, uint32_t oid, bytes record):
        """Let go of the held message; its repeats will be dropped from now on.

        Args:
            oid: of the relation or type.
            record: of the new relation version, or None for a type.
        """
        cdef const uint8_t *data = self.frames.data + DATA_HEADER
        cdef size_t size = self.frames.size - DATA_HEADER
        if self.frames.data == NULL:
            raise ValueError("no message is held")
        self.known.remember(data[0], oid, data, size)
        if record is not None:
            self.dispatcher.add_relation(record)
        release_frame(&self.frames)

    def disconnect(self):
        """The connection is broken: send nothing more."""
        self.is_connected = False

    cdef Outcome loop(self) except? GO_ON nogil:
        cdef Outcome outcome = GO_ON
        while outcome == GO_ON:
            outcome = self.step()
        return outcome

    cdef Outcome step(self) except? GO_ON nogil:
        """One turn; see the head of this module."""
        cdef int state
        self.serve_clock()
        if load_acquire(self.control.words + <int>WORD_STOP_REQUESTED):
            return STOPPED
        state = self.dispatcher.flush()
        if state < 0:
            return DECODER_GONE
        if state == 0:
            self.clock.note_received(0, self.now_us)  # not reading is not silence
            self.sleep(self.dispatcher.space_fd(), POLLIN, LOOK_US, &self.stalled_us)
            return GO_ON
        state = self.read_frames()
        if state != NEED_INPUT:
            return <Outcome>state
        if not self.is_connected:
            return CONNECTION_LOST
        return self.await_input()

    cdef int read_frames(self) except -1 nogil:
        """Take complete frames until a batch is closed, Python is needed, or none is left."""
        cdef FrameState state
        cdef int taken
        while not self.dispatcher.is_waiting:
            state = next_frame(&self.frames)
            if state == FRAME_READY:
                taken = self.take_frame()
                if taken != GO_ON:
                    return taken
            elif state == FRAME_NONE:
                return NEED_INPUT
            elif state == FRAME_DAMAGED:
                fail_damaged(self.frames.map_next)
            else:
                self.cut(0, False)
                return COPY_ENDED if state == FRAME_END else CONNECTION_LOST
        return GO_ON

    cdef int take_frame(self) except -1 nogil:
        """Take the held frame, or close the batch before it and keep holding it."""
        cdef const uint8_t *data = self.frames.data
        cdef size_t size = self.frames.size
        cdef int outcome
        if data[0] == c"w":
            outcome = self.take_data(data, size)
        elif data[0] == c"k":
            outcome = self.take_keepalive(data, size)
        else:
            fail_frame(data[0])
        if outcome == HOLD:         # the batch was closed: this frame goes into the next
            return GO_ON
        if outcome == GO_ON:
            release_frame(&self.frames)
        return outcome

    cdef int take_data(self, const uint8_t *data, size_t size) except -1 nogil:
        cdef int outcome
        if size <= DATA_HEADER:
            fail_short(data[0], size)
        outcome = self.take_message(data + DATA_HEADER, size - DATA_HEADER)
        if outcome == GO_ON:
            self.clock.note_written(read_uint64(data + 1))
            self.server_time_us = <int64_t>read_uint64(data + 17)
            self.message_count += 1
            self.byte_count += size
        return outcome

    cdef int take_message(self, const uint8_t *data, size_t size) except -1 nogil:
        """Check the order of one message of the plug-in, and give it to the dispatcher."""
        cdef uint8_t tag = data[0]
        if tag == c"R":
            return self.describe(data, size, NEW_RELATION)
        if tag == c"Y":
            return self.describe(data, size, NEW_TYPE)
        if tag == c"A":
            self.stray_count += 1
            return GO_ON
        if not self.dispatcher.fits(size):
            self.cut(0, False)
            return HOLD
        if tag == c"C":
            self.take_commit(data, size)
        elif tag == c"B":
            if self.in_transaction:
                fail_order(tag, True)
            self.in_transaction = True
        elif tag != c"M":
            self.check_inside(tag)
        if not self.dispatcher.is_open:
            self.opened_us = self.now_us
        self.dispatcher.append(data, size)
        if self.dispatcher.is_full():
            self.cut(0, False)
        return GO_ON

    cdef int check_inside(self, uint8_t tag) except -1 nogil:
        if not self.in_transaction:
            fail_order(tag, False)
        return 0

    cdef int take_commit(self, const uint8_t *data, size_t size) except -1 nogil:
        cdef uint64_t end_lsn
        self.check_inside(data[0])
        if size < COMMIT_SIZE:
            fail_short(data[0], size)
        end_lsn = read_uint64(data + 10)
        if end_lsn <= self.end_lsn:
            fail_commit(end_lsn, self.end_lsn)
        self.end_lsn = end_lsn
        self.clock.note_written(end_lsn)
        self.in_transaction = False
        return 0

    cdef int describe(self, const uint8_t *data, size_t size, int outcome) except -1 nogil:
        """Drop a repeated Relation or Type; hold a new one for Python, its batch closed."""
        if size < 5:
            fail_short(data[0], size)
        if self.known.is_repeat(data[0], read_uint32(data + 1), data, size):
            return GO_ON
        if outcome == NEW_RELATION:
            self.cut(0, False)
        return outcome

    cdef int take_keepalive(self, const uint8_t *data, size_t size) except -1 nogil:
        cdef uint64_t wal_end
        cdef bint is_reply_wanted
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

    cdef int cut(self, uint64_t keepalive_lsn, bint is_reply_wanted) except -1 nogil:
        if self.dispatcher.is_open or keepalive_lsn:
            self.batch_count += 1
            self.cut_us = self.now_us
        return self.dispatcher.cut(keepalive_lsn, is_reply_wanted)

    cdef Outcome await_input(self) except? GO_ON nogil:
        """Nothing complete is here: read on, close the batch, or sleep."""
        cdef int waiting = self.waiting_bytes()
        cdef short events = POLLIN
        if waiting >= LITTLE_BYTES or self.extra_reads:
            if self.extra_reads:
                self.extra_reads -= 1
            self.consume()
            return GO_ON
        self.pass_keepalive()
        if self.should_cut(waiting):
            self.cut(0, False)
        if self.dispatcher.is_waiting:
            return GO_ON
        if self.clock.dead(self.now_us) and waiting == 0:
            return SERVER_SILENT
        if waiting == 0:
            if self.has_output:
                events |= POLLOUT
            self.sleep(self.socket_fd, events, self.patience_us(), &self.waited_us)
            waiting = self.waiting_bytes()
        if 0 < waiting < LITTLE_BYTES:
            self.nap()
        self.consume()
        return GO_ON

    cdef void nap(self) noexcept nogil:
        """Let the server gather a little more; shorter after a nap in which it gathered much."""
        if self.nap_us >= NAP_STEP_US:
            self.sleep(-1, 0, self.nap_us, &self.waited_us)
        if self.waiting_bytes() >= 2 * LITTLE_BYTES:
            self.nap_us //= 2
        elif self.nap_us < NAP_US:
            self.nap_us += NAP_STEP_US

    cdef bint consume(self) noexcept nogil:
        """Have libpq read the socket; a failure shows when its last frame is taken."""
        if self.waiting_bytes() > 0:
            self.received_us = self.now_us
            self.clock.note_received(0, self.now_us)
            if self.is_encrypted:
                self.extra_reads = EXTRA_READS
        if self.frames.pq.consume_input(self.frames.pq.connection) == 0:
            self.is_connected = False
        return self.is_connected

    cdef int waiting_bytes(self) noexcept nogil:
        cdef int count = 0
        if ioctl(self.socket_fd, FIONREAD, &count) < 0:
            return 0
        return count

    cdef bint should_cut(self, int waiting) noexcept nogil:
        if not self.dispatcher.is_open:
            return False
        if self.now_us - self.opened_us >= BATCH_US:
            return True
        return (
            waiting == 0
            and self.now_us - self.cut_us >= BATCH_US
            and self.dispatcher.target_is_empty()
        )

    cdef int64_t patience_us(self) noexcept nogil:
        """Longest sleep: until a batch or a status is due, or control words must be read."""
        cdef int64_t limit = LOOK_ENCRYPTED_US if self.is_encrypted else LOOK_US
        cdef int64_t left
        if self.dispatcher.is_open:
            left = self.opened_us + BATCH_US - self.now_us
            limit = left if left < limit else limit
        return limit

    cdef void sleep(self, int fd, short events, int64_t limit_us, int64_t *spent_us) noexcept nogil:
        """Wait for a descriptor (or none), at most until the next status is due."""
        cdef pollfd poll
        cdef timespec timeout
        cdef int64_t before = monotonic_us()
        cdef int64_t due = self.clock.wait_us(before) if self.is_connected else limit_us
        if due < limit_us:
            limit_us = due
        if limit_us > 0:
            poll.fd = fd
            poll.events = events
            poll.revents = 0
            timeout.tv_sec = limit_us // 1000000
            timeout.tv_nsec = limit_us % 1000000 * 1000
            ppoll(&poll, 0 if fd < 0 else 1, &timeout, NULL)
        self.now_us = monotonic_us()
        spent_us[0] += self.now_us - before

    cdef void serve_clock(self) noexcept nogil:
        """Look at the time and at main's words; send what is due."""
        self.now_us = monotonic_us()
        self.clock.note_durable(load_acquire(self.control.words + <int>WORD_DURABLE_LSN))
        if self.is_connected and self.frames.pq.connection != NULL:
            self.send_status()
        self.publish_counters()

    cdef void send_status(self) noexcept nogil:
        cdef uint8_t[STATUS_SIZE] message
        cdef StatusNumbers status
        cdef int state
        if self.clock.take_status(self.now_us, &status):
            message[0] = c"r"
            write_uint64(message + 1, status.written_lsn)
            write_uint64(message + 9, status.flushed_lsn)
            write_uint64(message + 17, status.flushed_lsn)
            write_uint64(message + 25, <uint64_t>wall_us())
            message[33] = status.reply_wanted
            self.frames.pq.put_copy_data(
                self.frames.pq.connection, <const char *>message, STATUS_SIZE
            )
            self.status_count += 1
            self.has_output = True
        if self.has_output:
            state = self.frames.pq.flush(self.frames.pq.connection)
            self.has_output = state == 1

    cdef Outcome end_loop(self) except? GO_ON nogil:
        """Store what waits and the end entries; then serve the clock until main is done."""
        cdef int state = 0
        while True:
            self.serve_clock()
            if state != 1:
                state = self.dispatcher.flush()
                if state < 0:
                    return DECODER_GONE
            if state == 1 and load_acquire(self.control.words + <int>WORD_FINISHED):
                self.serve_clock()  # the durable word was stored before this one
                return FINISHED
            if state == 0:
                self.sleep(self.dispatcher.space_fd(), POLLIN, LOOK_US, &self.stalled_us)
            else:
                self.sleep(-1, 0, LOOK_ENCRYPTED_US, &self.waited_us)

    cdef void publish_counters(self) noexcept nogil:
        """Show main where we are; plain stores, each word has one writer."""
        cdef uint64_t *words = self.control.words
        cdef int64_t idle_us = self.stalled_us + self.waited_us
        if words == NULL:
            return
        show(words, WORD_READER_HEARTBEAT_NS, <uint64_t>self.now_us * 1000)
        show(words, WORD_RECEIVED_BYTES, self.byte_count)
        show(words, WORD_RECEIVED_MESSAGES, self.message_count)
        show(words, WORD_RECEIVED_LSN, self.clock.written_lsn)
        show(words, WORD_SERVER_WAL_END, self.server_wal_end)
        show(words, WORD_LAST_SERVER_TIME_US, <uint64_t>(self.server_time_us + epoch_us()))
        show(words, WORD_CONFIRMED_LSN, self.clock.sent_flushed_lsn)
        show(words, WORD_STATUS_SENT_COUNT, self.status_count)
        show(words, WORD_STALLED_NS, <uint64_t>self.stalled_us * 1000)
        show(words, WORD_WAITED_NS, <uint64_t>self.waited_us * 1000)
        show(words, WORD_BUSY_NS, <uint64_t>(self.now_us - self.begun_us - idle_us) * 1000)
        show(words, WORD_BATCHES, self.batch_count)
        show(words, WORD_RELATIONS, self.dispatcher.version_count)
        show(words, WORD_TRANSACTION_OPEN, self.in_transaction)
        show(words, WORD_LAST_RECEIVE_NS, <uint64_t>self.received_us * 1000)
