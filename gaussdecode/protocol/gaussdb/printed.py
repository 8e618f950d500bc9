"""Print a GaussDB stream as the product's own client does, statement by statement.

Given the payload of an XLogData message in any style, gives lines, in the bytes that the
server sent. Text and JSON lines are the server's own; binary records are spelled as the
product's ``pg_recvlogical`` does:

    current_lsn: 0/CFE5C80 BEGIN CSN: 2357 first_lsn: 0/CFE5C80
    current_lsn: 0/CFE5D40 INSERT INTO public.test1 new_tuple: {a[typid = 23]: "1"}
    current_lsn: 0/CFE5D40 UPDATE public.t1 new_tuple: {...} old_value: {a[typid = 23]: "1"}
    current_lsn: 0/CFE5E68 COMMIT xid: 78108

It spells NULL ``"NULL"`` and escapes nothing, so that its lines are for people. What that
program does not know is added in the same manner: the user name, heartbeats. For the
commands that look at few; the daemon translates in C.

| style | payload unbatched | batched |
|---|---|---|
| b | record, F | records, each followed by P, the last by F, or by P and u32 0 |
| t, j | text | per statement u32 size, u64 lsn, text; then u32 0 |
| s, q (serial) | text | - |

A record is u32 size, u64 lsn, letter, body; the size counts neither itself nor the
separator. Optional parts are X xid, T commit time, N user, O origin, in any order.
"""

import dataclasses
import enum
import re
import struct
from collections.abc import Callable, Iterator
from typing import Final

from gaussdecode.errors import TruncatedError, WireError
from gaussdecode.model.lsn import Lsn

BINARY: Final = "b"
_SERIAL: Final = "sq"
_NULL: Final = 0xFFFFFFFF
_LSN_BYTES: Final = 8
_HEARTBEAT: Final = struct.Struct(">QQq")
_BEGIN_TEXT: Final = re.compile(
    rb"BEGIN CSN: (\d{1,20}) first_lsn: ([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})"
)
_XID: Final = re.compile(rb"BEGIN (?:CSN: \d+ first_lsn: \S+ xid: )?(\d{1,20})")
_COMMIT_TEXT: Final = re.compile(rb"commit(?= |\Z)", re.IGNORECASE)
_HEARTBEAT_TEXT: Final = b"HeartBeat: "
_VERBS: Final = {b"I": b"INSERT INTO ", b"U": b"UPDATE ", b"D": b"DELETE FROM "}
_TUPLES: Final = {b"N": b" new_tuple: {", b"O": b" old_value: {"}


class Part(enum.Enum):
    """What a statement is."""

    BEGIN = enum.auto()
    CHANGE = enum.auto()
    COMMIT = enum.auto()
    HEARTBEAT = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Statement:
    """One line of the stream.

    Attributes:
        part: kind of the part.
        line: without its end; may hold line ends of values.
        lsn: its own; for a commit the end of its record. None where the form does not say.
        csn: CSN of a BEGIN that says it, else None.
    """

    part: Part
    line: bytes
    lsn: Lsn | None
    csn: int | None = None

    @property
    def xid(self) -> int | None:
        """Of a BEGIN that says it in the usual place, else None."""
        found = _XID.search(self.line) if self.part is Part.BEGIN else None
        return None if found is None else int(found[1])


def statements(
    payload: bytes, style: str, *, is_batched: bool, header_lsn: Lsn
) -> Iterator[Statement]:
    """Split the payload of one message.

    Args:
        payload: after the 25 bytes of the header.
        style: b, t, j, s or q.
        is_batched: the server was asked to gather.
        header_lsn: header LSN of the message; only serial decoding puts the statement's own there.

    Raises:
        WireError: the payload does not follow the form.
    """
    if style == BINARY:
        yield from _records(payload)
    elif is_batched:
        yield from _framed(payload)
    else:
        yield text_statement(payload, header_lsn if style in _SERIAL else None)


# ---- text ----------------------------------------------------------------------------------


def _framed(payload: bytes) -> Iterator[Statement]:
    cursor = _Cursor(payload)
    while size := cursor.uint32():
        if size < _LSN_BYTES:
            raise WireError("a statement shorter than its position", cursor.at)
        lsn = Lsn(cursor.uint64())
        yield text_statement(cursor.take(size - _LSN_BYTES), lsn)
    cursor.check_end()


def text_statement(text: bytes, lsn: Lsn | None) -> Statement:
    """Say what a statement in text or JSON is; rows never begin like the other parts."""
    begin = _BEGIN_TEXT.match(text)
    if begin is not None:
        return Statement(Part.BEGIN, text, lsn, int(begin[1]))
    if text.startswith(b"BEGIN"):
        return Statement(Part.BEGIN, text, lsn)
    if text.startswith(_HEARTBEAT_TEXT):
        return Statement(Part.HEARTBEAT, text, lsn)
    part = Part.COMMIT if _COMMIT_TEXT.match(text) else Part.CHANGE
    return Statement(part, text, lsn)


