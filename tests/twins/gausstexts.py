"""Rows of GaussDB's text, JSON and SQL styles, read plainly.

A part of `gaussformats`, the twin of ``source/gaussdb/translate/``. Offsets of errors count from
the first byte of the payload, and are those of the fast one.
"""

import codecs
import dataclasses
import enum
import re
from typing import Final

from gaussdecode.errors import TruncatedError, WireError

_MAX_COLUMNS: Final = 0x7FFF
_OPERATION: Final = re.compile(rb" (INSERT|UPDATE|DELETE|TRUNCATE):")
_IDENTIFIER: Final = re.compile(rb"[a-z0-9_]+")
_BARE: Final = re.compile(rb"[^ ,);]*")
_QUOTED: Final = re.compile(rb"B?'((?:[^']|'')*)'", re.DOTALL)
_ESCAPES: Final = {
    b'"': b'"', b"\\": b"\\", b"/": b"/", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r",
    b"t": b"\t",
}  # fmt: skip
_WORDS: Final = {b"null": None, b"true": True, b"false": False}


class Marker(enum.Enum):
    """What is neither a value nor NULL."""

    UNCHANGED = "unchanged-toast-datum"


UNCHANGED: Final = Marker.UNCHANGED
Literal = bytes | bool | Marker | None


def _raw(error: UnicodeError) -> tuple[str, int]:
    """Keep the first byte that is no letter, and go on after it."""
    assert isinstance(error, UnicodeDecodeError)  # for mypy: it is used to decode only
    return chr(0xDC00 + error.object[error.start]), error.start + 1


