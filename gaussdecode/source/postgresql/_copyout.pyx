"""Rows of COPY TO STDOUT, by the megabyte.

Given a connection that has begun to copy out; promises its lines, in order and whole, as
bytes of about the size asked for. libpq hands over one row at a time; gathering them is a
loop without the GIL. It blocks on the socket: the server's statement_timeout bounds it, and
a cancellation from another thread ends it.
"""

from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from gaussdecode.source._libpq cimport freemem_t, get_copy_data_t


cdef class CopyOut:
    """One COPY that is under way.

    Args:
        connection: address of the ``PGconn``; it must outlive this.
        addresses: of libpq's functions, by name.

    Attributes:
        has_failed: the server or the connection broke off; ask the connection why.
        is_waiting: a row is being read from the server.
        progress: rows that have come.
    """

    cdef void *connection
    cdef get_copy_data_t get_copy_data
    cdef freemem_t freemem
    cdef char *data
    cdef size_t capacity
    cdef bint is_done
    cdef readonly bint has_failed
    cdef readonly bint is_waiting
    cdef readonly unsigned long long progress

    def __cinit__(self, uintptr_t connection, dict addresses not None):
        self.connection = <void *>connection
        self.get_copy_data = <get_copy_data_t><uintptr_t>addresses["PQgetCopyData"]
        self.freemem = <freemem_t><uintptr_t>addresses["PQfreemem"]

    def __dealloc__(self):
        free(self.data)

    def read(self, size_t wanted):
        """Read whole lines until there are so many bytes, or no more.

        Returns:
            The lines; empty at the end, also when it ended by a failure.
        """
        cdef size_t size
        with nogil:
            size = self.fill(wanted)
        return (<const char *>self.data)[:size] if size else b""

    cdef size_t fill(self, size_t wanted) except? 0 nogil:
        cdef char *row = NULL
        cdef size_t size = 0
        cdef int got
        while not self.is_done and size < wanted:
            self.is_waiting = True
            got = self.get_copy_data(self.connection, &row, 0)
            self.is_waiting = False
            self.progress += 1
            if got < 0:
                self.is_done = True
                self.has_failed = got == -2
                break
            try:
                self.reserve(size + got)
                memcpy(self.data + size, row, got)
            finally:
                self.freemem(row)
            size += got
        return size

    cdef int reserve(self, size_t need) except -1 nogil:
        cdef char *moved
        cdef size_t capacity = self.capacity + self.capacity // 2
        if need <= self.capacity:
            return 0
        if capacity < need:
            capacity = need
        moved = <char *>(realloc(self.data, capacity) if self.data else malloc(capacity))
        if moved == NULL:
            with gil:
                raise MemoryError("no memory for rows that are copied")
        self.data = moved
        self.capacity = capacity
        return 0
