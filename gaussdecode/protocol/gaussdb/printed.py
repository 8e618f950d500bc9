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

from gaussdecode.errors import WireError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.fields import Fields

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
    cursor = Fields(payload)
    while size := cursor.number(4):
        if size < _LSN_BYTES:
            raise cursor.fail("a statement shorter than its position", 0)
        lsn = Lsn(cursor.number(8))
        yield text_statement(cursor.take(size - _LSN_BYTES), lsn)
    cursor.end()


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
    cursor = Fields(payload)
    if payload[:1] == b"h":  # a heartbeat as documented; a record's size never begins so
        cursor.take(1)
        yield _heartbeat(cursor)
        cursor.take(1)
        cursor.end()
        return
    while True:
        size = cursor.number(4)
        if size == 0:
            break
        yield _record(Fields(cursor.take(size)))
        separator = cursor.take(1)
        if separator not in (b"P", b"F"):
            raise cursor.fail("a record without its separator")
        if separator == b"F":
            break
    cursor.end()


def _record(cursor: Fields) -> Statement:
    lsn = Lsn(cursor.number(8))
    try:
        return _spelled(cursor, lsn)
    except WireError as error:
        error.place(lsn, None)
        raise


def _spelled(cursor: Fields, lsn: Lsn) -> Statement:
    letter = cursor.take(1)
    line = b"current_lsn: %s " % str(lsn).encode()
    if letter == b"B":
        csn = cursor.number(8)
        first_lsn = Lsn(cursor.number(8))
        line += b"BEGIN CSN: %d first_lsn: %s" % (csn, str(first_lsn).encode())
        return Statement(Part.BEGIN, line + _options(cursor, b" xid: "), lsn, csn)
    if letter == b"C":
        return Statement(Part.COMMIT, line + b"COMMIT " + _options(cursor, b"xid: "), lsn)
    if letter == b"h":
        return _heartbeat(cursor)
    if letter not in _VERBS:
        raise cursor.fail("a record of an unknown kind")
    line += _VERBS[letter] + _name(cursor) + b"." + _name(cursor)
    return Statement(Part.CHANGE, line + _tuples(cursor), lsn)


def _options(cursor: Fields, xid: bytes) -> bytes:
    """Spell the optional parts; after a letter that nobody knows the rest is skipped."""
    line = b""
    readers: dict[bytes, Callable[[], bytes]] = {
        b"X": lambda: xid + b"%d" % cursor.number(8),
        b"T": lambda: b" commit_time: " + cursor.take(cursor.number(4)),
        b"N": lambda: b" user: " + cursor.take(cursor.number(4)),
        b"O": lambda: b" origin_id: %d" % cursor.number(4, signed=True),
    }
    while cursor.left:
        reader = readers.get(cursor.take(1))
        if reader is None:
            break
        line += reader()
    return line


def _tuples(cursor: Fields) -> bytes:
    line = b""
    while cursor.left:
        head = _TUPLES.get(cursor.take(1))
        if head is None:
            raise cursor.fail("a tuple of an unknown kind")
        columns = [_column(cursor) for _ in range(cursor.number(2))]
        line += head + b", ".join(columns) + b"}"
    return line


def _name(cursor: Fields) -> bytes:
    return cursor.take(cursor.number(2))


def _column(cursor: Fields) -> bytes:
    name = _name(cursor)
    type_oid = cursor.number(4)
    size = cursor.number(4)
    value = b"NULL" if size == _NULL else cursor.take(size)
    return b'%s[typid = %d]: "%s"' % (name, type_oid, value)


def _heartbeat(cursor: Fields) -> Statement:
    read, flushed, time = _HEARTBEAT.unpack(cursor.take(_HEARTBEAT.size))
    line = f"HeartBeat: {Lsn(read)} flushed_lsn: {Lsn(flushed)} time: {time}"
    return Statement(Part.HEARTBEAT, line.encode(), Lsn(read))
