"""Read the names in GaussDB's rows, and make a `Shape` of them.

Column names are SQL-quoted in every style, tables only where the style says so. In the text style schema and
table stand side by side, unquoted. A blank in one of them can then be read in several ways, and all are
given.

Given the raw spans of one row, which never belong to a value. Called once per new shape, so it is plain and slow.
Names have the encoding of the database; `decode` converts them.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Final

from gaussdecode.errors import WireError
from gaussdecode.model.shape import Shape, ShapeColumn
from gaussdecode.wire.letters import StreamStyle

_IDENTIFIER: Final = re.compile(rb'"(?:[^"]|"")*"|[a-z0-9_]+')
_OID_SIZE: Final = 4

Spans = Sequence[tuple[bytes, bytes]]


def shape_of(
    style: str,
    op: str,
    head: bytes,
    new: Spans | None,
    old: Spans | None,
    decode: Callable[[bytes], str],
) -> Shape:
    """Say what a row looks like.

    Args:
        style: ``b``, ``t``, ``j``, ``q``, or ``s`` for text of a serial plug-in.
        op: ``I``, ``U``, ``D`` or ``T``.
        head: bytes with the table's name, as sent.
        new: per column of the new tuple its name and type as sent; None without one. The
            type is part of the name in styles b and t, and not sent in q.
        old: the same of the old tuple.
        decode: converts from the database's encoding.

    Returns:
        The shape, all names unquoted.

    Raises:
        WireError: a name whose spelling does not follow the style.
    """
    return Shape(
        tuple((decode(schema), decode(table)) for schema, table in _tables(style, op, head)),
        op,
        None if new is None else tuple(_column(style, span, decode) for span in new),
        None if old is None else tuple(_column(style, span, decode) for span in old),
    )


def unquote(name: bytes) -> bytes:
    """Take the quotes off one identifier; a bare one stays as it is.

    Raises:
        WireError: quotes that are not in pairs.
    """
    if not name.startswith(b'"'):
        return name
    if _IDENTIFIER.fullmatch(name) is None:
        raise WireError("name whose quotes are not in pairs", 0)
    return name[1:-1].replace(b'""', b'"')


def _tables(style: str, op: str, head: bytes) -> list[tuple[bytes, bytes]]:
    """Schema and table, in all ways that the head can be read."""
    if style == StreamStyle.BINARY:
        size = int.from_bytes(head[:2], "big")
        return [(head[2 : 2 + size], head[4 + size :])]
    if style == StreamStyle.TEXT:
        return _split_unquoted(head, b" ")
    if style == StreamStyle.JSON:
        head = _plain_json(head)
    elif style == StreamStyle.SERIAL and op != "T":
        head = head.removesuffix(b":")
    pair = _split_qualified(head)
    return [pair] if pair is not None else _split_unquoted(head, b".")


def _split_qualified(text: bytes) -> tuple[bytes, bytes] | None:
    """Split ``schema.table``, each quoted where it must be; None when it is not that."""
    schema = _IDENTIFIER.match(text)
    if schema is None or text[schema.end() : schema.end() + 1] != b".":
        return None
    table = _IDENTIFIER.fullmatch(text, schema.end() + 1)
    return None if table is None else (unquote(schema[0]), unquote(table[0]))


def _split_unquoted(text: bytes, separator: bytes) -> list[tuple[bytes, bytes]]:
    """All ways to split a text at one separator that leave something on either side."""
    at = [index for index in range(1, len(text) - 1) if text[index : index + 1] == separator]
    if not at:
        raise WireError("name of a table that cannot be read", 0)
    return [(text[:index], text[index + 1 :]) for index in at]


def _column(style: str, span: tuple[bytes, bytes], decode: Callable[[bytes], str]) -> ShapeColumn:
    name, kind = span
    if style == StreamStyle.BINARY:
        oid = int.from_bytes(name[-_OID_SIZE:], "big")
        return ShapeColumn(decode(unquote(name[2:-_OID_SIZE])), oid)
    if style == StreamStyle.JSON:
        name, kind = _plain_json(name), _plain_json(kind)
    elif style != StreamStyle.SQL:
        match = _IDENTIFIER.match(name)
        end = 0 if match is None else match.end()
        name, kind = name[:end], name[end + 1 : -len("]:")]
    return ShapeColumn(decode(unquote(name)), 0, decode(kind))


def _plain_json(raw: bytes) -> bytes:
    """Take the escapes out of a JSON string, whatever encoding its other bytes are in."""
    if b"\\" not in raw:
        return raw
    try:
        text = json.loads(f'"{raw.decode("utf-8", "surrogateescape")}"', strict=False)
        plain: bytes = text.encode("utf-8", "surrogateescape")
    except ValueError:
        raise WireError("unknown escape in a name", 0) from None
    return plain
