"""Read the history of tables' columns: one row for each change of a table, at its position.

Given a landing; reads the DDL commands of ``gd_ddl``, and the schema versions that files of rows name.
A version that only repeats a command is no row of its own. Promises NULL for everything that is not
known: what a file of rows does not tell, what a cut or foreign message does not tell, and what changed
where the columns before are not known.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from gaussdecode.model.ddl_text import adds
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import LandingFile
from gaussdecode.model.title import table_title
from gaussdecode.spark.log.ddl import DdlColumn, DdlEvent, read_events
from gaussdecode.spark.log.ddl_schema import ADD, DROP, RENAME, RETYPE
from gaussdecode.spark.log.landing import Landing, Point, data_kinds
from gaussdecode.spark.log.place import Given
from gaussdecode.spark.merge.on_ddl import DROP_TABLE, RENAME_TABLE
from gaussdecode.spark.merge.plan import SYSTEM_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CREATE_TABLE: Final = "create-table"
FIRST_SEEN: Final = "first-seen"
_CREATES: Final = ("CREATE TABLE", "CREATE TABLE AS", "CREATE FOREIGN TABLE", "SELECT INTO")
_CHANGE: Final = pa.struct(
    {"kind": pa.string(), "attribute_number": pa.int32(), "name": pa.string(), "was": pa.string()}
)
_COLUMN: Final = pa.struct(
    {
        "attribute_number": pa.int32(), "name": pa.string(), "type": pa.string(),
        "not_null": pa.bool_(), "default": pa.string(), "generated": pa.string(),
        "identity": pa.string(), "key_position": pa.int32(),
    }
)  # fmt: skip
SCHEMA: Final = pa.schema(
    {
        "table": pa.string(), "oid": pa.int64(), "gd_n": pa.int64(), "gd_epoch": pa.int32(),
        "gd_source": pa.string(), "gd_lsn": pa.int64(), "gd_seq": pa.int64(),
        "gd_ts": pa.timestamp("us", tz="UTC"), "seen_in": pa.string(), "command_tag": pa.string(),
        "statement": pa.string(), "changes": pa.list_(_CHANGE), "columns": pa.list_(_COLUMN),
    }
)  # fmt: skip
"""Columns of the history."""
Json = dict[str, Any]  # Any: values of SCHEMA
Key = tuple[str | None, int]
"""Source and OID of a table."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    """A column; `is_whole` is false where only a file of rows told it."""

    number: int | None
    name: str
    type: str | None
    typed: tuple[int, int]
    key_position: int | None
    is_whole: bool = False
    not_null: bool | None = None
    default: str | None = None
    generated: str | None = None
    identity: str | None = None

    @classmethod
    def of_command(cls, of: DdlColumn) -> "_Column":
        return cls(
            of.number, of.name, of.type, (of.type_oid, of.modifier), of.key_position, True,
            of.not_null, of.default, of.generated, of.identity,
        )  # fmt: skip

    @classmethod
    def of_file(cls, record: Json, key: list[str]) -> "_Column":
        name, modifier = record["name"], int(record.get("type_modifier", -1))
        spelled = record.get("type_text") or (record.get("type") if modifier < 0 else None)
        return cls(
            record.get("attribute_number"), name, spelled or None,
            (int(record.get("type_oid", 0)), modifier),
            key.index(name) + 1 if name in key else None,
        )  # fmt: skip

    def record(self) -> Json:
        found = {field.name: getattr(self, field.name, None) for field in _COLUMN}
        return {**found, "attribute_number": self.number}


@dataclasses.dataclass(frozen=True, slots=True)
class _Table:
    title: str
    columns: tuple[_Column, ...]

    @property
    def by_number(self) -> dict[int, _Column] | None:
        """Columns by attribute number; None if one is not known."""
        numbers = [column.number for column in self.columns]
        return None if None in numbers else {c.number or 0: c for c in self.columns}


def schemas(
    spark: "SparkSession", root: Given, table: str | None = None, *, to: Point | None = None
) -> "DataFrame":
    """Read the history of tables' columns; see `read_schemas`.

    Args:
        spark: a running session.
        root: root of the landing.
        table: see there, as for `to`.
        to: see there.
    """
    return spark.createDataFrame(read_schemas(Landing(root), table, to))


def read_schemas(landing: Landing, table: str | None = None, to: Point | None = None) -> pa.Table:
    """Read the history of tables' columns, from the oldest entry that retention has left.

    Args:
        landing: the landing.
        table: ``schema.name`` that a table has, or had after some change; None for all.
        to: read up to this point; None for the end of the log.

    Returns:
        Rows in the order of the log, in the columns of `SCHEMA`.

    Raises:
        ConfigError: the point is outside the log.
        LandingError: the landing is damaged.
    """
    last = landing.last_n if to is None or to == Point() else landing.resolve(to)
    history = _History(landing)
    rows = [
        row
        for entry in landing.entries(landing.first_n, last)
        for row in history.rows_of(entry)
    ]  # fmt: skip
    if table is not None:
        keys = {
            (row["gd_source"], row["oid"]) for row in rows if row["oid"] and row["table"] == table
        }
        rows = [row for row in rows if (row["gd_source"], row["oid"]) in keys]
        if not rows:
            landing.find_table(table)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class _History:
    """The tables as of an entry, by source and OID."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing
        self._tables: dict[Key, _Table] = {}
        self._shown: dict[Key, _Table] = {}
        self._versions: dict[tuple[str, str | None], str] = {}

    def rows_of(self, entry: CommitEntry) -> Iterator[Json]:
        """The changes of an entry, in order."""
        items: list[tuple[tuple[int, int], DdlEvent | LandingFile]] = [
            (event.place[1:], event) for event in read_events(self._landing, entry)
        ]
        items += [
            ((file.first.lsn, file.first.seq), file)
            for file in (entry.files if data_kinds(entry) else ())
            if file.table not in SYSTEM_TABLES
        ]
        for _, item in sorted(items, key=lambda item: item[0]):
            found = self._command(item) if isinstance(item, DdlEvent) else self._rows(entry, item)
            if found is not None:
                yield found

    def _command(self, event: DdlEvent) -> Json | None:
        row = {
            "table": event.title, "oid": event.oid, "gd_n": event.n, "gd_epoch": event.epoch,
            "gd_source": event.source, "gd_lsn": event.lsn, "gd_seq": event.seq,
            "gd_ts": event.stamps["gd_ts"], "seen_in": "gd_ddl", "command_tag": event.command_tag,
            "statement": event.statement,
        }  # fmt: skip
        is_of_a_table = event.command_tag is None or "TABLE" in event.command_tag.split()
        if event.oid is None or event.title is None:
            return row if is_of_a_table else None
        key = (event.source, event.oid)
        before = self._tables.get(key)
        if event.is_dropped:
            self._tables.pop(key, None)
            return {**row, "changes": [_change(DROP_TABLE, None, event.title)]}
        if event.columns is None:
            return row if event.object_type == "table" else None
        after = _Table(event.title, tuple(map(_Column.of_command, event.columns)))
        self._tables[key] = after
        changes = _changes(before, after, event)
        if before is None and event.command_tag in _CREATES:
            changes = [_change(CREATE_TABLE, None, event.title)]
        return self._row(row, after, changes)

    def _rows(self, entry: CommitEntry, file: LandingFile) -> Json | None:
        version = (file.table, file.source)
        if self._versions.get(version) == file.schema_id:
            return None
        self._versions[version] = file.schema_id
        record = self._landing.schema_record(file.table, file.schema_id)
        names = list(record["key"] or ())
        after = _Table(
            table_title(record["schema"], record["name"]),
            tuple(_Column.of_file(column, names) for column in record["columns"]),
        )
        oid = int(record["oid"]) or None
        row = {
            "table": after.title, "oid": oid, "gd_n": entry.n,
            "gd_epoch": self._landing.position(entry, file.source).epoch, "gd_source": file.source,
            "gd_lsn": file.first.lsn, "gd_seq": file.first.seq, "gd_ts": entry.commit_time,
            "seen_in": "rows",
        }  # fmt: skip
        if oid is None:
            return self._row(row, after, None)
        key = (file.source, oid)
        changes = _changes(self._shown_of(key, after), after, None)
        self._shown[key] = after
        if changes != []:
            self._tables[key] = after
        return self._row(row, after, changes)

    def _shown_of(self, key: Key, after: _Table) -> _Table | None:
        """The state before some rows, without columns that rows have not shown."""
        before = self._tables.get(key)
        if before is None:
            return None
        tables = (after, self._shown.get(key, after))
        numbers = {column.number for table in tables for column in table.columns}
        kept = tuple(column for column in before.columns if column.number in numbers)
        return _Table(before.title, kept)

    @staticmethod
    def _row(row: Json, table: _Table, changes: list[Json] | None) -> Json | None:
        """The row of a change; None where nothing has changed."""
        if changes == []:
            return None
        columns = [column.record() for column in table.columns]
        return {**row, "changes": changes, "columns": columns}


