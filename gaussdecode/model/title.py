"""Write and read table titles: names for people that identify one table.

Mostly ``schema.name``. A part that has a dot or a double quote, or is empty, stands in double quotes, as in SQL:
``a."b.c"`` and ``"a.b".c`` are two tables. So different tables have different titles, and a title identifies
the pair of schema and name. Nothing is folded to lower case.

The directory of a table, in a landing and in a target, is named after both parts too.
"""

import hashlib
import re
from typing import Final

from gaussdecode.model.sqlnames import quoted_name

_PART_BYTES: Final = 100
"""Arbitrary; two parts and a dot stay well below the 255 bytes of a file name."""
_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_PLAIN: Final = re.compile(r'[^."]+')
_TITLE: Final = re.compile(r'("(?:[^"]|"")*"|[^."]+)\.("(?:[^"]|"")*"|[^."]+)')


def table_title(schema: str, name: str) -> str:
    """Spell a table.

    Args:
        schema: name, as the server has it.
        name: name of the table, likewise.
    """
    return f"{_spelled(schema)}.{_spelled(name)}"


def split_title(title: str) -> tuple[str, str]:
    """Read a title; quotes that it does not need are allowed.

    Raises:
        ValueError: it is none, or could mean several tables; the text says which.
    """
    match = _TITLE.fullmatch(title)
    if match is not None:
        return _read(match[1]), _read(match[2])
    parts = title.split(".")
    if '"' in title or len(parts) < 3:
        raise ValueError(f'{title!r} is no table: write schema.name, or "schema"."name"')
    choices = [table_title(".".join(parts[:n]), ".".join(parts[n:])) for n in range(1, len(parts))]
    raise ValueError(f"{title!r} can be read in several ways: write {' or '.join(choices)}")


def table_directory(namespace: str, name: str) -> str:
    """Name the directory of a table: both parts encoded, joined by a dot."""
    return f"{encode_part(namespace)}.{encode_part(name)}"


def encode_part(name: str) -> str:
    """Make one name safe in a path; different names stay different.

    Every byte outside ``[A-Za-z0-9_-]`` and a leading ``_`` becomes ``%XX``; an empty name
    is ``%00``, which no server can send. A long one is cut and told apart by a hash.
    """
    raw = name.encode("utf-8", "surrogateescape")
    if not raw:
        return "%00"
    parts = [chr(b) if b in _SAFE else f"%{b:02X}" for b in raw]
    if raw.startswith(b"_"):
        parts[0] = "%5F"
    encoded = "".join(parts)
    if len(encoded) <= _PART_BYTES:
        return encoded
    digest = hashlib.sha256(raw).hexdigest()[:16]
    kept, size = 0, 0
    while size + len(parts[kept]) <= _PART_BYTES - 17:
        size += len(parts[kept])
        kept += 1
    return "".join(parts[:kept]) + "~" + digest


def _spelled(part: str) -> str:
    if _PLAIN.fullmatch(part):
        return part
    return quoted_name(part)


def _read(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part
