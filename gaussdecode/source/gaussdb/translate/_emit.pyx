"""Texts of values as canonical messages spell them."""

from libc.string cimport memchr, memcmp


cdef int append_single(Buffer *out, const uint8_t *text, size_t size) except -1 nogil:
    """Append a text without every second of its quotes, which stand in pairs."""
    cdef const uint8_t *end = text + size
    cdef const uint8_t *quote
    while text < end:
        quote = <const uint8_t *>memchr(text, c"'", end - text)
        if quote == NULL:
            return buffer_append(out, text, end - text)
        buffer_append(out, text, quote + 1 - text)
        text = quote + 2
    return 0


cdef int append_number(Buffer *out, const uint8_t *text, size_t size) except -1 nogil:
    """Append a numeric, or an array of them, with its leading zeros and long words."""
    cdef const uint8_t *end = text + size
    cdef uint8_t before = c"{"
    while text < end:
        if text[0] == c"." and (before == c"{" or before == c"," or before == c"-"):
            append_byte(out, c"0")
        elif end - text >= 3 and memcmp(text, b"Nan", 3) == 0:
            buffer_append(out, b"NaN", 3)
            text += 3
            continue
        elif end - text >= 3 and memcmp(text, b"Inf", 3) == 0 and (
            end - text == 3 or text[3] != c"i"
        ):
            buffer_append(out, b"Infinity", 8)
            text += 3
            continue
        before = text[0]
        append_byte(out, before)
        text += 1
    return 0
