"""BEGIN, COMMIT and heartbeats of GaussDB's styles, read plainly.

A part of `gaussformats`, the twin of ``source/gaussdb/translate/_statement.pyx``.
"""

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from gaussdecode.model.types import ColumnType, Kind
from twins.gausstexts import Reader
from twins.values import decode_value

NO_TIME: Final = -(2**63)
_UINT32: Final = 2**32 - 1
_UINT64: Final = 2**64 - 1
_WORD: Final = re.compile(rb"[^ ]*")
_KEY: Final = re.compile(rb"([A-Za-z_]+):")
_NEXT_KEY: Final = re.compile(rb" [A-Za-z_]+:")
_LSN: Final = re.compile(rb"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_DIGIT_FOLLOWS: Final = re.compile(rb" [0-9]")
_2000: Final = datetime(2000, 1, 1, tzinfo=UTC)
_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_LIMIT: Final = 10**11
_MILLIS_LIMIT: Final = 10**14


@dataclasses.dataclass(frozen=True, slots=True)
class Boundary:
    """BEGIN or COMMIT: what was sent of it. Time in microseconds since 2000."""

    lsn: int = 0
    csn: int = 0
    xid: int = 0
    time: int = NO_TIME
    origin: int = 0
    user: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life. Time in microseconds since 1970."""

    lsn: int
    flushed: int
    time: int = 0


def binary_parts(record: Reader, boundary: Boundary) -> Boundary:
    """Read the optional parts, in any order, up to the end of the record."""
    while record.left:
        letter = record.take(1)
        if letter == b"X":
            boundary = dataclasses.replace(boundary, xid=record.number(8))
        elif letter == b"O":
            boundary = dataclasses.replace(boundary, origin=record.number(4))
        else:
            text = record.take(record.number(4))
            if letter == b"T":
                boundary = _timed(boundary, text)
            elif letter == b"N":
                boundary = dataclasses.replace(boundary, user=_user(record, text))
    return boundary


def begin_text(record: Reader, style: str, lsn: int) -> Boundary:
    """Read from after BEGIN."""
    boundary = Boundary(lsn=lsn if style in "sq" else 0)
    if style in "sq":
        if record.match(_DIGIT_FOLLOWS):
            record.next += 1
            number = _word_number(record)
            boundary = (
                dataclasses.replace(boundary, csn=number)
                if style == "q"
                else dataclasses.replace(boundary, xid=number)
            )
        if record.accept(b" ORIGIN_ID "):
            origin = _word_number(record)
            if origin > _UINT32:
                raise record.fail("number that cannot be read in a statement")
            boundary = dataclasses.replace(boundary, origin=origin)
    else:
        record.expect(b" CSN:")
        record.next -= 5
    while record.left:
        boundary = _part(record, boundary)
    return boundary


def _part(record: Reader, boundary: Boundary) -> Boundary:
    record.expect(b" ")
    key = record.match(_KEY)
    if key is None:
        raise record.fail("statement that does not follow its style")
    record.next = key.end()
    if record.left:
        record.expect(b" ")
    following = _NEXT_KEY.search(record.payload, record.next, record.end)
    value = record.take((following.start() if following else record.end) - record.next)
    name = key[1].lower()
    if name == b"commit_time":
        return _timed(boundary, value)
    if name in (b"user_name", b"username"):
        return dataclasses.replace(boundary, user=_user(record, value))
    number = _lsn(value) if name == b"first_lsn" else _number(value, _UINT64)
    if name not in (b"csn", b"xid", b"origin_id", b"first_lsn"):
        return boundary
    if number is None or (name == b"origin_id" and number > _UINT32):
        raise record.fail("number that cannot be read in a statement", len(value))
    if name == b"csn":
        return dataclasses.replace(boundary, csn=number)
    if name == b"xid":
        return dataclasses.replace(boundary, xid=number)
    if name == b"origin_id":
        return dataclasses.replace(boundary, origin=number)
    return dataclasses.replace(boundary, lsn=number)


def commit_text(record: Reader, style: str) -> Boundary:
    """Read from after COMMIT."""
    boundary = Boundary()
    while record.left:
        if record.accept(b" (at "):
            end = record.payload.find(b")", record.next, record.end)
            if end < 0:
                record.next = record.end
                record.take(1)
            boundary = _timed(boundary, record.take(end - record.next))
            record.take(1)
        elif record.accept(b" CSN "):
            boundary = dataclasses.replace(boundary, csn=_word_number(record))
        elif style in "sq" and record.match(_DIGIT_FOLLOWS):
            record.next += 1
            number = _word_number(record)
            boundary = (
                dataclasses.replace(boundary, csn=number)
                if style == "q"
                else dataclasses.replace(boundary, xid=number)
            )
        elif record.accept(b" xid: ") or record.accept(b" XID: "):
            boundary = dataclasses.replace(boundary, xid=_word_number(record))
        else:
            raise record.fail("statement that does not follow its style")
    return boundary


def heartbeat_text(record: Reader, lsn: int) -> Heartbeat:
    """Read from after ``HeartBeat:``; words that say nothing are stepped over."""
    found, time = [], 0
    words = record.take(record.left).split(b" ")
    while words:
        word = words.pop(0)
        plain = word.removesuffix(b",")
        position = _lsn(plain)
        if position is not None:
            found.append(position)
        elif len(word) == 10 and word[4:5] == b"-" and any(words):
            micros = _micros(word + b" " + words.pop(0), _1970)
            time = time if micros is None else micros
        elif len(plain) > 9 and (number := _number(plain, _UINT64)) is not None:
            time = time if number >= 2**63 else heartbeat_time(number)
    first, second, *_ = found + [lsn, 0][len(found) :]
    return Heartbeat(first, second, time)


def heartbeat_time(time: int) -> int:
    """Bring a time to microseconds: its unit is not documented."""
    if time < 0:
        return 0
    if time < _SECONDS_LIMIT:
        return time * 1_000_000
    return time * 1000 if time < _MILLIS_LIMIT else time


def _word_number(record: Reader) -> int:
    word = record.match(_WORD)
    number = None if word is None else _number(word[0], _UINT64)
    if number is None or word is None:
        raise record.fail("number that cannot be read in a statement")
    record.next = word.end()
    return number


def _number(text: bytes, limit: int) -> int | None:
    if not text.isdigit() or int(text) > limit:
        return None
    return int(text)


def _lsn(text: bytes) -> int | None:
    match = _LSN.fullmatch(text)
    return None if match is None else int(match[1], 16) << 32 | int(match[2], 16)


def _user(record: Reader, text: bytes) -> bytes:
    if b"\0" in text:
        raise record.fail("zero byte in a user name", len(text) - text.index(b"\0"))
    return text


def _timed(boundary: Boundary, text: bytes) -> Boundary:
    micros = _micros(text, _2000)
    return boundary if micros is None else dataclasses.replace(boundary, time=micros)


def _micros(text: bytes, epoch: datetime) -> int | None:
    moment = decode_value(ColumnType(Kind.TIMESTAMPTZ), text)
    return (moment - epoch) // timedelta(microseconds=1) if isinstance(moment, datetime) else None
