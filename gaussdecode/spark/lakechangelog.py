"""The changelog of a table that Iceberg keeps: landed changes, appended.

A table beside the one with the rows. It goes before that one, like the history, and knows by its own position which
changes it has: after a kill it may be ahead, and takes none of them twice.
"""

import functools
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql import types as T  # noqa: N812 - the same

from gaussdecode.spark.changelog import BY_COMMIT_DATE
from gaussdecode.spark.events import change_fields
from gaussdecode.spark.frames import as_version, read_versions
from gaussdecode.spark.icebergtable import IcebergTable, named_back
from gaussdecode.spark.layout import Layout, Partition
from gaussdecode.spark.place import Place
from gaussdecode.spark.schema import OLD, TableSchema, renamed_columns
from gaussdecode.spark.sqltext import quoted
from gaussdecode.spark.statefile import StateFile
from gaussdecode.spark.store import Target

CHANGELOG = "changelog"
_DAY_MICROS = 86_400_000_000


def landed_changes(
    spark: SparkSession,
    store: Target,
    table: str,
    schema: TableSchema,
    files: Sequence[StateFile],
    root: Place,
    by: str,
) -> DataFrame:
    """Staged changes as rows of a version of the table, with the column they are partitioned by."""
    schemas = {file.schema_id: store.schema(table, file.schema_id) for file in files}
    schemas[schema.schema_id] = schema
    paths: dict[str, list[Place]] = {}
    for file in files:
        paths.setdefault(file.schema_id, []).append(root / file.path)
    ours = {i: [*change_fields(of), pa.field("gd_n", pa.int64())] for i, of in schemas.items()}
    rows = read_versions(spark, paths, schemas, schema, ours)
    if by == BY_COMMIT_DATE:  # in UTC, whatever zone the session has
        days = F.floor(F.unix_micros("gd_ts") / _DAY_MICROS).cast("int")
        rows = rows.withColumn(by, F.date_add(F.lit("1970-01-01").cast("date"), days))
    return rows


def publish_changelog(
    table: IcebergTable,
    rows: DataFrame,
    old: TableSchema | None,
    new: TableSchema,
    between: Sequence[TableSchema],
    n: int,
    by: str,
) -> None:
    """Append what the changelog does not have yet.

    Args:
        table: the changelog's.
        rows: of `landed_changes`.
        old: schema of what it has; None where there is none.
        new: schema of the rows.
        between: schemas that a killed apply was about to bring the changelog to.
        n: entry that it is brought to.
        by: column it is partitioned by.
    """
    at = table.position()
    layout = Layout((Partition(by),) if by in rows.columns else ())
    if at is None or old is None:
        table.replace(rows, n, layout)
        return
    if at >= n:
        return
    rows, held = rows.where(F.col("gd_n") > at), named_back(table.read(), old, between)
    renamed = renamed_columns(old, new)
    if renamed is not None and _old_type(held) in (None, _old_type(rows)):
        table.rename_columns(renamed)
        table.add_columns(rows.schema.fields)
        table.append(rows, n)
        return
    kept = _with_old(as_version(held, old, new), rows)
    every = rows.unionByName(kept, allowMissingColumns=True)
    table.replace(every.localCheckpoint(), n, layout)  # what is read is replaced


def _old_type(rows: DataFrame) -> str | None:
    return rows.schema[OLD].dataType.simpleString() if OLD in rows.columns else None


def _with_old(held: DataFrame, rows: DataFrame) -> DataFrame:
    """Give old rows the fields that those of newer changes have."""
    if OLD not in held.columns or OLD not in rows.columns:
        return held.drop(OLD)
    has = held.schema[OLD].dataType
    wants = rows.schema[OLD].dataType
    assert isinstance(has, T.StructType)
    assert isinstance(wants, T.StructType)
    value = functools.partial(_field, names=has.names)
    fields = F.struct(*map(value, wants))
    return held.withColumn(OLD, F.when(F.col(OLD).isNotNull(), fields))


def _field(field: T.StructField, names: Sequence[str]) -> Column:
    if field.name not in names:
        return F.lit(None).cast(field.dataType).alias(field.name)
    return F.col(f"{OLD}.{quoted(field.name)}").try_cast(field.dataType).alias(field.name)
