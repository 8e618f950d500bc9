"""Tables of Delta Lake and Iceberg in Hive's metastore; heavy, so `make test-stores` runs it with Spark 4.0."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.lakes import last_state, live, rows_of, small, small_spark
from kit.metastore import Metastore
from pyspark.sql import SparkSession

from gaussdecode.errors import LandingError
from gaussdecode.spark.apply import apply
from gaussdecode.spark.formats import DELTA, ICEBERG
from gaussdecode.spark.query import current

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark whose own catalog is Hive's metastore, which a catalog of Iceberg stands in too."""
    scratch, served = tmp_path_factory.mktemp("spark"), tmp_path_factory.mktemp("metastore")
    with Metastore(served) as metastore:
        conf = {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore.url,
            # Of one writer: the server's locks stand still on Derby.
            "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hive",
            "spark.sql.catalog.lake.uri": metastore.url,
            "spark.sql.catalog.lake.warehouse": str(scratch),
        }
        with small_spark(scratch, conf) as session:
            yield session


@pytest.mark.parametrize(
    ("kind", "catalog", "space"),
    [(DELTA, "spark_catalog.cdc", "spark_catalog.cdc.public_"), (ICEBERG, "lake", "lake.public.")],
)
def test_tables_in_hive(
    kind: str, catalog: str, space: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Two applies give the source's rows by the names, to a session too that has seen none of it."""
    source = small(tmp_path)
    for _ in range(2):
        apply(spark, tmp_path / "landing", tmp_path / "target", format=kind, catalog=catalog)
        reader = spark.newSession()
        for table in source.tables:
            state = last_state(source, table)
            assert state is not None
            assert rows_of(reader.table(f"{space}{table.name}"), state) == state.rows
            found = current(reader, tmp_path / "target", f"public.{table.name}")
            assert rows_of(found, state) == state.rows
        live(source)


@pytest.mark.parametrize(
    ("kind", "catalog", "why"),
    [
        (DELTA, "spark_catalog.shop", "was not made by this target"),
        (ICEBERG, "lake.shop.{schema}_{table}", "was not changed: .*NoSuchIcebergTable"),
    ],
)
def test_tables_of_others(
    kind: str, catalog: str, why: str, spark: SparkSession, tmp_path: Path
) -> None:
    """A table of Hive's own is refused, and stays."""
    small(tmp_path)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS spark_catalog.shop")
    spark.sql("DROP TABLE IF EXISTS spark_catalog.shop.public_bag")
    spark.sql("CREATE TABLE spark_catalog.shop.public_bag (a int) USING hive")
    with pytest.raises(LandingError, match=f"`public_bag` {why}"):
        apply(spark, tmp_path / "landing", tmp_path / "target", format=kind, catalog=catalog)
    assert spark.table("spark_catalog.shop.public_bag").columns == ["a"]
