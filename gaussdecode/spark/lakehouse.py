"""Upkeep of tables that Iceberg keeps: few files, and no versions nobody reads.

What a version of the database names stays, as does the newest version of each table; so `query` shows what it
showed before. No row changes, and no position.
"""

from collections.abc import Iterator

from pyspark.sql import SparkSession

from gaussdecode.spark.icebergtable import IcebergTable
from gaussdecode.spark.lake import open_lake
from gaussdecode.spark.lakechangelog import CHANGELOG
from gaussdecode.spark.lakehistory import HISTORY
from gaussdecode.spark.store import Target


def compact_lake(spark: SparkSession, store: Target) -> int:
    """Write the small files of all tables anew, as Iceberg does; give how many tables there are.

    Raises:
        LandingError: another writer is at work, or was quicker.
    """
    with store.locked():
        tables = [table for _, table in _tables(spark, store)]
        for table in tables:
            table.compact()
        return len(tables)


def forget_lake(spark: SparkSession, store: Target, before: float) -> None:
    """Remove versions from before a time, and their files.

    Args:
        spark: running.
        store: the target.
        before: seconds since 1970.

    Raises:
        LandingError: another writer is at work, or was quicker.
    """
    with store.locked():
        found = [store.database(k) for k in store.database_versions()]
        for name, table in _tables(spark, store):
            table.forget(before, {of.tables[name] for of in found if of and name in of.tables})


def _tables(spark: SparkSession, store: Target) -> Iterator[tuple[str, IcebergTable]]:
    """All tables that are there, histories too, with the name of whose they are."""
    lake = open_lake(spark, store)
    for name in store.tables():
        for table in (lake.table(name, beside) for beside in ("", HISTORY, CHANGELOG)):
            if table.is_there():
                yield name, table
    if store.catalog and (table := lake.positions()).is_there():
        yield "", table
