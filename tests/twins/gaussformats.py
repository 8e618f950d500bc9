"""GaussDB's formats in plain Python; the twin of ``source/gaussdb/translate/_translator.pyx``.

Given the payload of one CopyData, `PlainTranslator.feed` returns the canonical messages, and
refuses what does not follow the format at the same byte as the fast one. Slow and plain on
purpose: texts are cut by regular expressions, values built piece by piece, so that a mistake
in the fast one shows. The layouts are described there. `gausstexts` reads rows, `gaussbounds` what is
around them.
"""

import dataclasses
import re
import struct
from collections.abc import Callable, Sequence
from typing import Final

from gaussdecode.errors import SequenceError
from gaussdecode.model.relation import Column, ReplicaIdentity
from gaussdecode.model.shape import Definition, Shape
from gaussdecode.model.types import Kind
from gaussdecode.protocol.gaussdb.names import shape_of
from twins.gaussbounds import (
    Boundary,
    Heartbeat,
    begin_text,
    binary_parts,
    commit_text,
    heartbeat_text,
    heartbeat_time,
)
from twins.gausstexts import (
    UNCHANGED,
    Literal,
    Reader,
    Row,
    Tuple,
    json_row,
    normal_number,
    sql_row,
    text_row,
)

_HEX: Final = (86, 88)
_NUMERICS: Final = (1700, 1231)
_CODECS: Final = {"GBK": "gbk", "GB18030": "gb18030", "LATIN1": "latin-1"}
_NULL_SIZE: Final = 0xFFFFFFFF
_RESERVED_SIZE: Final = 0xFFFFFFFE
_LEAST_COLUMN: Final = 10
_CASCADE: Final = 1
_RESTART: Final = 2
_DDL: Final = b"gaussdecode.ddl\0"
_SERIAL_DDL: Final = {"s": b"prefix: ", "q": b"message: prefix "}
_DDL_TEXT: Final = re.compile(rb'\{ *"[TJ]DDL"')

Define = Callable[[Shape], Definition]
Span = tuple[bytes, bytes]


@dataclasses.dataclass(slots=True)
class _Known:
    """A table by its spelling: what describes its rows, and its columns as they were sent."""

    definition: Definition
    columns: list[Span | None]
    judged_in: int = 0  # transaction that a DELETE without an old tuple was judged in


