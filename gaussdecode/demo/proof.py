"""Prove with Spark that the landed changes equal the database.

Spark reads the landed files that the commit log names and replays them, beginning with the existing
rows (operation R). For a table with a key it keeps the last version of every row; for a table without
one it counts rows added and removed. psycopg copies the database's own tables into Parquet files of the
same types. Both sides must hold the same rows, each equally often.

The replay fills a column that was not sent from earlier changes of the same key. An update that changes
the key *and* lacks such a column would need the changes of the old key. The demo's sessions make no
such update.
"""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from gaussdecode.demo.java import provide_java
from gaussdecode.demo.landed import LandedTable

_POSITION: Final = ("gd_epoch", "gd_lsn", "gd_seq")
_EXPORT_ROWS: Final = 50_000
_WEIGHT: Final = "gd_weight"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Spark's result for one table.

    Attributes:
        table: title of the table.
        rows: number of rows in the database.
        missing: rows of the database that the replay lacks.
        surplus: rows of the replay that the database lacks.
    """

    table: LandedTable
    rows: int
    missing: int
    surplus: int

    @property
    def is_equal(self) -> bool:
        """Whether both sides hold the same."""
        return self.missing == 0 and self.surplus == 0


# --- the database's side -------------------------------------------------------------------


def export(dsn: str, table: LandedTable, path: Path) -> None:
    """Copy a table of the database into a Parquet file of the types it landed with."""
    landed = pq.read_schema(table.files[-1])
    schema = pa.schema([landed.field(name) for name in table.columns])
    query = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(
            _expression(true, schema.field(name).type) for name, true in table.columns.items()
        ),
        sql.Identifier(table.schema, table.name),
    )
    names = schema.names
    with psycopg.connect(dsn) as session, pq.ParquetWriter(path, schema) as writer:
        session.execute("SET TimeZone = 'UTC'")
        with session.cursor(name="export") as cursor:
            cursor.execute(query)
            while rows := cursor.fetchmany(_EXPORT_ROWS):
                records = [dict(zip(names, row, strict=True)) for row in rows]
                writer.write_table(pa.Table.from_pylist(records, schema=schema))


def _expression(name: str, of: pa.DataType) -> sql.Composable:
    """Select a column so that psycopg gives what Arrow takes."""
    column = sql.Identifier(name)
    if pa.types.is_string(of):
        # As the server prints it: a cast to text differs for inet and char(n).
        return sql.SQL("CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END").format(column)
    if pa.types.is_struct(of):
        return sql.SQL(
            "CASE WHEN {0} IS NOT NULL THEN json_build_object("
            "'months', extract(year FROM {0}) * 12 + extract(month FROM {0}), "
            "'days', extract(day FROM {0}), 'micros', extract(hour FROM {0})::int8 * 3600000000 "
            "+ extract(minute FROM {0})::int8 * 60000000 + extract(microseconds FROM {0})::int8) END"
        ).format(column)
    return column


# --- Spark's side ----------------------------------------------------------------------------


@contextlib.contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """Start Spark on this machine, quietly, with everything it writes below `directory`."""
    os.environ["JAVA_HOME"] = str(provide_java(directory))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("gaussdecode demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        # It lives for seconds: compiling well would take longer than what is computed.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory))
    )
    with _errors_into(directory / "spark.log"):
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def _errors_into(path: Path) -> Iterator[None]:
    """Send the standard error of a child that starts now to a file, all its life."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def prove(spark: SparkSession, dsn: str, table: LandedTable, directory: Path) -> Verdict:
    """Compare one table's replay with the database.

    Args:
        spark: a running session.
        dsn: connection string of the database, at rest.
        table: table from `read_tables`.
        directory: directory for the exported table.
    """
    path = directory / f"{abs(hash(table.title)):x}.parquet"
    export(dsn, table, path)
    source = _counted(spark.read.parquet(str(path)).withColumn(_WEIGHT, F.lit(1)))
    both = source.withColumnRenamed(_WEIGHT, "gd_source").unionByName(
        _counted(replay(spark, table)).withColumnRenamed(_WEIGHT, "gd_replay"),
        allowMissingColumns=True,
    )
    columns = [_quoted(name) for name in table.columns]
    sums = both.groupBy(*columns).agg(
        F.coalesce(F.sum("gd_source"), F.lit(0)).alias("s"),
        F.coalesce(F.sum("gd_replay"), F.lit(0)).alias("r"),
    )
    row = sums.agg(
        F.coalesce(F.sum("s"), F.lit(0)),
        F.coalesce(F.sum(F.greatest(F.col("s") - F.col("r"), F.lit(0))), F.lit(0)),
        F.coalesce(F.sum(F.greatest(F.col("r") - F.col("s"), F.lit(0))), F.lit(0)),
    ).collect()[0]
    return Verdict(table, int(row[0]), int(row[1]), int(row[2]))