codecs.register_error("gaussdecode.raw", _raw)


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One column of a tuple: name and type as sent, and its value."""

    name: bytes
    type: bytes
    value: Literal


Tuple = list[Field]


@dataclasses.dataclass(slots=True)
class Row:
    """One row as sent."""

    op: str
    head: bytes
    new: Tuple | None = None
    old: Tuple | None = None
    is_json: bool = False
    is_positional: bool = False


class Reader:
    """A cursor over a part of a payload."""

    def __init__(self, payload: bytes, start: int = 0, end: int | None = None) -> None:
        self.payload = payload
        self.next = start
        self.end = len(payload) if end is None else end

    @property
    def left(self) -> int:
        """Bytes to read."""
        return self.end - self.next

    def peek(self, size: int) -> bytes:
        """The next bytes, fewer at the end."""
        return self.payload[self.next : min(self.next + size, self.end)]

    def take(self, size: int) -> bytes:
        """Step over bytes."""
        if size > self.left:
            raise TruncatedError(f"need {size} bytes, have {self.left}", self.next)
        self.next += size
        return self.payload[self.next - size : self.next]

    def number(self, size: int) -> int:
        """Read an unsigned integer."""
        return int.from_bytes(self.take(size), "big")

    def part(self, size: int) -> "Reader":
        """Step over bytes that are read on their own."""
        start = self.next
        self.take(size)
        return Reader(self.payload, start, self.next)

    def inside(self, text: bytes) -> "Reader":
        """Read once more a text that stands in front of the next operation."""
        start = self.payload.index(text)
        return Reader(self.payload, start, start + len(text))

    def fail(self, reason: str, back: int = 0) -> WireError:
        """Make an error at a byte before the next."""
        return WireError(reason, self.next - back)

    def finish(self, reason: str) -> None:
        """Be at the end."""
        if self.left:
            raise self.fail(reason)

    def accept(self, text: bytes) -> bool:
        """Step over a text if it is next."""
        if self.peek(len(text)) != text:
            return False
        self.next += len(text)
        return True

    def expect(self, text: bytes) -> None:
        """Step over a text that must be next."""
        if not self.accept(text):
            if text.startswith(self.peek(len(text))):
                self.take(len(text))
            raise self.fail("statement that does not follow its style")

    def match(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """Match a pattern here; the cursor stays."""
        return pattern.match(self.payload, self.next, self.end)

    def quoted(self, quote: bytes) -> bytes:
        """Step over what stands between quotes, from after the first; give it single."""
        parts = []
        while True:
            at = self.payload.find(quote, self.next, self.end)
            if at < 0:
                self.take(self.left + 1)
            parts.append(self.payload[self.next : at])
            self.next = at + 1
            if not self.accept(quote):
                return quote.join(parts)

    def identifier(self) -> None:
        """Step over one identifier."""
        first = self.peek(1) or self.take(1)
        if first == b'"':
            self.take(1)
            self.quoted(b'"')
            return
        match = self.match(_IDENTIFIER)
        if match is None:
            raise self.fail("no name where one must be")
        self.next = match.end()

    def literal(self) -> Literal:
        """Read one value."""
        first = self.peek(1) or self.take(1)
        if first == b"'" or self.peek(2) == b"B'":
            self.take(1 if first == b"'" else 2)
            return self.quoted(b"'")
        match = self.match(_BARE)
        if not match or not match[0]:
            raise self.fail("no value where one must be")
        self.next = match.end()
        return _bare(match[0])

    def check_count(self, fields: Tuple) -> None:
        """A table has so many columns."""
        if len(fields) == _MAX_COLUMNS:
            raise self.fail("more columns than a table can have")

    @staticmethod
    def add(fields: Tuple, name: bytes, type_name: bytes, value: Literal) -> None:
        """Append a column."""
        fields.append(Field(name, type_name, value))


def _bare(text: bytes) -> Literal:
    if text == UNCHANGED.value.encode():
        return UNCHANGED
    return _WORDS.get(text, text)


# ---- rows as text


def text_row(record: Reader) -> Row:
    """Read from after ``table ``; of a TRUNCATE only the head."""
    found = _OPERATION.search(record.payload, record.next, record.end)
    if found is None:
        raise record.fail("row without an operation")
    row = Row(found[1][:1].decode(), record.payload[record.next : found.start()])
    record.next = found.end()
    if row.op == "T":
        return row
    if not record.accept(b" (no-tuple-data)"):
        if row.op == "D":
            row.old = _text_columns(record)
        else:
            if row.op == "U" and record.accept(b" old-key:"):
                row.old = _text_columns(record)
                record.expect(b" new-tuple:")
            if not record.accept(b" (no-tuple-data)"):
                row.new = _text_columns(record)
    record.finish("bytes after the end of the row")
    return row


def _text_columns(record: Reader) -> Tuple:
    fields: Tuple = []
    while record.left and record.peek(11) != b" new-tuple:":
        record.expect(b" ")
        record.check_count(fields)
        start = record.next
        record.identifier()
        record.expect(b"[")
        while True:
            if record.left < 2:
                record.take(record.left + 1)
            byte = record.peek(1)
            inside = record.payload[start : record.next]
            # The name's own quotes are in pairs, too.
            if byte == b"]" and record.peek(2) == b"]:" and inside.count(b'"') % 2 == 0:
                break
            record.next += 1
        record.next += 2
        name = record.payload[start : record.next]
        fields.append(Field(name, b"", record.literal()))
    return fields


# ---- rows as JSON


def json_row(record: Reader, *, is_utf8: bool) -> Row:
    """Read from the first brace."""
    record.expect(b'{"table_name":')
    head, _ = _json_string(record)
    record.expect(b',"op_type":"')
    for word in (b"INSERT", b"UPDATE", b"DELETE"):
        if word == b"DELETE":
            record.expect(word)
        elif not record.accept(word):
            continue
        break
    row = Row(word[:1].decode(), head, is_json=True)
    record.expect(b'","columns_name":[')
    new = _json_tuple(record, b"columns", is_utf8)
    record.expect(b',"old_keys_name":[')
    old = _json_tuple(record, b"old_keys", is_utf8)
    record.expect(b"}")
    record.finish("bytes after the end of the row")
    if (row.op == "D" and new) or (row.op == "I" and old):
        raise record.fail("tuple that its operation does not have")
    row.new = None if row.op == "D" else new
    row.old = old or None
    return row


def _json_tuple(record: Reader, prefix: bytes, is_utf8: bool) -> Tuple:
    names: list[bytes] = []
    while _has_next(record, not names):
        if len(names) == _MAX_COLUMNS:
            raise record.fail("more columns than a table can have")
        names.append(_json_string(record)[0])
        if not names[-1]:
            raise record.fail("no name where one must be")
    record.expect(b',"' + prefix + b'_type":[')
    types: list[bytes] = []
    while _has_next(record, not types):
        if len(types) == len(names):
            raise record.fail("more types than columns")
        types.append(_json_string(record)[0])
    if len(types) != len(names):
        raise record.fail("fewer types than columns")
    record.expect(b',"' + prefix + b'_val":[')
    values: list[Literal] = []
    while _has_next(record, not values):
        if len(values) == len(names):
            raise record.fail("more values than columns")
        raw, start = _json_string(record)
        values.append(_whole_literal(record, _unescaped(record, raw, start, is_utf8)))
    if len(values) != len(names):
        raise record.fail("fewer values than columns")
    return [Field(*each) for each in zip(names, types, values, strict=True)]


def _has_next(record: Reader, is_first: bool) -> bool:
    if record.accept(b"]"):
        return False
    if not is_first:
        record.expect(b",")
    return True


def _json_string(record: Reader) -> tuple[bytes, int]:
    """Step over a string; what is between its quotes, as sent, and where that begins."""
    record.expect(b'"')
    start = record.next
    while True:
        quote = record.payload.find(b'"', record.next, record.end)
        if quote < 0:
            record.take(record.left + 1)
        escape = record.payload.find(b"\\", record.next, quote)
        if escape < 0:
            record.next = quote + 1
            return record.payload[start:quote], start
        record.next = escape + 2


def _unescaped(record: Reader, raw: bytes, start: int, is_utf8: bool) -> bytes:
    inner = Reader(record.payload, start, start + len(raw))
    plain = b""
    while inner.left:
        byte = inner.take(1)
        if byte != b"\\":
            plain += byte
            continue
        letter = inner.take(1)
        if letter != b"u":
            if letter not in _ESCAPES:
                raise inner.fail("unknown escape in a string", 1)
            plain += _ESCAPES[letter]
            continue
        code = _code_point(inner)
        if code >= 0x80 and not is_utf8:
            raise inner.fail("escaped letter in a database that is not UTF-8")
        plain += chr(code).encode()
    return plain


def _code_point(inner: Reader) -> int:
    high = _hex(inner)
    if not 0xD800 <= high <= 0xDFFF:
        return high
    if high > 0xDBFF or not inner.accept(b"\\u"):
        raise inner.fail("half of a surrogate pair")
    low = _hex(inner)
    if not 0xDC00 <= low <= 0xDFFF:
        raise inner.fail("half of a surrogate pair")
    return 0x10000 + ((high - 0xD800) << 10) + low - 0xDC00


def _hex(inner: Reader) -> int:
    digits = inner.take(4)
    if re.fullmatch(rb"[0-9A-Fa-f]{4}", digits) is None:
        raise inner.fail("unknown escape in a string", 4)
    return int(digits, 16)


def _whole_literal(record: Reader, text: bytes) -> Literal:
    """Read a text that is one literal."""
    if text.startswith((b"'", b"B'")):
        match = _QUOTED.fullmatch(text)
        if match is not None:
            return match[1].replace(b"''", b"'")
    elif text:
        return _bare(text)
    raise record.fail("string without a literal")


# ---- rows as SQL


def sql_row(record: Reader) -> Row:
    """Read from the first word."""
    row = Row("I", b"", is_positional=True)
    if record.accept(b"delete from "):
        row.op = "D"
        row.head = _sql_table(record)
        record.expect(b" where ")
        if not record.accept(b" (no-tuple-data)"):
            row.old = _conditions(record)
        record.expect(b";")
        if not record.left:
            return row
        row.op = "U"
    record.expect(b"insert into ")
    head = _sql_table(record)
    if row.op == "U" and head != row.head:
        raise record.fail("update of two tables")
    row.head = head
    record.expect(b" values ")
    if not record.accept(b" (no-tuple-data)"):
        row.new = _list(record)
    record.expect(b";")
    record.finish("bytes after the end of the row")
    return row


def _sql_table(record: Reader) -> bytes:
    start = record.next
    record.identifier()
    record.expect(b".")
    record.identifier()
    return record.payload[start : record.next]


def _list(record: Reader) -> Tuple:
    fields: Tuple = []
    if not record.accept(b"("):
        return fields
    while not record.accept(b")"):
        record.check_count(fields)
        record.add(fields, b"", b"", record.literal())
        if not record.accept(b", "):
            record.expect(b")")
            break
    return fields


def _conditions(record: Reader) -> Tuple:
    fields: Tuple = []
    if record.peek(1) == b";":
        return fields
    while True:
        record.check_count(fields)
        start = record.next
        record.identifier()
        name = record.payload[start : record.next]
        record.expect(b" = ")
        record.add(fields, name, b"", record.literal())
        if not record.accept(b" and "):
            return fields


# ---- values


def normal_number(text: bytes) -> bytes:
    """Spell a numeric, or an array of them, as PostgreSQL does."""
    text = re.sub(rb"(?<![^{,-])\.", b"0.", text)
    return re.sub(rb"Inf(?!i)", b"Infinity", text.replace(b"Nan", b"NaN"))
