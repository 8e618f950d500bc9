"""A table that says which versions of the others belong together.

In the catalog of the tables, so that any reader finds it there: one row per table and apply that changed it. The
versions of all tables at an entry are the last ones up to it. Targets of one pattern share it, each with the id of its
landing. It goes after the tables and before the version of the database, so it lacks none of these.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from gaussdecode.spark.lake import Lake
from gaussdecode.spark.sqltext import literal
from gaussdecode.spark.store import DatabaseVersion, Target

COLUMNS: Final[Mapping[str, str]] = {
    "landing": "string",
    "n": "bigint",
    "epoch": "int",
    "lsn": "bigint",
    "csn": "bigint",
    "commit_time": "timestamp",
    "source_table": "string",
    "name": "string",
    "version": "bigint",
}


def publish_positions(
    spark: SparkSession, lake: Lake, store: Target, newest: DatabaseVersion
) -> None:
    """Write what a version of the database is about to say and the table of positions does not yet."""
    table = lake.positions()
    at = table.noted()
    if at is not None and at >= newest.n:
        return
    since = None if at is None else store.database_at(at)
    before = {} if since is None else since.tables
    lines = list(_lines(lake, store, newest, before))
    if lines:
        table.append(_frame(spark, lines), newest.n)


def _lines(
    lake: Lake, store: Target, newest: DatabaseVersion, before: Mapping[str, int]
) -> Iterator[str]:
    time = newest.commit_time
    stamp = "NULL" if time is None else f"timestamp_micros({_micros(time)})"
    csn = "NULL" if newest.csn is None else newest.csn
    for directory, version in newest.tables.items():
        if before.get(directory) == version:
            continue
        title = store.schema_at(newest, directory).title
        yield (
            f"({literal(store.landing_id)}, {newest.n}, {newest.epoch}, {newest.lsn}, {csn}, {stamp}, "
            f"{literal(title)}, {literal(lake.table(directory).name)}, {version})"
        )


def _micros(time: str) -> int:
    since = dt.datetime.fromisoformat(time) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(microseconds=1)


def _frame(spark: SparkSession, lines: list[str]) -> DataFrame:
    columns = ", ".join(f"CAST({name} AS {of}) AS {name}" for name, of in COLUMNS.items())
    values = f"VALUES {', '.join(lines)} AS v({', '.join(COLUMNS)})"
    return spark.sql(f"SELECT {columns} FROM {values}")  # noqa: S608 - our own text
