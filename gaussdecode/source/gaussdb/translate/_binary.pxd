"""Rows of the binary style; see `_binary.pyx`."""

from gaussdecode.wire._cursor cimport Cursor
from gaussdecode.source.gaussdb.translate._row cimport Row


cdef int scan_binary(Cursor *cursor, Row *row) except -1 nogil
