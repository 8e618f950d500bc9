"""Rows of sql_decoding; see `_sql.pyx`."""

from gaussdecode.wire._cursor cimport Cursor
from gaussdecode.source.gaussdb.translate._row cimport Row


cdef int scan_sql(Cursor *cursor, Row *row) except -1 nogil
