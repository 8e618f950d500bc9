"""The two places that frames come from, behind one interface.

A *frame* is the payload of one CopyData message, from its ``w`` or ``k`` on. It comes
from a libpq connection, which allocates each one, or lies in a mapped capture file.

    state of `next_frame`     meaning
    FRAME_READY               `data` and `size` are valid until `release_frame`
    FRAME_NONE                nothing complete is here; wait for input
    FRAME_END                 the server ended the copy, or the capture is over
    FRAME_FAILED              the connection is broken; nothing more can come
    FRAME_DAMAGED             a capture's length points past its end
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.source._libpq cimport Libpq

cdef enum FrameState:
    FRAME_FAILED = -2
    FRAME_END = -1
    FRAME_NONE = 0
    FRAME_READY = 1
    FRAME_DAMAGED = 2

cdef struct Frames:
    Libpq pq                    # connection NULL: a capture
    const uint8_t *map          # the frames of a capture
    size_t map_size
    size_t map_next
    const uint8_t *data         # NULL: no frame is held
    size_t size


cdef inline FrameState next_frame(Frames *frames) noexcept nogil:
    """Get a frame, unless one is already held."""
    if frames.data != NULL:
        return FRAME_READY
    return next_message(frames) if frames.pq.connection != NULL else next_mapped(frames)


cdef inline FrameState next_message(Frames *frames) noexcept nogil:
    cdef char *buffer = NULL
    cdef int size = frames.pq.get_copy_data(frames.pq.connection, &buffer, 1)
    if size > 0:
        frames.data = <const uint8_t *>buffer
        frames.size = <size_t>size
        return FRAME_READY
    return <FrameState>size     # libpq's 0, -1 and -2 mean the same


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
    frames.map_next += sizeof(uint32_t) + size
    return FRAME_READY


cdef inline void release_frame(Frames *frames) noexcept nogil:
    if frames.data != NULL and frames.pq.connection != NULL:
        frames.pq.freemem(<void *>frames.data)
    frames.data = NULL
    frames.size = 0


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
