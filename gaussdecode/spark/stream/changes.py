"""Read landed changes as a DataFrame: Spark reads the files natively, in one schema.

    changes(spark, root, "public.orders", from_=41)      everything after entry 41

Merged files are read in place of those that they replace. Order rows by `Landing.order`; for one source
in LSN order that is `ORDER`. Use an entry number as progress, never a position.
"""

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.log.change_file import ChangeFile, replaces
from gaussdecode.spark.log.events import change_fields
from gaussdecode.spark.log.landing import Landing, Point, Reach, data_kinds
from gaussdecode.spark.log.place import Given, ObjectPath, Place
from gaussdecode.spark.log.schema import Column as TableColumn
from gaussdecode.spark.log.schema import TableSchema, match_columns
from gaussdecode.spark.log.source_schemas import DiffersError, joined
from gaussdecode.spark.log.sql_text import quoted
from gaussdecode.spark.merge.merged_files import merge_files
from gaussdecode.spark.merge.plan import SYSTEM_TABLES
from gaussdecode.spark.target.frames import read_versions
from gaussdecode.spark.target.remote_files import NUMBER

ORDER: Final = ("gd_epoch", "gd_lsn", "gd_seq")


def changes(
    spark: SparkSession,
    root: Given,
    table: str,
    *,
    from_: int | Point | None = None,
    to: int | Point | None = None,
    with_n: bool = False,
) -> DataFrame:
    """Read the changes of a table.

    Args:
        spark: a running session.
        root: root of the landing.
        table: ``schema.name``, or its directory.
        from_: read changes after this entry; None for all.
        to: read up to this entry; None for the end of the log.
        with_n: add the number of the commit entry as ``gd_n``; reads no merged files.

    Returns:
        Our columns, those of the newest version of the table, and dropped ones; NULL if a version lacks
        a column. Truncate markers are rows of op T.

    Raises:
        ConfigError: there is no such table, or the point is outside the log.
        LandingError: retention has removed entries that are needed, or files are damaged.
    """
    landing = Landing(root)
    directory = landing.find_table(table)
    _refuse_ours(landing, directory)
    until = landing.reach(_point(to))
    after = None if from_ is None else landing.reach(_point(from_))
    first, last = landing.first_n if after is None else after.whole + 1, until.n
    files = _files(landing, directory, first, last, with_merged=not with_n)
    frame = read_changes(spark, landing, directory, files, with_n=with_n)
    return _between(landing, frame, after, until)


def _refuse_ours(landing: Landing, directory: str) -> None:
    """Refuse a directory that is no table of the source; the text says how to read it."""
    if directory in SYSTEM_TABLES:
        raise ConfigError(
            f"{directory} is no table of the source and has no versions: read the files that the log names, "
            f"below {landing.root}/data/{directory}, with spark.read.parquet, and up to a CSN the rows whose "
            "gd_csn is not above it"
        )


def _between(landing: Landing, frame: DataFrame, after: Reach | None, until: Reach) -> DataFrame:
    """Drop rows of entries that are beyond the wanted CSNs."""
    if after is not None and after.csn is not None:
        frame = frame.where(~_is_up_to(landing, after))
    return frame if until.csn is None else frame.where(_is_up_to(landing, until))


def _is_up_to(landing: Landing, reach: Reach) -> Column:
    epoch = landing.position(landing.entry(reach.n)).epoch
    csn = F.coalesce("gd_csn", F.lit(0))
    if landing.has_several:  # each has epochs of its own, and all have the CSNs in common
        return csn <= F.lit(reach.csn)
    is_now = F.col("gd_epoch") == F.lit(epoch)
    return (F.col("gd_epoch") < F.lit(epoch)) | (is_now & (csn <= F.lit(reach.csn)))


def _point(where: int | Point | None) -> Point:
    return where if isinstance(where, Point) else Point(n=where)


