"""From the database's encoding to UTF-8, without the GIL.

The server converts nothing in logical decoding: names and values come in the encoding of
the database. UTF8 and SQL_ASCII are passed on as they are; what is not UTF-8 there shows
when a value is stored. What has no letter in UTF-8 stays as it is too, with a byte that
UTF-8 never uses beside it if the whole would be UTF-8 by accident: so the decoder sees
that the value is none, and keeps its text with these bytes escaped.

References:
    iconv(3).
"""

from libc.errno cimport E2BIG, errno

from gaussdecode.wire._layout cimport buffer_append, buffer_free, buffer_grow
from gaussdecode.wire._values cimport is_utf8

from gaussdecode.errors import SourceRefusedError

cdef extern from "iconv.h":
    void *iconv_open(const char *to, const char *source) noexcept nogil
    int iconv_close(void *handle) noexcept nogil
    size_t iconv(
        void *handle, char **source, size_t *source_left, char **target, size_t *target_left
    ) noexcept nogil

cdef enum:
    NEVER_UTF8 = 0xFF

_AS_THEY_ARE = ("UTF8", "UTF-8", "SQL_ASCII")
# The server's name of an encoding and iconv's.
_ICONV_NAMES = {
    "GBK": b"GBK",
    "GB18030": b"GB18030",
    "GB18030_2022": b"GB18030",
    "LATIN1": b"ISO-8859-1",
}


cdef class Transcoder:
    """Converts from one encoding.

    Args:
        encoding: the server's name for it, as in `server_encoding`.

    Raises:
        SourceRefusedError: an encoding that is not supported, here or by this machine.
    """

    def __cinit__(self, str encoding not None):
        cdef void *handle
        self.encoding = encoding
        if encoding in _AS_THEY_ARE:
            return
        name = _ICONV_NAMES.get(encoding)
        if name is None:
            known = ", ".join(sorted({*_AS_THEY_ARE, *_ICONV_NAMES}))
            raise SourceRefusedError(
                f"database encoding {encoding} is not supported; supported are {known}"
            )
        handle = iconv_open(b"UTF-8", name)
        if handle == <void *>-1:
            raise SourceRefusedError(
                f"this machine's C library cannot convert {encoding}; install its gconv modules"
            )
        self.handle = handle

    def __dealloc__(self):
        if self.handle != NULL:
            iconv_close(self.handle)

    def transcode_bytes(self, bytes text not None):
        """Convert one text; the same as `append`, for use from Python.

        Returns:
            The converted bytes, and whether all could be converted.
        """
        cdef Buffer out
        cdef int is_whole
        out.data = NULL
        out.size = out.capacity = 0
        try:
            is_whole = self.append(&out, text, <size_t>len(text))
            return (<const char *>out.data)[:out.size], bool(is_whole)
        finally:
            buffer_free(&out)

    cdef int append(self, Buffer *out, const uint8_t *text, size_t size) except -1 nogil:
        """See `_transcode.pxd`."""
        cdef char *source = <char *>text
        cdef size_t left = size
        cdef size_t begin = out.size
        cdef size_t room
        cdef char *target
        cdef int is_whole = 1
        cdef uint8_t never = NEVER_UTF8
        if self.handle == NULL:
            buffer_append(out, text, size)
            return 1
        iconv(self.handle, NULL, NULL, NULL, NULL)
        while left:
            buffer_grow(out, left + (left >> 1) + 8)
            target = <char *>out.data + out.size
            room = out.capacity - out.size
            if iconv(self.handle, &source, &left, &target, &room) == <size_t>-1:
                out.size = target - <char *>out.data
                if errno != E2BIG:
                    is_whole = 0
                    buffer_append(out, source, 1)
                    source += 1
                    left -= 1
            else:
                out.size = target - <char *>out.data
        if not is_whole and is_utf8(out.data + begin, out.size - begin):
            buffer_append(out, &never, 1)
        return is_whole
