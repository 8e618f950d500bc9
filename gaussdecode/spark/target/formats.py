"""List the formats of a target's tables, and the jars and settings that Spark needs for each.

Needs no pyspark. Delta Lake tables are written without a jar, by any Spark and without Spark. A jar is
needed to register them in a catalog of a session, or to read Iceberg tables in Spark. `PAIRS` lists the
jars that the tests use.
"""

from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import ConfigError

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMATS: Final = (DELTA, ICEBERG)

PAIRS: Final[Mapping[str, Mapping[str, str]]] = {
    "4.0": {
        DELTA: "io.delta:delta-spark_4.0_2.13:4.4.0",
        ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    },
    "4.1": {
        DELTA: "io.delta:delta-spark_4.1_2.13:4.4.0",
        ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
    "4.2": {DELTA: "io.delta:delta-spark_4.2_2.13:4.4.0"},
}
"""Maven coordinate of each format's jar, by Spark version."""

_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    DELTA: {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
}


def settings(kept_as: str) -> Mapping[str, str]:
    """Settings that a session must be started with, beside the jar."""
    return _SETTINGS.get(kept_as, {})


def coordinate(kept_as: str, spark_version: str) -> str:
    """Maven coordinate of the jar for a version of Spark.

    Raises:
        ConfigError: there is no jar for it; the text names the Spark versions that have one.
    """
    minor = ".".join(spark_version.split(".")[:2])
    found = PAIRS.get(minor, {}).get(kept_as)
    if found is None:
        known = [version for version, jars in PAIRS.items() if kept_as in jars]
        raise ConfigError(
            f"no jar of {kept_as} is known for Spark {spark_version}: use Spark {' or '.join(known)} (pip "
            f"install 'pyspark~={known[-1]}.0')"
        )
    return found
