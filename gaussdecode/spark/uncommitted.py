"""Rows of transactions that are prepared and have not ended, for who asks for them in so many words.

They may never be committed. No reader takes them by itself: they lie outside of the files of the log,
are named by entries that have no rows, and stand here in columns of their own.
"""

import dataclasses
import datetime as dt
import functools
import hashlib
import io
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.model.landing import PreparedFile
from gaussdecode.model.seal import canonical_json, read_sealed
from gaussdecode.model.title import table_title
from gaussdecode.spark.events import change_fields
from gaussdecode.spark.fit import arrow_schema, fitted
from gaussdecode.spark.frames import as_version, spark_type
from gaussdecode.spark.landing import Landing, Point
from gaussdecode.spark.place import Given, Place, open_file
from gaussdecode.spark.reading import changes_with_version, with_dropped
from gaussdecode.spark.schema import TableSchema

MARKS: Final[dict[str, pa.DataType]] = {
    "gd_gid": pa.string(),
    "gd_prepared_lsn": pa.int64(),
    "gd_prepared_ts": pa.timestamp("us", tz="UTC"),
}
"""Columns that rows have of the PREPARE; NULL in rows that are committed."""

_OF_ITS_END: Final = frozenset({"gd_epoch", "gd_lsn", "gd_csn", "gd_ts"})
_VERSION: Final = 1
_SIZE: Final = struct.Struct("<Q")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TASK_BYTES: Final = 8 << 20  # of parts that one task reads; arbitrary
Json = dict[str, Any]  # decoded JSON


class Part(NamedTuple):
    """Rows of one table in a file.

    Attributes:
        path: of the file.
        offset: of an Arrow IPC stream in it,
        size: its bytes,
        check: and their CRC-32.
        marks: values of `MARKS`, in that order.
    """

    path: Place
    offset: int
    size: int
    check: int
    marks: tuple[str, int, dt.datetime]


def prepared(spark: SparkSession, root: Given, table: str, *, at: Point | None = None) -> DataFrame:
    """Changes of a table by transactions that are prepared and have not ended. They may never be committed.

    Args:
        spark: running.
        root: of the landing: directory, or URL of a mirror.
        table: ``schema.name``, or its directory.
        at: a point of the log; None for its end.

    Returns:
        ``gd_gid``, ``gd_prepared_lsn`` and ``gd_prepared_ts`` of the PREPARE, ``gd_op``, ``gd_seq`` (the
        order inside of the transaction), ``gd_xid``, the columns that hold names of columns, and the
        columns of the table as the transactions knew them. Nothing of a commit: there is none.

    Raises:
        ConfigError: there is no such table; a transaction that was prepared there has ended since, and
            its rows are gone; or a file has no rows that a reader may see.
        LandingError: a file is damaged, or went while it was read.
    """
    landing = Landing(root)
    found = _versions(landing, table, landing.resolve(at or Point()))
    if not found:
        _, schema = changes_with_version(spark, landing, landing.find_table(table), ())
        fields = [*_fields(schema), *schema.arrow()]
        return spark.createDataFrame([], _struct(fields))
    versions = [schema for schema, _ in found]
    return _joined(spark, found, with_dropped(versions))


def prepared_titles(root: Given, n: int) -> list[str]:
    """``schema.name`` of the tables that transactions change which are prepared at an entry.

    Raises:
        ConfigError: see `prepared`.
        LandingError: see `prepared`.
    """
    landing = Landing(root)
    schemas = (
        of["schema"]
        for file in waiting_at(landing, n)
        for of in trailer_of(landing.root / file.path, file)["shown"]
    )
    return sorted({table_title(schema["schema"], schema["name"]) for schema in schemas})


def with_uncommitted(
    spark: SparkSession,
    landing: Landing,
    table: str,
    n: int,
    frame: DataFrame,
    version: TableSchema,
) -> DataFrame:
    """Add the changes of transactions that are prepared at an entry to those that are committed.

    Args:
        spark: running.
        landing: both are of.
        table: its directory.
        n: up to which `frame` has changes.
        frame: the committed ones.
        version: of the table, that `frame` is in.
    """
    found = _versions(landing, table, n)
    numbers: dict[str, int] = {}
    newest = _by_name(version, numbers)
    target = with_dropped([*(_by_name(schema, numbers) for schema, _ in found), newest])
    rows = _joined(spark, [(_by_name(of, numbers), parts) for of, parts in found], target)
    result = frame.unionByName(rows, allowMissingColumns=True)
    ours = [name for name in frame.columns if name.startswith("gd_")]
    names = [*ours, *MARKS, *(c for c in result.columns if c not in {*ours, *MARKS})]
    return result.select(*[f"`{name.replace('`', '``')}`" for name in names])


def _by_name(schema: TableSchema, numbers: dict[str, int]) -> TableSchema:
    """The same, its columns known by their names: those of a PREPARE have no numbers yet."""
    columns = tuple(
        dataclasses.replace(c, number=numbers.setdefault(c.true_name or c.name, -1 - len(numbers)))
        for c in schema.columns
    )
    return dataclasses.replace(schema, columns=columns, oid=0, unknown=None)


# --- what the log says ----------------------------------------------------------------------


