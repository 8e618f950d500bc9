"""The clocks of the stages, without the GIL."""

from libc.stdint cimport int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline uint64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1000000000 + <uint64_t>now.tv_nsec


cdef inline int64_t monotonic_us() noexcept nogil:
    return <int64_t>(monotonic_ns() // 1000)


cdef inline int64_t unix_us() noexcept nogil:
    """Microseconds since 1970, as data; never used for waiting."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000
