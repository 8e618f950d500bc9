"""The three places that frames come from, behind one interface.

A *frame* is the payload of one CopyData message, from its ``w`` or ``k`` on, or another
message that a server puts between them. It comes from a libpq connection, which allocates
each one, lies in the receive buffer of a socket that we read ourselves, or in a mapped
capture file. `letter` is the first byte of a CopyData payload, or the type of the other
message, whose `data` is its body alone.

    state of `next_frame`     meaning
    FRAME_READY               `letter`, `data` and `size` are valid until `release_frame`
    FRAME_NONE                nothing complete is here; wait for input
    FRAME_END                 the server ended the copy, or the capture is over
    FRAME_FAILED              the connection is broken; nothing more can come
    FRAME_DAMAGED             a length that cannot be: past a capture's end, or too large

A message of a socket is a letter, a big-endian uint32 length that counts itself, and a
body; in a capture a frame is a little-endian uint32 size and the payload, in which a
message that is no CopyData has its letter before its body.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from gaussdecode.source._libpq cimport Libpq

cdef enum FrameState:
    FRAME_FAILED = -2
    FRAME_END = -1
    FRAME_NONE = 0
    FRAME_READY = 1
    FRAME_DAMAGED = 2

cdef enum FrameOrigin:
    FROM_MAP = 0
    FROM_LIBPQ = 1
    FROM_SOCKET = 2

cdef enum:
    MESSAGE_HEADER = 5          # letter, length
    LENGTH_SIZE = 4             # the length counts itself

# What a socket gave and nobody took yet is `data[start:end]`.
cdef struct Inbox:
    uint8_t *data
    size_t start
    size_t end
    size_t capacity
    size_t limit                # longest message that is taken
    bint is_over                # nothing more will come

cdef struct Frames:
    FrameOrigin origin
    Libpq pq
    Inbox inbox
    const uint8_t *map          # the frames of a capture
    size_t map_size
    size_t map_next
    uint8_t letter
    const uint8_t *data         # NULL: no frame is held
    size_t size


cdef inline FrameState next_frame(Frames *frames) noexcept nogil:
    """Get a frame, unless one is already held."""
    if frames.data != NULL:
        return FRAME_READY
    if frames.origin == FROM_LIBPQ:
        return next_message(frames)
    return next_received(frames) if frames.origin == FROM_SOCKET else next_mapped(frames)


cdef inline FrameState next_message(Frames *frames) noexcept nogil:
    cdef char *buffer = NULL
    cdef int size = frames.pq.get_copy_data(frames.pq.connection, &buffer, 1)
    if size > 0:
        frames.data = <const uint8_t *>buffer
        frames.size = <size_t>size
        frames.letter = frames.data[0]
        return FRAME_READY
    return <FrameState>size     # libpq's 0, -1 and -2 mean the same


cdef inline FrameState next_received(Frames *frames) noexcept nogil:
    """Take the message at the head of the inbox; an empty CopyData is passed over."""
    cdef Inbox *inbox = &frames.inbox
    cdef const uint8_t *head
    cdef size_t size
    while inbox.end - inbox.start >= MESSAGE_HEADER:
        head = inbox.data + inbox.start
        size = read_uint32(head + 1)
        if size < LENGTH_SIZE or size > inbox.limit:
            return FRAME_DAMAGED
        if inbox.end - inbox.start < size + 1:
            break
        if head[0] == c"d" and size == LENGTH_SIZE:
            inbox.start += MESSAGE_HEADER
            continue
        frames.data = head + MESSAGE_HEADER
        frames.size = size - LENGTH_SIZE
        frames.letter = head[0] if head[0] != c"d" else frames.data[0]
        return FRAME_READY
    return FRAME_FAILED if inbox.is_over else FRAME_NONE


cdef inline FrameState next_mapped(Frames *frames) noexcept nogil:
    cdef uint32_t size
    if frames.map_next == frames.map_size:
        return FRAME_END
    if frames.map_size - frames.map_next < sizeof(uint32_t):
        return FRAME_DAMAGED
    size = read_uint32_little(frames.map + frames.map_next)
    if size == 0 or frames.map_size - frames.map_next - sizeof(uint32_t) < size:
        return FRAME_DAMAGED
    frames.data = frames.map + frames.map_next + sizeof(uint32_t)
    frames.size = size
    frames.letter = frames.data[0]
    if frames.letter != c"w" and frames.letter != c"k":
        frames.data += 1
        frames.size -= 1
    frames.map_next += sizeof(uint32_t) + size
    return FRAME_READY


cdef inline void release_frame(Frames *frames) noexcept nogil:
    if frames.data != NULL and frames.origin == FROM_LIBPQ:
        frames.pq.freemem(<void *>frames.data)
    elif frames.data != NULL and frames.origin == FROM_SOCKET:
        frames.inbox.start = frames.data + frames.size - frames.inbox.data
    frames.data = NULL
    frames.size = 0


cdef inline void free_frames(Frames *frames) noexcept nogil:
    release_frame(frames)
    free(frames.inbox.data)
    frames.inbox.data = NULL


cdef inline uint32_t read_uint32_little(const uint8_t *b) noexcept nogil:
    return <uint32_t>b[3] << 24 | <uint32_t>b[2] << 16 | <uint32_t>b[1] << 8 | b[0]


cdef inline uint32_t read_uint32(const uint8_t *b) noexcept nogil:
    return <uint32_t>b[0] << 24 | <uint32_t>b[1] << 16 | <uint32_t>b[2] << 8 | b[3]


cdef inline uint64_t read_uint64(const uint8_t *b) noexcept nogil:
    return <uint64_t>read_uint32(b) << 32 | read_uint32(b + 4)


cdef inline void write_uint64(uint8_t *b, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(8):
        b[i] = <uint8_t>(value >> (56 - 8 * i))
