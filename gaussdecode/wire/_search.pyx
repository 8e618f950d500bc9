"""A tsvector and a tsquery in their send formats to the text that the server would send.

A query comes operator first, and of an operator's two sides the right one first: its text is the
left side's, so the right one is stepped over and read again. How deep operators may stand in each
other is bounded; what is deeper has no text here.

References:
    PostgreSQL, ``tsvector.c`` (tsvectorout, tsvectorsend), ``tsquery.c`` (infix, tsquerysend).
"""

from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memchr

from gaussdecode.wire._formats cimport HELD, MALFORMED, NO_TEXT, load_uint16, load_uint32
from gaussdecode.wire._layout cimport buffer_append
from gaussdecode.wire._spell cimport put, put_number

cdef enum:
    POSITION_BITS = 14          # of a position; its weight stands above them
    ITEM_WORD = 1               # QI_VAL
    ITEM_OPERATOR = 2           # QI_OPR
    OPERATOR_NOT = 1
    OPERATOR_AND = 2
    OPERATOR_OR = 3
    OPERATOR_PHRASE = 4
    MOST_DEPTH = 1000           # arbitrary; the stack holds far more

# What is left of a value.
cdef struct Rest:
    const uint8_t *next
    const uint8_t *end

cdef struct Item:
    uint8_t type
    uint8_t operator            # of an operator
    uint8_t weights             # of a word
    uint8_t is_prefix
    uint16_t distance           # of a phrase
    const uint8_t *word
    size_t word_size


cdef inline const uint8_t *step(Rest *rest, size_t size) noexcept nogil:
    """The next bytes, or NULL where they are not there."""
    cdef const uint8_t *found = rest.next
    if size > <size_t>(rest.end - found):
        return NULL
    rest.next = found + size
    return found


cdef const uint8_t *step_word(Rest *rest, size_t *size) noexcept nogil:
    """A word that a zero ends, or NULL where none does."""
    cdef const uint8_t *found = rest.next
    cdef const uint8_t *zero = <const uint8_t *>memchr(found, 0, rest.end - found)
    if zero == NULL:
        return NULL
    size[0] = zero - found
    rest.next = zero + 1
    return found


cdef int put_word(Buffer *out, const uint8_t *word, size_t size) except -1 nogil:
    """In quotes, with quotes and backslashes doubled."""
    cdef size_t index
    put(out, c"'")
    for index in range(size):
        if word[index] == c"'" or word[index] == c"\\":
            put(out, word[index])
        put(out, word[index])
    return put(out, c"'")


