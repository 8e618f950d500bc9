"""Read Parquet files of an object store as DataFrames, in Python workers.

Spark's own reader needs a Hadoop file system for each kind of store, its jars, and the credentials a
second time in its configuration. So files at a URL are read through the same client as everything else.
Given paths and a schema; promises exactly their rows, NULL if a file lacks a column, read column by
column and row group by row group.

s3a paths of the session would be a second way to the same file, with other settings and other errors,
of which tests see one.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.arrow_types import arrow_schema, fitted
from gaussdecode.spark.log.place import ObjectPath, Place, parquet_file
from gaussdecode.spark.target.deletion_vectors import Vector, is_current, read_vector

NUMBER: Final = "gd_n"
"""Entry number; a landed file has no such column, so it is taken from the file's name."""

_LANDED: Final = re.compile(r"(\d{20})-[^/]*\.parquet")


class Read(NamedTuple):
    """A file to read.

    Attributes:
        path: path of the file.
        deletes: location of its deletion vector: file and offset; None for none.
    """

    path: ObjectPath
    deletes: tuple[Place, Vector] | None = None


def read_objects(spark: SparkSession, schema: T.StructType, files: Sequence[Read]) -> DataFrame:
    """Read files as one frame, in at most two tasks per core."""
    tasks = min(len(files), 2 * spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(files), 1, tasks)
    return numbers.mapInArrow(functools.partial(_rows, files=list(files), wanted=schema), schema)


def _rows(
    batches: Iterator[pa.RecordBatch], files: Sequence[Read], wanted: T.StructType
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(wanted)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _rows_of(files[number], schema)


def _rows_of(of: Read, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    number = _LANDED.fullmatch(of.path.name)
    try:
        ended = np.empty(0, dtype=np.int64)
        if of.deletes is not None:
            ended = read_vector(*of.deletes)
        with parquet_file(of.path) as file:
            held = set(file.schema_arrow.names)
            names = [name for name in schema.names if name in held]
            edge = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                rows = _group(file, group, names, count)
                if of.deletes is not None:
                    rows = rows.filter(pa.array(is_current((edge, edge + count), ended)))
                edge += count
                if number is not None and NUMBER not in held:
                    at = pa.repeat(pa.scalar(int(number[1]), pa.int64()), rows.num_rows)
                    rows = rows.append_column(NUMBER, at)
                columns = [fitted(rows, field) for field in schema]
                yield from pa.table(columns, schema=schema).combine_chunks().to_batches()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise LandingError(f"{of.path} cannot be read: {error}; restore it from a copy") from error


def _group(
    file: "pa.parquet.ParquetFile", group: int, names: Sequence[str], count: int
) -> pa.Table:
    if names:
        return file.read_row_group(group, columns=list(names), use_threads=False).select(names)
    return pa.table({"": pa.nulls(count)}).select([])
