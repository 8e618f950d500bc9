"""Where time goes: how long batches take per stage, and how long the pump works and waits.

What a batch took is counted in one histogram per stage. The pump's own time is what it spends in
`Assembler.pump`; what it waits there for batches is no work. Another thread may read all of this
while it changes.
"""

from gaussdecode.ipc.clock cimport monotonic_ns

from gaussdecode.model.histogram import BOUNDS, Counted

SPANS = ("receive", "decode", "collect")


cdef class PumpTimes:
    """Histograms of one pump's batches, and its clock."""

    def __cinit__(self):
        cdef int i
        for i in range(BUCKETS - 1):
            self.bounds_ns[i] = round(BOUNDS[i] * 1e9)

    cdef int64_t begin(self) noexcept:
        """The pump runs, from the moment that is returned."""
        self.pump_since_ns = <int64_t>monotonic_ns()
        return self.pump_since_ns

    cdef void end(self) noexcept:
        self.pumped_ns += <int64_t>monotonic_ns() - self.pump_since_ns
        self.pump_since_ns = 0

    cdef void begin_wait(self, int64_t now) noexcept nogil:
        self.wait_since_ns = now

    cdef int64_t end_wait(self) noexcept nogil:
        """A wait is over; the moment at which it is."""
        cdef int64_t now = <int64_t>monotonic_ns()
        self.waited_ns += now - self.wait_since_ns
        self.wait_since_ns = 0
        return now

    cdef void count(self, Span kind, uint64_t since, uint64_t until) noexcept nogil:
        """Count what a batch took in a stage."""
        cdef Spans *spans = &self.spans[<int>kind]
        cdef int bucket = 0
        while bucket < BUCKETS - 1 and until - since > self.bounds_ns[bucket]:
            bucket += 1
        spans.count[bucket] += 1
        spans.ns += until - since

    cdef int64_t worked(self) noexcept:
        """See `Assembler.worked_ns`."""
        cdef int64_t now = <int64_t>monotonic_ns()
        cdef int64_t since = self.pump_since_ns, waits = self.wait_since_ns
        cdef int64_t worked = <int64_t>self.pumped_ns - <int64_t>self.waited_ns
        if since:
            worked += now - since
        if since and waits:
            worked -= now - waits
        self.told_ns = max(self.told_ns, worked)
        return self.told_ns

    cdef dict durations(self):
        """What batches took so far, by stage."""
        cdef int i
        return {
            SPANS[i]: Counted(tuple(self.spans[i].count), self.spans[i].ns / 1e9)
            for i in range(SPAN_KINDS)
        }
