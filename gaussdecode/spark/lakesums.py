"""Rows of a table of Iceberg, and of its quarantine, for a comparison with the source."""

import functools
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from gaussdecode.spark.frames import numbered
from gaussdecode.spark.lake import open_lake
from gaussdecode.spark.query import quarantine_at
from gaussdecode.spark.schema import RAW, RAW_TYPE, TableSchema
from gaussdecode.spark.sqltext import quoted
from gaussdecode.spark.store import DatabaseVersion, Target
from gaussdecode.spark.verify import Asked, answer


class StoredFrame:
    """Rows of a frame; executors add them up.

    Args:
        frame: with the columns of a version of the table, and ``gd_raw``.
        schema: the version.
    """

    def __init__(self, frame: DataFrame, schema: TableSchema) -> None:
        self._frame = frame.select(*[quoted(name) for name in (RAW, *schema.names)])
        self._types = pa.schema([pa.field(RAW, RAW_TYPE), *schema.arrow()])

    def count(self) -> int:
        """See `verify.Stored`."""
        return self._frame.count()

    def ask(self, asked: Asked) -> list[str]:
        """See `verify.Stored`."""
        said = functools.partial(_answers, asked=asked, types=self._types)
        found = numbered(self._frame).mapInArrow(said, "said string").collect()
        return [str(row.said) for row in found]


def _answers(
    batches: Iterator[pa.RecordBatch], asked: Asked, types: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        texts = list(
            answer(pa.Table.from_batches([batch]).rename_columns(types.names).cast(types), asked)
        )
        yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["said"])


def stored_frame(
    spark: SparkSession, store: Target, database: DatabaseVersion, table: str
) -> StoredFrame:
    """All rows of a table of a version of the database."""
    schema = store.schema_at(database, table)
    names = [quoted(name) for name in (RAW, *schema.names)]
    rows = open_lake(spark, store).table(table).read(database.tables[table]).select(*names)
    held = quarantine_at(spark, store, database, table).select(*names)
    return StoredFrame(rows.unionByName(held), schema)
