"""Rows as COPY prints them, into the same columns as those of the stream.

Given COPY's text form of one table in whole lines, rewrites each line as the Insert message
that the stream would have sent for the row, has the decoder of the stream decode it, and
appends the result to an accumulator as rows with the operation R. So a value lands in the
same way whichever way it came. Knows no connection, no position and no file: what is stamped
on the rows is filled in later.

    line    field TAB field ... NEWLINE; one empty field where the table has no columns
    field   \\N for NULL, else text in which \\b \\f \\n \\r \\t \\v and \\\\ are escaped

`sum_rows` makes a checksum of such lines: the sum of the hashes of all rows, in any order. What
is hashed of a row is, per column, ``v`` and the value, or ``n`` for NULL, and a tab; with
`hash_text`, so that the server can do the same.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

from gaussdecode.wire._layout cimport (
    ENTRY_DATA, RAW_MAGIC, TALLY_INSERT, Buffer, EntryHeader, MessageHeader, PartHeader,
    RawHeader, buffer_align, buffer_append, buffer_free, buffer_grow,
)
from gaussdecode.wire._letters cimport CELL_NULL, CELL_TEXT, IMAGE_NEW, LETTER_INSERT
from gaussdecode._wire cimport BatchDecoder
from gaussdecode.collect._columns cimport Accumulator, Stamp

from gaussdecode.errors import AccountError, WireError

cdef enum:
    HEAD_SIZE = 20              # size of the message, no LSN, I, oid, N, number of columns
    READ_SNAPSHOT = 82          # 'R'


cdef int fail_count(uint32_t lines, uint64_t rows) except -1 with gil:
    raise AccountError(f"{lines} lines of a table became {rows} rows: nothing of them lands")


cdef int fail_line(const char *reason, Py_ssize_t offset) except -1 with gil:
    """Raise WireError; cold."""
    raise WireError(f"COPY: {reason.decode()}", offset)


cdef inline void store_uint32(uint8_t *out, uint32_t value) noexcept nogil:
    """Write a number as the wire has it, big-endian."""
    out[0] = <uint8_t>(value >> 24)
    out[1] = <uint8_t>(value >> 16)
    out[2] = <uint8_t>(value >> 8)
    out[3] = <uint8_t>value


cdef inline uint8_t unescaped(uint8_t letter) noexcept nogil:
    """The character that a letter after a backslash stands for."""
    if letter == c"n":
        return c"\n"
    if letter == c"t":
        return c"\t"
    if letter == c"r":
        return c"\r"
    if letter == c"b":
        return 8
    if letter == c"f":
        return 12
    if letter == c"v":
        return 11
    return letter


cdef inline uint32_t rotated(uint32_t value, int count) noexcept nogil:
    return value << count | value >> (32 - count)


cdef inline uint32_t word(const uint8_t *data, size_t size) noexcept nogil:
    """Up to four bytes as a number, the first one lowest."""
    cdef uint32_t value = 0
    cdef size_t index
    for index in range(size):
        value |= <uint32_t>data[index] << (8 * index)
    return value


cdef int32_t hash_bytes(const uint8_t *data, size_t size) noexcept nogil:
    """Jenkins' lookup3 with the server's start value, as ``hashtext()`` has it.

    References:
        PostgreSQL, hashfn.c, hash_bytes(); Bob Jenkins, lookup3.c, hashlittle().
    """
    cdef uint32_t a = 2658358864U + <uint32_t>size  # the golden ratio, and the server's 3923095
    cdef uint32_t b = a
    cdef uint32_t c = a
    while size >= 12:
        a += word(data, 4)
        b += word(data + 4, 4)
        c += word(data + 8, 4)
        a = (a - c) ^ rotated(c, 4)
        c += b
        b = (b - a) ^ rotated(a, 6)
        a += c
        c = (c - b) ^ rotated(b, 8)
        b += a
        a = (a - c) ^ rotated(c, 16)
        c += b
        b = (b - a) ^ rotated(a, 19)
        a += c
        c = (c - b) ^ rotated(b, 4)
        b += a
        data += 12
        size -= 12
    a += word(data, size if size < 4 else 4)
    if size > 4:
        b += word(data + 4, (size if size < 8 else 8) - 4)
    if size > 8:
        c += word(data + 8, size - 8) << 8  # its lowest byte is the length's
    c = (c ^ b) - rotated(b, 14)
    a = (a ^ c) - rotated(c, 11)
    b = (b ^ a) - rotated(a, 25)
    c = (c ^ b) - rotated(b, 16)
    a = (a ^ c) - rotated(c, 4)
    b = (b ^ a) - rotated(a, 14)
    c = (c ^ b) - rotated(b, 24)
    return <int32_t>c


def hash_text(bytes text not None):
    """What ``hashtext()`` of the server gives for a text in UTF-8."""
    return hash_bytes(text, len(text))


cdef uint8_t *plain_field(
    uint8_t *out, const uint8_t *next, const uint8_t *stop
) noexcept nogil:
    """Write what is hashed of one field; gives where the next begins."""
    if stop - next == 2 and next[0] == c"\\" and next[1] == c"N":
        out[0] = CELL_NULL
        out[1] = c"\t"
        return out + 2
    out[0] = c"v"
    out += 1
    while next < stop:
        if next[0] == c"\\" and next + 1 < stop:
            next += 1
            out[0] = unescaped(next[0])
        else:
            out[0] = next[0]
        next += 1
        out += 1
    out[0] = c"\t"
    return out + 1


cdef int64_t hash_line(Buffer *row, const uint8_t *next, const uint8_t *stop) except? -1 nogil:
    """Hash one row of at least one column."""
    cdef uint8_t *out
    cdef const uint8_t *tab
    row.size = 0
    buffer_grow(row, 2 * (stop - next) + 3)  # a tab may begin an empty field
    out = row.data
    while True:
        tab = <const uint8_t *>memchr(next, c"\t", stop - next) if stop > next else NULL
        if tab == NULL:
            out = plain_field(out, next, stop)
            return hash_bytes(row.data, out - row.data)
        out = plain_field(out, next, tab)
        next = tab + 1


def sum_rows(bytes lines not None, bint has_columns=True):
    """Add up the hashes of rows.

    Args:
        lines: of COPY's text form, each with its newline.
        has_columns: a line of a table without columns is no empty value.

    Raises:
        WireError: a line without its end.
    """
    cdef const uint8_t *next = lines
    cdef const uint8_t *end = next + len(lines)
    cdef const uint8_t *stop
    cdef int64_t total = 0
    cdef Buffer row
    memset(&row, 0, sizeof(Buffer))
    try:
        with nogil:
            while next < end:
                stop = <const uint8_t *>memchr(next, c"\n", end - next)
                if stop == NULL:
                    fail_line(b"a line without its end", 0)
                total += hash_line(&row, next, stop) if has_columns else hash_bytes(next, 0)
                next = stop + 1
    finally:
        buffer_free(&row)
    return total


cdef class CopyRows:
    """Decodes rows of one table into an accumulator.

    Args:
        relation: record of the table, as the reader tells it to decoders.
        oid: of the table in that record.
        column_count: of the table.
        accumulator: of the table.
    """

    cdef BatchDecoder decoder
    cdef Accumulator accumulator
    cdef bytes relation
    cdef uint32_t oid
    cdef uint16_t column_count
    cdef Buffer batch
    cdef Buffer decoded
    cdef bint is_told               # the decoder knows the relation

    def __cinit__(
        self, bytes relation not None, uint32_t oid, uint16_t column_count,
        Accumulator accumulator not None,
    ):
        self.decoder = BatchDecoder()
        self.relation = relation
        self.oid = oid
        self.column_count = column_count
        self.accumulator = accumulator

    def __dealloc__(self):
        buffer_free(&self.batch)
        buffer_free(&self.decoded)

    def add(self, bytes lines not None):
        """Decode whole lines and append them to the accumulator.

        Args:
            lines: of COPY's text form, each with its newline.

        Returns:
            The number of rows.

        Raises:
            WireError: this is not what COPY prints for this table.
        """
        cdef const uint8_t *text = lines
        cdef const uint8_t *relation = self.relation
        cdef size_t size = len(lines)
        cdef size_t relation_size = len(self.relation)
        cdef uint32_t count
        with nogil:
            self.begin(relation, relation_size)
            count = self.convert(text, size)
            self.decode(count)
        self.is_told = True
        return count

    cdef int begin(self, const uint8_t *relation, size_t size) except -1 nogil:
        """Start a raw batch, with the relation when it is the first."""
        cdef RawHeader header
        memset(&header, 0, sizeof(RawHeader))
        header.magic = RAW_MAGIC
        header.kind = ENTRY_DATA
        self.batch.size = 0
        buffer_append(&self.batch, &header, sizeof(RawHeader))
        if not self.is_told:
            header.relation_count = 1
            buffer_append(&self.batch, relation, size)
        buffer_align(&self.batch)
        header.message_offset = self.batch.size
        memcpy(self.batch.data, &header, sizeof(RawHeader))
        return 0

    cdef uint32_t convert(self, const uint8_t *text, size_t size) except? 0xFFFFFFFF nogil:
        """Make one message of each line; gives how many."""
        cdef const uint8_t *next = text
        cdef const uint8_t *end = text + size
        cdef const uint8_t *stop
        cdef uint32_t count = 0
        while next < end:
            stop = <const uint8_t *>memchr(next, c"\n", end - next)
            if stop == NULL:
                fail_line(b"a line without its end", next - text)
            self.convert_line(next, stop, next - text)
            next = stop + 1
            count += 1
        return count

    cdef int convert_line(
        self, const uint8_t *next, const uint8_t *stop, Py_ssize_t offset
    ) except -1 nogil:
        """Append one Insert message; a field never grows by being unescaped."""
        cdef size_t start = self.batch.size
        cdef const uint8_t *tab
        cdef uint8_t *out
        cdef MessageHeader message
        cdef uint16_t index
        # Five bytes before each field, of which the tab that ends it is one.
        buffer_grow(&self.batch, HEAD_SIZE + (stop - next) + 5 * <size_t>self.column_count + 1)
        out = self.batch.data + start
        out[12] = LETTER_INSERT
        store_uint32(out + 13, self.oid)
        out[17] = IMAGE_NEW
        out[18] = <uint8_t>(self.column_count >> 8)
        out[19] = <uint8_t>self.column_count
        out += HEAD_SIZE
        for index in range(self.column_count):
            tab = <const uint8_t *>memchr(next, c"\t", stop - next)
            if (tab == NULL) != (index == self.column_count - 1):
                fail_line(b"a line with another number of fields than columns", offset)
            if tab == NULL:
                tab = stop
            if tab - next == 2 and next[0] == c"\\" and next[1] == c"N":
                out[0] = CELL_NULL
                out += 1
            else:
                out = self.convert_field(out, next, tab)
            next = tab + 1
        if self.column_count == 0 and next != stop:
            fail_line(b"a field where the table has no columns", offset)
        self.batch.size = out - self.batch.data
        message.size = <uint32_t>(self.batch.size - start - sizeof(MessageHeader))
        message.lsn = 0
        memcpy(self.batch.data + start, &message, sizeof(MessageHeader))
        return 0

    cdef uint8_t *convert_field(
        self, uint8_t *out, const uint8_t *next, const uint8_t *stop
    ) noexcept nogil:
        """Write one value and its length; gives where the next begins."""
        cdef uint8_t *head = out
        cdef const uint8_t *escape
        out[0] = CELL_TEXT
        out += 5
        while True:
            escape = <const uint8_t *>memchr(next, c"\\", stop - next) if stop > next else NULL
            if escape == NULL or escape + 1 >= stop:
                memcpy(out, next, stop - next)
                out += stop - next
                break
            memcpy(out, next, escape - next)
            out += escape - next
            out[0] = unescaped(escape[1])
            out += 1
            next = escape + 2
        store_uint32(head + 1, <uint32_t>(out - head - 5))
        return out

    cdef int decode(self, uint32_t count) except -1 nogil:
        """Close the batch, decode it, and append what came out."""
        cdef RawHeader header
        cdef EntryHeader entry
        cdef PartHeader part
        cdef Stamp stamp
        cdef uint32_t index
        memcpy(&header, self.batch.data, sizeof(RawHeader))
        header.message_count = count
        header.size = self.batch.size
        header.framed.count[<int>TALLY_INSERT] = count
        memcpy(self.batch.data, &header, sizeof(RawHeader))
        self.decoder.decode(self.batch.data, self.batch.size, &self.decoded, True)
        memcpy(&entry, self.decoded.data, sizeof(EntryHeader))
        if entry.row_count != count:
            fail_count(count, entry.row_count)
        memset(&stamp, 0, sizeof(Stamp))
        for index in range(entry.part_count):
            memcpy(
                &part, self.decoded.data + entry.part_offset + index * sizeof(PartHeader),
                sizeof(PartHeader),
            )
            memset(self.decoded.data + part.op_offset, READ_SNAPSHOT, part.row_count)
            self.accumulator.append(
                self.decoded.data, &part, 0, part.row_count, &stamp, 0, True, 0, NULL
            )
        self.accumulator.measure()
        return 0
