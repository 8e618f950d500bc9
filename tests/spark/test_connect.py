"""A session of Spark Connect: what works, and what is refused in a sentence; in a process of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from kit.history import History

from gaussdecode.demo.java import provide_java

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SCRIPT = """
    import sys
    from pyspark.sql import SparkSession
    from gaussdecode.errors import ConfigError
    from gaussdecode.spark.apply import apply
    from gaussdecode.spark.stream.datasource import GaussDecodeSource
    from gaussdecode.spark.query import changelog, current, database, history
    from gaussdecode.spark.stream.changes import changes
    from gaussdecode.spark.maintain.upkeep import compact
    from gaussdecode.spark.sql.views import ask

    builder = SparkSession.builder.remote("local[1]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",  # of a few rows; it would be 200
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.gaussdecode.driverBytes": "0",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    landing, target = sys.argv[1:]
    apply(spark, landing, target, history=True, changelog="gd_commit_date", buckets=1)
    compact(spark, target, buckets=2)
    frames = [of(spark, target, "public.bag") for of in (current, history, changelog)]
    frames.append(changes(spark, landing, "public.bag"))
    spark.dataSource.register(GaussDecodeSource)
    frames.append(spark.read.format("gaussdecode").option("table", "public.bag").load(landing))
    print(*[frame.count() for frame in frames], len(database(spark, target)))
    for refused in (
        lambda: ask(spark, target, "SELECT 1"),
        lambda: apply(spark, landing, target + "2", catalog="spark_catalog.x"),
    ):
        try:
            refused()
        except ConfigError as error:
            print(error)
"""


def test_a_session_of_spark_connect(tmp_path: Path) -> None:
    """Tables, their past and their changes; SQL by `ask` and a catalog say what to do instead."""
    source = History(tmp_path / "landing", 3, with_schema_changes=False)
    source.run(4)
    words = [str(tmp_path / "landing"), str(tmp_path / "target")]
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT), *words],
        env={
            **os.environ, "JAVA_HOME": str(provide_java(tmp_path)), "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-4000:]
    counts, *refused = found.stdout.splitlines()
    rows, past, changelog, changes, streamed, tables = map(int, counts.split())
    states = source.states["bag"]
    assert (rows, tables) == (len(states[max(states)].rows), len(source.tables))
    assert past >= rows
    assert changelog == changes <= streamed
    assert len(refused) == 2
    assert all("in a session of Spark Connect: use one of Spark itself" in text for text in refused)
