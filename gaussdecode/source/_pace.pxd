"""The nogil side of `source._pace`."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    PACE_COUNT = 6
    PACE_GATHER = 0             # see `_receive`: sleep until some is there
    PACE_FIRST_NARROW = 3       # where the window closes in each rest
    PACE_FIRST = 4              # where a socket leaves much with the sender
    PACE_FIRST_ENCRYPTED = 5    # and each record fills more of the buffer than it holds


@cython.final
cdef class Pacer:
    cdef int first              # what is tried first
    cdef readonly int pace      # that is used now
    cdef readonly int best
    cdef readonly bint is_streaming
    cdef bint is_assumed        # nothing shows yet that it is one
    cdef bint has_followed      # a window of the best pace has ended
    cdef uint64_t seen_bytes    # of the connection, when the pacer was told last,
    cdef int64_t seen_us
    cdef int64_t first_us       # and when there were none
    cdef readonly uint64_t change_count
    cdef readonly uint64_t trial_count
    cdef int64_t begun_us       # when the pace was taken, or a window thrown away; 0: no window
    cdef int64_t window_us      # where the window begins, once the pace has settled; 0: not yet
    cdef uint64_t window_bytes  # what had come then,
    cdef int64_t window_stalled_us  # and the time that nobody read until then
    cdef double[PACE_COUNT] rate        # bytes per second; 0: never tried
    cdef int64_t[PACE_COUNT] due_us     # when it is tried again
    cdef int64_t[PACE_COUNT] wait_us    # between two trials
    cdef int64_t quiet_us       # in which the source had nothing, since the last window that ended
    cdef int winner             # a pace that was better once; -1: none
    cdef int streak             # windows of a stream, or of a rate that is another one

    # Count what has come; true when that ended a window, and another pace may be used now.
    cdef bint note(self, int64_t now_us, uint64_t total_bytes, int64_t stalled_us) noexcept nogil
    # The source had nothing for so long: what is being counted may say nothing of the pace.
    cdef void pause(self, int64_t idle_us) noexcept nogil
    # How long to leave the socket alone; 0: gather.
    cdef int64_t rest_us(self) noexcept nogil
    cdef double rate_of(self, int pace) noexcept nogil

    cdef void begin(self, int pace) noexcept nogil
    cdef void finish(self, double rate, int64_t now_us) noexcept nogil
    cdef void look_for_stream(self, double rate, int64_t now_us) noexcept nogil
    cdef void follow(self, double rate, int64_t now_us) noexcept nogil
    cdef void judge(self, double rate, int64_t now_us) noexcept nogil
    cdef int choose(self, int64_t now_us) noexcept nogil
