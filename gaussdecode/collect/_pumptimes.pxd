"""Where the time of batches and of the pump goes; see `_pumptimes.pyx`."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef enum Span:             # of one batch; in the order of SPANS
    SPAN_RECEIVE = 0        # from its first message until a decoder took it
    SPAN_DECODE = 1
    SPAN_COLLECT = 2        # until it was in order, what it waited for its turn included
    SPAN_KINDS = 3
    BUCKETS = 22            # of a histogram: one more than BOUNDS

cdef struct Spans:          # one histogram
    uint64_t[BUCKETS] count
    uint64_t ns


@cython.final
cdef class PumpTimes:
    cdef readonly uint64_t waited_ns
    cdef uint64_t pumped_ns         # in `pump`, but for the one that runs now,
    cdef int64_t pump_since_ns      # which began then; 0: none does
    cdef int64_t wait_since_ns      # when it began to wait for a batch; 0: it does not
    cdef int64_t told_ns            # by worked_ns, which never falls
    cdef Spans[SPAN_KINDS] spans
    cdef uint64_t[BUCKETS - 1] bounds_ns

    cdef int64_t begin(self) noexcept
    cdef void end(self) noexcept
    cdef void begin_wait(self, int64_t now) noexcept nogil
    cdef int64_t end_wait(self) noexcept nogil
    cdef void count(self, Span kind, uint64_t since, uint64_t until) noexcept nogil
    cdef int64_t worked(self) noexcept
    cdef dict durations(self)
