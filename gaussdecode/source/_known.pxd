"""The nogil side of `source._known`."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct KnownEntry:
    uint64_t key                # 0: free
    uint8_t *data               # owned
    size_t size


cdef class KnownMessages:
    cdef KnownEntry *entries
    cdef size_t capacity        # a power of two
    cdef readonly size_t count

    cdef KnownEntry *find(self, uint64_t key) noexcept nogil
    # 1 = the last message of this letter and OID had the same bytes.
    cdef bint is_repeat(
        self, uint8_t tag, uint32_t oid, const uint8_t *data, size_t size
    ) noexcept nogil
    cdef int remember(self, uint8_t tag, uint32_t oid, const uint8_t *data, size_t size) except -1
    cdef int grow(self) except -1
