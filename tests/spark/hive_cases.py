"""Tables of Iceberg in Hive's metastore, read by Spark; heavy, so `make test-stores` runs it with Spark 4.0."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.history import History
from kit.icebergcatalog import configure
from kit.lakes import last_state, live, rows_of, small, small_spark
from kit.metastore import Metastore
from pyspark.sql import SparkSession

from gaussdecode.errors import ConfigError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.maintain.upkeep import vacuum
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.formats import ICEBERG

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """The server."""
    with Metastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@pytest.fixture(scope="module")
def spark(metastore: Metastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark whose own catalog is Hive's metastore, which its catalog of Iceberg ``lake`` is in too."""
    scratch = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": metastore.url,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hive",
        "spark.sql.catalog.lake.uri": metastore.url,
        "spark.sql.catalog.lake.warehouse": str(scratch),
        "spark.sql.catalog.lake.cache-enabled": "false",
    }
    with small_spark(scratch, conf) as session:
        yield session


@pytest.fixture(autouse=True)
def _catalog(metastore: Metastore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog ``lake`` for pyiceberg, of a server of Hive 2, which knows no timestamp with a zone."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "hive")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__HIVE__HIVE2_COMPATIBLE", "true")
    configure(monkeypatch, metastore.url)


def apply(root: Path, catalog: str) -> None:
    """Bring the target to the end of the log, without Spark."""
    made = Options(format=ICEBERG, catalog=catalog, history=True)
    apply_with(LocalEngine(), root / "landing", root / "target", made)


def check(spark: SparkSession, source: History) -> None:
    """Every table is the source's, for a session that has seen none of it."""
    reader = spark.newSession()
    for table in source.tables:
        state = last_state(source, table)
        assert state is not None
        assert rows_of(reader.table(f"lake.public.{table.name}"), state) == state.rows


def test_tables_in_hive(spark: SparkSession, tmp_path: Path) -> None:
    """Applies give the source's rows by the names, and what was before by its tag until vacuum removes it."""
    source = small(tmp_path)
    before = {}
    for _ in range(3):
        before = {table.name: last_state(source, table) for table in source.tables}
        apply(tmp_path, "lake")
        check(spark, source)
        live(source)
    apply(tmp_path, "lake")
    check(spark, source)
    for name, state in before.items():
        assert state is not None
        rows = spark.sql(f"SELECT * FROM lake.public.{name} VERSION AS OF 'v2'")
        assert rows_of(rows, state) == state.rows
        assert spark.table(f"lake.public.{name}_history").count() >= len(state.rows)
    vacuum(tmp_path / "target", older_than_seconds=0)
    check(spark, source)
    for table in source.tables:
        refs = spark.sql(f"SELECT name FROM lake.public.{table.name}.refs").collect()
        assert sorted(row["name"] for row in refs) == ["main", "v3"]


def test_tables_of_others(spark: SparkSession, tmp_path: Path) -> None:
    """A table of Hive's own is refused, and stays; once it is gone the next apply goes through."""
    small(tmp_path)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS spark_catalog.shop")
    spark.sql("DROP TABLE IF EXISTS spark_catalog.shop.public_bag")
    spark.sql("CREATE TABLE spark_catalog.shop.public_bag (a int) USING hive")
    said = r"^lake\.shop\.public_bag is there already, and is another table \(none of Iceberg"
    with pytest.raises(ConfigError, match=said):
        apply(tmp_path, "lake.shop")
    assert spark.table("spark_catalog.shop.public_bag").columns == ["a"]
    spark.sql("DROP TABLE spark_catalog.shop.public_bag")
    apply(tmp_path, "lake.shop")
    assert "x" in spark.table("lake.shop.public_bag").columns
