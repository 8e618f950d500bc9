"""Messages of the server's side that every part of the simulator makes."""

import datetime as dt
import re
import struct
import zoneinfo
from typing import NamedTuple


class Result(NamedTuple):
    """Rows of an answer: (name, type OID) of the columns, texts, command tag."""

    columns: list[tuple[str, int]]
    rows: list[tuple[str | None, ...]]
    tag: str


def message(letter: bytes, body: bytes = b"") -> bytes:
    """A protocol 3 message."""
    return letter + struct.pack(">I", len(body) + 4) + body


def report(letter: bytes, severity: str, text: str, sqlstate: str, hint: str = "") -> bytes:
    """An ErrorResponse (E) or NoticeResponse (N)."""
    fields = [("S", severity), ("C", sqlstate), ("M", text)]
    if hint:
        fields.append(("H", hint))
    body = b"".join(key.encode() + value.encode() + b"\0" for key, value in fields)
    return message(letter, body + b"\0")


def zone_offset(name: str) -> int:
    """Minutes east of UTC; fixed offsets like ``+08`` too."""
    if name.upper() in ("UTC", "GMT", "ETC/UTC"):
        return 0
    match = re.fullmatch(r"([+-])(\d\d?)(?::?(\d\d))?", name)
    if match:
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        return -minutes if match[1] == "-" else minutes
    moment = dt.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo(name))
    offset = moment.utcoffset()
    assert offset is not None
    return int(offset.total_seconds()) // 60


def lsn_text(lsn: int) -> str:
    """Print a position as ``%X/%X``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Read a position."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)
