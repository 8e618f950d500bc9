"""Frame messages of an output plug-in for a client, many at once.

    CopyData  d, length i32, then XLogData: w, start i64, end i64, time i64, message
    DataRow   D, length i32, count i16, then for each column: length i32, text

Integers big-endian; a length counts itself. A framing function is given the messages of a block and
the range of those it is to frame.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

cdef enum:
    XLOG_HEADER = 30            # d, length, w, start, end, time
    ROW_HEADER = 7              # D, length, count
    LENGTH = 4
    MAX_MESSAGE = 0x3FFFFFF0    # as the server's MaxAllocSize
    LSN_TEXT = 17               # two numbers of eight digits and a slash
    NUMBER_TEXT = 20

cdef enum Column:
    COLUMN_LSN = 0
    COLUMN_XID = 1
    COLUMN_DATA = 2
    COLUMN_HEX = 3              # data as text of a bytea

cdef const char *_HEX = b"0123456789abcdef"


cdef int fail(str text) except -1:
    raise ValueError(text)


cdef int check(
    Py_ssize_t size, const int64_t[::1] ends, Py_ssize_t first, Py_ssize_t last
) except -1:
    """Every message of the range lies in the content, and none is too large."""
    cdef Py_ssize_t index
    cdef int64_t begin
    if first < 0 or last < first or last > ends.shape[0]:
        fail("a range outside of the messages")
    begin = 0 if first == 0 else ends[first - 1]
    if begin < 0:
        fail("a message begins before the content")
    for index in range(first, last):
        if ends[index] < begin or ends[index] > size:
            fail("a message ends outside of the content")
        if ends[index] - begin > MAX_MESSAGE:
            fail("a message is too large to be sent")
        begin = ends[index]
    return 0


cdef inline uint8_t *put(uint8_t *out, uint64_t value, int size) noexcept nogil:
    """Write an integer of `size` bytes; gives the place after it."""
    cdef int index
    for index in range(size):
        out[index] = <uint8_t>(value >> (8 * (size - 1 - index)))
    return out + size


def xlog_data(
    const uint8_t[::1] content,
    const int64_t[::1] ends,
    const uint64_t[::1] starts,
    const uint64_t[::1] stops,
    Py_ssize_t first,
    Py_ssize_t last,
    int64_t time_us,
):
    """Frame messages as CopyData with XLogData.

    Args:
        content: all messages, one after the other.
        ends: of length M: end of each message in `content`.
        starts: of length M: first LSN of each header.
        stops: of length M: second LSN of each header.
        first: first message of the range.
        last: the message after the range.
        time_us: microseconds since 2000.

    Returns:
        The bytes.

    Raises:
        ValueError: a message lies outside of the content, or is larger than the protocol allows.
    """
    check(content.shape[0], ends, first, last)
    if starts.shape[0] != ends.shape[0] or stops.shape[0] != ends.shape[0]:
        fail("arrays of different lengths")
    cdef int64_t begin = ends[first - 1] if first > 0 else 0
    cdef Py_ssize_t total = XLOG_HEADER * (last - first)
    if last > first:
        total += ends[last - 1] - begin
    cdef bytes framed = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(framed)
    cdef Py_ssize_t index
    cdef int64_t size
    with nogil:
        for index in range(first, last):
            size = ends[index] - begin
            out[0] = c"d"
            out = put(out + 1, XLOG_HEADER - 1 + size, 4)
            out[0] = c"w"
            out = put(out + 1, starts[index], 8)
            out = put(out, stops[index], 8)
            out = put(out, time_us, 8)
            if size > 0:
                memcpy(out, &content[begin], size)
            out += size
            begin = ends[index]
    return framed


cdef inline int64_t cell_size(int column, int64_t size) noexcept nogil:
    """Greatest length of a column's value."""
    if column == COLUMN_LSN:
        return LSN_TEXT
    if column == COLUMN_XID:
        return NUMBER_TEXT
    return size if column == COLUMN_DATA else 2 + 2 * size


cdef int64_t put_cell(
    uint8_t *out, int column, uint64_t lsn, int64_t xid, const uint8_t *data, int64_t size
) noexcept nogil:
    """Write a column's value; gives its length."""
    cdef char text[32]
    cdef int64_t index
    if column == COLUMN_LSN:
        size = snprintf(
            text, sizeof(text), b"%X/%X", <unsigned int>(lsn >> 32), <unsigned int>lsn
        )
        memcpy(out, text, size)
    elif column == COLUMN_XID:
        size = snprintf(text, sizeof(text), b"%lld", <long long>xid)
        memcpy(out, text, size)
    elif column == COLUMN_DATA:
        if size > 0:
            memcpy(out, data, size)
    else:
        out[0] = c"\\"
        out[1] = c"x"
        for index in range(size):
            out[2 + 2 * index] = _HEX[data[index] >> 4]
            out[3 + 2 * index] = _HEX[data[index] & 15]
        size = 2 + 2 * size
    return size


def data_rows(
    const uint8_t[::1] content,
    const int64_t[::1] ends,
    const uint64_t[::1] starts,
    const int64_t[::1] xids,
    const uint8_t[::1] columns,
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Frame messages as DataRow, as `pg_logical_slot_peek_changes` gives them.

    Args:
        content: all messages, one after the other.
        ends: of length M: end of each message in `content`.
        starts: of length M: LSN of each message.
        xids: of length M: XID of each message.
        columns: 0 for the LSN, 1 for the XID, 2 for the message, 3 for it as text of a bytea.
        first: first message of the range.
        last: the message after the range.

    Returns:
        The bytes.

    Raises:
        ValueError: a message lies outside of the content, or is larger than the protocol allows.
    """
    check(content.shape[0], ends, first, last)
    if starts.shape[0] != ends.shape[0] or xids.shape[0] != ends.shape[0]:
        fail("arrays of different lengths")
    cdef int64_t begin = ends[first - 1] if first > 0 else 0
    cdef int64_t total = ends[last - 1] - begin if last > first else 0
    cdef int64_t most = 0
    cdef Py_ssize_t index, at
    for at in range(columns.shape[0]):
        if columns[at] > COLUMN_HEX:
            fail("an unknown column")
        most += cell_size(columns[at], 0) * (last - first)
        if columns[at] >= COLUMN_DATA:
            most += total * (2 if columns[at] == COLUMN_HEX else 1)
    most += (ROW_HEADER + LENGTH * columns.shape[0]) * (last - first)
    cdef bytearray framed = bytearray(most)
    cdef uint8_t *base = <uint8_t *>(<char *>framed)
    cdef uint8_t *out = base
    cdef uint8_t *row
    cdef int64_t size, written
    cdef const uint8_t *data
    with nogil:
        for index in range(first, last):
            size = ends[index] - begin
            data = &content[begin] if size > 0 else NULL
            row = out
            out[0] = c"D"
            out = put(out + 5, columns.shape[0], 2)
            for at in range(columns.shape[0]):
                written = put_cell(
                    out + LENGTH, columns[at], starts[index], xids[index], data, size
                )
                out = put(out, written, LENGTH) + written
            put(row + 1, out - row - 1, LENGTH)
            begin = ends[index]
    del framed[out - base:]
    return framed
