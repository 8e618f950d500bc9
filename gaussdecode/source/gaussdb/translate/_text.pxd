"""Rows of the text style; see `_text.pyx`."""

from libc.stdint cimport uint8_t

from gaussdecode.wire._cursor cimport Cursor
from gaussdecode.source.gaussdb.translate._row cimport Row


cdef int scan_text(
    Cursor *cursor, Row *row, const uint8_t *hint, size_t hint_size
) except -1 nogil