def replay(spark: SparkSession, table: LandedTable) -> DataFrame:
    """Replay the changes of a table; return its rows with how often each exists."""
    # One depth of partitions (gd_date) and growing schemas: the newest names all columns.
    changes = spark.read.option("mergeSchema", "true").parquet(*table.files)
    if table.snapshot_lsn is not None:  # its rows replace all that was landed up to there
        is_row = (F.col("gd_lsn") == table.snapshot_lsn) & (F.col("gd_op") == "R")
        changes = changes.where((F.col("gd_lsn") > table.snapshot_lsn) | is_row)
    changes = changes.withColumn("gd_at", F.struct(*_POSITION))
    emptied = changes.where("gd_op = 'T'").agg(F.max("gd_at").alias("at")).collect()[0]["at"]
    changes = changes.where("gd_op <> 'T'")
    if emptied is not None:
        last = F.struct(
            *[F.lit(value).alias(n) for n, value in zip(_POSITION, emptied, strict=True)]
        )
        changes = changes.where(F.col("gd_at") > last)
    return _replay_bag(changes, table) if table.key is None else _replay_keyed(changes, table)


def _replay_keyed(changes: DataFrame, table: LandedTable) -> DataFrame:
    """Keep the last version of every key; take columns that were not sent from earlier changes."""
    key = table.key or ()
    new = [F.col(_quoted(name)).alias(f"gd_key_{i}") for i, name in enumerate(key)]
    old = [F.col(f"gd_old.{_quoted(name)}").alias(f"gd_key_{i}") for i, name in enumerate(key)]
    has_old = "gd_old" in changes.columns
    kept = changes.where("gd_op <> 'D'").select("*", *new, F.lit(1).alias("gd_alive"))
    versions = kept
    if has_old:  # a delete, or the end of the key that an update left behind
        gone = changes.where("gd_old IS NOT NULL").select("*", *old, F.lit(0).alias("gd_alive"))
        versions = kept.unionByName(gone)
    by_key = Window.partitionBy(*[f"gd_key_{i}" for i in range(len(key))]).orderBy(
        "gd_at", "gd_alive"
    )
    filled = [_last_sent(name, by_key) for name in table.columns]
    is_last = F.lead("gd_at").over(by_key).isNull().alias("gd_last")
    rows = versions.select(*filled, "gd_alive", is_last).where("gd_last AND gd_alive = 1")
    return rows.select(*[_quoted(name) for name in table.columns], F.lit(1).alias(_WEIGHT))


def _last_sent(name: str, by_key: Any) -> Column:  # Any: WindowSpec has no public path
    """The newest value of a column that was sent; sent NULLs count."""
    is_sent = ~F.coalesce(F.array_contains("gd_unchanged", name), F.lit(False))
    sent = F.when(is_sent, F.struct(F.col(_quoted(name)).alias("value")))
    return F.last(sent, ignorenulls=True).over(by_key)["value"].alias(name)


def _replay_bag(changes: DataFrame, table: LandedTable) -> DataFrame:
    """Count rows added and removed."""
    names = list(table.columns)
    added = changes.where("gd_op <> 'D'").select(*map(_quoted, names), F.lit(1).alias(_WEIGHT))
    if "gd_old" not in changes.columns:
        return added
    removed = changes.where("gd_old IS NOT NULL").select(
        *[F.col(f"gd_old.{_quoted(name)}").alias(name) for name in names], F.lit(-1).alias(_WEIGHT)
    )
    return added.unionByName(removed)


def _counted(rows: DataFrame) -> DataFrame:
    columns = [_quoted(name) for name in rows.columns if name != _WEIGHT]
    return rows.groupBy(*columns).agg(F.sum(_WEIGHT).alias(_WEIGHT))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