# ---- binary --------------------------------------------------------------------------------


def _records(payload: bytes) -> Iterator[Statement]:
    cursor = _Cursor(payload)
    if payload[:1] == b"h":  # a heartbeat as documented; a record's size never begins so
        cursor.take(1)
        yield _heartbeat(cursor)
        cursor.take(1)
        cursor.check_end()
        return
    while True:
        size = cursor.uint32()
        if size == 0:
            break
        yield _record(_Cursor(cursor.take(size)))
        separator = cursor.take(1)
        if separator not in (b"P", b"F"):
            raise WireError("a record without its separator", cursor.at - 1)
        if separator == b"F":
            break
    cursor.check_end()


def _record(cursor: "_Cursor") -> Statement:
    lsn = Lsn(cursor.uint64())
    try:
        return _spelled(cursor, lsn)
    except WireError as error:
        error.place(lsn, None)
        raise


def _spelled(cursor: "_Cursor", lsn: Lsn) -> Statement:
    letter = cursor.take(1)
    line = b"current_lsn: %s " % str(lsn).encode()
    if letter == b"B":
        csn = cursor.uint64()
        first_lsn = Lsn(cursor.uint64())
        line += b"BEGIN CSN: %d first_lsn: %s" % (csn, str(first_lsn).encode())
        return Statement(Part.BEGIN, line + _options(cursor, b" xid: "), lsn, csn)
    if letter == b"C":
        return Statement(Part.COMMIT, line + b"COMMIT " + _options(cursor, b"xid: "), lsn)
    if letter == b"h":
        return _heartbeat(cursor)
    if letter not in _VERBS:
        raise WireError("a record of an unknown kind", cursor.at - 1)
    line += _VERBS[letter] + cursor.text16() + b"." + cursor.text16()
    return Statement(Part.CHANGE, line + _tuples(cursor), lsn)


def _options(cursor: "_Cursor", xid: bytes) -> bytes:
    """Spell the optional parts; after a letter that nobody knows the rest is skipped."""
    line = b""
    readers: dict[bytes, Callable[[], bytes]] = {
        b"X": lambda: xid + b"%d" % cursor.uint64(),
        b"T": lambda: b" commit_time: " + cursor.take(cursor.uint32()),
        b"N": lambda: b" user: " + cursor.take(cursor.uint32()),
        b"O": lambda: b" origin_id: %d" % cursor.int32(),
    }
    while cursor.left:
        reader = readers.get(cursor.take(1))
        if reader is None:
            break
        line += reader()
    return line


def _tuples(cursor: "_Cursor") -> bytes:
    line = b""
    while cursor.left:
        head = _TUPLES.get(cursor.take(1))
        if head is None:
            raise WireError("a tuple of an unknown kind", cursor.at - 1)
        columns = [_column(cursor) for _ in range(cursor.uint16())]
        line += head + b", ".join(columns) + b"}"
    return line


def _column(cursor: "_Cursor") -> bytes:
    name = cursor.text16()
    type_oid = cursor.uint32()
    size = cursor.uint32()
    value = b"NULL" if size == _NULL else cursor.take(size)
    return b'%s[typid = %d]: "%s"' % (name, type_oid, value)


def _heartbeat(cursor: "_Cursor") -> Statement:
    read, flushed, time = _HEARTBEAT.unpack(cursor.take(_HEARTBEAT.size))
    line = f"HeartBeat: {Lsn(read)} flushed_lsn: {Lsn(flushed)} time: {time}"
    return Statement(Part.HEARTBEAT, line.encode(), Lsn(read))


class _Cursor:
    """Reads bytes that are known to be there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes that remain."""
        return len(self._data) - self.at

    def take(self, size: int) -> bytes:
        """Step over bytes; the only check of bounds."""
        if size > self.left:
            raise TruncatedError(f"need {size} bytes, have {self.left}", self.at)
        self.at += size
        return self._data[self.at - size : self.at]

    def uint16(self) -> int:
        """Read two bytes."""
        return int.from_bytes(self.take(2))

    def uint32(self) -> int:
        """Read four bytes."""
        return int.from_bytes(self.take(4))

    def int32(self) -> int:
        """Read four bytes with a sign, as an origin is printed."""
        return int.from_bytes(self.take(4), signed=True)

    def uint64(self) -> int:
        """Read eight bytes."""
        return int.from_bytes(self.take(8))

    def text16(self) -> bytes:
        """Read a size of two bytes and as many bytes."""
        return self.take(self.uint16())

    def check_end(self) -> None:
        """Refuse what follows the end."""
        if self.left:
            raise WireError(f"{self.left} bytes after the end of the message", self.at)
