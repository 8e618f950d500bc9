"""Read landed changes as rows of the data source: rows of one table, or of all tables in one form.

Given entries; promises every row of their files once, in parts that executors read: small files
together, large ones by row groups. Rows of one table have the columns that all its versions had when
the query began (`TableRows`). Rows of all tables have their values as texts by true name (`AllRows`).

A stream keeps the columns that it began with. Columns that widen silently would drop a new column until
the query is started again.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile
from gaussdecode.model.title import table_title
from gaussdecode.spark.log.arrow_types import arrow_schema, fitted
from gaussdecode.spark.log.change_file import replaces
from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.log.ddl import DDL
from gaussdecode.spark.log.events import change_fields
from gaussdecode.spark.log.landing import Landing, data_kinds
from gaussdecode.spark.log.place import Given, Place, parquet_file
from gaussdecode.spark.log.schema import (
    OLD,
    OLD_PREFIX,
    RAW,
    SOURCE,
    UNCHANGED,
    TableSchema,
    UnknownColumnsError,
)
from gaussdecode.spark.merge.plan import SYSTEM_TABLES
from gaussdecode.spark.stream.changes import as_one
from gaussdecode.spark.target.frames import spark_type

PART_BYTES: Final = 64 << 20  # arbitrary; of files that one task reads
_TEXTS: Final = "map<string,string>"
ALL_SCHEMA: Final = (
    "gd_n bigint, table string, gd_op string, gd_epoch int, gd_lsn bigint, gd_seq bigint, "
    "gd_csn bigint, gd_xid bigint, gd_ts timestamp, gd_snapshot string, schema_id string, "
    f"key {_TEXTS}, before {_TEXTS}, after {_TEXTS}"
)
DDL_OP: Final = "DDL"
"""``gd_op`` of a DDL command."""
_DDL_TEXTS: Final = (
    "command_tag", "object_type", "schema_name", "object_name", "object_identity", "oid", "statement",
    "statement_is_cut", "columns",
)  # fmt: skip
_STAMPS: Final = ("gd_op", "gd_epoch", "gd_lsn", "gd_seq", "gd_csn", "gd_xid", "gd_ts")


class Part(NamedTuple):
    """A landed file, or some of its row groups.

    Attributes:
        n: number of its entry.
        snapshot: ``all`` if its rows replace the table, ``some`` for a snapshot with a condition.
        table: directory of the table.
        path: path relative to the root.
        schema_id: schema version of its rows.
        groups: first row group and the one after the last; None for all.
    """

    n: int
    snapshot: str | None
    table: str
    path: str
    schema_id: str
    groups: tuple[int, int] | None = None


def parts_of(
    root: Place, entries: Iterable[CommitEntry], table: str | None, part_bytes: int = PART_BYTES,
    *, with_ddl: bool = False,
) -> Iterator[tuple[Part, ...]]:  # fmt: skip
    """Cut the files of entries into task inputs.

    Args:
        root: root of the landing.
        entries: entries in order.
        table: directory of the wanted table; None for all but the system's.
        part_bytes: bytes of files per task.
        with_ddl: with the DDL commands, if `table` is None.
    """
    left_out = SYSTEM_TABLES - {DDL} if with_ddl else SYSTEM_TABLES
    held: list[Part] = []
    size = 0
    for entry in entries:
        for file in entry.files if data_kinds(entry) else ():
            if file.table in left_out or table not in {None, file.table}:
                continue
            part = Part(entry.n, _snapshot(entry, file), file.table, file.path, file.schema_id)
            if file.bytes > part_bytes:
                yield from ((piece,) for piece in _pieces(root, part, file.bytes, part_bytes))
                continue
            if size + file.bytes > part_bytes:
                yield tuple(held)
                held, size = [], 0
            held.append(part)
            size += file.bytes
    if held:
        yield tuple(held)


def _snapshot(entry: CommitEntry, file: LandingFile) -> str | None:
    if entry.kind is not EntryKind.SNAPSHOT:
        return None
    return "all" if replaces(entry, file.table) else "some"


def _pieces(root: Place, part: Part, size: int, part_bytes: int) -> Iterator[Part]:
    with _opened(root, part) as file:
        count = file.num_row_groups
    step = max(1, count * part_bytes // size)
    for first in range(0, count, step):
        yield part._replace(groups=(first, min(first + step, count)))


def _opened(root: Place, part: Part) -> pq.ParquetFile:
    try:
        return parquet_file(root / part.path)
    except FileNotFoundError:
        raise LandingError(
            f"{root}: {part.path} of entry {part.n} is gone: retention took it before it was read; "
            "begin anew after a snapshot"
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise LandingError(f"{root}: {part.path} of entry {part.n}: {error}") from error


def _groups(root: Place, part: Part) -> Iterator[pa.Table]:
    with _opened(root, part) as file:
        for group in range(*(part.groups or (0, file.num_row_groups))):
            yield file.read_row_group(group, use_threads=False)


class TableRows:
    """Rows of one table, with the columns of all versions that exist at construction.

    Args:
        root: root of the landing.
        table: ``schema.name``, or its directory.

    Raises:
        ConfigError: there is no such table.
        LandingError: the columns of two versions cannot be matched.
    """

    def __init__(self, root: Given, table: str) -> None:
        landing = Landing(root)
        self.root = landing.root
        self.table = landing.find_table(table)
        self._versions = _versions(landing, self.table)
        newest = next(reversed(self._versions.values()))
        self.title = newest.title
        self._target = _merged(newest.title, list(self._versions.values()))

    def schema(self) -> T.StructType:
        """Schema for Spark."""
        ours = {field.name: field.type for field in change_fields(self._target)}
        fields = [("gd_n", pa.int64()), *((name, ours.pop(name)) for name in _STAMPS)]
        fields += [("gd_snapshot", pa.string()), *ours.items()]
        fields += [(field.name, field.type) for field in self._target.arrow()]
        return T.StructType([T.StructField(name, spark_type(of)) for name, of in fields])

    def check(self, entry: CommitEntry) -> None:
        """Refuse columns that were added after the query began.

        Raises:
            LandingError: a new query must read them.
        """
        for file in entry.files if data_kinds(entry) else ():
            if file.table == self.table and file.schema_id not in self._versions:
                raise LandingError(
                    f"{self.title}: its columns changed in entry {entry.n}; start the query again, with "
                    "the same checkpoint: it goes on where it stopped, with the new columns"
                )

    def parts(self, entries: Iterable[CommitEntry]) -> Iterator[tuple[Part, ...]]:
        """The input of each task."""
        return parts_of(self.root, entries, self.table)

    def read(self, parts: Sequence[Part], wanted: T.StructType) -> Iterator[pa.RecordBatch]:
        """Rows of the files, in the columns wanted."""
        schema = arrow_schema(wanted)
        unknown = set(schema.names) - set(self.schema().names)
        if unknown:
            raise ConfigError(f"{self.title} has no column {min(unknown)!r}; leave the schema out")
        for part in parts:
            for rows in _groups(self.root, part):
                found = conform(rows, self._versions[part.schema_id], self._target)
                found = _with(found, gd_n=part.n, gd_snapshot=part.snapshot)
                columns = [fitted(found, field) for field in schema]
                yield from pa.table(columns, schema=schema).combine_chunks().to_batches()


def _versions(landing: Landing, table: str) -> dict[str, TableSchema]:
    """All versions of a table, the newest last."""
    found: dict[str, TableSchema] = {}
    for entry in landing.entries(landing.first_n, landing.last_n):
        for file in entry.files if data_kinds(entry) else ():
            if file.table == table:
                of = found.pop(file.schema_id, None)
                record = landing.schema_record(table, file.schema_id)
                found[file.schema_id] = of or TableSchema.from_record(file.schema_id, record)
    if not found:  # retention took its rows, or none landed yet
        schema_id = max(landing.schema_ids(table))
        record = landing.schema_record(table, schema_id)
        found[schema_id] = TableSchema.from_record(schema_id, record)
    return found


def _merged(title: str, versions: list[TableSchema]) -> TableSchema:
    try:
        return as_one(versions)
    except UnknownColumnsError as error:
        raise LandingError(
            f"{title}: {str(error).split(': ', 1)[-1].split('. Say it', 1)[0]}; no rows of one schema can be "
            'made of them: leave out .option("table"), and take the columns of each version by itself'
        ) from error


def _with(rows: pa.Table, **constants: Any) -> pa.Table:  # Any: whole numbers and texts
    types = {"gd_n": pa.int64(), "gd_snapshot": pa.string()}
    for name, value in constants.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, types[name]), rows.num_rows))
    return rows


class AllRows:
    """Rows of all tables: values as texts, by true name.

    Args:
        root: root of the landing.
        with_ddl: with a row for each DDL command.
    """

    def __init__(self, root: Given, *, with_ddl: bool = False) -> None:
        landing = Landing(root)
        self._with_ddl = with_ddl
        self.root, self._has_several = landing.root, landing.has_several

    def schema(self) -> str:
        """Schema for Spark; with the source, if there are several."""
        if not self._has_several:
            return ALL_SCHEMA
        return ALL_SCHEMA.replace("gd_lsn bigint", f"{SOURCE} string, gd_lsn bigint")

    def check(self, entry: CommitEntry) -> None:
        """Accept any columns."""

    def parts(self, entries: Iterable[CommitEntry]) -> Iterator[tuple[Part, ...]]:
        """The input of each task."""
        return parts_of(self.root, entries, None, with_ddl=self._with_ddl)

    def read(self, parts: Sequence[Part], wanted: T.StructType) -> Iterator[pa.RecordBatch]:
        """Rows of the files, in the columns wanted."""
        schema = arrow_schema(wanted)
        landing = Landing(self.root)
        for part in parts:
            is_ddl = part.table == DDL
            record = {} if is_ddl else landing.schema_record(part.table, part.schema_id)
            for rows in _groups(self.root, part):
                found = _commands(rows, part) if is_ddl else _spelled_rows(rows, part, record)
                columns = [found[field.name].cast(field.type) for field in schema]
                yield from pa.table(columns, schema=schema).combine_chunks().to_batches()


def _spelled_rows(
    rows: pa.Table,
    part: Part,
    record: Mapping[str, Any],  # Any: JSON
) -> dict[str, pa.ChunkedArray | pa.Array]:
    count = rows.num_rows
    names = {column["landed"]: column["name"] for column in record["columns"]}
    title = table_title(record["schema"], record["name"])
    ops = np.asarray(rows.column("gd_op").to_pylist(), dtype=object)
    raws = [dict(pairs or ()) for pairs in rows.column(RAW).to_pylist()] if _has(rows, RAW) else []
    after = {
        names[name]: _texts(rows.column(name).combine_chunks(), raws, name)
        for name in names
        if name in rows.column_names
    }
    before: dict[str, pa.Array] = {}
    has_old = np.zeros(count, dtype=bool)
    if OLD in rows.column_names:
        old = rows.column(OLD).combine_chunks()
        has_old = np.asarray(pc.is_valid(old))
        for field in old.type:
            values = pc.struct_field(old, field.name)
            before[names[field.name]] = _texts(values, raws, OLD_PREFIX + field.name)
    sent = np.ones((count, len(after)), dtype=bool)
    if _has(rows, UNCHANGED):
        place = {
            landed: index for index, landed in enumerate(n for n in names if n in rows.column_names)
        }
        for index, unsent in enumerate(rows.column(UNCHANGED).to_pylist()):
            for name in unsent or ():
                sent[index, place[name]] = False
    has_new = ~np.isin(ops, ["D", "T"])
    whole = np.ones((count, len(before)), dtype=bool)
    found = {name: rows.column(name) for name in (*_STAMPS, SOURCE) if name in rows.column_names}
    found["before"] = _maps(before, whole, has_old)
    found["after"] = _maps(after, sent, has_new)
    found["key"] = _keys(record["key"], before, after, ops)
    constants = {"gd_n": part.n, "table": title, "gd_snapshot": part.snapshot}
    for name, value in {**constants, "schema_id": part.schema_id}.items():
        of = pa.int64() if name == "gd_n" else pa.string()
        found[name] = pa.repeat(pa.scalar(value, of), count)
    return found


def _commands(rows: pa.Table, part: Part) -> dict[str, pa.ChunkedArray | pa.Array]:
    """DDL commands in the form of all rows: what is known of a command is in ``after``."""
    count = rows.num_rows
    found = {name: rows.column(name) for name in (*_STAMPS, SOURCE) if name in rows.column_names}
    texts = {name: spelled(rows.column(name).combine_chunks()) for name in _DDL_TEXTS}
    is_there = np.ones(count, dtype=bool)
    found["after"] = _maps(texts, np.ones((count, len(texts)), dtype=bool), is_there)
    maps = found["after"].type
    found |= {name: pa.nulls(count, maps) for name in ("key", "before")}
    objects = rows.select(["object_type", "schema_name", "object_name"]).to_pylist()
    titles = [
        table_title(of["schema_name"], of["object_name"])
        if (of["object_type"] or "").startswith("table") and of["schema_name"] is not None
        else None
        for of in objects
    ]
    found |= {"table": pa.array(titles, pa.string()), "gd_snapshot": pa.nulls(count, pa.string())}
    found |= {"gd_n": pa.repeat(pa.scalar(part.n), count)}
    for name, value in {"gd_op": DDL_OP, "schema_id": part.schema_id}.items():
        found[name] = pa.repeat(pa.scalar(value, pa.string()), count)
    return found


def _has(rows: pa.Table, name: str) -> bool:
    return name in rows.column_names and bool(rows.column(name).null_count < rows.num_rows)


def _keys(
    key: Sequence[str] | None,
    before: Mapping[str, pa.Array],
    after: Mapping[str, pa.Array],
    ops: np.ndarray[Any, Any],  # Any: letters
) -> pa.Array:
    """The key after the change; for a removed row the key before. NULL in a multiset."""
    is_gone = ops == "D"
    columns = {}
    for name in key or ():
        old = before.get(name, after[name])
        columns[name] = pc.if_else(pa.array(is_gone), old, after[name])
    is_there = (ops != "T") & bool(key)
    return _maps(columns, np.ones((len(ops), len(columns)), dtype=bool), is_there)


def _maps(
    columns: Mapping[str, pa.Array],
    sent: np.ndarray[Any, Any],  # Any: by row and column
    is_there: np.ndarray[Any, Any],  # Any: by row
) -> pa.Array:
    """Maps of names to texts, one per row, without values that were not sent; NULL if there is no row."""
    rows, count = sent.shape
    chosen = sent & is_there[:, None]
    where = np.flatnonzero(chosen.ravel())
    texts = pa.concat_arrays(columns.values()) if columns else pa.array([], pa.string())
    row, column = np.divmod(where, max(count, 1))
    keys = pa.array(list(columns), pa.string()).take(pa.array(column))
    items = texts.take(pa.array(column * rows + row))
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(chosen.sum(axis=1), out=offsets[1:])
    return pa.MapArray.from_buffers(
        pa.map_(pa.string(), pa.string()),
        rows,
        [pa.py_buffer(np.packbits(is_there, bitorder="little")), pa.py_buffer(offsets)],
        children=[
            pa.StructArray.from_arrays(
                [keys, items],
                fields=[
                    pa.field("key", pa.string(), nullable=False),
                    pa.field("value", pa.string()),
                ],
            )
        ],
    )


def _texts(values: pa.Array, raws: Sequence[Mapping[str, str]], name: str) -> pa.Array:
    """Values as texts; the server's text if a value does not fit."""
    found = spelled(values)
    if not any(name in pairs for pairs in raws):
        return found
    return pc.coalesce(pa.array([pairs.get(name) for pairs in raws], pa.string()), found)


def spelled(values: pa.Array) -> pa.Array:
    """Format values as SQL does; lists and intervals as JSON, times in ISO form and UTC."""
    of = values.type
    if pa.types.is_boolean(of):
        return pc.if_else(values, "t", "f").cast(pa.string())
    if pa.types.is_binary(of):
        return pa.array(
            [None if v is None else "\\x" + v.hex() for v in values.to_pylist()], pa.string()
        )
    if pa.types.is_nested(of):
        texts = [None if v is None else json.dumps(v, default=_item) for v in values.to_pylist()]
        return pa.array(texts, pa.string())
    texts = values.cast(pa.string())
    if pa.types.is_timestamp(of) and of.tz is not None:
        return pc.replace_substring_regex(texts, "Z$", "+00")
    return texts


def _item(value: object) -> str:
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)
