"""Register a target's Delta tables under names in a catalog of the Spark session.

Given a session with Delta Lake's jar. The tables stay below the target; the catalog holds their
location. A name is created before the database version that has the table, so that after a kill the
next apply creates the missing ones.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gaussdecode.errors import CatalogError, ConfigError
from gaussdecode.spark.catalogs.positions import Published
from gaussdecode.spark.log.place import Place
from gaussdecode.spark.log.sql_text import literal, quoted
from gaussdecode.spark.target.formats import DELTA, coordinate, settings
from gaussdecode.spark.target.session import beside, check_classic

_SCHEMES: Final = {"s3": "s3a", "az": "abfs"}
"""Hadoop's names of URL schemes."""
_CLASS: Final = "org.apache.spark.sql.delta.DeltaLog"


def check_session(spark: SparkSession, catalog: str) -> None:
    """Check that a session can register Delta tables in a catalog.

    Args:
        spark: a running session.
        catalog: name of the catalog.

    Raises:
        ConfigError: the session lacks the jars, a setting or the catalog.
    """
    check_classic(spark, "Giving names in a catalog")
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way to it; Any: it has no types
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_CLASS)
    except Py4JJavaError:
        needed = coordinate(DELTA, spark.version)
        raise ConfigError(
            f"this Spark {spark.version} has no jars for {DELTA}: add "
            f"--conf spark.jars.packages={needed}, or start Spark with --packages {needed}"
        ) from None
    for name, value in settings(DELTA).items():
        if value not in (spark.conf.get(name, "") or "").split(","):
            raise ConfigError(f"this Spark session was started without {name}={value}")
    try:
        beside(spark).catalog.setCurrentCatalog(catalog)
    except (PySparkException, Py4JJavaError) as error:
        raise ConfigError(
            f"this Spark session cannot use catalog {catalog} ({why(error)}): "
            f"configure it with --conf spark.sql.catalog.{catalog}=... and its settings"
        ) from None


def register(spark: SparkSession, of: Iterable[Published]) -> None:
    """Register tables that have no name yet.

    Raises:
        ConfigError: a name belongs to another table.
        CatalogError: the catalog failed.
    """
    for one in of:
        text, location = ".".join(map(quoted, one.name)), location_of(one.place)
        try:
            if spark.catalog.tableExists(text):
                _check_location(spark, text, location)
                continue
            space = ".".join(map(quoted, one.name[:-1]))
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
            spark.sql(f"CREATE TABLE {text} USING DELTA LOCATION {literal(location)}")
        except (PySparkException, Py4JJavaError) as error:
            raise CatalogError(
                f"the catalog did not take the name {text} ({why(error)}); the table itself is written, in "
                f"{one.place}. Apply again when the catalog can"
            ) from None


def why(error: PySparkException | Py4JJavaError) -> str:
    """Name the kind of an error; its text may hold values."""
    if isinstance(error, PySparkException):
        return error.getCondition() or type(error).__name__
    return str(error.java_exception.getClass().getName())


def location_of(place: Place) -> str:
    """Location of a place for Spark."""
    if isinstance(place, Path):
        return f"file://{quote(str(place))}"
    scheme, _, rest = str(place).partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"


def _check_location(spark: SparkSession, name: str, location: str) -> None:
    """Check that a name belongs to our table.

    Raises:
        ConfigError: it belongs to another table.
    """
    found = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]
    if _plain(found) != _plain(location):
        raise ConfigError(
            f"{name} is there already, and is another table ({found}): begin a new target with another --catalog, "
            "or drop that name"
        )


def _plain(location: str) -> str:
    scheme, _, path = location.partition(":")
    return f"{scheme}:/{path.lstrip('/')}" if scheme == "file" else location
