"""Rows of the JSON style; see `_json.pyx`."""

from gaussdecode.wire._cursor cimport Cursor
from gaussdecode.source.gaussdb.translate._row cimport Row


cdef int scan_json(Cursor *cursor, Row *row) except -1 nogil
