"""Rows that an upsert inserted and took back; see `_upserts.pyx`."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.collect._open cimport OpenTransaction
from gaussdecode.collect._relations cimport Relations
from gaussdecode.collect._retained cimport RetainedBatches


@cython.final
cdef class Upserts:
    cdef Relations relations
    cdef RetainedBatches retained
    cdef dict taken_back            # of the transaction that is released; see `pair`

    cdef int pair(
        self, OpenTransaction *transaction, const uint8_t *entry, uint32_t first, uint32_t commit,
        uint64_t lsn,
    ) except -1 with gil
    cdef int pair_events(
        self, const uint8_t *entry, uint32_t piece, uint32_t first, uint32_t stop,
        dict waiting, uint64_t lsn,
    ) except -1
