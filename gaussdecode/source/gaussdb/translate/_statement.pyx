"""BEGIN, COMMIT and heartbeats of all styles.

Binary, after the letter: BEGIN u64 csn, u64 first_lsn, parts; COMMIT parts; heartbeat
u64 lsn, u64 flushed lsn, i64 time. Parts come in any order up to the end of the record:

| X | u64 xid |
| O | u32 origin id |
| T | u32 size, commit time as text |
| N | u32 size, user name |
| any other | u32 size and that many bytes: stepped over, and counted |

Text and JSON styles, and the serial plug-ins:

    BEGIN CSN: 2359 first_lsn: 0/CFE64D0 xid: 78110 commit_time: 2024-03-14 20:31:12.09+08
    commit xid: 78110 (at 2024-03-14 20:31:12.098179+08)
    BEGIN 78108 ORIGIN_ID 1                                         mppdb_decoding: xid
    COMMIT 78108 (at 2024-03-14 20:31:12.098179+08) CSN 2357
    BEGIN 2357                                                      sql_decoding: CSN
    COMMIT (at 2024-03-14 20:31:12.098179+08) 2357
    HeartBeat: ...

What a heartbeat's text looks like is documented nowhere: two LSNs and a time are looked for
in it, and none of them must be there.

References:
    openGauss, parallel_reorderbuffer.cpp: ParallelOutputBegin(), ParallelOutputCommit();
    GaussDB, options of logical decoding: enable-heartbeat, include-user.
"""


from gaussdecode.wire._cursor cimport fail_wire, read_uint32, read_uint64, take
from gaussdecode.wire._times cimport GD_EPOCH_US, Day, parse_timestamp
from gaussdecode.wire._forms cimport (
    KEY_CSN, KEY_FIRST_LSN, KEY_ORIGIN, KEY_TIME, KEY_USER, KEY_USERNAME, KEY_XID, PART_ORIGIN,
    PART_TIME, PART_USER, PART_XID, WORD_AT, WORD_CSN, WORD_ORIGIN, WORD_XID, Word,
)
from gaussdecode.source.gaussdb.translate._row cimport accept, accept_word, expect
from gaussdecode.wire._letters cimport STYLE_SERIAL, STYLE_SQL

cdef enum:
    DATE_SIZE = 10
    MAX_LSN_DIGITS = 8
    # A time of fewer digits counts seconds, or milliseconds: all are of the years 1970 to 5138.
    SECONDS_LIMIT = 100000000000
    MILLIS_LIMIT = 100000000000000


cdef void boundary_clear(Boundary *boundary, uint64_t lsn) noexcept nogil:
    boundary.lsn = lsn
    boundary.csn = boundary.xid = 0
    boundary.time = NO_TIME
    boundary.origin = 0
    boundary.user = NULL
    boundary.user_size = 0
    boundary.unknown_parts = boundary.unread_times = 0


cdef void set_time(Boundary *boundary, const uint8_t *text, size_t size) noexcept nogil:
    """Take a commit time; one without a zone, or out of range, says nothing."""
    cdef int64_t micros
    cdef Day day
    day.head = 0
    if parse_timestamp(text, size, True, &day, &micros):
        boundary.time = micros - GD_EPOCH_US
    else:
        boundary.unread_times += 1


cdef int set_user(
    Cursor *cursor, Boundary *boundary, const uint8_t *text, size_t size
) except -1 nogil:
    cdef size_t index
    for index in range(size):
        if text[index] == 0:
            fail_wire(cursor, b"zero byte in a user name", size - index)
    boundary.user = text
    boundary.user_size = size
    return 0


# ---- binary

cdef int read_binary_begin(Cursor *cursor, Boundary *boundary) except -1 nogil:
    read_uint64(cursor, &boundary.csn)
    read_uint64(cursor, &boundary.lsn)
    return read_binary_parts(cursor, boundary)


cdef int read_binary_parts(Cursor *cursor, Boundary *boundary) except -1 nogil:
    cdef const uint8_t *text
    cdef uint32_t size
    cdef uint8_t letter
    while cursor.next < cursor.end:
        letter = take(cursor, 1)[0]
        if letter == PART_XID:
            read_uint64(cursor, &boundary.xid)
            continue
        if letter == PART_ORIGIN:
            read_uint32(cursor, &boundary.origin)
            continue
        read_uint32(cursor, &size)
        text = take(cursor, size)
        if letter == PART_TIME:
            set_time(boundary, text, size)
        elif letter == PART_USER:
            set_user(cursor, boundary, text, size)
        else:
            boundary.unknown_parts += 1
    return 0


