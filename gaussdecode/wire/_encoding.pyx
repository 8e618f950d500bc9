"""From a database's encoding to UTF-8, without the GIL; the tables are `encoding`'s.

Given values as the server has them, in an encoding in which ASCII is itself and every other
code is made of bytes from 0x80 on. Promises UTF-8, or to say that some code has no letter; then
`append_kept` keeps the bytes of that code escaped, all of them, so that what follows is read
from its beginning.

References:
    PostgreSQL, wchar.c: pg_euc_mblen() and its relatives.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from gaussdecode.wire._layout cimport buffer_append, buffer_grow

from gaussdecode.errors import SourceRefusedError, WireError

cdef extern from "iconv.h":
    void *iconv_open(const char *to, const char *source) noexcept nogil
    int iconv_close(void *handle) noexcept nogil
    size_t iconv(
        void *handle, char **source, size_t *source_left, char **target, size_t *target_left
    ) noexcept nogil

cdef enum:
    SHIFT_TWO = 0x8E
    SHIFT_THREE = 0x8F
    HIGH = 128                  # values of a byte from 0x80 on
    SIZE_SHIFT = 56
    MAX_LETTER = 7              # bytes of UTF-8 that fit beside their number


cdef class _Table:
    """Owns the codes of one encoding."""

    cdef Codes codes

    def __dealloc__(self):
        free(self.codes.one)
        free(self.codes.two)
        free(self.codes.three)
        free(self.codes.four)


_tables = {}


cdef uint64_t *entry_of(Codes *codes, bytes code) except NULL:
    """Where a code's letter belongs; makes the table when it is the first."""
    cdef uint64_t **table = &codes.one
    cdef size_t count = HIGH
    cdef size_t size = len(code)
    cdef const uint8_t *byte = code
    cdef size_t index = byte[size - 1] & 0x7F
    if size > 1:
        index += <size_t>(byte[size - 2] & 0x7F) * HIGH
        count *= HIGH
        table = &codes.two
    if size == 3:
        table = &codes.three
    if size == 4:
        index += <size_t>(byte[1] & 0x7F) * HIGH * HIGH
        count *= HIGH
        table = &codes.four
    if table[0] == NULL:
        table[0] = <uint64_t *>calloc(count, sizeof(uint64_t))
        if table[0] == NULL:
            raise MemoryError("no memory for the table of an encoding")
    return table[0] + index


cdef const Codes *codes_of(uint32_t number) except NULL:
    """See `_encoding.pxd`."""
    cdef _Table table = _tables.get(number)
    if table is None:
        from gaussdecode.wire.encoding import ENCODINGS

        if number >= <size_t>len(ENCODINGS):
            raise WireError(f"unknown encoding {number}", 0)
        table = _Table()
        for code, letter in ENCODINGS[number].letters.items():
            text = letter.encode()
            if len(text) > MAX_LETTER:
                raise ValueError(f"{ENCODINGS[number].name}: {code.hex()} is too many letters")
            packed = int.from_bytes(text, "little") | len(text) << SIZE_SHIFT
            entry_of(&table.codes, code)[0] = packed
        _tables[number] = table
    return &table.codes


cdef inline size_t code_size(const Codes *codes, const uint8_t *text, size_t left) noexcept nogil:
    """Bytes of the code that begins here, which is not ASCII; 1 for one that is cut off."""
    cdef size_t size = 2
    cdef size_t index
    if codes.two == NULL:
        return 1
    if text[0] == SHIFT_THREE:
        size = 3
    elif text[0] == SHIFT_TWO and codes.four != NULL:
        size = 4
    if size > left:
        return 1
    for index in range(1, size):
        if text[index] < HIGH:
            return 1
    return size


cdef inline uint64_t letter_of(
    const Codes *codes, const uint8_t *text, size_t size
) noexcept nogil:
    """The packed letter of a code, or 0."""
    cdef const uint64_t *table = codes.one
    cdef size_t index = text[size - 1] & 0x7F
    if size == 2:
        table = codes.two
    elif size == 3:
        table = codes.three
    elif size == 4:
        table = codes.four
    if table == NULL:
        return 0
    if size > 1:
        index += <size_t>(text[size - 2] & 0x7F) * HIGH
    if size == 4:
        index += <size_t>(text[1] & 0x7F) * HIGH * HIGH
    return table[index]


