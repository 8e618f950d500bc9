"""The history of a table that Iceberg keeps: one row per version of a row.

Beside each table stands another one with the same columns and ``gd_to_...``: what ended the version, NULL
in those that are there now. A version is known by its place in the order of changes, so that the same
changes may be merged again: each apply puts the versions that it knows to have begun or ended. The table
goes before the one with the rows, whose position says where the next apply begins.
"""

import dataclasses
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.spark.datacheck import places_of
from gaussdecode.spark.events import ACTION, ENDS, KEY, PUT, closed_schema
from gaussdecode.spark.frames import as_version, read_versions, spark_type
from gaussdecode.spark.icebergtable import IcebergTable, Merge, named_back
from gaussdecode.spark.mergesql import Bounds, Values
from gaussdecode.spark.place import Place
from gaussdecode.spark.schema import TableSchema, renamed_columns
from gaussdecode.spark.sqltext import quoted
from gaussdecode.spark.staging import write_rows

HISTORY: Final = "history"


def open_versions(rows: DataFrame) -> DataFrame:
    """Rows of a table as versions that nothing has ended."""
    names = [quoted(name) for name in rows.columns if name not in {KEY, ACTION}]
    ends = [F.lit(None).cast(spark_type(of)).alias(name) for name, of in ENDS.items()]
    return rows.select(*ends, *names)


@dataclasses.dataclass(frozen=True, slots=True)
class Versions:
    """Versions that an apply knows to have begun or ended.

    Attributes:
        rows: they; of the newest schema.
        old: schema of the history that is there; None where there is none.
        new: schema of the rows.
        between: schemas that a killed apply was about to bring the history to.
        bounds: see `Merge`.
        values: see there.
    """

    rows: DataFrame
    old: TableSchema | None
    new: TableSchema
    between: tuple[TableSchema, ...]
    bounds: Bounds
    values: Values


def publish(
    spark: SparkSession, table: IcebergTable, versions: Versions, n: int, scratch: Place
) -> None:
    """Put versions into a history; again if it must be.

    Args:
        spark: running.
        table: the history's.
        versions: to put.
        n: entry that it is brought to.
        scratch: directory for a history that is written anew, as its columns are other ones.
    """
    known = table.position()
    if known is not None and known >= n:
        return
    if versions.old is None:
        table.replace(versions.rows, n)
        return
    held = named_back(table.read(), versions.old, versions.between)
    renamed = renamed_columns(versions.old, versions.new)
    if renamed is not None and set(versions.old.names) <= set(held.columns):
        table.rename_columns(renamed)
        table.add_columns(versions.rows.schema.fields)
        changes = versions.rows.withColumn(ACTION, F.lit(PUT))
        at = tuple(places_of(changes))
        table.merge(Merge(changes, at, bounds=versions.bounds, values=versions.values), n)
        return
    held = as_version(held, versions.old, versions.new)
    names = [quoted(name) for name in versions.rows.columns]
    place = places_of(versions.rows)
    kept = held.join(versions.rows.select(*place), place, "left_anti").select(*names)
    # A table cannot be read while it is replaced.
    new, fields = versions.new, closed_schema(versions.new)
    every = kept.unionByName(versions.rows).select(*map(quoted, fields.names))
    files = write_rows(every, new.schema_id, fields, scratch, HISTORY)
    ours = [field for field in fields if field.name not in new.names]
    paths = {new.schema_id: [scratch / file.path for file in files]}
    table.replace(read_versions(spark, paths, {new.schema_id: new}, new, {new.schema_id: ours}), n)


def at_entry(rows: DataFrame, n: int) -> DataFrame:
    """A history as it was at an entry."""
    is_over = F.col("gd_to_n") <= n
    ends = [F.when(is_over, F.col(name)).alias(name) for name in ENDS]
    others = [quoted(name) for name in rows.columns if name not in ENDS]
    return rows.where(F.col("gd_n") <= n).select(*ends, *others)
