"""The nogil side of `source._receive`: the loop, and what a kind of source adds to it."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from gaussdecode.ipc.control cimport Control
from gaussdecode.source._dispatch cimport Dispatcher
from gaussdecode.source._frames cimport Frames
from gaussdecode.source._pace cimport Pacer
from gaussdecode.source._status cimport StatusClock, StatusNumbers

cdef enum Outcome:
    GO_ON = 0
    NEW_RELATION = 1
    NEW_TYPE = 2
    STOPPED = 3
    COPY_ENDED = 4
    CONNECTION_LOST = 5
    SERVER_SILENT = 6
    DECODER_GONE = 7
    FINISHED = 8
    NEED_INPUT = 9
    HOLD = 10                   # the batch was closed: the held frame goes into the next
    NEW_NOTICE = 11             # GaussDB: the held frame is a NoticeResponse
    TABLE_RECORDED = 12         # a capture of GaussDB: what its catalogue said of a table

# What takes long for a long message; see `Receiver.in_worker`.
cdef enum Work:
    TRANSLATE = 0
    APPEND = 1
    CLOSE = 2
    STORE = 3


cdef class Receiver:
    cdef readonly Control control
    cdef readonly Dispatcher dispatcher
    cdef readonly StatusClock clock
    cdef Frames frames
    cdef object owner           # what keeps connection or mapping alive
    cdef int socket_fd
    cdef bint is_encrypted
    cdef bint tells_hidden      # encrypted: `holds_input` knows what the socket does not show
    cdef uint64_t hidden_count  # value of `byte_count` when that was asked last
    cdef bint is_connected      # statuses can be sent
    cdef bint has_output        # something was put that the socket did not take
    cdef bint is_output_full    # no status can be put
    cdef bint in_transaction
    cdef unsigned int extra_reads  # encrypted: reads left before the socket counts as empty
    cdef uint64_t xid           # of the open transaction; 0 where none is, or it was not sent
    cdef readonly uint64_t end_lsn  # of the last commit
    cdef readonly uint64_t server_wal_end
    cdef int64_t server_time_us  # since 2000
    cdef int64_t now_us
    cdef int64_t opened_us      # when the batch being filled got its first message
    cdef int64_t cut_us         # when the last batch was cut
    cdef int64_t received_us
    cdef readonly Pacer pacer
    cdef int shown_pace         # as main was shown last
    cdef readonly bint is_narrow    # the window closes in each rest: the socket is read to its end
    cdef int small_reads
    cdef bint is_flowing        # something came in the last wait for more
    cdef uint64_t drain_until   # value of `byte_count` at which that is read,
    cdef uint64_t last_count    # if a read makes one of these another one
    cdef int last_waiting
    cdef bint is_short          # TLS reads ahead, and the last rest brought so little
    cdef bint has_tail          # that its last bytes are to be read too
    cdef uint64_t message_count
    cdef uint64_t byte_count
    cdef uint64_t batch_count
    cdef uint64_t status_count
    cdef readonly uint64_t worker_count  # what another thread was given
    cdef readonly uint64_t worker_status_count  # statuses sent while another thread worked
    cdef int64_t stalled_us
    cdef int64_t waited_us
    cdef int64_t begun_us
    cdef object worker          # has a thread for what takes long, once something did
    cdef const uint8_t *long_data   # what it is to append
    cdef size_t long_size
    cdef bint long_moves

    # What a kind of source does its own way. The first three take the held frame, and
    # return GO_ON when it is done with, HOLD to be asked again after the batch is stored,
    # or what to tell Python; the frame is held then, too.
    cdef int take_data(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int take_keepalive(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int take_other(self, uint8_t letter, const uint8_t *data, size_t size) except -1 nogil
    cdef uint64_t message_lsn(self) noexcept nogil  # of the message at hand; 0 not known
    cdef int pass_keepalive(self) except -1 nogil
    cdef bint holds_input(self) noexcept nogil      # something was read and not decrypted
    cdef int fill(self) except -1 nogil             # read the socket; False: broken
    cdef int put_status(self, const StatusNumbers *status) except -1 nogil
    cdef int push_output(self) except -1 nogil      # send; True: some is left

    # What it builds on.
    cdef int use_socket(self, int fd) except -1
    cdef void narrow_window(self) noexcept nogil
    cdef int little_bytes(self, int64_t rest_us) noexcept nogil
    cdef bint is_long(self, size_t size) noexcept nogil
    cdef int do_aside(self, Work work) except -2 with gil
    cdef int translate(self) except -2 nogil
    cdef int append(self, const uint8_t *data, size_t size, bint moves) except -1 nogil
    cdef int close_batch(self, uint64_t keepalive_lsn, bint is_reply_wanted) except -1 nogil
    cdef int store(self) except -2 nogil
    cdef int has_room(self, size_t size) except -1 nogil
    # With `moves` the message is our own and not read again: see buffer_move.
    cdef int add(self, const uint8_t *data, size_t size, bint moves) except -1 nogil
    cdef int check_inside(self, uint8_t tag) except -1 nogil
    cdef int open_transaction(self, uint8_t tag, uint64_t xid) except -1 nogil
    cdef int close_transaction(self, uint8_t tag, uint64_t end_lsn) except -1 nogil
    cdef int cut(self, uint64_t keepalive_lsn, bint is_reply_wanted) except -1 nogil

    cdef Outcome loop(self) except? GO_ON nogil
    cdef Outcome step(self) except? GO_ON nogil
    cdef Outcome end_loop(self) except? GO_ON nogil
    cdef int read_frames(self) except -1 nogil
    cdef int take_frame(self) except -1 nogil
    cdef Outcome await_input(self) except? GO_ON nogil
    cdef void gather(self) noexcept nogil
    cdef bint hides_more(self) noexcept nogil
    cdef bint may_hide(self) noexcept nogil
    cdef bint should_read_on(self, int waiting, int little) noexcept nogil
    cdef void rest(self, int64_t rest_us) noexcept nogil
    cdef void note_rested(self) noexcept nogil
    cdef void wake_at(self, int count) noexcept nogil
    cdef int consume(self) except -1 nogil
    cdef int read(self) except -1 nogil
    cdef int waiting_bytes(self) noexcept nogil
    cdef bint should_cut(self, int waiting, int64_t rest_us) noexcept nogil
    cdef int64_t patience_us(self, int64_t limit) noexcept nogil
    cdef void sleep(self, int fd, short events, int64_t limit_us, int64_t *spent_us) noexcept nogil
    cdef int serve_clock(self) except -1 nogil
    cdef void show_pace(self) noexcept nogil
    cdef void show_counters(self) noexcept nogil


cdef int64_t wall_us() noexcept nogil
cdef int fail_short(uint8_t tag, size_t size) except -1 nogil
cdef int fail_frame(uint8_t letter) except -1 nogil
cdef int fail_order(uint8_t tag, bint in_transaction) except -1 nogil