class PlainTranslator:
    """Translates one connection's stream.

    Args:
        style: ``b``, ``t``, ``j``, ``s`` or ``q``.
        is_batched: sending-batch is 1.
        encoding: server_encoding.
        takes_ddl: enable-ddl-decoding is on.
    """

    def __init__(
        self, style: str, *, is_batched: bool, encoding: str = "UTF8", takes_ddl: bool = False
    ) -> None:
        self._style = style
        self._takes_ddl = takes_ddl
        self._is_framed = is_batched and style in "tj"
        self._codec = _CODECS.get(encoding)
        self._known: dict[bytes, _Known] = {}
        self._in_transaction = False
        self._begin_count = 0
        self._messages: list[bytes] = []
        self._lsn = 0

    def feed(self, payload: bytes, header_lsn: int, define: Define) -> list[bytes]:
        """Translate one payload.

        Args:
            payload: of one CopyData, after its header.
            header_lsn: of that header.
            define: gives the definition of a new shape.

        Returns:
            The canonical messages.

        Raises:
            WireError: bytes that do not follow the format.
            SequenceError: records in an order that cannot be.
        """
        self._messages = []
        reader = Reader(payload)
        if not payload:
            reader.take(1)
        if self._style == "b":
            self._binary(reader, define)
        elif self._is_framed:
            self._statements(reader, define)
        else:
            self._lsn = header_lsn
            self._statement(reader, define)
        return self._messages

    # ---- framing

    def _binary(self, reader: Reader, define: Define) -> None:
        while True:
            is_bare = reader.peek(1) == b"h"
            if is_bare:
                record = reader.part(25)
            else:
                size = reader.number(4)
                if size == 0:
                    reader.finish("bytes after the end of the payload")
                    return
                record = reader.part(size)
            separator = reader.take(1)
            if separator not in (b"P", b"F"):
                raise reader.fail("unknown separator after a record", 1)
            if separator == b"F":
                reader.finish("bytes after the end of the payload")
            self._lsn = 0 if is_bare else record.number(8)
            self._record(record, define)
            if separator == b"F":
                return

    def _record(self, record: Reader, define: Define) -> None:
        letter = record.take(1)
        if letter in (b"I", b"U", b"D"):
            self._row(record, _binary_row(record, letter.decode()), define)
        elif letter == b"B":
            csn, lsn = record.number(8), record.number(8)
            self._begin(binary_parts(record, Boundary(lsn=lsn, csn=csn)))
        elif letter == b"C":
            self._commit(binary_parts(record, Boundary(lsn=self._lsn)))
        elif letter == b"h":
            heartbeat = Heartbeat(record.number(8), record.number(8))
            time = heartbeat_time(struct.unpack(">q", record.take(8))[0])
            record.finish("bytes after the end of the record")
            self._heartbeat(dataclasses.replace(heartbeat, time=time))
        elif self._takes_ddl and self._in_transaction:
            rest = letter + record.take(record.left)
            self._message(self._converted(rest) if _DDL_TEXT.match(rest) else rest)
        else:
            raise record.fail("unknown type of record", 1)

    def _statements(self, reader: Reader, define: Define) -> None:
        while size := reader.number(4):
            if size < 8:
                raise reader.fail("statement shorter than its LSN", 4)
            statement = reader.part(size)
            self._lsn = statement.number(8)
            self._statement(statement, define)
        reader.finish("bytes after the end of the payload")

    def _statement(self, record: Reader, define: Define) -> None:
        style = self._style
        if self._takes_ddl and _DDL_TEXT.match(record.peek(record.left)):
            self._ddl(record)
        elif style in "js" and record.peek(1) == b"{":
            self._row(record, json_row(record, is_utf8=self._codec is None), define)
        elif style in "tsq" and record.accept(b"table "):
            row = text_row(record)
            if row.op == "T":
                self._truncate(record, row.head, define)
            else:
                self._row(record, row, define)
        elif style == "q" and record.peek(1) in (b"i", b"d"):
            self._row(record, sql_row(record), define)
        elif record.accept(b"BEGIN"):
            self._begin(begin_text(record, style, self._lsn))
        elif record.accept(b"commit") or record.accept(b"COMMIT"):
            self._commit(commit_text(record, style))
        elif record.accept(b"HeartBeat:"):
            self._heartbeat(heartbeat_text(record, self._lsn))
        elif _SERIAL_DDL.get(style) and record.peek(16).startswith(_SERIAL_DDL[style]):
            self._ddl(record)
        elif self._takes_ddl and self._in_transaction:
            self._message(record.take(record.left))
        else:
            raise record.fail("unknown statement")

    # ---- messages

    def _emit(self, *parts: bytes) -> None:
        self._messages.append(b"".join(parts))

    def _require(self, inside: bool, what: str) -> None:
        if self._in_transaction is not inside:
            raise SequenceError(what)

    def _begin(self, boundary: Boundary) -> None:
        self._require(False, "a BEGIN inside a transaction")
        self._in_transaction = True
        self._begin_count += 1
        numbers = (boundary.lsn, boundary.csn, boundary.xid, boundary.time, boundary.origin)
        self._emit(b"g", struct.pack(">QQQqI", *numbers), self._converted(boundary.user), b"\0")

    def _commit(self, boundary: Boundary) -> None:
        self._require(True, "a COMMIT outside of a transaction")
        self._in_transaction = False
        self._emit(b"f", struct.pack(">QQqQ", self._lsn, boundary.xid, boundary.time, boundary.csn))

    def _ddl(self, record: Reader) -> None:
        self._require(True, "a DDL statement outside of a transaction")
        self._message(self._converted(record.take(record.left)))

    def _message(self, text: bytes) -> None:
        self._emit(b"M\1", struct.pack(">Q", self._lsn), _DDL, struct.pack(">I", len(text)), text)

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        self._emit(b"h", struct.pack(">QQq", heartbeat.lsn, heartbeat.flushed, heartbeat.time))

    def _truncate(self, record: Reader, head: bytes, define: Define) -> None:
        self._require(True, "a TRUNCATE outside of a transaction")
        tables = record.inside(head)
        oids = []
        while True:
            start = tables.next
            tables.identifier()
            tables.expect(b".")
            tables.identifier()
            name = tables.payload[start : tables.next]
            if name not in self._known:
                self._ask(name, Row("T", name), define)
            oids.append(self._known[name].definition.relation.oid)
            if not tables.accept(b", "):
                break
        tables.expect(b":")
        tables.finish("statement that does not follow its style")
        bits = 0
        if not record.accept(b" (no-flags)"):
            bits |= _RESTART if record.accept(b" restart_seqs") else 0
            bits |= _CASCADE if record.accept(b" cascade") else 0
        record.finish("unknown flags of a truncate")
        self._emit(b"T", struct.pack(f">IB{len(oids)}I", len(oids), bits, *oids))

    # ---- rows

    def _row(self, record: Reader, row: Row, define: Define) -> None:
        self._require(True, "a row outside of a transaction")
        known = self._known.get(row.head)
        places = None if known is None else _match(known, row, self._begin_count)
        if known is None or places is None:
            known = self._ask(row.head, row, define)
            places = _match(known, row, self._begin_count)
        if places is None:
            raise record.fail("row that its relation does not describe")
        relation = known.definition.relation
        if relation.is_filtered:
            return
        parts = [row.op.encode(), struct.pack(">I", relation.oid)]
        columns = relation.columns
        if known.definition.is_speculative and _lacks_old(known, row):
            self._emit(*parts, b"X")
            return
        if row.old is not None or row.op == "D" or _is_bare(known, row):
            is_full = relation.identity is ReplicaIdentity.FULL
            parts.append((b"O" if is_full else b"K") + struct.pack(">H", len(columns)))
            parts += self._old(record, columns, row.old or [], places)
        if row.new is not None:
            parts.append(b"N" + struct.pack(">H", len(columns)))
            parts += [
                self._value(column, field.value)
                for column, field in zip(columns, row.new, strict=True)
            ]
        self._emit(*parts)

    def _old(
        self, record: Reader, columns: Sequence[Column], old: Tuple, places: Sequence[int]
    ) -> list[bytes]:
        sent = {place: field.value for place, field in zip(places, old, strict=True)}
        parts = []
        for index, column in enumerate(columns):
            value = sent.get(index)
            if value is UNCHANGED:
                raise record.fail("unchanged value in an old tuple")
            parts.append(self._value(column, value))
        return parts

    def _value(self, column: Column, value: Literal) -> bytes:
        if value is None:
            return b"n"
        if value is UNCHANGED:
            return b"u"
        if isinstance(value, bool):
            text = b"t" if value else b"f"
        else:
            assert isinstance(value, bytes)  # for mypy: the last kind of literal
            text = value
            is_decimal = Kind.DECIMAL in (column.type.kind, column.type.element)
            if column.type_oid in _NUMERICS and not is_decimal:
                text = normal_number(text)
            else:
                text = self._converted(text)
        if column.type_oid in _HEX and isinstance(value, bytes):
            text = b"\\x" + text
        return b"t" + struct.pack(">I", len(text)) + text

    def _converted(self, text: bytes) -> bytes:
        """Bring a text to UTF-8; bytes that are no letters stay as they are."""
        if self._codec is None or text.isascii():
            return text
        converted = text.decode(self._codec, "gaussdecode.raw").encode("utf-8", "surrogateescape")
        try:
            text.decode(self._codec)
        except UnicodeDecodeError:
            try:
                converted.decode()
            except UnicodeDecodeError:
                return converted
            return converted + b"\xff"
        return converted

    # ---- the slow path

    def _decoded(self, name: bytes) -> str:
        return self._converted(name).decode("utf-8", "backslashreplace")

    def _ask(self, head: bytes, row: Row, define: Define) -> _Known:
        style = "j" if row.is_json else self._style
        new, old = _spans(row.new), _spans(row.old)
        shape = shape_of(style, row.op, head, new, old, self._decoded)
        definition = define(shape)
        relation = definition.relation
        before = self._known.get(head)
        columns: list[Span | None] = [None] * len(relation.columns)
        if before is not None and before.definition.relation.version == relation.version:
            columns = list(before.columns)
        if new is not None and len(new) == len(columns) and not row.is_positional:
            columns = list(new)
        names = {column.name: index for index, column in enumerate(relation.columns)}
        for column, span in zip(shape.old or (), old or (), strict=True):
            if column.name in names:
                columns[names[column.name]] = span
        is_judged = row.op == "D" and row.old is None
        judged_in = self._begin_count if is_judged else 0
        known = self._known[head] = _Known(definition, columns, judged_in)
        return known


