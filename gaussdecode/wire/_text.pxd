"""Text of any value that was sent in binary; see `_text.pyx`."""

from libc.stdint cimport uint8_t

from gaussdecode.wire._layout cimport Buffer, SentNode

cdef enum:
    ARRAY_HEAD = 12

cdef int check_array(const uint8_t *data, size_t size) noexcept nogil

# Append what the server would print: HELD, MALFORMED or NO_TEXT.
cdef int put_text(
    Buffer *out, const SentNode *node, const uint8_t *data, size_t size
) except -1 nogil
