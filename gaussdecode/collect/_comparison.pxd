"""What is sent again, for the comparison with what landed; see `_comparison.pyx`."""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.collect._columns cimport Stamp
from gaussdecode.collect._open cimport OpenTransaction
from gaussdecode.collect._relations cimport Relations
from gaussdecode.collect._retained cimport RetainedBatches


@cython.final
cdef class Comparison:
    cdef object listener
    cdef Relations relations
    cdef RetainedBatches retained
    cdef bint is_running            # what was sent again has not all come yet
    cdef dict inserted              # of the transaction that is open, by table

    cdef int begin(self) except -1 with gil
    cdef int count_rows(
        self, OpenTransaction *transaction, const uint8_t *entry, uint32_t first, uint32_t stop,
        uint64_t lsn,
    ) except -1 nogil
    cdef int count_retained(self, OpenTransaction *transaction, uint64_t lsn) except -1 nogil
    cdef int show(
        self, const OpenTransaction *transaction, const Stamp *stamp, bint is_left_out
    ) except -1 with gil
    cdef int finish(self) except -1 with gil

    cdef int note_inserted(self, PyObject *found, uint64_t rows) except -1 with gil
    cdef int note_truncated(self, PyObject *found) except -1 with gil
    cdef int note_taken_back(self, PyObject *found) except -1 with gil
