"""Text of what full text search works with; see `_search.pyx`."""

from libc.stdint cimport uint8_t

from gaussdecode.wire._layout cimport Buffer

# Append what the server would print: HELD, MALFORMED or NO_TEXT.
cdef int put_tsvector(Buffer *out, const uint8_t *data, size_t size) except -1 nogil
cdef int put_tsquery(Buffer *out, const uint8_t *data, size_t size) except -1 nogil
