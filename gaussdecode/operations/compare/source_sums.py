"""Compute checksums of rows on the source server, in one imported snapshot, to compare them with a target.

The SQL makes the same canonical text of every value as `spark.maintain.checksums`, so that ranges of
both sides have the same sums. One scan of a table gives all sums, another one the rows of differing
ranges. It uses one connection and one statement at a time. openGauss must run the SQL too: its grammar
is that of PostgreSQL 9.2, and in Oracle-compatible databases NULL joined with a text is that text.
"""

# ruff: noqa: S608  # all names and values are quoted

import abc
import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gaussdecode.closing import Closing
from gaussdecode.errors import ConfigError, SourceError
from gaussdecode.model.title import table_title
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.export import Spelling
from gaussdecode.source.postgresql.connection import ANSWER_SECONDS, connect
from gaussdecode.source.quoting import identifier, literal
from gaussdecode.spark.maintain.checksums import MovingError, Sums

_FOUND: Final = "::pg_catalog.text"
_NO_TABLE: Final = frozenset({"42P01", "3F000"})  # undefined_table, invalid_schema_name


class SourceColumn(NamedTuple):
    """A column of the target and its source column.

    Attributes:
        landed: its name in the target.
        name: true name on the server.
        arrow: Arrow type in the target.
        spelling: how the server's text differs from the landed text.
    """

    landed: str
    name: str
    arrow: str
    spelling: Spelling = Spelling.SAME


class SourceTable(NamedTuple):
    """A table of the source.

    Attributes:
        sql: the table's name for SQL.
        columns: how the server's text differs from the landed text, by true name.
        oid: its OID.
    """

    sql: str
    columns: Mapping[str, Spelling]
    oid: int


