"""Relation versions and their accumulators; see `_relations.pyx`."""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.wire._layout cimport Event


@cython.final
cdef class Relations:
    cdef object tables
    cdef list accumulators          # by version; None: unknown, False: of no table that lands
    cdef PyObject **by_version
    cdef uint32_t version_capacity
    cdef dict definitions           # by version, of those that no row was released of

    cdef int register(
        self, const uint8_t *entry, const Event *event, bint is_later
    ) except -1 with gil
    cdef Relations of_file(self, file)
    cdef int make_room(self, uint32_t version) except -1
    cdef PyObject *place(self, uint32_t version, accumulator) except? NULL
    cdef int forget_version(self, uint32_t version) except -1
    cdef int forget(self) except -1
    cdef PyObject *recall(self, uint32_t version, uint64_t lsn) except? NULL with gil
    cdef described(self, uint32_t version)

    # Here, so that each segment costs no call.
    cdef inline PyObject *find(self, uint32_t version) noexcept nogil:
        return self.by_version[version] if version < self.version_capacity else NULL

    cdef inline PyObject *find_or_recall(
        self, uint32_t version, uint64_t lsn
    ) except? NULL nogil:
        """The accumulator of a version; NULL for a table that is not wanted."""
        cdef PyObject *found = self.find(version)
        return self.recall(version, lsn) if found == NULL else found
