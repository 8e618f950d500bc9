"""The lines of COPY TO STDOUT, out of the messages that carry them.

    CopyData    'd', length u32 (of itself and the body), body

Given bytes as they came, gives the bodies of the whole CopyData messages at their head,
joined, and how many bytes these messages took. What follows, part of one or another
message, is the caller's. A server sends a message per row; a loop in Python would cost
more than decoding the row.

`respell` gives GaussDB's values the spelling that the stream's translator gives them: hex
digits of raw and blob a head, numerics that land as text one and the same form.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcpy, memset

from gaussdecode.wire._layout cimport Buffer, buffer_append, buffer_free
from gaussdecode.source.gaussdb.translate._emit cimport append_byte, append_number

from gaussdecode.errors import WireError

cdef enum:
    HEADER_SIZE = 5             # type and length
    LENGTH_SIZE = 4
    AS_HEX = 1                  # `export.Spelling`
    AS_NUMBER = 2


cdef inline uint32_t length_of(const uint8_t *message) noexcept nogil:
    """The length that a message says, of itself and the body."""
    return (
        <uint32_t>message[1] << 24 | <uint32_t>message[2] << 16
        | <uint32_t>message[3] << 8 | message[4]
    )


cdef int fail_length(uint32_t length, Py_ssize_t limit, Py_ssize_t offset) except -1 with gil:
    """Raise WireError; cold."""
    raise WireError(f"a copied row of {length} bytes; allowed: {LENGTH_SIZE} to {limit}", offset)


cdef Py_ssize_t measure(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t limit, Py_ssize_t *lines
) except -1 nogil:
    """Find where the whole CopyData messages end, and how long their bodies are."""
    cdef Py_ssize_t at = 0
    cdef uint32_t length
    lines[0] = 0
    while size - at >= HEADER_SIZE and data[at] == c"d":
        length = length_of(data + at)
        if length < LENGTH_SIZE or <Py_ssize_t>length > limit:
            fail_length(length, limit, at)
        if size - at - 1 < <Py_ssize_t>length:
            break
        lines[0] += length - LENGTH_SIZE
        at += 1 + <Py_ssize_t>length
    return at


def take_lines(const uint8_t[::1] data, Py_ssize_t limit_bytes):
    """Take the lines at the head of what was received.

    Args:
        data: from the first byte of a message.
        limit_bytes: a longer message is an error.

    Returns:
        The lines, and the number of bytes of `data` that were used.

    Raises:
        WireError: a length that cannot be.
    """
    cdef Py_ssize_t size = data.shape[0]
    cdef Py_ssize_t lines = 0, stop, at = 0, body
    cdef const uint8_t *source
    cdef char *target
    if size == 0:
        return b"", 0
    source = &data[0]
    stop = measure(source, size, limit_bytes, &lines)
    joined = PyBytes_FromStringAndSize(NULL, lines)
    target = PyBytes_AS_STRING(joined)
    with nogil:
        while at < stop:
            body = <Py_ssize_t>length_of(source + at) - LENGTH_SIZE
            memcpy(target, source + at + HEADER_SIZE, body)
            target += body
            at += HEADER_SIZE + body
    return joined, stop


cdef int append_field(
    Buffer *out, uint8_t form, const uint8_t *field, size_t size
) except -1 nogil:
    """Append one field of a line in its new spelling."""
    if size == 2 and field[0] == c"\\":  # NULL
        return buffer_append(out, field, size)
    if form == AS_HEX:
        buffer_append(out, b"\\\\x", 3)
    elif form == AS_NUMBER:
        return append_number(out, field, size)
    return buffer_append(out, field, size)


cdef int append_line(
    Buffer *out, const uint8_t *forms, size_t count, const uint8_t *next, const uint8_t *stop
) except -1 nogil:
    """Append one line, up to and without its end."""
    cdef const uint8_t *tab
    cdef size_t index
    for index in range(count):
        tab = <const uint8_t *>memchr(next, c"\t", stop - next) if stop > next else NULL
        if tab == NULL:
            return append_field(out, forms[index], next, stop - next)
        append_field(out, forms[index], next, tab - next)
        append_byte(out, c"\t")
        next = tab + 1
    return buffer_append(out, next, stop - next)


def respell(bytes lines not None, bytes forms not None):
    """Spell the values of whole lines anew.

    Args:
        lines: of COPY's text form.
        forms: `export.Spelling` of each column.
    """
    cdef const uint8_t *next = lines
    cdef const uint8_t *end = next + len(lines)
    cdef const uint8_t *letters = forms
    cdef const uint8_t *stop
    cdef size_t count = len(forms)
    cdef Buffer out
    memset(&out, 0, sizeof(Buffer))
    try:
        with nogil:
            while next < end:
                stop = <const uint8_t *>memchr(next, c"\n", end - next)
                if stop == NULL:
                    stop = end
                append_line(&out, letters, count, next, stop)
                if stop < end:
                    append_byte(&out, c"\n")
                next = stop + 1
        return (<const char *>out.data)[:out.size] if out.size else b""
    finally:
        buffer_free(&out)
