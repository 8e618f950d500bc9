"""Delta Lake and Iceberg: with their jars in a process of its own, and without them here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.history import History
from kit.jars import SPARK_40
from pyspark.sql import SparkSession

from gaussdecode.errors import EX_CONFIG, ConfigError
from gaussdecode.spark.apply import Options, apply, apply_with
from gaussdecode.spark.engine import LocalEngine
from gaussdecode.spark.formats import DELTA, FORMATS, ICEBERG, PARQUET, coordinate

CASES = Path(__file__).with_name("lake_cases.py")
LAKES = [kind for kind in FORMATS if kind != PARQUET]


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_with_jars() -> None:
    """Every test of `lake_cases` passes with Spark 4.0 and the jars."""
    # Spark 4.0 does not close sockets that its pipes are read to the end of.
    words = ["-q", "-W", "ignore", "-p", "no:unraisableexception", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(CASES)],
        env={**os.environ, "PYTHONPATH": str(SPARK_40)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


@pytest.mark.spark
@pytest.mark.parametrize("kind", LAKES)
def test_missing_jar_is_named(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    """Without the jar the coordinate to add is said, and nothing is made."""
    History(tmp_path / "landing", 1).run(1)
    with pytest.raises(ConfigError, match=coordinate(kind, spark.version)):
        apply(spark, tmp_path / "landing", tmp_path / "target", format=kind)
    assert not (tmp_path / "target").exists()


def test_coordinates_by_version_of_spark() -> None:
    """The jars that are tested, and what their makers call those for other versions."""
    assert coordinate(DELTA, "4.0.2") == "io.delta:delta-spark_2.13:4.0.0"
    assert coordinate(DELTA, "4.1.0").startswith("io.delta:delta-spark_4.1_2.13:")
    assert coordinate(ICEBERG, "4.0.2").endswith(":iceberg-spark-runtime-4.0_2.13:1.10.0")


@pytest.mark.parametrize("kind", LAKES)
def test_they_need_spark(kind: str, tmp_path: Path) -> None:
    """Without Spark they are refused; so is a format that is none."""
    History(tmp_path / "landing", 1).run(1)
    with pytest.raises(ConfigError, match="need Spark"):
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", Options(format=kind))
    with pytest.raises(ConfigError, match="not one of parquet, delta, iceberg"):
        apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "x", Options(format="orc"))
    assert ConfigError.exit_status == EX_CONFIG