cdef int64_t to_micros(int64_t time) noexcept nogil:
    """The unit is not documented: seen were milliseconds."""
    if time < 0:
        return 0
    if time < SECONDS_LIMIT:
        return time * 1000000
    if time < MILLIS_LIMIT:
        return time * 1000
    return time


cdef int read_binary_heartbeat(Cursor *cursor, Heartbeat *heartbeat) except -1 nogil:
    cdef uint64_t time
    read_uint64(cursor, &heartbeat.lsn)
    read_uint64(cursor, &heartbeat.flushed_lsn)
    read_uint64(cursor, &time)
    heartbeat.time = to_micros(<int64_t>time)
    return 0


# ---- texts

cdef bint parse_number(const uint8_t *text, size_t size, uint64_t *value) noexcept nogil:
    """Decimal digits, up to 2^64 - 1."""
    cdef uint64_t total = 0
    cdef uint8_t digit
    cdef size_t index
    for index in range(size):
        digit = text[index] - c"0"
        if digit > 9 or total > (<uint64_t>-1 - digit) // 10:
            return False
        total = total * 10 + digit
    value[0] = total
    return size > 0


cdef int hex_size(const uint8_t *text, const uint8_t *end, uint64_t *value) noexcept nogil:
    """Convert up to nine hexadecimal digits; how many there are."""
    cdef const uint8_t *start = text
    cdef uint8_t digit
    value[0] = 0
    while text < end and text - start <= MAX_LSN_DIGITS:
        digit = text[0]
        if c"0" <= digit <= c"9":
            digit -= c"0"
        elif c"a" <= digit | 32 <= c"f":
            digit = (digit | 32) - c"a" + 10
        else:
            break
        value[0] = value[0] << 4 | digit
        text += 1
    return <int>(text - start)


cdef bint parse_lsn(const uint8_t *text, size_t size, uint64_t *value) noexcept nogil:
    """Two hexadecimal numbers of 1 to 8 digits with a slash between."""
    cdef const uint8_t *end = text + size
    cdef uint64_t high, low
    cdef int digits = hex_size(text, end, &high)
    if digits < 1 or digits > MAX_LSN_DIGITS or text + digits == end or text[digits] != c"/":
        return False
    text += digits + 1
    digits = hex_size(text, end, &low)
    if digits < 1 or digits > MAX_LSN_DIGITS or text + digits != end:
        return False
    value[0] = high << 32 | low
    return True


cdef size_t word_size(const uint8_t *text, const uint8_t *end) noexcept nogil:
    cdef const uint8_t *start = text
    while text < end and text[0] != c" ":
        text += 1
    return text - start


cdef size_t key_size(const uint8_t *text, const uint8_t *end) noexcept nogil:
    """Size of a key of letters and underscores before a colon, colon excluded; or 0."""
    cdef const uint8_t *start = text
    while text < end and (c"a" <= text[0] | 32 <= c"z" or text[0] == c"_"):
        text += 1
    if text == end or text[0] != c":":
        return 0
    return text - start


cdef size_t value_size(const uint8_t *text, const uint8_t *end) noexcept nogil:
    """Size of a value: up to a blank before the next key, or the end."""
    cdef const uint8_t *start = text
    while text < end and not (text[0] == c" " and key_size(text + 1, end)):
        text += 1
    return text - start


cdef bint is_key(const uint8_t *text, size_t size, Word key) noexcept nogil:
    """Whether two words are the same, upper and lower case aside."""
    cdef size_t index
    if size != key.size:
        return False
    for index in range(size):
        if text[index] | 32 != key.text[index] | 32:
            return False
    return True


cdef int set_part(
    Cursor *cursor, Boundary *boundary, const uint8_t *key, size_t size,
    const uint8_t *value, size_t length,
) except -1 nogil:
    """Take one `key: value`; the value has been stepped over."""
    cdef uint64_t number = 0
    cdef bint is_read = True
    if is_key(key, size, KEY_CSN):
        is_read = parse_number(value, length, &boundary.csn)
    elif is_key(key, size, KEY_FIRST_LSN):
        is_read = parse_lsn(value, length, &boundary.lsn)
    elif is_key(key, size, KEY_XID):
        is_read = parse_number(value, length, &boundary.xid)
    elif is_key(key, size, KEY_TIME):
        set_time(boundary, value, length)
    elif is_key(key, size, KEY_ORIGIN):
        is_read = parse_number(value, length, &number) and number <= <uint32_t>-1
        boundary.origin = <uint32_t>number
    elif is_key(key, size, KEY_USER) or is_key(key, size, KEY_USERNAME):
        set_user(cursor, boundary, value, length)
    else:
        boundary.unknown_parts += 1
    if not is_read:
        fail_wire(cursor, b"number that cannot be read in a statement", length)
    return 0


