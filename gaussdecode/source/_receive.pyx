"""The receive loop: one thread, one connection, no GIL.

Given: frames (see ``_frames.pxd``), a dispatcher, and the shared control words. Promises:
whole messages reach the dispatcher in wire order; the server hears from us in time,
whatever the rings do; nothing waits for longer than its own timer. Refuses to know what a
frame holds: `postgresql._receive` and `gaussdb._receive` do, which take frames apart, read their
own sockets and spell statuses.

**One turn** (`step`). 1. Read the clock and the control words, send a status if one is due.
2. If a finished batch waits for room, try to store it; while it cannot be, nothing is read
from the socket. 3. Take the frames that are complete. 4. Close the batch if it is time;
else wait for input.

**When a batch is closed.** At `batch_bytes`; before a message that would exceed them; at a
new relation version; at a keepalive that goes in-band; 5 ms after its first message; or
earlier when the socket and its decoder's ring are empty and the last batch was closed 5 ms
ago. So a lone transaction leaves at once, and a steady stream makes 200 batches a second.

**Waiting.** A read has its price, and on a machine whose cores the server shares, so has every
time that it wakes us up. With 32 KiB or more in the socket (FIONREAD) the loop reads on. With
less it gathers: it sleeps until 32 KiB are there (SO_RCVLOWAT), at most for 3 ms, and as long as
something comes in that time it does so again. Only when nothing came does it sleep until the
socket is readable at all. A socket that wakes us up for less (a Unix socket knows no such mark)
is left alone for 300 us. In a stream, `_pace` may have found that the server sends more when it
is left alone for longer, whatever is there by then: then the loop rests for so long, after it has
closed a batch that would get too old, and reads what has come until less than 16 KiB are left;
where its window is narrow, until nothing is. All sleeps are bounded by the timers and by 100 ms,
the time after which control words are looked at. Under TLS, bytes may lie decrypted where neither
poll nor FIONREAD sees them: before the socket counts as empty, the source is read twice more, and
no sleep is longer than 20 ms.

**What takes long.** A message, or one record of a batch, of 4 MiB or more is translated, appended,
decoded (with one decoder) and stored by another thread, one of these at a time, while this one
goes on looking at the clock: it owns the connection, and never leaves it for longer than 20 ms
and one copy of one message. Work on less is short whatever it is, and after 4 MiB of it the clock
is looked at; so the time between two statuses grows with the size of no row and no batch.

**Returns** to Python for what needs its slow path (the frame stays held), for a stop, and at
every kind of end. It may be called again after the first. `finish` then puts the end
entries, keeps the connection alive until main says that all is landed, and returns.

**Failure.** A send that fails is not reported: what the server sent before it died is still
to be read, and reading reports it. After a broken read, the frames that are complete are
taken first. Silence counts only while the loop reads.

**Deadlocks avoided.** Status depends on no ring. The loop waits for a ring or for the socket,
never inside a call. Main waits for the end entries, which come after any outcome; `finish`
waits for main's word, which main gives also when it gives up.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset
from posix.time cimport timespec

from gaussdecode.ipc.atomics cimport load_acquire, store_release
from gaussdecode.ipc.clock cimport monotonic_us, unix_us
from gaussdecode.ipc.control cimport (
    WORD_BATCHES,
    WORD_BUSY_NS,
    WORD_CONFIRMED_LSN,
    WORD_DURABLE_LSN,
    WORD_FINISHED,
    WORD_LAST_RECEIVE_NS,
    WORD_LAST_SERVER_TIME_US,
    WORD_PACE,
    WORD_PACE_CHANGES,
    WORD_PACE_RATE,
    WORD_PACE_TRIALS,
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
from gaussdecode.ipc.poll cimport POLLIN, POLLOUT, pollfd, ppoll
from gaussdecode.wire._times cimport GD_EPOCH_US
from gaussdecode.source._dispatch cimport Dispatcher
from gaussdecode.source._frames cimport (
    FRAME_DAMAGED,
    FRAME_END,
    FRAME_NONE,
    FRAME_READY,
    FROM_MAP,
    Frames,
    FrameState,
    free_frames,
    next_frame,
    read_uint64,
    release_frame,
)
from gaussdecode.source._pace cimport (
    PACE_COUNT, PACE_FIRST, PACE_FIRST_ENCRYPTED, PACE_GATHER, Pacer,
)
from gaussdecode.source._status cimport StatusClock, StatusNumbers

import enum
from concurrent.futures import ThreadPoolExecutor, wait

from gaussdecode.errors import SequenceError, TruncatedError, WireError

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)
    enum:
        FIONREAD

cdef extern from "<sys/socket.h>" nogil:
    int setsockopt(int fd, int level, int name, const void *value, unsigned int size)
    int getsockopt(int fd, int level, int name, void *value, unsigned int *size)
    enum:
        AF_UNIX
        SOL_SOCKET
        SO_DOMAIN
        SO_RCVBUF
        SO_RCVLOWAT

cdef extern from "<netinet/in.h>" nogil:
    enum:
        IPPROTO_TCP

# The kernel's own header: that of older C libraries ends before the field.
cdef extern from "<linux/tcp.h>" nogil:
    enum:
        TCP_INFO
    cdef struct tcp_info:
        uint32_t tcpi_min_rtt   # microseconds

cdef enum:
    LITTLE_BYTES = 32768        # gather only when less is waiting
    GATHER_US = 3000            # longest wait for so much
    RESTED_BYTES = 16384        # after a rest read on while more is waiting: one read of libpq
    SMALL_BYTES = 4096          # a read that brings less is small,
    SMALL_READS = 8             # and after so many in a row all that had piled up is taken
    NARROW_BYTES = 65536        # receive buffer of a server that is near; the kernel doubles it
    NEAR_RTT_US = 500           # such a window then still lets 250 MB/s through
    SHORT_BYTES = 131072        # what a buffer holds that has not grown; measured
    DRAINED_TENTHS = 7          # of what waits: the rest may be headers of messages and records
    NAP_US = 300                # where the socket cannot gather
    BATCH_US = 5000
    LOOK_US = 100000            # control words are read at least so often
    LOOK_ENCRYPTED_US = 20000
    EXTRA_READS = 2
    LETTER_AND_LSN = 9
    LONG_BYTES = 4 << 20        # work on so much goes to another thread; arbitrary

_ATTEND_SECONDS = 0.02          # between two looks at the clock of statuses


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
    NOTICE = NEW_NOTICE
    TABLE = TABLE_RECORDED


cdef inline void show(uint64_t *words, int word, uint64_t value) noexcept nogil:
    store_release(words + word, value)


cdef int64_t wall_us() noexcept nogil:
    """Microseconds since 2000, as data for the server; never used for waiting."""
    return unix_us() - GD_EPOCH_US


cdef int fail_short(uint8_t tag, size_t size) except -1 with gil:
    raise TruncatedError(f"message {chr(tag)!r} is cut off", size)


cdef int fail_frame(uint8_t letter) except -1 with gil:
    raise WireError(f"unknown replication message type {letter:#04x}", 0)


cdef int fail_damaged(Frames *frames) except -1 with gil:
    if frames.origin == FROM_MAP:
        raise WireError("the capture file is cut off or damaged", frames.map_next)
    raise WireError(
        f"a message that is longer than the {frames.inbox.limit} bytes allowed, or has no "
        "length at all; if rows are that large, raise source.max-message-size", 0
    )


cdef int fail_order(uint8_t tag, bint in_transaction) except -1 with gil:
    where = "inside a transaction" if in_transaction else "outside of a transaction"
    raise SequenceError(f"message {chr(tag)!r} {where}: the stream breaks the protocol")


cdef int fail_commit(uint64_t end_lsn, uint64_t before) except -1 with gil:
    raise SequenceError(
        f"a commit ends at {end_lsn >> 32:X}/{end_lsn & 0xFFFFFFFF:X}, not above the one before, "
        f"{before >> 32:X}/{before & 0xFFFFFFFF:X}"
    )


cdef class Receiver:
    """Owns the stream of one session; see the subclasses for what frames hold.

    Args:
        control: the shared words.
        dispatcher: where messages go.
        clock: decides about statuses; its times are `now_us`.
    """

    def __cinit__(self, Control control not None, Dispatcher dispatcher not None,
                  StatusClock clock not None, *_of_subclass):
        self.control = control
        self.dispatcher = dispatcher
        self.clock = clock
        self.socket_fd = -1
        self.pacer = Pacer(PACE_GATHER)
        self.begun_us = self.now_us = monotonic_us()
        self.received_us = self.now_us
        memset(&self.frames, 0, sizeof(Frames))

    def __dealloc__(self):
        free_frames(&self.frames)

    def attach_capture(self, const uint8_t[::1] frames not None):
        """Read the frames of a capture file: little-endian uint32 size and payload each."""
        self.owner = frames
        self.frames.origin = FROM_MAP
        self.frames.map = &frames[0] if frames.shape[0] else NULL
        self.frames.map_size = <size_t>frames.shape[0]

    cdef int use_socket(self, int fd) except -1:
        """Read from a socket from now on; a kind that buffers little is not left alone at first.

        Over TLS every message may be a record, of which fewer fill the reader's buffer: it is left
        alone for longer.
        """
        cdef int first = PACE_FIRST_ENCRYPTED if self.is_encrypted else PACE_FIRST
        cdef int domain = 0
        cdef unsigned int size = sizeof(domain)
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size)
        self.pacer = Pacer(PACE_GATHER if domain == AF_UNIX else first)
        self.socket_fd = fd
        self.is_connected = True
        return 0

    cdef void narrow_window(self) noexcept nogil:
        """Have the window close in every rest, where the server is near.

        A buffer that the kernel may enlarge soon takes more than a rest brings. Then the server
        sends each message through an open window, and nothing ends that state: half the rows per
        second.
        """
        cdef tcp_info seen
        cdef unsigned int size = sizeof(seen)
        cdef int count = NARROW_BYTES
        seen.tcpi_min_rtt = 0
        if getsockopt(self.socket_fd, IPPROTO_TCP, TCP_INFO, &seen, &size) < 0:
            return
        if not 0 < seen.tcpi_min_rtt <= NEAR_RTT_US:
            return
        if setsockopt(self.socket_fd, SOL_SOCKET, SO_RCVBUF, &count, sizeof(count)) == 0:
            self.is_narrow = True

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
            self.show_counters()
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
            self.show_counters()
        return End(outcome)

    def attend(self):
        """Send the status that is due, while the loop stands still for its slow path."""
        with nogil:
            self.serve_clock()

    def in_worker(self, work not None):
        """Have another thread do what takes long; the statuses that are due are sent meanwhile.

        Args:
            work: called without arguments; must not touch the connection.

        Returns:
            What it returns.
        """
        cdef uint64_t before = self.status_count
        if self.worker is None:
            self.worker = ThreadPoolExecutor(1, "worker")
        done = self.worker.submit(work)
        self.worker_count += 1
        while True:
            self.attend()
            self.worker_status_count += self.status_count - before
            before = self.status_count
            if wait((done,), _ATTEND_SECONDS).done:
                return done.result()

    def locate(self, error not None):
        """Tell an error of the protocol where in the stream it stands.

        Args:
            error: a `StreamError` that ended the loop, or its slow path.
        """
        error.place(self.message_lsn() or self.clock.written_lsn, self.xid)

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
        state = self.store()
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
                fail_damaged(&self.frames)
            else:
                self.cut(0, False)
                return COPY_ENDED if state == FRAME_END else CONNECTION_LOST
        return GO_ON

    cdef int take_frame(self) except -1 nogil:
        """Take the held frame, or close the batch before it and keep holding it."""
        cdef const uint8_t *data = self.frames.data
        cdef size_t size = self.frames.size
        cdef int outcome
        if self.frames.letter == c"w":
            outcome = self.take_data(data, size)
        elif self.frames.letter == c"k":
            outcome = self.take_keepalive(data, size)
        else:
            outcome = self.take_other(self.frames.letter, data, size)
        if outcome == HOLD:         # the batch was closed: this frame goes into the next
            return GO_ON
        if outcome == GO_ON:
            release_frame(&self.frames)
        return outcome

    # ---- what a kind of source does its own way; see `_receive.pxd`

    cdef int take_data(self, const uint8_t *data, size_t size) except -1 nogil:
        return fail_frame(data[0])

    cdef int take_keepalive(self, const uint8_t *data, size_t size) except -1 nogil:
        return fail_frame(data[0])

    cdef int take_other(self, uint8_t letter, const uint8_t *data, size_t size) except -1 nogil:
        return fail_frame(letter)

    cdef uint64_t message_lsn(self) noexcept nogil:
        """Position of the held frame, which XLogData and keepalives alike begin with."""
        if self.frames.data == NULL or self.frames.size < LETTER_AND_LSN:
            return 0
        if self.frames.letter != c"w" and self.frames.letter != c"k":
            return 0
        return read_uint64(self.frames.data + 1)

    cdef int pass_keepalive(self) except -1 nogil:
        return GO_ON

    cdef bint holds_input(self) noexcept nogil:
        return False

    cdef int fill(self) except -1 nogil:
        return False

    cdef int put_status(self, const StatusNumbers *status) except -1 nogil:
        return 0

    cdef int push_output(self) except -1 nogil:
        return False

    # ---- for their messages

    cdef int has_room(self, size_t size) except -1 nogil:
        """Whether a message fits the batch; else the batch is closed: HOLD the frame."""
        if self.dispatcher.fits(size):
            return True
        self.cut(0, False)
        return False

    cdef int add(self, const uint8_t *data, size_t size, bint moves) except -1 nogil:
        """Give one message, for which there is room, to the dispatcher."""
        cdef uint64_t lsn = self.message_lsn()
        self.dispatcher.message_lsn = lsn
        if not self.dispatcher.is_open:
            self.opened_us = self.now_us
            self.dispatcher.batch_lsn = lsn
            self.dispatcher.batch_xid = self.xid
        self.append(data, size, moves)
        if self.dispatcher.is_full():
            self.cut(0, False)
        return 0

    cdef int check_inside(self, uint8_t tag) except -1 nogil:
        if not self.in_transaction:
            fail_order(tag, False)
        return 0

    cdef int open_transaction(self, uint8_t tag, uint64_t xid) except -1 nogil:
        if self.in_transaction:
            fail_order(tag, True)
        self.in_transaction = True
        self.xid = xid
        return 0

    cdef int close_transaction(self, uint8_t tag, uint64_t end_lsn) except -1 nogil:
        self.check_inside(tag)
        if end_lsn <= self.end_lsn:
            fail_commit(end_lsn, self.end_lsn)
        self.end_lsn = end_lsn
        self.clock.note_written(end_lsn)
        self.in_transaction = False
        self.xid = 0
        return 0

    cdef int cut(self, uint64_t keepalive_lsn, bint is_reply_wanted) except -1 nogil:
        if self.dispatcher.is_open or keepalive_lsn:
            self.batch_count += 1
            self.cut_us = self.now_us
        return self.close_batch(keepalive_lsn, is_reply_wanted)

    # ---- what takes long for a long message

    cdef bint is_long(self, size_t size) noexcept nogil:
        """Whether a server waits for statuses while so much is worked on."""
        return size >= LONG_BYTES and self.is_connected

    cdef int append(self, const uint8_t *data, size_t size, bint moves) except -1 nogil:
        if not self.is_long(size):
            return self.dispatcher.append(data, size, moves)
        self.long_moves = moves
        self.long_data = data
        self.long_size = size
        return self.do_aside(APPEND)

    cdef int close_batch(self, uint64_t keepalive_lsn, bint is_reply_wanted) except -1 nogil:
        """With one decoder this decodes it; a long message is never followed by a keepalive."""
        if self.dispatcher.is_serial and self.is_long(self.dispatcher.batch.size) and (
            keepalive_lsn == 0
        ):
            return self.do_aside(CLOSE)
        return self.dispatcher.cut(keepalive_lsn, is_reply_wanted)

    cdef int store(self) except -2 nogil:
        """Store what waits, as `Dispatcher.flush`."""
        if self.dispatcher.is_waiting and self.is_long(self.dispatcher.entry_size):
            return self.do_aside(STORE)
        return self.dispatcher.flush()

    cdef int translate(self) except -2 nogil:
        return 0

    cdef int do_aside(self, Work work) except -2 with gil:
        return self.in_worker((self._translate, self._append, self._close, self._store)[<int>work])

    def _translate(self):
        with nogil:
            outcome = self.translate()
        return outcome

    def _append(self):
        with nogil:
            self.dispatcher.append(self.long_data, self.long_size, self.long_moves)
        return 0

    def _close(self):
        with nogil:
            self.dispatcher.cut(0, False)
        return 0

    def _store(self):
        with nogil:
            outcome = self.dispatcher.flush()
        return outcome

    cdef Outcome await_input(self) except? GO_ON nogil:
        """Nothing complete is here: read on, close the batch, or sleep."""
        cdef int64_t rest_us
        cdef int64_t before_us
        cdef int waiting
        cdef short events = POLLIN
        if self.hides_more():
            self.read()
            return GO_ON
        waiting = self.waiting_bytes()
        self.small_reads = self.small_reads + 1 if waiting < SMALL_BYTES else 0
        if self.pacer.note(self.now_us, self.byte_count, self.stalled_us) or (
            self.shown_pace != self.pacer.pace
        ):
            self.show_pace()
        rest_us = self.pacer.rest_us()
        if self.should_read_on(waiting, self.little_bytes(rest_us)):
            self.consume()
            return GO_ON
        self.pass_keepalive()
        if self.should_cut(waiting, rest_us):
            self.cut(0, False)
        if self.dispatcher.is_waiting:
            return GO_ON
        if self.clock.dead(self.now_us) and waiting == 0:
            return SERVER_SILENT
        if waiting == 0 and not self.is_flowing:
            before_us = self.now_us
            if self.has_output:
                events |= POLLOUT
            self.sleep(
                self.socket_fd, events,
                self.patience_us(LOOK_ENCRYPTED_US if self.may_hide() else LOOK_US),
                &self.waited_us,
            )
            self.pacer.pause(self.now_us - before_us)
            waiting = self.waiting_bytes()
        if rest_us and (waiting or self.is_flowing):
            self.rest(rest_us)
        elif waiting < LITTLE_BYTES and (waiting or self.is_flowing):
            self.gather()
        self.consume()
        return GO_ON

    cdef int little_bytes(self, int64_t rest_us) noexcept nogil:
        """What may be left for later; reading opens a narrow window for what has piled up.

        Where reads bring little, one after the other, that is over: they only keep up with a server
        that sends each message through the open window, and nothing would end it.
        """
        if rest_us == 0:
            return LITTLE_BYTES
        return 1 if self.is_narrow and self.small_reads <= SMALL_READS else RESTED_BYTES

    cdef bint hides_more(self) noexcept nogil:
        """Whether to read what TLS holds, and the socket does not show.

        That may be a part of a record: a few reads that bring no frame, and the socket is asked.
        """
        if not self.tells_hidden or not self.holds_input():
            return False
        if self.byte_count != self.hidden_count:
            self.hidden_count = self.byte_count
            self.extra_reads = EXTRA_READS
        if self.extra_reads == 0:
            return False
        self.extra_reads -= 1
        return True

    cdef bint may_hide(self) noexcept nogil:
        """Whether TLS may hold what the socket will never show."""
        return self.is_encrypted and not (self.tells_hidden and not self.holds_input())

    cdef bint should_read_on(self, int waiting, int little) noexcept nogil:
        """Whether to read before any sleep.

        What had come by the end of the last sleep is read to its end, though a read may bring one
        small record of TLS; as long as reads bring something. Where TLS reads ahead and a rest
        brought little, one read more takes what is left: a segment that is read in part keeps a
        small buffer full, and a server whose window is closed stands still in each rest.
        """
        if self.extra_reads and not self.tells_hidden:
            self.extra_reads -= 1
            return True
        if waiting >= little:
            self.has_tail = self.is_short
            return True
        if waiting and self.has_tail:
            self.has_tail = False
            return True
        if waiting == 0 or self.byte_count >= self.drain_until or (
            waiting == self.last_waiting and self.byte_count == self.last_count
        ):
            return False
        self.last_waiting = waiting
        self.last_count = self.byte_count
        return True

    cdef void rest(self, int64_t rest_us) noexcept nogil:
        """Leave the socket alone, whatever comes."""
        self.sleep(-1, 0, self.patience_us(rest_us), &self.waited_us)
        self.note_rested()

    cdef void note_rested(self) noexcept nogil:
        """Remember what had come."""
        cdef int waiting = self.waiting_bytes()
        self.small_reads = 0
        self.is_flowing = waiting > 0
        self.is_short = self.tells_hidden and waiting < SHORT_BYTES
        self.drain_until = self.byte_count + <uint64_t>(waiting * DRAINED_TENTHS // 10)

    cdef void gather(self) noexcept nogil:
        """Let the server gather more; nap where the socket does not wait for so much."""
        cdef int64_t limit_us = self.patience_us(GATHER_US)
        cdef int64_t before_us = monotonic_us()
        cdef int waiting
        self.wake_at(LITTLE_BYTES)
        self.sleep(self.socket_fd, POLLIN, limit_us, &self.waited_us)
        self.wake_at(1)
        self.note_rested()
        waiting = self.waiting_bytes()
        if 0 < waiting < LITTLE_BYTES and self.now_us - before_us < limit_us // 2 and (
            not self.pacer.is_streaming
        ):
            self.sleep(-1, 0, NAP_US, &self.waited_us)
            self.note_rested()

    cdef void wake_at(self, int count) noexcept nogil:
        """Have the socket count as readable from so many bytes on, where it can."""
        setsockopt(self.socket_fd, SOL_SOCKET, SO_RCVLOWAT, &count, sizeof(count))

    cdef int consume(self) except -1 nogil:
        """Have the source read the socket; a failure shows when its last frame is taken."""
        if self.waiting_bytes() > 0:
            self.received_us = self.now_us
            self.clock.note_received(0, self.now_us)
            if self.is_encrypted:
                self.extra_reads = EXTRA_READS
        return self.read()

    cdef int read(self) except -1 nogil:
        if not self.fill():
            self.is_connected = False
        return self.is_connected

    cdef int waiting_bytes(self) noexcept nogil:
        cdef int count = 0
        if ioctl(self.socket_fd, FIONREAD, &count) < 0:
            return 0
        return count

    cdef bint should_cut(self, int waiting, int64_t rest_us) noexcept nogil:
        """Whether the batch is old enough, or would be after a rest."""
        if not self.dispatcher.is_open:
            return False
        if self.now_us - self.opened_us + rest_us >= BATCH_US:
            return True
        return (
            waiting == 0
            and self.now_us - self.cut_us >= BATCH_US
            and self.dispatcher.target_is_empty()
        )

    cdef int64_t patience_us(self, int64_t limit) noexcept nogil:
        """Longest sleep: until a batch is due, but no longer than the limit."""
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

    cdef int serve_clock(self) except -1 nogil:
        """Look at the time and at main's words; send what is due."""
        cdef StatusNumbers status
        self.now_us = monotonic_us()
        self.clock.note_durable(load_acquire(self.control.words + <int>WORD_DURABLE_LSN))
        if self.is_connected:
            if not self.is_output_full and self.clock.take_status(self.now_us, &status):
                self.put_status(&status)
                self.status_count += 1
                self.has_output = True
            if self.has_output:
                self.has_output = self.push_output()
        self.show_counters()
        return 0

    cdef Outcome end_loop(self) except? GO_ON nogil:
        """Store what waits and the end entries; then serve the clock until main is done."""
        cdef int state = 0
        while True:
            self.serve_clock()
            if state != 1:
                state = self.store()
                if state < 0:
                    return DECODER_GONE
            if state == 1 and load_acquire(self.control.words + <int>WORD_FINISHED):
                self.serve_clock()  # the durable word was stored before this one
                return FINISHED
            if state == 0:
                self.sleep(self.dispatcher.space_fd(), POLLIN, LOOK_US, &self.stalled_us)
            else:
                self.sleep(-1, 0, LOOK_ENCRYPTED_US, &self.waited_us)

    cdef void show_pace(self) noexcept nogil:
        """Show which pace is used, and what each brought."""
        cdef uint64_t *words = self.control.words
        cdef int index
        if words == NULL:
            return
        self.shown_pace = self.pacer.pace
        show(words, WORD_PACE, <uint64_t>self.pacer.pace)
        show(words, WORD_PACE_CHANGES, self.pacer.change_count)
        show(words, WORD_PACE_TRIALS, self.pacer.trial_count)
        for index in range(PACE_COUNT):
            show(words, <int>WORD_PACE_RATE + index, <uint64_t>self.pacer.rate_of(index))

    cdef void show_counters(self) noexcept nogil:
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
        show(words, WORD_LAST_SERVER_TIME_US, <uint64_t>(self.server_time_us + GD_EPOCH_US))
        show(words, WORD_CONFIRMED_LSN, self.clock.sent_flushed_lsn)
        show(words, WORD_STATUS_SENT_COUNT, self.status_count)
        show(words, WORD_STALLED_NS, <uint64_t>self.stalled_us * 1000)
        show(words, WORD_WAITED_NS, <uint64_t>self.waited_us * 1000)
        show(words, WORD_BUSY_NS, <uint64_t>(self.now_us - self.begun_us - idle_us) * 1000)
        show(words, WORD_BATCHES, self.batch_count)
        show(words, WORD_RELATIONS, self.dispatcher.version_count)
        show(words, WORD_TRANSACTION_OPEN, self.in_transaction)
        show(words, WORD_LAST_RECEIVE_NS, <uint64_t>self.received_us * 1000)
