"""Format pgoutput messages in GaussDB's text, JSON and binary styles.

Given messages in wire order, gives lines; no I/O. The forms are those of GaussDB's parallel
decoding, without the CSN, which PostgreSQL does not have:

    BEGIN first_lsn: 0/CFE64D0 xid: 78110 commit_time: 2026-03-14 20:31:12.098179+00
    table public test1 INSERT: a[integer]:3 b[text]:'it''s'
    table public t1 UPDATE: old-key: a[integer]:1 new-tuple: a[integer]:2 b[text]:null
    {"table_name":"public.test1","op_type":"INSERT","columns_name":["a"], ...}
    commit xid: 78110 (at 2026-03-14 20:31:12.098179+00)

Binary is spelled as the product's ``pg_recvlogical`` does, see `protocol.gaussdb.printed`:

    current_lsn: 0/CFE5D40 INSERT INTO public.test1 new_tuple: {a[typid = 23]: "1"}
    current_lsn: 0/CFE5E68 COMMIT xid: 78108 commit_time: 2026-03-14 20:31:12.098179+00

An unchanged TOAST value, which GaussDB never has, is `unchanged-toast-datum` as in PostgreSQL's
own test_decoding.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from gaussdecode.model.lsn import Lsn
from gaussdecode.model.relation import Column, Relation
from gaussdecode.model.sqlnames import name_as_needed, quoted_text
from gaussdecode.protocol import canonical as pgoutput
from gaussdecode.protocol.canonical import Absent, Message, Tuple, TupleValue
from gaussdecode.protocol.described import RelationMessage, TypeMessage, describe
from gaussdecode.settings.source_sections import DecodingConfig

_BARE: Final = frozenset({20, 21, 23, 26, 700, 701, 1700})  # numbers stand without quotes
_BITS: Final = frozenset({1560, 1562})
_BOOLEAN: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TUPLE: Final = "(no-tuple-data)"


def format_time(microseconds: int) -> str:
    """Spell a time as the server does, in UTC."""
    moment = _EPOCH + timedelta(microseconds=microseconds)
    fraction = f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}+00"


def literal(column: Column, value: TupleValue) -> str:
    """Spell one value as an SQL literal."""
    if value is Absent.NULL:
        return "null"
    if isinstance(value, Absent):
        return "unchanged-toast-datum"
    text = value.decode(errors="backslashreplace")
    if column.type_oid == _BOOLEAN:
        return "true" if text == "t" else "false"
    if column.type_oid in _BARE:
        return text
    if column.type_oid in _BITS:
        return f"B'{text}'"
    return quoted_text(text)


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """One change of one row: columns and values."""

    relation: Relation
    operation: str
    new: Sequence[tuple[Column, TupleValue]]
    old: Sequence[tuple[Column, TupleValue]]


def _text_columns(columns: Sequence[tuple[Column, TupleValue]]) -> str:
    return " ".join(
        f"{name_as_needed(column.name)}[{column.type_name}]:{literal(column, value)}"
        for column, value in columns
    )


def text_row(row: _Row) -> str:
    """Write a row in style t."""
    head = f"table {row.relation.namespace} {row.relation.name} {row.operation}:"
    if row.operation == "DELETE":
        return f"{head} {_text_columns(row.old) if row.old else _NO_TUPLE}"
    if row.old:
        return f"{head} old-key: {_text_columns(row.old)} new-tuple: {_text_columns(row.new)}"
    return f"{head} {_text_columns(row.new) if row.new else _NO_TUPLE}"


def json_row(row: _Row) -> str:
    """Write a row in style j: values are strings that hold SQL literals."""
    name = f"{name_as_needed(row.relation.namespace)}.{name_as_needed(row.relation.name)}"
    record: dict[str, object] = {"table_name": name, "op_type": row.operation}
    for prefix, columns in (("columns", row.new), ("old_keys", row.old)):
        record[f"{prefix}_name"] = [name_as_needed(column.name) for column, _ in columns]
        record[f"{prefix}_type"] = [column.type_name for column, _ in columns]
        record[f"{prefix}_val"] = [literal(column, value) for column, value in columns]
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def _binary_columns(columns: Sequence[tuple[Column, TupleValue]]) -> str:
    return ", ".join(
        f"{name_as_needed(column.name)}[typid = {column.type_oid}]: {_binary_value(value)}"
        for column, value in columns
    )


def _binary_value(value: TupleValue) -> str:
    if value is Absent.NULL:
        return '"NULL"'
    if isinstance(value, Absent):
        return "unchanged-toast-datum"
    return f'"{value.decode(errors="backslashreplace")}"'


_VERBS: Final = {"INSERT": "INSERT INTO", "UPDATE": "UPDATE", "DELETE": "DELETE FROM"}


def binary_row(row: _Row) -> str:
    """Write a row in style b, without its position."""
    line = f"{_VERBS[row.operation]} {row.relation.namespace}.{row.relation.name}"
    if row.new:
        line += f" new_tuple: {{{_binary_columns(row.new)}}}"
    if row.old:
        line += f" old_value: {{{_binary_columns(row.old)}}}"
    return line


class Styler:
    """Turns the messages of one connection into lines.

    Args:
        style: ``t``, ``j`` or ``b``.
        decoding: options that shape the output.
    """

    def __init__(self, style: str, decoding: DecodingConfig) -> None:
        self._write = {"j": json_row, "t": text_row, "b": binary_row}[style]
        self._is_binary = style == "b"
        self._decoding = decoding
        self._white_tables = decoding.white_tables
        self._relations: dict[int, Relation] = {}
        self._user_types: dict[int, tuple[str, str]] = {}
        self._begin: str | None = None
        self._xid = 0
        self._is_dropped = False

    def lines(self, message: Message, lsn: Lsn) -> Iterator[str]:
        """Format a message as lines.

        Args:
            message: the next one on the wire.
            lsn: LSN of its header.

        Yields:
            Lines without their end; the BEGIN comes with the first line after it when empty
            transactions are left out.
        """
        if isinstance(message, pgoutput.Begin):
            self._xid, self._is_dropped = message.xid, False
            self._begin = self._begin_line(message, lsn)
        elif isinstance(message, pgoutput.Origin):
            self._is_dropped = self._decoding.only_local
        elif isinstance(message, TypeMessage):
            self._user_types[message.oid] = (message.namespace, message.name)
        elif isinstance(message, RelationMessage):
            self._relations[message.oid] = describe(message, 1, self._user_types)
        elif isinstance(message, pgoutput.Commit):
            yield from self._ending(self._commit_line(message))
        elif isinstance(message, pgoutput.PrepareBegin):
            begin = pgoutput.Begin(message.prepare_lsn, message.prepare_time_us, message.xid)
            yield from self.lines(begin, lsn)
        elif isinstance(message, pgoutput.Prepare):
            yield from self._ending(self._prepared_line("PREPARE TRANSACTION", message))
        elif isinstance(message, pgoutput.CommitPrepared):
            yield self._prepared_line("COMMIT PREPARED", message)
        elif isinstance(message, pgoutput.RollbackPrepared):
            yield self._prepared_line("ROLLBACK PREPARED", message)
        elif not self._is_dropped:
            head = self._head(lsn)
            yield from self._with_begin(head + line for line in self._change_lines(message))

    def _head(self, lsn: Lsn) -> str:
        return f"current_lsn: {lsn} " if self._is_binary else ""

    def _begin_line(self, message: pgoutput.Begin, lsn: Lsn) -> str:
        line = f"{self._head(lsn)}BEGIN first_lsn: {lsn}"
        if self._decoding.include_xids:
            line += f" xid: {message.xid}"
        if self._decoding.include_timestamp:
            line += f" commit_time: {format_time(message.commit_time_us)}"
        return line

    def _ending(self, line: str) -> Iterator[str]:
        """The last line of a transaction, if the transaction is shown."""
        is_empty = self._begin is not None
        if self._is_dropped or (is_empty and self._decoding.skip_empty_xacts):
            self._begin = None
            return
        yield from self._with_begin([line])

    def _prepared_line(
        self,
        what: str,
        message: pgoutput.Prepare | pgoutput.CommitPrepared | pgoutput.RollbackPrepared,
    ) -> str:
        gid = message.gid.decode(errors="backslashreplace").replace("'", "''")
        line = f"{self._head(Lsn(message.end_lsn))}{what} '{gid}'"
        return f"{line} xid: {message.xid}" if self._decoding.include_xids else line

    def _commit_line(self, message: pgoutput.Commit) -> str:
        xid = f"xid: {self._xid}" if self._decoding.include_xids else ""
        time = format_time(message.commit_time_us) if self._decoding.include_timestamp else ""
        if self._is_binary:
            line = f"{self._head(Lsn(message.end_lsn))}COMMIT {xid}"
            return f"{line} commit_time: {time}" if time else line
        line = f"commit {xid}".rstrip()
        return f"{line} (at {time})" if time else line

    def _with_begin(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if self._begin is not None:
                yield self._begin
                self._begin = None
            yield line

    def _change_lines(self, message: Message) -> Iterator[str]:
        if isinstance(message, pgoutput.Truncate):
            yield from self._truncate_lines(message)
        elif isinstance(message, pgoutput.LogicalMessage):
            yield _message_line(message)
        elif isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete):
            relation = self._relations[message.relation_oid]
            if self._is_listed(relation):
                yield self._write(_row(relation, message))

    def _is_listed(self, relation: Relation) -> bool:
        return not self._white_tables or any(
            schema in {"*", relation.namespace} and name in {"*", relation.name}
            for schema, name in self._white_tables
        )

    def _truncate_lines(self, message: pgoutput.Truncate) -> Iterator[str]:
        relations = [self._relations[oid] for oid in message.relation_oids]
        listed = [relation for relation in relations if self._is_listed(relation)]
        if listed:
            names = ", ".join(
                f"{name_as_needed(r.namespace)}.{name_as_needed(r.name)}" for r in listed
            )
            flags = ["restart_seqs"] * message.is_restart_identity + [
                "cascade"
            ] * message.is_cascade
            yield f"table {names}: TRUNCATE: {' '.join(flags) or '(no-flags)'}"


def _message_line(message: pgoutput.LogicalMessage) -> str:
    prefix = message.prefix.decode(errors="backslashreplace")
    content = message.content.decode(errors="backslashreplace")
    return (
        f"message: transactional: {int(message.is_transactional)} prefix: {prefix}, "
        f"sz: {len(message.content)} content:{content}"
    )


def _row(relation: Relation, message: pgoutput.Insert | pgoutput.Update | pgoutput.Delete) -> _Row:
    new: Tuple = () if isinstance(message, pgoutput.Delete) else message.new
    old: Tuple = ()
    if not isinstance(message, pgoutput.Insert) and message.old is not None:
        old = message.old
    pairs = list(zip(relation.columns, old, strict=False))
    return _Row(
        relation,
        type(message).__name__.upper(),
        list(zip(relation.columns, new, strict=False)),
        [(column, value) for column, value in pairs if column.is_identity],
    )
