"""Spark over a landing that a daemon writes to, dies over, and is started again."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database
from kit.workload import prepare
from pyspark.sql import DataFrame, SparkSession

from gaussdecode.demo.landed import read_tables
from gaussdecode.demo.proof import prove, spark_session

pytestmark = [pytest.mark.integration, pytest.mark.spark]
MakeDaemon = Callable[..., Daemon]
_TABLE = "kit.toast_full"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark."""
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


def _read_stream(spark: SparkSession, root: Path, checkpoint: Path) -> list[tuple[int, int]]:
    """Take what is new since the last call from a plain stream over one table's directory."""
    directory = root / "data" / _TABLE
    schema = spark.read.parquet(str(directory)).schema
    rows: list[tuple[int, int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        rows.extend((row.gd_lsn, row.gd_seq) for row in batch.select("gd_lsn", "gd_seq").collect())

    stream = spark.readStream.schema(schema).parquet(str(directory))
    query = (
        stream.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows


@pytest.mark.timeout(400)
def test_stream_over_kills(
    database_15: Database, make_daemon: MakeDaemon, spark: SparkSession, tmp_path: Path
) -> None:
    """A plain stream and a batch see each row exactly once, though the daemon was killed."""
    workload = prepare(database_15, 50)
    daemon = make_daemon(database_15)
    seen: list[tuple[int, int]] = []
    for _ in range(3):
        daemon.start()
        workload.run(60)
        daemon.catch_up()
        workload.run(10)
        daemon.kill9()
        seen += _read_stream(spark, daemon.root, tmp_path / "checkpoint")
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == 0
    seen += _read_stream(spark, daemon.root, tmp_path / "checkpoint")
    landed = oracle.check(daemon.root, database_15)
    expected = Counter(
        (change.order[1], change.order[2])
        for change in landed.changes
        if change.schema.table == ("kit", "toast_full")
    )
    assert Counter(seen) == expected
    batch = spark.read.parquet(str(daemon.root / "data" / _TABLE))
    assert Counter((row.gd_lsn, row.gd_seq) for row in batch.collect()) == expected


@pytest.mark.timeout(400)
def test_spark_reads_every_file(
    database_15: Database, make_daemon: MakeDaemon, spark: SparkSession
) -> None:
    """Spark reads each landed file by itself, all columns, as many rows as the log says."""
    workload = prepare(database_15, 51)
    with make_daemon(database_15) as daemon:
        workload.run(120)
        daemon.catch_up()
        assert daemon.stop() == 0
    by_schema: dict[tuple[str, str], list[landing.Json]] = {}
    for file in landing.files(daemon.entries()):
        by_schema.setdefault((file["table"], file["schema_id"]), []).append(file)
    for files in by_schema.values():
        paths = [str(daemon.root / file["path"]) for file in files]
        frame = spark.read.parquet(*paths)
        assert len(frame.toArrow()) == sum(file["rows"] for file in files)


@pytest.mark.timeout(400)
def test_replay_in_spark(
    database_15: Database, make_daemon: MakeDaemon, spark: SparkSession, tmp_path: Path
) -> None:
    """The demo's proof finds the tables equal, and finds a row that is missing."""
    workload = prepare(database_15, 52)
    with make_daemon(database_15) as daemon:
        workload.run(120)
        daemon.catch_up()
        assert daemon.stop() == 0
    names = {"kit.pair_key", "kit.index_key", "kit.bag_full", "kit.toast_full", "kit.child"}
    tables = [table for table in read_tables(daemon.root) if table.title in names]
    for table in tables:
        assert prove(spark, database_15.dsn, table, tmp_path).is_equal, table.title
    database_15.execute(
        "DELETE FROM kit.pair_key WHERE ctid = (SELECT min(ctid) FROM kit.pair_key)"
    )
    (changed,) = [table for table in tables if table.title == "kit.pair_key"]
    assert prove(spark, database_15.dsn, changed, tmp_path).surplus == 1
