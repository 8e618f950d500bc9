"""The nogil side of `ipc.control`: one page of words that all processes share."""

cimport cython
from libc.stdint cimport uint64_t

cdef enum:
    MAX_DECODERS = 32
    DECODER_BASE = 64           # first word of decoder 0
    DECODER_STRIDE = 16         # words per decoder: two cache lines
    WORD_COUNT = 576            # DECODER_BASE + MAX_DECODERS * DECODER_STRIDE

# Words from 0 are written by main (one cache line apart where the writers differ).
cdef enum ControlWord:
    WORD_DURABLE_LSN = 0        # main: everything up to here is landed; only ever rises
    WORD_STOP_REQUESTED = 1     # main: 1 = stop reading and drain
    WORD_FINISHED = 2           # main: 1 = all is landed, send the last status and leave
    WORD_MAIN_HEARTBEAT_NS = 3  # monotonic clock
    WORD_DISK_WAIT = 4          # main: 1 = waiting for room on the disk
    WORD_GO = 5                 # main: 1 = the log is ready, start the stream
    # the reader's
    WORD_READER_HEARTBEAT_NS = 16
    WORD_RECEIVED_BYTES = 17
    WORD_RECEIVED_MESSAGES = 18
    WORD_RECEIVED_LSN = 19
    WORD_SERVER_WAL_END = 20
    WORD_LAST_SERVER_TIME_US = 21
    WORD_CONFIRMED_LSN = 22
    WORD_STATUS_SENT_COUNT = 23
    WORD_STALLED_NS = 24        # waited for room in a ring
    WORD_WAITED_NS = 25         # waited for the server (napped, idle)
    WORD_BUSY_NS = 26
    WORD_BATCHES = 27
    WORD_RELATIONS = 28
    WORD_TRANSACTION_OPEN = 29  # 1 between begin and commit
    WORD_LAST_RECEIVE_NS = 30   # monotonic clock
    WORD_NOTICES = 31           # GaussDB: notices of the server inside the stream
    WORD_HEARTBEATS = 32        # GaussDB: heartbeat records
    WORD_HEARTBEAT_LSN = 33     # how far the server had read when it sent the last one
    WORD_HEARTBEAT_TIME_US = 34  # since 1970; of the last record it had decoded then
    WORD_IDLE_LSN = 35          # GaussDB: the server had nothing more to send up to here
    WORD_PACE = 36              # number of the pace in use; see source/_pace.pyx
    WORD_PACE_CHANGES = 37
    WORD_PACE_TRIALS = 38
    WORD_HEARTBEAT_FLUSHED_LSN = 39  # where its WAL on disk ended when it sent the last one
    WORD_PACE_RATE = 40         # bytes per second of the first pace; seven more may follow

# Words of one decoder, from DECODER_BASE + decoder_index * DECODER_STRIDE.
cdef enum DecoderWord:
    DECODER_HEARTBEAT_NS = 0
    DECODER_BATCHES = 1
    DECODER_WIRE_BYTES = 2
    DECODER_ROWS = 3
    DECODER_BUSY_NS = 4
    DECODER_WAITED_INPUT_NS = 5
    DECODER_WAITED_OUTPUT_NS = 6
    DECODER_MISFITS = 7


cdef inline unsigned int decoder_word(unsigned int index, DecoderWord word) noexcept nogil:
    """Number of a decoder's word; out of range for an index over MAX_DECODERS."""
    return DECODER_BASE + index * DECODER_STRIDE + <unsigned int>word


@cython.final
cdef class Control:
    cdef uint64_t *words
    cdef size_t mapped
    cdef readonly int fd

    # All are atomic, and cost a function call; a word out of range is an IndexError.
    cpdef uint64_t get(self, unsigned int word) except? 0x7FFFFFFF nogil
    cpdef int set(self, unsigned int word, uint64_t value) except -1 nogil
    # add and raise_to return the word's new value.
    cpdef uint64_t add(self, unsigned int word, uint64_t value) except? 0x7FFFFFFF nogil
    cpdef uint64_t raise_to(self, unsigned int word, uint64_t value) except? 0x7FFFFFFF nogil
    cdef int map_memory(self, int fd, size_t size) except -1