class SourceSums(Closing):
    """One snapshot of a database, as a context."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abc.abstractmethod
    def query(self, text: str, *, is_long: bool = False) -> Sequence[Sequence[str | None]]:
        """Run a statement in the snapshot; `is_long` for one that reads a whole table."""

    @abc.abstractmethod
    def table(
        self, schema: str, name: str
    ) -> contextlib.AbstractContextManager["SourceTable | None"]:
        """Lock a table against TRUNCATE and ALTER, and describe it as in the stream; None for no table.

        Raises:
            MovingError: it was renamed after the snapshot, or emptied or rewritten, so that the snapshot
                shows no rows: TRUNCATE ignores snapshots.
        """

    @abc.abstractmethod
    def title_of(self, oid: int) -> str | None:
        """``schema.name`` of the table with an OID; None for no table."""

    def sums(
        self, table: str, columns: Sequence[SourceColumn], key: Sequence[str], digits: int
    ) -> Sums:
        """See `spark.maintain.checksums.LakeTable.sums`."""
        rows = self.query(
            f"SELECT pg_catalog.left(k, {digits}), pg_catalog.count(*), pg_catalog.sum(h) "
            f"FROM ({_rows(table, columns, key)}) s GROUP BY 1",
            is_long=True,
        )
        return {str(part): (int(count or 0), int(total or 0)) for part, count, total in rows}

    def rows(
        self,
        table: str,
        columns: Sequence[SourceColumn],
        key: Sequence[str],
        ranges: Collection[str],
    ) -> Counter[tuple[str, int, str]]:
        """See `spark.maintain.checksums.LakeTable.rows`."""
        digits = max(map(len, ranges))
        wanted = ", ".join(literal(part) for part in sorted(ranges))
        names = ", ".join(f"t{index}" for index in range(len(key)))
        rows = self.query(
            f"SELECT k, h{', ' + names if names else ''} FROM ({_rows(table, columns, key)}) s "
            f"WHERE pg_catalog.left(k, {digits}) IN ({wanted})",
            is_long=True,
        )
        return Counter(
            (str(row[0]), int(row[1] or 0), json.dumps(dict(zip(key, row[2:], strict=True))))
            for row in rows
        )


class PgSums(SourceSums):
    """A snapshot of PostgreSQL.

    Args:
        address: address of the server.
        name: name of the exported snapshot.
    """

    def __init__(self, address: SourceAddress, name: str) -> None:
        self._session = connect(address, is_replication=False)
        self.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self.query(f"SET TRANSACTION SNAPSHOT {literal(name)}")

    def close(self) -> None:
        """See `SourceSums`."""
        self._session.close()

    def query(self, text: str, *, is_long: bool = False) -> Sequence[Sequence[str | None]]:
        """See `SourceSums`."""
        self._session.patience = None if is_long else ANSWER_SECONDS
        return self._session.query(text)

    @contextlib.contextmanager
    def table(self, schema: str, name: str) -> Iterator[SourceTable | None]:
        """See `SourceSums`."""
        self.query("SAVEPOINT gaussdecode_table")
        try:
            yield self._locked(schema, name)
        finally:
            self.query("ROLLBACK TO SAVEPOINT gaussdecode_table")

    def _locked(self, schema: str, name: str) -> SourceTable | None:
        rows = self.query(
            "SELECT c.oid, c.relkind, a.attname "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
            "AND NOT a.attisdropped AND a.attgenerated = '' "
            f"WHERE n.nspname = {literal(schema)} AND c.relname = {literal(name)} "
            "AND c.relkind IN ('r', 'p')"
        )
        if not rows:
            return None
        # Tables that inherit are published by themselves, partitions by their root.
        only = "ONLY " if rows[0][1] == "r" else ""
        plain = f"{identifier(schema)}.{identifier(name)}"
        sql = f"{only}{plain}"
        # Names are those of now, and not of the snapshot: another table may have this one by now.
        try:
            self.query(f"LOCK TABLE {sql} IN ACCESS SHARE MODE")
        except SourceError as error:
            if error.sqlstate not in _NO_TABLE:
                raise
            raise _renamed(schema, name) from None
        ((oid,),) = self.query(f"SELECT {literal(plain)}::pg_catalog.regclass::pg_catalog.oid")
        if oid != rows[0][0]:
            raise _renamed(schema, name)
        # The snapshot's files, and those that the server reads now.
        (changed,) = self.query(
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c WHERE c.relkind = 'r' AND "
            f"(c.oid = {rows[0][0]} OR c.oid IN "
            f"(SELECT relid FROM pg_catalog.pg_partition_tree({rows[0][0]}))) "
            "AND pg_catalog.pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode"
        )
        if changed[0] != "0":
            raise MovingError(f"{table_title(schema, name)} is emptied or rewritten at this moment")
        names = {str(column): Spelling.SAME for *_, column in rows if column is not None}
        return SourceTable(sql, names, int(oid or 0))

    def title_of(self, oid: int) -> str | None:
        """See `SourceSums`."""
        rows = self.query(
            "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
            f"ON n.oid = c.relnamespace WHERE c.oid = {oid} AND c.relkind IN ('r', 'p')"
        )
        return next((table_title(str(schema), str(name)) for schema, name in rows), None)


def _renamed(schema: str, name: str) -> MovingError:
    return MovingError(f"{table_title(schema, name)} is renamed or dropped at this moment")


def _rows(table: str, columns: Sequence[SourceColumn], key: Sequence[str]) -> str:
    """SQL for each row's MD5 of the key, checksum and key texts."""
    names = {column.landed: f"c{index}" for index, column in enumerate(columns)}
    texts = "".join(f", {_column_sql(column)} AS {names[column.landed]}" for column in columns)
    whole = _md5(names.values())
    keyed = _md5(names[name] for name in key) if key else "w"
    shown = "".join(f", {names[name]} AS t{index}" for index, name in enumerate(key))
    # OFFSET 0 keeps the server from making each text once for every place that it stands in.
    inner = f"SELECT *, {whole} AS w FROM (SELECT 1{texts} FROM {table} OFFSET 0) x OFFSET 0"
    checksum = "('x' || pg_catalog.left(w, 15))::pg_catalog.bit(60)::pg_catalog.int8"
    return f"SELECT {keyed} AS k, {checksum} AS h{shown} FROM ({inner}) y"


def _md5(texts: Iterable[str]) -> str:
    joined = " || ".join(_joined(text) for text in texts)
    return f"pg_catalog.md5(pg_catalog.convert_to({joined or literal('')}, 'UTF8'))"


