"""The Relation and Type messages that were seen last, to tell repeats from news.

Servers send a table's Relation again after every VACUUM or ANALYZE; as long as the bytes
are those of the last one for the OID, nothing has changed. A hash table from letter and
OID to the bytes, which it owns; open addressing, at most half full. It lives as long as the
connection.

Above the memory limit (option desc-memory-limit) bytes go to a file without a name, those
of tables that were long quiet first, and are compared there when their table is described
again. Above the number of messages that are kept, those that were long quiet are forgotten.
Nothing is lost by either: what was forgotten, or what the disk would not take or give back,
counts as news, which costs a repeated definition and changes nothing.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset
from posix.types cimport off_t
from posix.unistd cimport close, pread, pwrite

import os
import tempfile

cdef enum:
    FIRST_CAPACITY = 256
    MOST_MESSAGES = 200000      # 100,000 tables and as many types; arbitrary
    CHUNK_BYTES = 4096          # compared at a time with what is on disk


cdef inline size_t home(uint64_t key) noexcept nogil:
    """Where the search for a key begins, before it is cut to the table's size."""
    return <size_t>(key * <uint64_t>0x9E3779B97F4A7C15 >> 32)


cdef class KnownMessages:
    """Last bytes by letter and OID.

    Args:
        memory_limit: bytes of messages above which they go to disk; 0 for no limit.
        directory: where the file is made, exists by then; None for the system's.
        most: messages that are kept, in memory or in the file.
    """

    def __cinit__(
        self, size_t memory_limit=0, str directory=None, size_t most=MOST_MESSAGES
    ):
        if most == 0:
            raise ValueError("a registry that keeps nothing")
        self.most = most
        self.capacity = FIRST_CAPACITY
        self.memory_limit = memory_limit
        self.directory = directory
        self.fd = -1
        self.entries = <KnownEntry *>calloc(self.capacity, sizeof(KnownEntry))
        if self.entries == NULL:
            raise MemoryError("no memory for the registry of relations")

    def __dealloc__(self):
        cdef size_t i
        if self.entries != NULL:
            for i in range(self.capacity):
                free(self.entries[i].data)
            free(self.entries)
        if self.fd >= 0:
            close(self.fd)

    cdef KnownEntry *find(self, uint64_t key) noexcept nogil:
        """The entry with this key, or the free one where it belongs."""
        cdef size_t at = home(key)
        while True:
            at &= self.capacity - 1
            if self.entries[at].key == key or self.entries[at].key == 0:
                return &self.entries[at]
            at += 1

    cdef bint is_repeat(
        self, uint8_t tag, uint32_t oid, const uint8_t *data, size_t size
    ) noexcept nogil:
        cdef KnownEntry *entry = self.find(<uint64_t>tag << 32 | oid)
        if entry.key == 0 or entry.size != size:
            return False
        entry.is_used = True
        if entry.data == NULL:
            return entry.is_written and self.is_same_on_disk(entry, data, size)
        return memcmp(entry.data, data, size) == 0

    cdef bint is_same_on_disk(
        self, KnownEntry *entry, const uint8_t *data, size_t size
    ) noexcept nogil:
        cdef uint8_t[CHUNK_BYTES] chunk
        cdef size_t at = 0
        cdef size_t want
        cdef ssize_t got
        while at < size:
            want = size - at if size - at < CHUNK_BYTES else CHUNK_BYTES
            got = pread(self.fd, chunk, want, <off_t>(entry.offset + at))
            if got <= 0 or memcmp(chunk, data + at, <size_t>got) != 0:
                return False
            at += <size_t>got
        return True

    cdef int remember(self, uint8_t tag, uint32_t oid, const uint8_t *data, size_t size) except -1:
        cdef uint64_t key = <uint64_t>tag << 32 | oid
        cdef KnownEntry *entry
        cdef KnownEntry place       # of a forgotten message, in the file
        cdef uint8_t *copied
        memset(&place, 0, sizeof(KnownEntry))
        if self.find(key).key == 0 and self.count >= self.most:
            place = self.forget()
        if self.count * 2 >= self.capacity:
            self.grow()
        copied = <uint8_t *>malloc(size if size else 1)
        if copied == NULL:
            raise MemoryError("no memory for the registry of relations")
        memcpy(copied, data, size)
        entry = self.find(key)
        if entry.key == 0:
            self.count += 1
            entry.key = key
            entry.offset = place.offset
            entry.room = place.room
        if entry.data != NULL:
            self.held_bytes -= entry.size
        free(entry.data)
        entry.data = copied
        entry.size = size
        entry.is_written = False
        entry.is_used = True
        self.held_bytes += size
        if self.memory_limit and self.held_bytes > self.memory_limit:
            self.evict()
        return 0

    cdef KnownEntry forget(self) noexcept:
        """Remove the message that was quiet for longest; gives what it was."""
        cdef KnownEntry *entry
        cdef KnownEntry gone
        while True:
            entry = &self.entries[self.hand]
            self.hand = (self.hand + 1) & (self.capacity - 1)
            if entry.key == 0:
                continue
            if entry.is_used:
                entry.is_used = False
                continue
            gone = entry[0]
            if gone.data != NULL:
                self.held_bytes -= gone.size
                free(gone.data)
            self.remove(<size_t>(entry - self.entries))
            self.forgotten_count += 1
            return gone

    cdef void remove(self, size_t hole) noexcept nogil:
        """Empty a place; what was put after it because it was taken moves up."""
        cdef size_t mask = self.capacity - 1
        cdef size_t at = hole
        self.count -= 1
        while True:
            at = (at + 1) & mask
            if self.entries[at].key == 0:
                break
            if ((at - home(self.entries[at].key)) & mask) >= ((at - hole) & mask):
                self.entries[hole] = self.entries[at]
                hole = at
        memset(&self.entries[hole], 0, sizeof(KnownEntry))

    cdef int evict(self) except -1:
        """Send bytes to disk until the limit holds; the hand passes over what was just used."""
        cdef KnownEntry *entry
        self.open_file()
        while self.held_bytes > self.memory_limit:
            entry = &self.entries[self.hand]
            self.hand = (self.hand + 1) & (self.capacity - 1)
            if entry.data == NULL:
                continue
            if entry.is_used:
                entry.is_used = False
                continue
            if not entry.is_written:
                self.write(entry)
            self.held_bytes -= entry.size
            free(entry.data)
            entry.data = NULL
            self.eviction_count += 1
        return 0

    cdef int write(self, KnownEntry *entry) noexcept:
        """Write bytes to their place; where the disk fails they count as never seen."""
        cdef size_t at = 0
        cdef ssize_t done
        if entry.room < entry.size:
            entry.offset = self.file_bytes
            entry.room = entry.size
            self.file_bytes += entry.size
        while at < entry.size:
            done = pwrite(self.fd, entry.data + at, entry.size - at, <off_t>(entry.offset + at))
            if done <= 0:
                return 0
            at += <size_t>done
        entry.is_written = True
        return 0

    cdef int open_file(self) except -1:
        if self.has_tried:
            return 0
        self.has_tried = True
        try:
            self.fd, name = tempfile.mkstemp(prefix=".descriptions-", dir=self.directory)
            os.unlink(name)
        except OSError:
            pass        # without a file, all that goes counts as never seen
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
        self.hand = 0
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
