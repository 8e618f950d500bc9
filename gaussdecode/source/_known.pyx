"""The Relation and Type messages that were seen last, to tell repeats from news.

Servers send a table's Relation again after every VACUUM or ANALYZE; as long as the bytes
are those of the last one for the OID, nothing has changed. A hash table from letter and
OID to the bytes, which it owns; open addressing, at most half full. Entries are never
removed: the registry lives as long as the connection.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from gaussdecode.errors import SourceRefusedError

cdef enum:
    FIRST_CAPACITY = 256
    MAX_MESSAGES = 200000       # 100,000 tables and as many types


cdef class KnownMessages:
    """Last bytes by letter and OID."""

    def __cinit__(self):
        self.capacity = FIRST_CAPACITY
        self.entries = <KnownEntry *>calloc(self.capacity, sizeof(KnownEntry))
        if self.entries == NULL:
            raise MemoryError("no memory for the registry of relations")

    def __dealloc__(self):
        cdef size_t i
        if self.entries != NULL:
            for i in range(self.capacity):
                free(self.entries[i].data)
            free(self.entries)

    cdef KnownEntry *find(self, uint64_t key) noexcept nogil:
        """The entry with this key, or the free one where it belongs."""
        cdef size_t at = <size_t>(key * <uint64_t>0x9E3779B97F4A7C15 >> 32)
        while True:
            at &= self.capacity - 1
            if self.entries[at].key == key or self.entries[at].key == 0:
                return &self.entries[at]
            at += 1

    cdef bint is_repeat(
        self, uint8_t tag, uint32_t oid, const uint8_t *data, size_t size
    ) noexcept nogil:
        cdef KnownEntry *entry = self.find(<uint64_t>tag << 32 | oid)
        return entry.key != 0 and entry.size == size and memcmp(entry.data, data, size) == 0

    cdef int remember(self, uint8_t tag, uint32_t oid, const uint8_t *data, size_t size) except -1:
        cdef KnownEntry *entry
        cdef uint8_t *copied
        if self.count >= MAX_MESSAGES:
            raise SourceRefusedError(
                f"the stream describes more than {MAX_MESSAGES} tables and types; "
                "publish fewer tables per slot"
            )
        if self.count * 2 >= self.capacity:
            self.grow()
        copied = <uint8_t *>malloc(size if size else 1)
        if copied == NULL:
            raise MemoryError("no memory for the registry of relations")
        memcpy(copied, data, size)
        entry = self.find(<uint64_t>tag << 32 | oid)
        if entry.key == 0:
            self.count += 1
            entry.key = <uint64_t>tag << 32 | oid
        free(entry.data)
        entry.data = copied
        entry.size = size
        return 0

    cdef int grow(self) except -1:
        cdef KnownEntry *old = self.entries
        cdef size_t old_capacity = self.capacity
        cdef KnownEntry *wider
        cdef size_t i
        wider = <KnownEntry *>calloc(old_capacity * 2, sizeof(KnownEntry))
        if wider == NULL:
            raise MemoryError("no memory for the registry of relations")
        self.entries = wider
        self.capacity = old_capacity * 2
        for i in range(old_capacity):
            if old[i].key != 0:
                self.find(old[i].key)[0] = old[i]
        free(old)
        return 0

    # For tests.

    def seen(self, bytes message not None, uint32_t oid):
        """Say whether `message` repeats the last one of its letter and OID; if not, keep it."""
        cdef const uint8_t *data = message
        if self.is_repeat(data[0], oid, data, <size_t>len(message)):
            return True
        self.remember(data[0], oid, data, <size_t>len(message))
        return False
