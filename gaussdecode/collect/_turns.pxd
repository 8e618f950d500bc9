"""Transactions that have ended, by CSN; see `_turns.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from gaussdecode.collect._open cimport OpenTransaction
from gaussdecode.wire._layout cimport Event


cdef struct Finished:
    OpenTransaction *transaction
    Event commit

cdef struct Turns:
    Finished *items         # a heap
    uint32_t count
    uint32_t capacity


cdef int turns_push(Turns *turns, const Finished *finished) except -1 nogil
cdef uint64_t turns_least(const Turns *turns) noexcept nogil
cdef Finished turns_pop(Turns *turns) noexcept nogil
cdef void turns_free(Turns *turns) noexcept nogil
