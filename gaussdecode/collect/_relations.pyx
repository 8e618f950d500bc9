"""Finds the accumulator that the rows of a relation version go to.

A version is registered when the stream describes it. The description of one in a block of a
streamed transaction is only remembered: its accumulator is asked for when rows of it are released,
since a transaction that is rolled back must change no table. So is one behind a logical message of
its transaction, which may be DDL that tells its columns, and one of a version that was forgotten.

Versions are numbers of one connection. What is in the file of a prepared transaction has those of
another one: `of_file` gives a part of its own for them.
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memset

from gaussdecode.errors import SequenceError


cdef class Relations:
    """The versions of one connection.

    Args:
        tables: gives the accumulator of a relation version; see `TableSource` in `_assembler.pyi`.
            Called with the GIL held, rarely.
    """

    def __cinit__(self, tables):
        self.tables = tables
        self.accumulators = []
        self.definitions = {}

    def __dealloc__(self):
        free(self.by_version)

    cdef int register(
        self, const uint8_t *entry, const Event *event, bint is_later
    ) except -1 with gil:
        """Make an accumulator for a new version; with `is_later`, only when it has rows."""
        cdef uint32_t version = event.index
        if version < self.version_capacity and version < len(self.accumulators) and (
            self.accumulators[version] is not None
        ):
            return 0
        self.make_room(version)
        definition = (<const char *>entry + event.payload_offset)[:event.payload_size]
        if is_later or event.flags & 1:
            self.definitions[version] = definition
        else:
            self.place(version, self.tables.register(version, definition))
        return 0

    cdef Relations of_file(self, file):
        """The versions of the connection that a prepared transaction's file is of."""
        cdef Relations others = Relations(self.tables)
        for version, definition in file.relations.items():
            others.make_room(version)
            others.place(
                version, None if definition is None else self.tables.prepared_table(definition)
            )
        return others

    cdef int make_room(self, uint32_t version) except -1:
        """Have the tables by version reach to one."""
        cdef uint32_t capacity
        cdef void *moved
        while len(self.accumulators) <= version:
            self.accumulators.append(None)
        if version >= self.version_capacity:
            capacity = 2 * version + 64
            moved = realloc(self.by_version, capacity * sizeof(PyObject *))
            if moved == NULL:
                raise MemoryError("no memory for the table of relation versions")
            self.by_version = <PyObject **>moved
            memset(
                &self.by_version[self.version_capacity], 0,
                (capacity - self.version_capacity) * sizeof(PyObject *),
            )
            self.version_capacity = capacity
        return 0

    cdef PyObject *place(self, uint32_t version, accumulator) except? NULL:
        """Remember where a version lands; None: nowhere."""
        self.accumulators[version] = False if accumulator is None else accumulator
        self.by_version[version] = NULL if accumulator is None else <PyObject *>accumulator
        return self.by_version[version]

    cdef int forget_version(self, uint32_t version) except -1:
        """Let go of a version's accumulator, which has no rows, until there are some."""
        self.by_version[version] = NULL
        self.accumulators[version] = None
        return 0

    cdef int forget(self) except -1:
        """Give all accumulators back."""
        if self.version_capacity:
            memset(self.by_version, 0, self.version_capacity * sizeof(PyObject *))
        self.accumulators = []
        self.definitions = {}
        return 0

    cdef PyObject *recall(self, uint32_t version, uint64_t lsn) except? NULL with gil:
        cdef bint is_known = version < len(self.accumulators)
        if is_known and self.accumulators[version] is False:
            return NULL
        if version in self.definitions:
            return self.place(version, self.tables.register(version, self.definitions.pop(version)))
        accumulator = self.tables.recall(version) if is_known else None
        if accumulator is None:
            raise SequenceError(
                f"rows of relation version {version}, which was never described", lsn
            )
        return self.place(version, accumulator)

    cdef described(self, uint32_t version):
        """The description of a version; None for a table that does not land."""
        if version in self.definitions:
            return self.definitions[version]
        if version >= len(self.accumulators):
            raise SequenceError(f"rows of relation version {version}, which was never described", 0)
        accumulator = self.accumulators[version]
        return None if accumulator is False else self.tables.definition(version, accumulator)
