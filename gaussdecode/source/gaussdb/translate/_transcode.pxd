"""From the database's encoding to UTF-8; see `_transcode.pyx`."""

cimport cython
from libc.stdint cimport uint8_t

from gaussdecode.wire._layout cimport Buffer


@cython.final
cdef class Transcoder:
    cdef void *handle           # of iconv; NULL: the bytes are passed on as they are
    cdef readonly str encoding

    # Append `size` bytes as UTF-8. Returns 1, or 0 when some could not be transcoded: these
    # are appended as they are, so that the whole is not UTF-8.
    cdef int append(self, Buffer *out, const uint8_t *text, size_t size) except -1 nogil
