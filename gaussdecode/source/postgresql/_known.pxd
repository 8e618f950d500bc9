"""The nogil side of `source.postgresql._known`."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct KnownEntry:
    uint64_t key                # 0: free
    uint8_t *data               # owned; NULL while it is on disk
    size_t size
    uint64_t offset             # of its place in the file, when `room` is not 0
    size_t room                 # bytes of that place
    bint is_written             # the file holds these bytes
    bint is_used                # since the hand of the clock came by


cdef class KnownMessages:
    cdef KnownEntry *entries
    cdef size_t capacity        # a power of two
    cdef readonly size_t count
    cdef size_t most            # of `count`
    cdef readonly size_t forgotten_count
    cdef size_t memory_limit
    cdef readonly size_t held_bytes     # in memory
    cdef readonly size_t eviction_count
    cdef size_t hand            # of the clock that chooses what goes to disk
    cdef str directory
    cdef bint has_tried         # to open the file, with the first that goes to disk
    cdef int fd
    cdef readonly uint64_t file_bytes

    cdef KnownEntry *find(self, uint64_t key) noexcept nogil
    # 1 = the last message of this letter and OID had the same bytes.
    cdef bint is_repeat(
        self, uint8_t tag, uint32_t oid, const uint8_t *data, size_t size
    ) noexcept nogil
    cdef bint is_same_on_disk(
        self, KnownEntry *entry, const uint8_t *data, size_t size
    ) noexcept nogil
    cdef int remember(self, uint8_t tag, uint32_t oid, const uint8_t *data, size_t size) except -1
    cdef KnownEntry forget(self) noexcept
    cdef void remove(self, size_t hole) noexcept nogil
    cdef int evict(self) except -1
    cdef int write(self, KnownEntry *entry) noexcept
    cdef int open_file(self) except -1
    cdef int grow(self) except -1
