"""Read Parquet files of several schema versions as one DataFrame of one version.

Given files by schema version; promises that Spark reads exactly these files, natively if they are on a
disk, with one scan per version. Added, dropped, renamed and retyped columns become the columns of the
version wanted. A value that is unknown under a new type is NULL, with its text in ``gd_raw``.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql import types as T  # noqa: N812 - the same

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.arrow_types import arrow_schema, fitted
from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.log.place import ObjectPath, Place
from gaussdecode.spark.log.schema import (
    OLD,
    OLD_PREFIX,
    RAW,
    RAW_TYPE,
    SOURCE,
    UNCHANGED,
    TableSchema,
    fills_constants,
    is_same_table,
    match_columns,
    parse_type,
    ways_by_source,
    why_inexact,
)
from gaussdecode.spark.log.schema import Column as TableColumn
from gaussdecode.spark.log.sql_text import quoted
from gaussdecode.spark.target.deletion_vectors import Vector, read_vector
from gaussdecode.spark.target.remote_files import Read, read_objects

Vectors = Mapping[Place, tuple[Place, Vector]]
"""File and location of the deletion vector, by path of the data file."""
_GLOB: Final = re.compile(r"([\\{}\[\]*?])")
_SIMPLE: Final[dict[pa.DataType, T.DataType]] = {
    pa.bool_(): T.BooleanType(),
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.date32(): T.DateType(),
    pa.timestamp("us"): T.TimestampNTZType(),
    pa.timestamp("us", tz="UTC"): T.TimestampType(),
    pa.string(): T.StringType(),
    pa.binary(): T.BinaryType(),
}


def spark_type(of: pa.DataType) -> T.DataType:
    """The Spark type for an Arrow type."""
    if of in _SIMPLE:
        return _SIMPLE[of]
    if pa.types.is_decimal(of):
        return T.DecimalType(of.precision, of.scale)
    if pa.types.is_list(of):
        return T.ArrayType(spark_type(of.value_type), of.value_field.nullable)
    if pa.types.is_map(of):
        return T.MapType(spark_type(of.key_type), spark_type(of.item_type))
    if pa.types.is_struct(of):
        return T.StructType([T.StructField(f.name, spark_type(f.type)) for f in of])
    raise LandingError(f"no type of Spark holds {of}")


def read_versions(
    spark: SparkSession,
    files: Mapping[str, Sequence[Place]],
    schemas: Mapping[str, TableSchema],
    target: TableSchema,
    ours: Mapping[str, Sequence[pa.Field]],
    ended: Vectors | None = None,
    columns: Container[str] | None = None,
) -> DataFrame:
    """Read files of several versions as one frame.

    Args:
        spark: a running session.
        files: file paths by schema_id.
        schemas: versions by schema_id.
        target: version wanted.
        ours: our own columns beside the table's, by schema_id.
        ended: deletion vectors of the files.
        columns: columns of the table that are wanted, and those of our columns that hold column
            names; None for all.
    """
    if columns is not None:
        schemas, target = _pruned(schemas, target, columns)
        ours = {
            schema_id: [f for f in fields if f.name in columns or f.name not in _TRANSLATED]
            for schema_id, fields in ours.items()
        }
    frames = []
    vectors = {} if ended is None else ended
    for schema_id, paths in files.items():
        schema = schemas[schema_id]
        fields = [*ours[schema_id], *schema.arrow()]
        wanted = T.StructType([T.StructField(f.name, spark_type(f.type)) for f in fields])
        frames += [
            as_version(rows, schema, target) for rows in _rows(spark, wanted, paths, vectors)
        ]
    if not frames:
        fields = [*next(iter(ours.values())), *target.arrow()]
        empty = T.StructType([T.StructField(f.name, spark_type(f.type)) for f in fields])
        return spark.createDataFrame([], empty)
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionByName(frame, allowMissingColumns=True)
    return result


def _pruned(
    schemas: Mapping[str, TableSchema], target: TableSchema, columns: Container[str]
) -> tuple[dict[str, TableSchema], TableSchema]:
    """Versions with the wanted columns only; with all if values may be in ``gd_raw``."""
    if RAW in columns:
        return dict(schemas), target
    wanted = {column.name for column in target.columns if column.name in columns}
    found = {}
    for schema_id, schema in schemas.items():
        matched = match_columns(schema, target)
        names = {before for after, before in matched.items() if after in wanted}
        found[schema_id] = _with(schema, names)
    return found, _with(target, wanted)


def _with(schema: TableSchema, names: Container[str]) -> TableSchema:
    return dataclasses.replace(schema, columns=tuple(c for c in schema.columns if c.name in names))


def _rows(
    spark: SparkSession, schema: T.StructType, paths: Sequence[Place], vectors: Vectors
) -> Iterator[DataFrame]:
    """Current rows of files."""
    objects = [path for path in paths if isinstance(path, ObjectPath)]
    if objects:
        yield read_objects(spark, schema, [Read(path, vectors.get(path)) for path in objects])
        return
    whole = [path for path in paths if path not in vectors]
    if whole:
        yield read_parquet(spark, schema, whole)
    parted = [path for path in paths if path in vectors]
    if parted:
        yield _current(read_parquet(spark, schema, parted), _vectors(spark, parted, vectors))


def read_parquet(spark: SparkSession, schema: T.StructType, paths: Sequence[Place]) -> DataFrame:
    """Read files in one schema; at least one of them, all on a disk or all on a store."""
    objects = [Read(path) for path in paths if isinstance(path, ObjectPath)]
    if objects:
        return read_objects(spark, schema, objects)
    return spark.read.schema(schema).parquet(*[_GLOB.sub(r"\\\1", str(p)) for p in paths])


def _vectors(spark: SparkSession, paths: Sequence[Place], of: Vectors) -> DataFrame:
    """Positions of rows that are no longer current: ``gd_file`` and ``gd_row``."""
    rows = [read_vector(*of[path]) for path in paths]
    names = pa.array([path.name for path in paths], pa.string())
    files = names.take(pa.array(np.repeat(np.arange(len(paths)), [len(of) for of in rows])))
    places = pa.table({"gd_file": files, "gd_row": pa.array(np.concatenate(rows))})
    return spark.createDataFrame(places)


def _current(frame: DataFrame, vectors: DataFrame) -> DataFrame:
    """Remove rows that are no longer current; file names are never used twice."""
    place = [F.col("_metadata.file_name"), F.col("_metadata.row_index")]
    placed = frame.select("*", place[0].alias("gd_file"), place[1].alias("gd_row"))
    left = placed.join(F.broadcast(vectors), ["gd_file", "gd_row"], "left_anti")
    return left.select(*[quoted(name) for name in frame.columns])


def as_version(frame: DataFrame, old: TableSchema, new: TableSchema) -> DataFrame:
    """Convert rows of one version to another, column by column."""
    if old.schema_id == new.schema_id:
        return frame
    ways = ways_by_source(old, new)
    if ways is not None:
        return _by_source(frame, ways)
    matched = match_columns(old, new)
    if (
        not new.parts
        and is_same_table(old, new)
        and (why_inexact(old, new) or fills_constants(old, new))
    ):
        return _conformed(frame, old, new)
    types = {column.name: column.type for column in old.columns}
    kept = [quoted(n) for n in frame.columns if n.startswith("gd_") and n not in _TRANSLATED]
    columns: list[Column] = []
    for column in new.columns:
        of = spark_type(parse_type(column.type))
        source = matched.get(column.name)
        if source is None:
            columns.append(F.lit(None).cast(of).alias(column.name))
        elif types[source] == column.type:
            columns.append(F.col(quoted(source)).alias(column.name))
        else:
            columns.append(F.col(quoted(source)).cast(of).alias(column.name))
    back = {before: after for after, before in matched.items()}
    ours = [F.col(name) for name in kept]
    ours += _translated(frame, back, new)
    return frame.select(*ours, *columns)


def _by_source(frame: DataFrame, ways: Mapping[str | None, Sequence[TableSchema]]) -> DataFrame:
    """Convert rows of several sources, each through the versions of its own source."""
    frames = (
        functools.reduce(
            lambda rows, step: as_version(rows, *step),
            itertools.pairwise(way),
            frame.where(F.col(SOURCE) == F.lit(source)),
        )
        for source, way in ways.items()
    )
    return functools.reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True), frames
    )


def numbered(rows: DataFrame) -> DataFrame:
    """Name the columns by number: `mapInArrow` parses names as expressions, and a dot as a field."""
    return rows.toDF(*[f"c{number}" for number in range(len(rows.columns))])


def _conformed(frame: DataFrame, old: TableSchema, new: TableSchema) -> DataFrame:
    """Convert rows in Python if columns alone do not suffice: kept texts, and constants."""
    fields = [f for f in frame.schema if f.name.startswith("gd_") and f.name != OLD]
    if OLD in frame.columns:
        held = frame.schema[OLD].dataType
        assert isinstance(held, T.StructType)
        matched = match_columns(old, new)
        of_old = [column for column in new.columns if matched.get(column.name) in held.names]
        fields.append(T.StructField(OLD, T.StructType([_field(column) for column in of_old])))
    wanted = T.StructType([*fields, *map(_field, new.columns)])
    names = frame.columns

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = arrow_schema(wanted)
        for batch in given:
            rows = conform(pa.Table.from_batches([batch]).rename_columns(names), old, new)
            fitting = pa.table([fitted(rows, field) for field in target], schema=target)
            yield from fitting.to_batches()

    return numbered(frame).mapInArrow(batches, wanted)


def _field(column: TableColumn) -> T.StructField:
    return T.StructField(column.name, spark_type(parse_type(column.type)))


_TRANSLATED: Final = frozenset({UNCHANGED, OLD, RAW})


def _translated(frame: DataFrame, back: Mapping[str, str], new: TableSchema) -> list[Column]:
    """Translate our columns that hold column names."""
    result = []
    if UNCHANGED in frame.columns:
        names = F.filter(UNCHANGED, lambda name: name.isin(*back))
        names = F.transform(names, lambda name: _renamed(name, back))
        result.append(
            F.when(F.size(names) > 0, names).alias(UNCHANGED)
        )  # none is NULL, as it lands
    if OLD in frame.columns:
        result += _translated_old(frame, back, new)
    if RAW in frame.columns:
        both = {**back, **{OLD_PREFIX + a: OLD_PREFIX + b for a, b in back.items()}}
        raw = F.map_filter(RAW, lambda name, _: name.isin(*both))
        raw = F.transform_keys(raw, lambda name, _: _renamed(name, both))
        result.append(raw.cast(spark_type(RAW_TYPE)).alias(RAW))
    return result


def _translated_old(frame: DataFrame, back: Mapping[str, str], new: TableSchema) -> list[Column]:
    held = frame.schema[OLD].dataType
    assert isinstance(held, T.StructType)
    types = {column.name: spark_type(parse_type(column.type)) for column in new.columns}
    fields = [
        F.col(f"{OLD}.{quoted(name)}").try_cast(types[back[name]]).alias(back[name])
        for name in held.names
        if name in back
    ]
    if not fields:
        return []
    return [F.when(F.col(OLD).isNotNull(), F.struct(*fields)).alias(OLD)]


def _renamed(name: Column, back: Mapping[str, str]) -> Column:
    result = name
    for before, after in back.items():
        if before != after:
            result = F.when(name == before, F.lit(after)).otherwise(result)
    return result
