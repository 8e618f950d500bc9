"""Transactions that have ended, by CSN; see `_turns.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from gaussdecode.collect._open cimport OpenTransaction
from gaussdecode.wire._layout cimport Event


cdef struct Finished:
    OpenTransaction *transaction
    Event commit
    uint64_t before_lsn     # end of the commit before it in the log

cdef struct Turns:
    Finished *items         # a heap
    uint32_t count
    uint32_t capacity


cdef int turns_push(Turns *turns, const Finished *finished) except -1 nogil
cdef int turns_part(Turns *turns, uint64_t csn, Turns *later) except -1 nogil
cdef uint64_t turns_begin(const Turns *turns, uint64_t lsn) noexcept nogil
cdef uint64_t turns_least(const Turns *turns) noexcept nogil
cdef Finished turns_pop(Turns *turns) noexcept nogil
cdef void turns_free(Turns *turns) noexcept nogil
