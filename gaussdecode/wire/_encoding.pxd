"""The nogil side of `_encoding`."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gaussdecode.wire._layout cimport Buffer

cdef struct Codes:
    # One entry per code: its UTF-8 from the lowest byte on, and its size in the highest one;
    # 0 for a code without a letter. A table that the encoding does not use is NULL.
    uint64_t *one               # 128, by byte
    uint64_t *two               # 128 x 128, by both bytes
    uint64_t *three             # likewise, by the last two; the first is 0x8F
    uint64_t *four              # 128 x 128 x 128, by the last three; the first is 0x8E


# Append `size` bytes as UTF-8. Returns 1, or 0 when some could not be translated: then
# nothing is appended.
cdef bint append_translated(
    Buffer *out, const Codes *codes, const uint8_t *text, size_t size
) except -1 nogil
# Append what can be translated, other bytes as `\xNN`, and backslashes doubled.
cdef int append_kept(
    Buffer *out, const Codes *codes, const uint8_t *text, size_t size
) except -1 nogil
# The codes of an encoding by its number, which is not 0; they are never freed.
cdef const Codes *codes_of(uint32_t number) except NULL
