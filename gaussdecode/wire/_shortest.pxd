"""Floats as the server prints them; see `_shortest.pyx`."""

from gaussdecode.wire._layout cimport Buffer


cdef int put_float64(Buffer *out, double value) except -1 nogil
cdef int put_float32(Buffer *out, float value) except -1 nogil