def _joined(text: str) -> str:
    joined = f"pg_catalog.length({text}) || ':' || ({text})"
    return f"(CASE WHEN ({text}) IS NULL THEN '-' ELSE {joined} END)"


def _column_sql(column: SourceColumn) -> str:
    value = identifier(column.name)
    if column.spelling is Spelling.HEX:
        digits = f"pg_catalog.lower(pg_catalog.format('%s', {value}))"
        return f"(CASE WHEN {value} IS NOT NULL THEN {digits} END)"
    return text_sql(value, column.arrow, is_respelled=column.spelling is Spelling.NUMBER)


def text_sql(value: str, arrow: str, *, is_respelled: bool = False) -> str:
    """SQL for the canonical text of a value.

    Args:
        value: an SQL expression.
        arrow: Arrow type that it lands as.
        is_respelled: the server omits zeros in numerics, see `source.gaussdb`.

    Raises:
        ConfigError: the type has no canonical text.
    """
    # A composite value whose fields are all NULL is distinct from NULL, and is not "not NULL".
    plain = f"(CASE WHEN {value} IS DISTINCT FROM NULL THEN pg_catalog.format('%s', {value}) END)"
    if is_respelled and not arrow.startswith("list"):
        long = f"pg_catalog.replace({plain}, 'Nan', 'NaN')"
        return f"pg_catalog.regexp_replace({long}, '(^|[{{,])(-?)[.]', '\\1\\20.', 'g')"
    if arrow.startswith("list<element: "):
        element = arrow.removeprefix("list<element: ").removesuffix(">")
        each = _joined(text_sql("e", element, is_respelled=is_respelled))
        bad = _misfit_sql("e", element)
        numbered = f"SELECT ({value})[o] AS e, o FROM pg_catalog.generate_subscripts({value}, 1) o"
        return (
            f"(CASE WHEN {value} IS NULL THEN NULL WHEN coalesce(pg_catalog.array_ndims({value}), 1) > 1 "
            f"OR coalesce(pg_catalog.array_lower({value}, 1), 1) <> 1 "
            f"OR EXISTS (SELECT 1 FROM pg_catalog.unnest({value}) e WHERE {bad}) THEN {plain} "
            f"ELSE '[' || coalesce((SELECT pg_catalog.string_agg({each}, ',' ORDER BY o) "
            f"FROM ({numbered}) u), '') || ']' END)"
        )
    if arrow in {"float", "double"}:
        send = "float4send" if arrow == "float" else "float8send"
        return (
            f"(CASE WHEN {value} = 'NaN' THEN 'NaN' "
            f"ELSE pg_catalog.encode(pg_catalog.{send}({value}), 'hex') END)"
        )
    if arrow == "binary":
        return f"pg_catalog.encode({value}, 'hex')"
    if arrow == "bool":
        return f"({value}){_FOUND}"
    if arrow.startswith("struct<months"):
        part = "extract({} FROM " + value + ")"
        months = f"({part.format('year')} * 12 + {part.format('month')})::pg_catalog.int8"
        days = f"{part.format('day')}::pg_catalog.int8"
        micros = (
            f"({part.format('hour')} * 3600000000 + {part.format('minute')} * 60000000 + "
            f"{part.format('microseconds')})::pg_catalog.int8"
        )
        finite = f"{months} || ' ' || {days} || ' ' || {micros}"
        return f"(CASE WHEN pg_catalog.isfinite({value}) THEN {finite} ELSE {plain} END)"
    known = ("int", "date", "timestamp", "string", "decimal128")
    if not arrow.startswith(known):
        raise ConfigError(f"columns of type {arrow} cannot be compared")
    return plain


def _misfit_sql(value: str, arrow: str) -> str:
    """SQL that tells whether an element does not fit, so that its whole list lands as text."""
    if arrow.startswith(("date", "timestamp")):
        return (
            f"NOT pg_catalog.isfinite({value}) OR extract(year FROM {value}) NOT BETWEEN 1 AND 9999"
        )
    if arrow.startswith("struct<months"):
        return f"NOT pg_catalog.isfinite({value})"
    if arrow.startswith("decimal128"):
        return f"pg_catalog.format('%s', {value}) IN ('NaN', 'Nan', 'Infinity', '-Infinity')"
    return "false"
