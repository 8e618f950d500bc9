"""Rows of sql_decoding; see `_translate_sql.pyx`."""

from gaussdecode._cursor cimport Cursor
from gaussdecode.source._translate_row cimport Row


cdef int scan_sql(Cursor *cursor, Row *row) except -1 nogil
