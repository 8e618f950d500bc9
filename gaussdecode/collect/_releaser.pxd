"""Rows of whole transactions into accumulators; see `_releaser.pyx`."""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gaussdecode.collect._columns cimport Accumulator, Stamp
from gaussdecode.collect._open cimport OpenTransaction
from gaussdecode.collect._relations cimport Relations
from gaussdecode.collect._retained cimport RetainedBatches
from gaussdecode.collect._sums cimport Sums
from gaussdecode.collect._upserts cimport Upserts
from gaussdecode.wire._layout cimport Event


@cython.final
cdef class Releaser:
    cdef object tables
    cdef object listener
    cdef Accumulator transactions
    cdef Accumulator messages
    cdef Accumulator ddl
    cdef Relations relations        # those of a file while rows of it are released
    cdef RetainedBatches retained
    cdef Sums tallies
    cdef Upserts upserts
    cdef bint skip_empty
    cdef uint64_t row_limit
    cdef uint64_t byte_limit
    cdef uint64_t budget
    cdef uint64_t held_bytes        # in all accumulators
    cdef uint64_t transaction_count
    cdef uint64_t row_count
    cdef uint64_t empty_count       # without rows, nothing landed
    cdef uint64_t waiting_count     # transactions and messages since `committed`
    cdef int64_t waiting_since_ns   # monotonic; of the first of them
    cdef int64_t waiting_commit_us  # commit time of the first transaction among them; 0: unknown
    cdef bint wants_attention       # the collector has something to do: the pump comes back

    cdef int land(
        self, OpenTransaction *transaction, Stamp *stamp, const uint8_t *entry, uint32_t first,
        uint32_t commit, bint moves,
    ) except -1 nogil
    cdef int land_message(
        self, const uint8_t *entry, const Event *event, Stamp *stamp
    ) except -1 nogil
    cdef int keep_to_budget(self, const uint8_t *entry) except -1 nogil
    cdef int release_kept(
        self, OpenTransaction *transaction, Stamp *stamp, int64_t *seq
    ) except -1 with gil

    cdef int release_retained(
        self, OpenTransaction *transaction, Stamp *stamp, int64_t *seq
    ) except -1 nogil
    cdef int release_events(
        self, const OpenTransaction *transaction, const uint8_t *entry, uint32_t piece,
        uint32_t first, uint32_t stop, Stamp *stamp, int64_t *seq, bint moves,
    ) except -1 nogil
    cdef int append_others(
        self, PyObject *found, const uint8_t *entry, uint32_t piece, uint32_t index, Stamp *stamp,
        int64_t *seq,
    ) except -1 with gil
    cdef int release_taken_back(
        self, const Event *event, uint32_t piece, uint32_t index, Stamp *stamp, int64_t *seq
    ) except -1 with gil
    cdef int change_over(self, PyObject *found) except -1 with gil
    cdef int fail_large(
        self, PyObject *found, const Event *event, const Stamp *stamp
    ) except -1 with gil
    cdef void count_waiting(self) noexcept nogil
    cdef int append_message(
        self, const uint8_t *entry, const Event *event, Stamp *stamp, int64_t seq
    ) except -1 nogil
    cdef int land_transaction(
        self, const OpenTransaction *transaction, Stamp *stamp, int64_t rows
    ) except -1 nogil
    cdef int append_gid(self, const OpenTransaction *transaction, uint64_t row) except -1 nogil
    cdef int measure_one(self, PyObject *found) except -1 nogil