cdef int put_tsvector(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    """See `_search.pxd`."""
    cdef Rest rest
    cdef const uint8_t *word
    cdef const uint8_t *at
    cdef uint32_t count, index, position
    cdef uint16_t positions, place
    rest.next = data
    rest.end = data + size
    at = step(&rest, 4)
    if at == NULL:
        return MALFORMED
    count = load_uint32(at)
    for index in range(count):
        word = step_word(&rest, &size)
        if word == NULL:
            return MALFORMED
        at = step(&rest, 2)
        if at == NULL:
            return MALFORMED
        positions = load_uint16(at)
        at = step(&rest, 2 * <size_t>positions)
        if at == NULL:
            return MALFORMED
        if index:
            put(out, c" ")
        put_word(out, word, size)
        for position in range(positions):
            place = load_uint16(at + 2 * position)
            put(out, c"," if position else c":")
            put_number(out, place & ((1 << POSITION_BITS) - 1), 1)
            if place >> POSITION_BITS:
                put(out, <uint8_t>(c"D" - (place >> POSITION_BITS)))
    return HELD if rest.next == rest.end else MALFORMED


cdef int read_item(Rest *rest, Item *item) noexcept nogil:
    """Read a word or an operator."""
    cdef const uint8_t *at = step(rest, 1)
    item.distance = 0
    if at == NULL:
        return MALFORMED
    item.type = at[0]
    if item.type == ITEM_WORD:
        at = step(rest, 2)
        if at == NULL or at[0] > 15:
            return MALFORMED
        item.weights, item.is_prefix = at[0], at[1]
        item.word = step_word(rest, &item.word_size)
        return MALFORMED if item.word == NULL else HELD
    at = step(rest, 1)
    if item.type != ITEM_OPERATOR or at == NULL:
        return MALFORMED
    item.operator = at[0]
    if item.operator < OPERATOR_NOT or item.operator > OPERATOR_PHRASE:
        return MALFORMED
    if item.operator == OPERATOR_PHRASE:
        at = step(rest, 2)
        if at == NULL:
            return MALFORMED
        item.distance = load_uint16(at)
    return HELD


cdef int skip_side(Rest *rest) noexcept nogil:
    """Step over an operand with all that it consists of."""
    cdef Item item
    cdef uint32_t open = 1
    while open:
        if read_item(rest, &item) != HELD:
            return MALFORMED
        if item.type == ITEM_WORD:
            open -= 1
        elif item.operator != OPERATOR_NOT:
            open += 1
    return HELD


cdef inline int priority_of(uint8_t operator) noexcept nogil:
    if operator == OPERATOR_NOT:
        return 4
    if operator == OPERATOR_PHRASE:
        return 3
    return 2 if operator == OPERATOR_AND else 1


cdef int put_operand(Buffer *out, const Item *item) except -1 nogil:
    """A word, with what it is to be found as."""
    cdef int weight
    put_word(out, item.word, item.word_size)
    if item.weights or item.is_prefix:
        put(out, c":")
    if item.is_prefix:
        put(out, c"*")
    for weight in range(4):
        if item.weights & 8 >> weight:
            put(out, <uint8_t>(c"A" + weight))
    return HELD


cdef int put_operator(Buffer *out, const Item *item) except -1 nogil:
    put(out, c" ")
    if item.operator != OPERATOR_PHRASE:
        put(out, c"|" if item.operator == OPERATOR_OR else c"&")
    elif item.distance == 1:
        buffer_append(out, b"<->", 3)
    else:
        put(out, c"<")
        put_number(out, item.distance, 1)
        put(out, c">")
    return put(out, c" ")


cdef int put_side(
    Buffer *out, Rest *rest, int outer, bint is_right_of_phrase, int depth
) except -1 nogil:
    """An operand, in parentheses where it binds less than the operator around it."""
    cdef Item item
    cdef Rest right
    cdef int priority, outcome
    cdef bint has_parentheses
    if depth == MOST_DEPTH:
        return NO_TEXT
    if read_item(rest, &item) != HELD:
        return MALFORMED
    if item.type == ITEM_WORD:
        return put_operand(out, &item)
    priority = priority_of(item.operator)
    has_parentheses = priority < outer or (
        item.operator == OPERATOR_PHRASE and is_right_of_phrase
    )
    if has_parentheses:
        buffer_append(out, b"( ", 2)
    if item.operator == OPERATOR_NOT:
        put(out, c"!")
        outcome = put_side(out, rest, priority, False, depth + 1)
        if outcome != HELD:
            return outcome
    else:
        right = rest[0]
        if skip_side(rest) != HELD:
            return MALFORMED
        outcome = put_side(out, rest, priority, False, depth + 1)
        if outcome != HELD:
            return outcome
        put_operator(out, &item)
        outcome = put_side(
            out, &right, priority, item.operator == OPERATOR_PHRASE, depth + 1
        )
        if outcome != HELD:
            return outcome
    if has_parentheses:
        buffer_append(out, b" )", 2)
    return HELD


cdef int put_tsquery(Buffer *out, const uint8_t *data, size_t size) except -1 nogil:
    """See `_search.pxd`."""
    cdef Rest rest
    cdef const uint8_t *at
    cdef int outcome
    rest.next = data
    rest.end = data + size
    at = step(&rest, 4)
    if at == NULL:
        return MALFORMED
    if load_uint32(at) == 0:
        return HELD if rest.next == rest.end else MALFORMED
    outcome = put_side(out, &rest, -1, False, 0)
    if outcome == HELD and rest.next != rest.end:
        return MALFORMED
    return outcome