cdef bint append_translated(
    Buffer *out, const Codes *codes, const uint8_t *text, size_t size
) except -1 nogil:
    """See `_encoding.pxd`."""
    cdef size_t begin = out.size
    cdef const uint8_t *end = text + size
    cdef uint64_t letter
    cdef size_t step
    cdef uint8_t *target
    # A letter takes at most three times the bytes of its code, and eight are written at once.
    buffer_grow(out, 3 * size + sizeof(uint64_t))
    target = out.data + out.size
    while text < end:
        if text[0] < HIGH:
            target[0] = text[0]
            target += 1
            text += 1
            continue
        step = code_size(codes, text, end - text)
        letter = letter_of(codes, text, step)
        if letter == 0:
            out.size = begin
            return False
        memcpy(target, &letter, sizeof(uint64_t))
        target += letter >> SIZE_SHIFT
        text += step
    out.size = target - out.data
    return True


cdef int append_kept(
    Buffer *out, const Codes *codes, const uint8_t *text, size_t size
) except -1 nogil:
    """See `_encoding.pxd`."""
    cdef const char *digits = b"0123456789abcdef"
    cdef const uint8_t *end = text + size
    cdef uint8_t[4] escape
    cdef uint64_t letter
    cdef size_t step
    escape[0] = c"\\"
    escape[1] = c"x"
    while text < end:
        if text[0] < HIGH:
            if text[0] == c"\\":
                buffer_append(out, text, 1)
            buffer_append(out, text, 1)
            text += 1
            continue
        step = code_size(codes, text, end - text)
        letter = letter_of(codes, text, step)
        if letter:
            buffer_append(out, &letter, letter >> SIZE_SHIFT)
            text += step
            continue
        while step:
            escape[2] = digits[text[0] >> 4]
            escape[3] = digits[text[0] & 15]
            buffer_append(out, escape, 4)
            text += 1
            step -= 1
    return 0


def translate(uint32_t number, bytes text not None):
    """Translate one value; the same as the decoder does, for use from Python.

    Args:
        number: of the encoding; 0 is UTF-8 itself.
        text: as the server has it.

    Returns:
        UTF-8 and True; or, when some code has no letter, what is kept of it and False.
    """
    cdef Buffer out
    cdef const Codes *codes
    cdef bint is_whole
    if number == 0 or text.isascii():
        return text, True
    out.data = NULL
    out.size = out.capacity = 0
    codes = codes_of(number)
    try:
        is_whole = append_translated(&out, codes, text, <size_t>len(text))
        if not is_whole:
            append_kept(&out, codes, text, <size_t>len(text))
        return (<const char *>out.data)[:out.size], is_whole
    finally:
        free(out.data)


def letters_of(str name not None, codes not None):
    """Ask the C library for the letters of codes.

    Args:
        name: iconv's, of the encoding.
        codes: each by itself.

    Returns:
        The letter of each code that has one.

    Raises:
        SourceRefusedError: this machine's C library does not know the encoding.
    """
    cdef char[16] room
    cdef char *source
    cdef char *target
    cdef size_t source_left, target_left
    cdef bytes code
    cdef void *handle = iconv_open(b"UTF-8", name.encode())
    if handle == <void *>-1:
        raise SourceRefusedError(
            f"this machine's C library cannot convert {name}; install its gconv modules"
        )
    found = {}
    try:
        for code in codes:
            source = code
            source_left = len(code)
            target = room
            target_left = sizeof(room)
            iconv(handle, NULL, NULL, NULL, NULL)
            if iconv(handle, &source, &source_left, &target, &target_left) != <size_t>-1:
                found[code] = room[:sizeof(room) - target_left].decode()
    finally:
        iconv_close(handle)
    return found
