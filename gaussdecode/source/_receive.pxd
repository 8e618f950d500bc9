"""The nogil side of `source._receive`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gaussdecode.ipc.control cimport Control
from gaussdecode.source._dispatch cimport Dispatcher
from gaussdecode.source._frames cimport Frames
from gaussdecode.source._known cimport KnownMessages
from gaussdecode.source._status cimport StatusClock

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
    HOLD = 10


cdef class Receiver:
    cdef readonly Control control
    cdef readonly Dispatcher dispatcher
    cdef readonly StatusClock clock
    cdef KnownMessages known
    cdef Frames frames
    cdef object owner           # what keeps connection or mapping alive
    cdef int socket_fd
    cdef bint is_encrypted
    cdef bint is_connected      # statuses can be sent
    cdef bint has_output        # libpq holds bytes that the socket did not take
    cdef bint in_transaction
    cdef unsigned int extra_reads  # encrypted: reads left before the socket counts as empty
    cdef readonly uint64_t end_lsn  # of the last commit
    cdef readonly uint64_t server_wal_end
    cdef uint64_t offered_lsn   # newest keepalive that is not in-band yet; 0 = none
    cdef bint offered_reply
    cdef uint64_t keepalive_lsn  # last one sent in-band
    cdef bint keepalive_reply
    cdef int64_t keepalive_us
    cdef int64_t server_time_us
    cdef int64_t now_us
    cdef int64_t opened_us      # when the batch being filled got its first message
    cdef int64_t cut_us         # when the last batch was cut
    cdef int64_t received_us
    cdef int64_t nap_us
    cdef uint64_t message_count
    cdef uint64_t byte_count
    cdef uint64_t batch_count
    cdef uint64_t status_count
    cdef readonly uint64_t stray_count  # stream aborts that protocol 1 does not have
    cdef int64_t stalled_us
    cdef int64_t waited_us
    cdef int64_t begun_us

    cdef Outcome loop(self) except? GO_ON nogil
    cdef Outcome step(self) except? GO_ON nogil
    cdef Outcome end_loop(self) except? GO_ON nogil
    cdef int read_frames(self) except -1 nogil
    cdef int take_frame(self) except -1 nogil
    cdef int take_data(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int take_keepalive(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int pass_keepalive(self) except -1 nogil
    cdef int take_message(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int take_commit(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int check_inside(self, uint8_t tag) except -1 nogil
    cdef int describe(self, const uint8_t *data, size_t size, int outcome) except -1 nogil
    cdef int cut(self, uint64_t keepalive_lsn, bint is_reply_wanted) except -1 nogil
    cdef Outcome await_input(self) except? GO_ON nogil
    cdef void nap(self) noexcept nogil
    cdef bint consume(self) noexcept nogil
    cdef int waiting_bytes(self) noexcept nogil
    cdef bint should_cut(self, int waiting) noexcept nogil
    cdef int64_t patience_us(self) noexcept nogil
    cdef void sleep(self, int fd, short events, int64_t limit_us, int64_t *spent_us) noexcept nogil
    cdef void serve_clock(self) noexcept nogil
    cdef void send_status(self) noexcept nogil
    cdef void publish_counters(self) noexcept nogil