def _files(
    landing: Landing, table: str, first: int, last: int, *, with_merged: bool
) -> list[ChangeFile]:
    found: list[ChangeFile] = []
    compacts: list[CommitEntry] = []
    end = landing.last_n if with_merged else last
    for entry in landing.entries(first, end):
        if entry.kind is EntryKind.COMPACT:
            compacts.append(entry)
        if entry.n > last or not data_kinds(entry):
            continue
        found += [
            ChangeFile(entry.n, entry.n, replaces(entry, table), f)
            for f in entry.files
            if f.table == table
        ]
    return merge_files(landing.root, {table: found}, compacts, ())[table]


def read_changes(
    spark: SparkSession,
    landing: Landing,
    table: str,
    files: Iterable[ChangeFile],
    *,
    with_n: bool = False,
) -> DataFrame:
    """Read landed files of one table as one frame."""
    by_schema: dict[str, list[Place]] = {}
    for change in files:  # the newest version last, also one that comes again
        paths = by_schema.pop(change.file.schema_id, [])
        paths.append(landing.root / change.file.path)
        by_schema[change.file.schema_id] = paths
    schemas = {
        schema_id: TableSchema.from_record(schema_id, landing.schema_record(table, schema_id))
        for schema_id in by_schema or landing.schema_ids(table)[:1]
    }
    target = as_one(list(schemas.values()))
    ours = {schema_id: change_fields(schema) for schema_id, schema in schemas.items()}
    if with_n and isinstance(
        landing.root, ObjectPath
    ):  # Spark does not know the names of its files
        numbered = {i: [*fields, pa.field(NUMBER, pa.int64())] for i, fields in ours.items()}
        rows = read_versions(spark, by_schema, schemas, target, numbered)
        return rows.select(*[quoted(c) for c in rows.columns if c != NUMBER], NUMBER)
    frame = read_versions(spark, by_schema, schemas, target, ours)
    return frame.withColumn(NUMBER, _number()) if with_n else frame


def _number() -> Column:
    """Entry number from a landed file's name, which begins with it."""
    name = F.regexp_extract(F.input_file_name(), r"/(\d{20})-[^/]*\.parquet$", 1)
    return name.cast("bigint")


def as_one(versions: list[TableSchema]) -> TableSchema:
    """One schema for rows of all versions: `with_dropped`, also for several sources.

    Raises:
        LandingError: the newest versions of several sources cannot be one table.
    """
    by_source: dict[str | None, list[TableSchema]] = {}
    for version in versions:
        by_source.setdefault(version.source, []).append(version)
    if None in by_source:
        return with_dropped(versions)
    wide = {str(source): of[-1] for source, of in by_source.items()}
    try:
        found = joined(wide)
    except DiffersError as error:
        raise LandingError(f"{versions[-1].title}: {error}") from error
    for source in sorted(wide):  # the same columns, whichever source landed first
        of = by_source[source]
        older = with_dropped(of).columns[len(of[-1].columns) :]
        for column in older:
            wider = {**wide, source: _of(wide[source], [*wide[source].columns, column])}
            with contextlib.suppress(DiffersError):  # the name has another meaning elsewhere
                found, wide = joined(wider), wider
    return found


def with_dropped(versions: list[TableSchema]) -> TableSchema:
    """The newest version, with dropped columns of earlier ones."""
    newest = versions[-1]
    columns = list(newest.columns)
    for older in reversed(versions[:-1]):
        kept = set(match_columns(older, newest).values())
        known = set(match_columns(older, _of(newest, columns)).values())
        taken = {column.name.lower() for column in columns}
        for column in older.columns:
            if column.name in kept or column.name in known:
                continue
            if column.name.lower() in taken:
                continue  # the name has another meaning now; `with_n` and older ranges show it
            columns.append(column)
            taken.add(column.name.lower())
    return newest if len(columns) == len(newest.columns) else _of(newest, columns)


def _of(schema: TableSchema, columns: list[TableColumn]) -> TableSchema:
    return dataclasses.replace(schema, schema_id=f"{schema.schema_id}+", columns=tuple(columns))
