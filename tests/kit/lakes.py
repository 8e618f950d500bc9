"""What tests of Iceberg have in common: a small Spark with its jar and Delta Lake's, and a small source."""

import contextlib
import copy
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from gaussdecode.demo.java import provide_java
from gaussdecode.spark.merge.engine import DRIVER_BYTES
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.formats import DELTA, settings
from gaussdecode.spark.target.store import Target
from kit.history import Column, History, Snapshot, Table, canon
from kit.jars import RELEASES, jars

_SMALL: Final = {
    DRIVER_BYTES: "0",  # tasks, however small the tables
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.snapshotPartitions": "1",  # else fifty tasks for the log of each table
    # Planning anew and compiling take longer than these few rows.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "America/New_York",  # results must not depend on it
    "spark.log.level": "OFF",
}


@contextlib.contextmanager
def small_spark(scratch: Path, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Run a small local Spark, the one that is imported, with its jars, and settings beside its own."""
    minor = ".".join(pyspark.__version__.split(".")[:2])
    os.environ["JAVA_HOME"] = str(provide_java(scratch))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("tests")
    all_of = {
        **_SMALL,
        **settings(DELTA),
        # Beside Spark's own jars; every class of `spark.jars` is first looked for in all of those.
        "spark.driver.extraClassPath": ":".join(map(str, jars(minor))),
        "spark.sql.warehouse.dir": str(scratch),
        **(conf or {}),
    }
    for name, value in all_of.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    assert session.version == RELEASES[minor]
    try:
        yield session
    finally:
        session.stop()


def rows_of(frame: DataFrame, state: Snapshot) -> list[tuple[Any, ...]]:
    """Rows of a frame as a state has them."""
    table = frame.select(*[f"`{name}`" for name in state.names]).toArrow()
    return canon([tuple(row.values()) for row in table.to_pylist()])


def each_version(
    source: History, store: Target
) -> Iterator[tuple[DatabaseVersion, Table, Snapshot]]:
    """Tables of each version of the database, and the source's rows then."""
    for k in store.database_versions():
        database = store.database(k)
        assert database is not None
        for table in source.tables:
            states = source.states[table.name]
            ends = [at for at in states if at <= source.ends[database.n]]
            if ends and table.directory in database.tables:
                yield database, table, states[max(ends)]


def last_state(source: History, table: Table) -> Snapshot | None:
    """State after the last change that landed."""
    states = source.states[table.name]
    return states[max(states)] if states else None


def small(root: Path, seed: int = 5) -> History:
    """A source of one table with a key and one without, that changes a little."""
    columns = [Column(1, "id", pa.int32()), Column(2, "a", pa.string(), toast=True)]
    bag = [Column(1, "x", pa.int32()), Column(2, "y", pa.string())]
    tables = [Table("keyed", columns, (1,), full=False), Table("bag", bag, (), full=True, rows=[])]
    source = History(root / "landing", seed, with_schema_changes=False, tables=tables)
    live(source)
    return source


def live(source: History, entries: int = 2) -> None:
    """A few entries that certainly change both tables, and empty none."""
    for _ in range(entries):
        source.lsn += 10
        seq = 0
        for table in source.tables * 3:
            held = copy.copy(table.rows)
            while not (changes := source.changes(table)) or changes[0][0] == "T":
                table.rows = copy.copy(held)
            for change in changes:
                source.land(table, seq, *change)
                seq += 1
            source.states[table.name][source.place(seq)] = Snapshot(
                tuple(c.name for c in table.columns), table.visible()
            )
        source.commit()