def _spans(fields: Tuple | None) -> list[Span] | None:
    return None if fields is None else [(field.name, field.type) for field in fields]


def _is_bare(known: _Known, row: Row) -> bool:
    """Whether the row has an old tuple of NULLs alone, which JSON does not show."""
    return known.definition.takes_bare and row.is_json and row.op != "I"


def _lacks_old(known: _Known, row: Row) -> bool:
    """Whether a deleted row has no old tuple, though its table has an identity."""
    has_identity = any(column.is_identity for column in known.definition.relation.columns)
    return row.op == "D" and row.old is None and has_identity


def _match(known: _Known, row: Row, transaction: int) -> list[int] | None:
    """Find the old columns of a row among the table's; None: the version is another."""
    relation = known.definition.relation
    if relation.is_filtered:
        return []
    if row.new is None:
        if row.op != "D":
            return None
    elif len(row.new) != len(known.columns) or not (
        row.is_positional or _spans(row.new) == known.columns
    ):
        return None
    identity = [index for index, column in enumerate(relation.columns) if column.is_identity]
    if row.old is None:
        return None if _lacks_old(known, row) and known.judged_in != transaction else []
    if not row.old and known.columns:
        return [] if known.definition.takes_bare else None
    rest = iter(identity)
    places = []
    for span in _spans(row.old) or []:
        place = next((index for index in rest if known.columns[index] == span), None)
        if place is None:
            return None
        places.append(place)
    return places if len(places) == len(identity) or known.definition.has_gaps else None


def _binary_row(record: Reader, op: str) -> Row:
    start = record.next
    record.take(record.number(2))
    record.take(record.number(2))
    row = Row(op, record.payload[start : record.next])
    while record.left:
        letter = record.take(1)
        if letter == b"N" and op != "D":
            row.new = _binary_tuple(record, row.new)
        elif letter == b"O" and op != "I":
            row.old = _binary_tuple(record, row.old)
        else:
            raise record.fail("unknown part of a row", 1)
    return row


def _binary_tuple(record: Reader, before: Tuple | None) -> Tuple:
    if before is not None:
        raise record.fail("row with two tuples of a kind", 1)
    count = record.number(2)
    if count * _LEAST_COLUMN > record.left:
        record.take(count * _LEAST_COLUMN)
    fields: Tuple = []
    for _ in range(count):
        record.check_count(fields)
        start = record.next
        record.take(record.number(2) + 4)
        name = record.payload[start : record.next]
        size = record.number(4)
        if size == _RESERVED_SIZE:
            raise record.fail("reserved size of a value", 4)
        record.add(fields, name, b"", None if size == _NULL_SIZE else record.take(size))
    return fields