cdef int read_part(Cursor *cursor, Boundary *boundary) except -1 nogil:
    """Read ` key: value`."""
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef size_t size
    expect(cursor, b" ", 1)
    key = cursor.next
    size = key_size(key, cursor.end)
    if size == 0:
        fail_wire(cursor, b"statement that does not follow its style", 0)
    cursor.next = key + size + 1
    if cursor.next < cursor.end:
        expect(cursor, b" ", 1)
    value = cursor.next
    cursor.next += value_size(value, cursor.end)
    return set_part(cursor, boundary, key, size, value, cursor.next - value)


cdef int read_number(Cursor *cursor, uint64_t *value) except -1 nogil:
    """Read a word of digits."""
    cdef size_t size = word_size(cursor.next, cursor.end)
    if not parse_number(cursor.next, size, value):
        fail_wire(cursor, b"number that cannot be read in a statement", 0)
    cursor.next += size
    return 0


cdef bint digit_follows(Cursor *cursor) noexcept nogil:
    return (
        cursor.end - cursor.next >= 2 and cursor.next[0] == c" "
        and c"0" <= cursor.next[1] <= c"9"
    )


cdef int read_text_begin(Cursor *cursor, Boundary *boundary, uint8_t style) except -1 nogil:
    """Read from the byte after BEGIN."""
    cdef bint is_serial = style == STYLE_SERIAL or style == STYLE_SQL
    cdef uint64_t number
    if is_serial and digit_follows(cursor):
        cursor.next += 1
        read_number(cursor, &boundary.csn if style == STYLE_SQL else &boundary.xid)
    if is_serial and accept_word(cursor, WORD_ORIGIN):
        read_number(cursor, &number)
        if number > <uint32_t>-1:
            fail_wire(cursor, b"number that cannot be read in a statement", 0)
        boundary.origin = <uint32_t>number
    if not is_serial:
        boundary.lsn = 0
        expect(cursor, b" CSN:", 5)
        cursor.next -= 5
    while cursor.next < cursor.end:
        read_part(cursor, boundary)
    return 0


cdef int read_text_commit(Cursor *cursor, Boundary *boundary, uint8_t style) except -1 nogil:
    """Read from the byte after COMMIT."""
    cdef const uint8_t *start
    while cursor.next < cursor.end:
        if accept_word(cursor, WORD_AT):
            start = cursor.next
            while take(cursor, 1)[0] != c")":
                pass
            set_time(boundary, start, cursor.next - start - 1)
        elif accept_word(cursor, WORD_CSN):
            read_number(cursor, &boundary.csn)
        elif digit_follows(cursor) and (style == STYLE_SERIAL or style == STYLE_SQL):
            cursor.next += 1
            read_number(cursor, &boundary.csn if style == STYLE_SQL else &boundary.xid)
        elif accept_word(cursor, WORD_XID) or accept(cursor, b" XID: ", 6):
            read_number(cursor, &boundary.xid)
        else:
            fail_wire(cursor, b"statement that does not follow its style", 0)
    return 0


cdef int read_text_heartbeat(Cursor *cursor, Heartbeat *heartbeat) except -1 nogil:
    """Read from the byte after `HeartBeat:`; words that say nothing are stepped over."""
    cdef const uint8_t *word
    cdef size_t size, length
    cdef uint64_t number
    cdef int64_t micros
    cdef Day day
    cdef int lsn_count = 0
    day.head = 0
    while cursor.next < cursor.end:
        word = cursor.next
        size = word_size(word, cursor.end)
        cursor.next += size + (word + size < cursor.end)
        length = size - (size > 0 and word[size - 1] == c",")
        if parse_lsn(word, length, &number):
            lsn_count += 1
            if lsn_count == 1:
                heartbeat.lsn = number
            elif lsn_count == 2:
                heartbeat.flushed_lsn = number
        elif size == DATE_SIZE and cursor.next < cursor.end and word[4] == c"-":
            length = size + 1 + word_size(cursor.next, cursor.end)
            if parse_timestamp(word, length, True, &day, &micros):
                heartbeat.time = micros
        elif length > DATE_SIZE - 1 and parse_number(word, length, &number):
            if number <= <uint64_t>0x7FFFFFFFFFFFFFFF:
                heartbeat.time = to_micros(<int64_t>number)
    return 0
