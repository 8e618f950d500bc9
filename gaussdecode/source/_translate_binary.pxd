"""Rows of the binary style; see `_translate_binary.pyx`."""

from gaussdecode._cursor cimport Cursor
from gaussdecode.source._translate_row cimport Row


cdef int scan_binary(Cursor *cursor, Row *row) except -1 nogil
