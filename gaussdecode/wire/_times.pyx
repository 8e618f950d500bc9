"""Dates, times and intervals in the server's text form to numbers; see `_times.pxd`.

What is read is what the server writes under DateStyle ISO and IntervalStyle postgres. Any
other form, infinities, BC and years past 9999 do not fit and stay text.
`tests/twins/values.py` is the plain twin.

References:
    PostgreSQL, src/backend/utils/adt/datetime.c: EncodeDateTime(), EncodeInterval().
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

from gaussdecode.wire._values cimport (
    eight_digits, gd_pow10, load8, parse_digits, parse_int, tail_digits, uint128_t,
)

cdef enum:
    MAX_ZONE_HOURS = 15     # MAX_TZDISP_HOUR of the server


# ---- dates and times

cdef inline int days_of_month(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 + ((month + (month >> 3)) & 1)


cdef inline bint parse_ymd(const uint8_t *text, Day *last, int32_t *days) noexcept nogil:
    """Ten characters YYYY-MM-DD, years 1 to 9999, to days since 1970-01-01."""
    cdef uint64_t head = load8(text)
    cdef uint16_t tail
    memcpy(&tail, text + 8, 2)
    if head != last.head or tail != last.tail:
        if not count_days(text, &last.number):
            last.head = 0
            return False
        last.head = head
        last.tail = tail
    days[0] = last.number
    return True


cdef bint count_days(const uint8_t *text, int32_t *days) noexcept nogil:
    """The same, of a date that is not the one before."""
    cdef uint64_t word, day
    cdef int year, month
    if text[4] != c"-" or text[7] != c"-":
        return False
    # The two dashes become zeros: YYYY0MM0.
    word = load8(text) ^ (<uint64_t>(c"-" ^ c"0") << 32) ^ (<uint64_t>(c"-" ^ c"0") << 56)
    if not eight_digits(word, &word) or not tail_digits(text + 10, 2, &day):
        return False
    year = <int>(word // 10000)
    month = <int>(word % 1000 // 10)
    if year < 1 or month < 1 or month > 12 or day < 1 or <int>day > days_of_month(year, month):
        return False
    # Years that begin in March, so that the leap day is the last.
    year -= month <= 2
    month += 9 if month <= 2 else -3
    days[0] = (
        365 * year + year // 4 - year // 100 + year // 400
        + (153 * month + 2) // 5 + <int>day - 719469
    )
    return True


cdef bint parse_date(const uint8_t *text, size_t size, Day *last, int32_t *value) noexcept nogil:
    return size == 10 and parse_ymd(text, last, value)


cdef inline bint parse_hms(const uint8_t *text, int64_t *seconds) noexcept nogil:
    """Eight characters HH:MM:SS of one day."""
    cdef uint64_t word
    if text[2] != c":" or text[5] != c":":
        return False
    # The two colons become zeros: HH0MM0SS.
    word = load8(text) ^ (<uint64_t>(c":" ^ c"0") << 16) ^ (<uint64_t>(c":" ^ c"0") << 40)
    if not eight_digits(word, &word):
        return False
    if word >= 24000000 or word // 1000 % 1000 > 59 or word % 1000 > 59:
        return False
    seconds[0] = <int64_t>(word // 1000000 * 3600 + word // 1000 % 1000 * 60 + word % 1000)
    return True


cdef inline bint parse_zone(const uint8_t *text, size_t size, int64_t *seconds) noexcept nogil:
    """+HH, +HH:MM or +HH:MM:SS, east positive."""
    cdef uint64_t hours = 0, minutes = 0, rest = 0
    if size == 3 and text[0] == c"+" and text[1] == c"0" and text[2] == c"0":
        seconds[0] = 0          # what is asked for
        return True
    if size != 3 and size != 6 and size != 9 or text[0] != c"+" and text[0] != c"-":
        return False
    if not tail_digits(text + 3, 2, &hours) or hours > MAX_ZONE_HOURS:
        return False
    if size >= 6:
        if text[3] != c":" or not tail_digits(text + 6, 2, &minutes) or minutes > 59:
            return False
    if size == 9:
        if text[6] != c":" or not tail_digits(text + 9, 2, &rest) or rest > 59:
            return False
    seconds[0] = <int64_t>(hours * 3600 + minutes * 60 + rest)
    if text[0] == c"-":
        seconds[0] = -seconds[0]
    return True


cdef inline bint parse_fraction(
    const uint8_t *text, size_t size, size_t *used, int64_t *micros
) noexcept nogil:
    """An optional point and 1 to 6 digits; `used` is how many characters that was."""
    cdef uint64_t fraction
    cdef size_t index = 1
    used[0] = 0
    micros[0] = 0
    if size == 0 or text[0] != c".":
        return True
    while index < size and <uint8_t>(text[index] - c"0") <= 9:
        index += 1
    if index < 2 or index > 7 or not tail_digits(text + index, index - 1, &fraction):
        return False
    used[0] = index
    micros[0] = <int64_t>(fraction * gd_pow10[7 - index])
    return True


cdef bint parse_timestamp(
    const uint8_t *text, size_t size, bint has_zone, Day *last, int64_t *value
) noexcept nogil:
    """YYYY-MM-DD HH:MM:SS, fraction and zone, to microseconds since 1970, UTC if zoned."""
    cdef int32_t days
    cdef int64_t seconds, micros
    cdef int64_t zone = 0
    cdef size_t used
    if size < 19 or text[10] != c" ":
        return False
    if not parse_ymd(text, last, &days) or not parse_hms(text + 11, &seconds):
        return False
    text += 19
    size -= 19
    if not parse_fraction(text, size, &used, &micros):
        return False
    if has_zone:
        if not parse_zone(text + used, size - used, &zone):
            return False
    elif used != size:
        return False
    value[0] = (<int64_t>days * 86400 + seconds - zone) * 1000000 + micros
    # 0001-01-01 up to 9999-12-31: a zone can move the first or last day out of it.
    return -62135596800000000LL <= value[0] and value[0] < 253402300800000000LL


# ---- intervals

cdef inline int unit_of(const uint8_t *text, size_t size) noexcept nogil:
    """1 years, 2 months, 3 days, 0 anything else."""
    if size > 3 and text[size - 1] == c"s":
        size -= 1
    if size == 4 and memcmp(text, b"year", 4) == 0:
        return 1
    if size == 3 and memcmp(text, b"mon", 3) == 0:
        return 2
    if size == 3 and memcmp(text, b"day", 3) == 0:
        return 3
    return 0


cdef bint parse_clock(const uint8_t *text, size_t size, int64_t *micros) noexcept nogil:
    """[+-]HH:MM:SS with two or more digits of hours and an optional fraction."""
    cdef uint64_t hours, minutes, seconds
    cdef int64_t fraction
    cdef uint128_t total
    cdef size_t used
    cdef size_t digits = 0
    cdef bint is_negative = size > 0 and text[0] == c"-"
    if is_negative or size > 0 and text[0] == c"+":
        text += 1
        size -= 1
    while digits < size and text[digits] != c":":
        digits += 1
    if digits < 2 or size < digits + 6 or not parse_digits(text, digits, &hours):
        return False
    text += digits
    size -= digits
    if text[3] != c":" or not tail_digits(text + 3, 2, &minutes) or minutes > 59:
        return False
    if not tail_digits(text + 6, 2, &seconds) or seconds > 59:
        return False
    if not parse_fraction(text + 6, size - 6, &used, &fraction) or used != size - 6:
        return False
    total = (<uint128_t>hours * 3600 + minutes * 60 + seconds) * 1000000 + <uint64_t>fraction
    if total > (<uint64_t>1 << 63) - 1 + is_negative:
        return False
    micros[0] = <int64_t>(0 - <uint64_t>total if is_negative else <uint64_t>total)
    return True


cdef inline size_t word_size(const uint8_t *text, size_t size) noexcept nogil:
    cdef size_t index = 0
    while index < size and text[index] != c" ":
        index += 1
    return index


cdef bint parse_interval(const uint8_t *text, size_t size, uint8_t *target) noexcept nogil:
    """`1 year 2 mons -3 days +04:05:06.7` to months, days and microseconds."""
    cdef int64_t parts[4]
    cdef int64_t micros = 0
    cdef int64_t amount, months
    cdef int32_t narrow
    cdef int unit
    cdef int last_unit = 0
    cdef size_t step
    cdef bint is_plus
    parts[1] = parts[2] = parts[3] = 0
    if size == 0:
        return False
    while size > 0:
        step = word_size(text, size)
        if step == size:
            if not parse_clock(text, size, &micros):
                return False
            break
        is_plus = step > 0 and text[0] == c"+"
        if not parse_int(text + is_plus, step - is_plus, 0x7FFFFFFF, &amount):
            return False
        if is_plus and text[1] == c"-":
            return False
        text += step + 1
        size -= step + 1
        step = word_size(text, size)
        unit = unit_of(text, step)
        if unit <= last_unit:
            return False
        parts[unit] = amount
        last_unit = unit
        text += step
        size -= step
        if size > 0:
            if size == 1:
                return False
            text += 1
            size -= 1
    months = parts[1] * 12 + parts[2]
    if months < -0x80000000LL or months > 0x7FFFFFFFLL:
        return False
    narrow = <int32_t>months
    memcpy(target, &narrow, 4)
    narrow = <int32_t>parts[3]
    memcpy(target + 4, &narrow, 4)
    memcpy(target + 8, &micros, 8)
    return True