def _changes(before: _Table | None, after: _Table, event: DdlEvent | None) -> list[Json] | None:
    """What differs from the last state that was known; None if that is not known."""
    if before is None:
        return None
    old, new = before.by_number, after.by_number
    if old is None or new is None:
        return None
    found = (
        []
        if before.title == after.title
        else [_change(RENAME_TABLE, None, after.title, before.title)]
    )
    found += [_change(DROP, number, old[number].name) for number in sorted(old.keys() - new.keys())]
    for number, column in new.items():
        held = old.get(number)
        if held is not None:
            found += _of_column(number, held, column)
        elif not column.is_whole or all(of.is_whole for of in before.columns):
            found.append(_change(ADD, number, column.name))
        else:  # rows showed the columns before: maybe not all
            is_told = event is not None and adds(event.statement, column.name)
            found.append(_change(ADD if is_told else FIRST_SEEN, number, column.name))
    return found


def _of_column(number: int, held: _Column, column: _Column) -> Iterator[Json]:
    if held.name != column.name:
        yield _change(RENAME, number, column.name, held.name)
    if held.typed != column.typed:
        yield _change(RETYPE, number, column.name, held.type)
    if held.is_whole and column.is_whole:
        for kind in ("not_null", "default", "generated", "identity", "key_position"):
            was, now = getattr(held, kind), getattr(column, kind)
            if was != now:
                text = None if was is None else str(was).lower() if kind == "not_null" else str(was)
                yield _change(kind.replace("_", "-"), number, column.name, text)


def _change(kind: str, number: int | None, name: str | None, was: str | None = None) -> Json:
    return {"kind": kind, "attribute_number": number, "name": name, "was": was}
