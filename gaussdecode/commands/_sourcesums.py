"""The source's side of a comparison: checksums computed by PostgreSQL, in one exported snapshot.

The SQL makes of every value the canonical text of `spark.verify`, so that ranges of both sides have
the same sums. One scan of a table gives all sums, another one the rows of ranges that differ; one
connection, one statement at a time.
"""

# ruff: noqa: S608  # all names and values are quoted

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Self

from gaussdecode.errors import ConfigError
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.title import table_title
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.export import View
from gaussdecode.source.quoting import identifier, literal
from gaussdecode.spark.verify import MovingError, Sums

_SLOT: Final = "gaussdecode_verify"
_FOUND: Final = "::pg_catalog.text"


class SourceColumn(NamedTuple):
    """A column of the target, as the source has it.

    Attributes:
        landed: its name in the target.
        name: true name.
        arrow: type in the target.
    """

    landed: str
    name: str
    arrow: str


class SourceTable(NamedTuple):
    """A table of the source.

    Attributes:
        sql: what to select from.
        columns: true names.
    """

    sql: str
    columns: frozenset[str]


class SourceSums:
    """One snapshot of a database.

    Args:
        address: of the server.
        seconds: to wait for the transactions that run there.

    Attributes:
        lsn: everything that ends up to here is in it, nothing else.
    """

    def __init__(self, address: SourceAddress, seconds: float) -> None:
        try:
            self._view = View.open(address, _SLOT, seconds)
        except ConfigError as error:
            raise ConfigError(_in_words_of_the_command(str(error))) from None
        try:
            self.lsn: Lsn = self._view.lsn
            self._session = connect(address, is_replication=False)
            self._session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._session.query(f"SET TRANSACTION SNAPSHOT {literal(self._view.name)}")
        except BaseException:
            self._view.close()
            raise
        self._view.close()  # the transaction holds the snapshot from here on

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._session.close()

    @contextlib.contextmanager
    def table(self, schema: str, name: str) -> Iterator[SourceTable | None]:
        """A table as the stream has it, that nobody empties or alters meanwhile; None for no table.

        Raises:
            MovingError: it was emptied or rewritten since the snapshot, which does not show the rows
                that were there: TRUNCATE heeds no snapshot.
        """
        self._session.query("SAVEPOINT gaussdecode_table")
        try:
            yield self._locked(schema, name)
        finally:
            self._session.query("ROLLBACK TO SAVEPOINT gaussdecode_table")

    def _locked(self, schema: str, name: str) -> SourceTable | None:
        rows = self._session.query(
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
        sql = f"{only}{identifier(schema)}.{identifier(name)}"
        self._session.query(f"LOCK TABLE {sql} IN ACCESS SHARE MODE")
        # The snapshot's files, and those that the server reads now.
        (changed,) = self._session.query(
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c WHERE c.relkind = 'r' AND "
            f"(c.oid = {rows[0][0]} OR c.oid IN "
            f"(SELECT relid FROM pg_catalog.pg_partition_tree({rows[0][0]}))) "
            "AND pg_catalog.pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode"
        )
        if changed[0] != "0":
            raise MovingError(f"{table_title(schema, name)} is emptied or rewritten at this moment")
        names = frozenset(str(column) for *_, column in rows if column is not None)
        return SourceTable(sql, names)

    def sums(
        self, table: str, columns: Sequence[SourceColumn], key: Sequence[str], digits: int
    ) -> Sums:
        """See `spark.verify.LakeTable.sums`."""
        rows = self._session.query(
            f"SELECT pg_catalog.left(k, {digits}), pg_catalog.count(*), pg_catalog.sum(h) "
            f"FROM ({_rows(table, columns, key)}) s GROUP BY 1"
        )
        return {str(part): (int(count or 0), int(total or 0)) for part, count, total in rows}

    def rows(
        self,
        table: str,
        columns: Sequence[SourceColumn],
        key: Sequence[str],
        ranges: Collection[str],
    ) -> Counter[tuple[str, int, str]]:
        """See `spark.verify.LakeTable.rows`."""
        digits = max(map(len, ranges))
        wanted = ", ".join(literal(part) for part in sorted(ranges))
        names = ", ".join(f"t{index}" for index in range(len(key)))
        rows = self._session.query(
            f"SELECT k, h{', ' + names if names else ''} FROM ({_rows(table, columns, key)}) s "
            f"WHERE pg_catalog.left(k, {digits}) IN ({wanted})"
        )
        return Counter(
            (str(row[0]), int(row[1] or 0), json.dumps(dict(zip(key, row[2:], strict=True))))
            for row in rows
        )


def _in_words_of_the_command(text: str) -> str:
    """What is wrong with the connection string, where no configuration has it."""
    text = text.replace("set source.allow-insecure: true", "give --allow-insecure")
    return text.replace("source.dsn: ", "--dsn: ")


def _rows(table: str, columns: Sequence[SourceColumn], key: Sequence[str]) -> str:
    """MD5 of the key, checksum and texts of the key of each row."""
    names = {column.landed: f"c{index}" for index, column in enumerate(columns)}
    texts = "".join(
        f", {text_sql(identifier(column.name), column.arrow)} AS {names[column.landed]}"
        for column in columns
    )
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
    return f"coalesce(pg_catalog.length({text}) || ':' || ({text}), '-')"


def text_sql(value: str, arrow: str) -> str:
    """The canonical text of a value, as SQL.

    Args:
        value: an expression.
        arrow: type that it lands as, as Arrow spells it.

    Raises:
        ConfigError: the type has no canonical text.
    """
    # A composite value whose fields are all NULL is distinct from NULL, and is not "not NULL".
    plain = f"(CASE WHEN {value} IS DISTINCT FROM NULL THEN pg_catalog.format('%s', {value}) END)"
    if arrow.startswith("list<element: "):
        element = arrow.removeprefix("list<element: ").removesuffix(">")
        each = _joined(text_sql("e", element))
        bad = _misfit_sql("e", element)
        return (
            f"(CASE WHEN {value} IS NULL THEN NULL WHEN coalesce(pg_catalog.array_ndims({value}), 1) > 1 "
            f"OR coalesce(pg_catalog.array_lower({value}, 1), 1) <> 1 "
            f"OR EXISTS (SELECT FROM pg_catalog.unnest({value}) e WHERE {bad}) THEN {plain} "
            f"ELSE coalesce((SELECT pg_catalog.string_agg({each}, ',' ORDER BY o) "
            f"FROM pg_catalog.unnest({value}) WITH ORDINALITY u(e, o)), '') END)"
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
    """Whether an element does not fit, so that its whole list lands as text."""
    if arrow.startswith(("date", "timestamp")):
        return (
            f"NOT pg_catalog.isfinite({value}) OR extract(year FROM {value}) NOT BETWEEN 1 AND 9999"
        )
    if arrow.startswith("struct<months"):
        return f"NOT pg_catalog.isfinite({value})"
    if arrow.startswith("decimal128"):
        return f"{value} IN ('NaN', 'Infinity', '-Infinity')"
    return "false"
