"""Formats of a target's tables, and what a session of Spark needs for each.

Plain Parquet needs nothing. Delta Lake and Iceberg need their jar, named here as a Maven
coordinate; the versions are those that the tests run with. Needs no pyspark.
"""

from collections.abc import Mapping
from typing import Final

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMATS: Final = (DELTA, ICEBERG)

DELTA_VERSION: Final = "4.0.0"
ICEBERG_VERSION: Final = "1.10.0"

_SETTINGS: Final[dict[str, dict[str, str]]] = {
    DELTA: {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
}


def settings(kept_as: str) -> Mapping[str, str]:
    """Settings that a session has to be started with, beside the jar."""
    return _SETTINGS.get(kept_as, {})


def coordinate(kept_as: str, spark_version: str) -> str:
    """Maven coordinate of the jar for a version of Spark."""
    minor = ".".join(spark_version.split(".")[:2])
    if kept_as == ICEBERG:
        return f"org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:{ICEBERG_VERSION}"
    if minor == "4.0":
        return f"io.delta:delta-spark_2.13:{DELTA_VERSION}"
    return f"io.delta:delta-spark_{minor}_2.13:{minor}.0"
