"""The nogil side of `ipc.ring`; the module's docstring explains it."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    RING_MAGIC = 0x31524447     # "GDR1"
    PIECE_MAGIC = 0x50524447    # "GDRP"
    PIECE_BYTES = 64            # header of a piece; pieces and their bytes begin at a cache line
    SHARE = 4                   # a message over 1/SHARE of the ring is split

cdef enum PieceKind:
    PIECE_WHOLE = 0
    PIECE_FIRST = 1
    PIECE_MORE = 2
    PIECE_LAST = 3

# First page of the shared memory. One writer per cache line, except for the flag.
cdef struct RingHeader:
    uint64_t magic              # line 0: written once, before the memory is shared
    uint64_t capacity
    uint64_t max_entries
    uint64_t padding0[5]
    uint64_t head               # line 1: the producer's
    uint64_t entries_in
    uint64_t bytes_in           # payload, without the headers of pieces
    uint64_t peak_bytes         # most room ever taken
    uint64_t full_count         # puts that found no room
    uint64_t space_wait_ns      # time in wait_space
    uint64_t padding1[2]
    uint64_t tail               # line 2: the consumer's
    uint64_t entries_out
    uint64_t empty_count        # gets that found nothing
    uint64_t data_wait_ns       # time in wait_data
    uint64_t padding2[4]
    uint64_t producer_waits     # line 3: set by the producer, taken back by the consumer

cdef struct Piece:
    uint32_t magic
    uint32_t kind
    uint64_t entry              # number of this piece in the ring, from 0
    uint64_t size               # bytes in this piece
    uint64_t offset             # of its first byte in the message
    uint64_t total              # bytes of the message


@cython.final
cdef class Ring:
    cdef RingHeader *header
    cdef uint8_t *ring          # the data area, mapped twice
    cdef size_t mapped
    cdef readonly uint64_t capacity_bytes
    cdef readonly uint64_t max_entries
    cdef uint64_t piece_limit   # payload bytes of the largest piece
    cdef readonly int memory_fd
    cdef readonly int data_fd           # consumer: readable when there may be data
    cdef readonly int space_fd          # producer: readable when there may be room
    cdef int data_token_fd              # producer's end of data_fd
    cdef int space_token_fd             # consumer's end of space_fd
    # producer, private
    cdef uint64_t head
    cdef uint64_t entries_in
    cdef uint64_t put_size      # of the message that waits for room
    cdef uint64_t put_done      # bytes of it already in the ring
    cdef bint put_open
    cdef bint put_moves         # what is stored of it is not needed any more
    cdef readonly bint consumer_gone
    # consumer, private
    cdef uint64_t tail
    cdef uint64_t entries_out
    cdef uint64_t held_room     # room the held message takes; 0 when it is in `joined`
    cdef bint holding
    cdef const uint8_t *held
    cdef uint64_t held_size
    cdef uint8_t *joined        # a split message, put together
    cdef uint64_t joined_capacity
    cdef uint64_t joined_size
    cdef uint64_t joined_total  # 0: no split message has begun
    cdef readonly bint producer_gone

    # 1 = all stored. 0 = no room: call again with the same message (what is already stored
    # stays stored) when space_fd is readable. -1 = the consumer is gone. Raises: -2.
    # With `moves` the bytes are the caller's own and not read again: those that are stored
    # take no memory any more, when the message is a long one.
    cdef int put(self, const uint8_t *data, size_t size, bint moves=*) except -2 nogil
    # 1 = a whole message, valid until release(). 0 = nothing: call again when data_fd is
    # readable. -1 = the ring is empty and the producer is gone. Raises: -2.
    cdef int get(self, const uint8_t **data, size_t *size) except -2 nogil
    # Give the message back; its bytes are the producer's again.
    cdef int release(self) except -1 nogil
    # 1 = look again. 0 = the time is over, or a signal came. timeout_ms -1 = for ever.
    cdef int wait_data(self, int timeout_ms) except -1 nogil
    cdef int wait_space(self, int timeout_ms) except -1 nogil

    cdef int find_room(self, uint64_t need) except -1 nogil
    cdef int await_room(self, uint64_t need) except -2 nogil
    cdef int write_piece(self, const uint8_t *data, uint64_t total, uint64_t part) except -2 nogil
    cdef int read_piece(self, uint64_t head, Piece *piece) except -1 nogil
    cdef int join_piece(self, const Piece *piece) except -1 nogil
    cdef int free_room(self, uint64_t room) except -1 nogil
    cdef int check_end(self, int fd) except -1 nogil
    cdef int map_memory(self, int fd, uint64_t capacity) except -1
    cdef int start(self) except -1