def waiting_at(landing: Landing, n: int) -> list[PreparedFile]:
    """Files of the transactions that are prepared at an entry and have not ended, by their PREPARE.

    Raises:
        ConfigError: one of them has ended after that entry, and its rows went.
    """
    waiting = landing.prepared_at(n)
    for entry in landing.entries(n + 1, landing.last_n):
        for path in entry.ended:
            if path in waiting:
                raise ConfigError(
                    f"{landing.root}: transaction {waiting[path].gid!r} was prepared at entry {n} and "
                    f"ended at entry {entry.n}: its rows are kept no longer than that. Read a point from "
                    f"entry {entry.n} on (or apply up to there), or leave out what is uncommitted"
                )
    return sorted(waiting.values(), key=lambda file: (file.lsn, file.path))


def _versions(landing: Landing, table: str, n: int) -> list[tuple[TableSchema, list[Part]]]:
    """Parts of a table by the description that they are under, in the order of the PREPAREs."""
    numbers: dict[str, int] = {}
    found: dict[str, tuple[TableSchema, list[Part]]] = {}
    for file in waiting_at(landing, n):
        record = trailer_of(landing.root / file.path, file)
        time = _EPOCH + dt.timedelta(microseconds=file.time_us)
        for of in record["shown"]:
            schema = of["schema"]
            if table not in {of["table"], table_title(schema["schema"], schema["name"])}:
                continue
            name = hashlib.sha256(canonical_json(schema)).hexdigest()[:16]
            said = {
                c["landed"]: numbers.setdefault(c["name"], -1 - len(numbers))
                for c in schema["columns"]
            }
            version = TableSchema.from_record(name, schema, said)
            parts = found.setdefault(name, (version, []))[1]
            marks = (file.gid, file.lsn, time)
            parts += [
                Part(landing.root / file.path, offset, size, check, marks)
                for offset, size, _, check in of["parts"]
            ]
    return list(found.values())


def trailer_of(path: Place, file: PreparedFile) -> Json:
    """What stands at the end of the file of a prepared transaction.

    Raises:
        ConfigError: it has no rows for readers.
        LandingError: it is missing or damaged.
    """
    try:
        with open_file(path) as opened:
            opened.seek(file.bytes - _SIZE.size)
            (size,) = _SIZE.unpack(opened.read(_SIZE.size))
            if size > file.bytes - _SIZE.size:
                raise ValueError("its end is not what was written")
            opened.seek(file.bytes - _SIZE.size - size)
            record = read_sealed(opened.read(size))
        if record["version"] != _VERSION:
            raise ConfigError(f"{path}: version {record['version']!r}; use a newer gaussdecode")
    except FileNotFoundError:
        raise _gone(path) from None
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise LandingError(f"{path} cannot be read: {error}; restore it from a copy") from error
    why = record.get("unshown", "it was prepared under an earlier version of gaussdecode")
    if why is not None:
        raise ConfigError(
            f"{path}: the rows of prepared transaction {file.gid!r} cannot be shown: {why}. They land "
            "when it is committed; leave out what is uncommitted until then"
        )
    return record


def _gone(path: Place) -> LandingError:
    return LandingError(
        f"{path} is not there: its transaction ended while it was read. Read again; if it stays so, "
        "gaussdecode verify tells"
    )


# --- rows -----------------------------------------------------------------------------------


def _fields(schema: TableSchema) -> list[pa.Field]:
    """Our columns of uncommitted rows of a version."""
    marks = [pa.field(name, of) for name, of in MARKS.items()]
    return [*marks, *(of for of in change_fields(schema) if of.name not in _OF_ITS_END)]


def _struct(fields: Iterable[pa.Field]) -> T.StructType:
    return T.StructType([T.StructField(f.name, spark_type(f.type)) for f in fields])


def _joined(
    spark: SparkSession, found: Sequence[tuple[TableSchema, list[Part]]], target: TableSchema
) -> DataFrame:
    frames = [
        as_version(_read(spark, _struct([*_fields(of), *of.arrow()]), parts), of, target)
        for of, parts in found
    ]
    if not frames:
        return spark.createDataFrame([], _struct(_fields(target)))
    return functools.reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), frames)


def _read(spark: SparkSession, schema: T.StructType, parts: Sequence[Part]) -> DataFrame:
    tasks = max(1, min(len(parts), sum(part.size for part in parts) // _TASK_BYTES))
    numbers = spark.range(0, len(parts), 1, tasks)
    return numbers.mapInArrow(functools.partial(_rows, parts=list(parts), wanted=schema), schema)


def _rows(
    batches: Iterator[pa.RecordBatch], parts: Sequence[Part], wanted: T.StructType
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(wanted)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            rows = rows_of(parts[number])
            columns = [fitted(rows, field) for field in schema]
            yield from pa.table(columns, schema=schema).combine_chunks().to_batches()


def rows_of(part: Part) -> pa.Table:
    """Rows of a part, with what its transaction is.

    Raises:
        LandingError: they are not what was written.
    """
    try:
        with open_file(part.path) as opened:
            data = _content(opened, part)
        rows = pa.ipc.open_stream(io.BytesIO(data)).read_all()
    except FileNotFoundError:
        raise _gone(part.path) from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise LandingError(
            f"{part.path} cannot be read: {error}; restore it from a copy"
        ) from error
    for (name, of), value in zip(MARKS.items(), part.marks, strict=True):
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, of), rows.num_rows))
    return rows


def _content(opened: BinaryIO, part: Part) -> bytes:
    opened.seek(part.offset)
    data = opened.read(part.size)
    if len(data) != part.size or zlib.crc32(data) != part.check:
        raise ValueError(f"the rows at {part.offset} are not what was written")
    return data
