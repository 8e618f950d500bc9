"""Rows of the JSON style; see `_translate_json.pyx`."""

from gaussdecode._cursor cimport Cursor
from gaussdecode.source._translate_row cimport Row


cdef int scan_json(Cursor *cursor, Row *row) except -1 nogil
