"""Tables of Iceberg in Hive's metastore; heavy, so `make test-stores` runs it with Spark 4.0."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.lakes import last_state, live, rows_of, small, small_spark
from kit.metastore import Metastore
from pyspark.sql import SparkSession

from gaussdecode.errors import LandingError
from gaussdecode.spark.apply import apply
from gaussdecode.spark.formats import ICEBERG
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


def test_tables_in_hive(spark: SparkSession, tmp_path: Path) -> None:
    """Two applies give the source's rows by the names, to a session too that has seen none of it."""
    source = small(tmp_path)
    for _ in range(2):
        apply(spark, tmp_path / "landing", tmp_path / "target", format=ICEBERG, catalog="lake")
        reader = spark.newSession()
        for table in source.tables:
            state = last_state(source, table)
            assert state is not None
            assert rows_of(reader.table(f"lake.public.{table.name}"), state) == state.rows
            found = current(reader, tmp_path / "target", f"public.{table.name}")
            assert rows_of(found, state) == state.rows
        live(source)


def test_tables_of_others(spark: SparkSession, tmp_path: Path) -> None:
    """A table of Hive's own is refused, and stays."""
    small(tmp_path)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS spark_catalog.shop")
    spark.sql("DROP TABLE IF EXISTS spark_catalog.shop.public_bag")
    spark.sql("CREATE TABLE spark_catalog.shop.public_bag (a int) USING hive")
    pattern = "lake.shop.{schema}_{table}"
    with pytest.raises(LandingError, match=r"`public_bag` was not changed: .*NoSuchIcebergTable"):
        apply(spark, tmp_path / "landing", tmp_path / "target", format=ICEBERG, catalog=pattern)
    assert spark.table("spark_catalog.shop.public_bag").columns == ["a"]
