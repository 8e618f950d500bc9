"""Names of a target's Delta tables in a catalog of the session.

Given a session that has Delta Lake's jar. The tables stay below the target; the catalog knows where.
A name is made before the version of the database that has the table, so that after a kill the next
apply makes those that are missing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.catalog import Name, name_of, positions_name
from gaussdecode.spark.icebergtable import why
from gaussdecode.spark.place import Place
from gaussdecode.spark.positions import POSITIONS
from gaussdecode.spark.sqltext import literal, quoted
from gaussdecode.spark.statefile import CURRENT
from gaussdecode.spark.store import DatabaseVersion, Target

_SCHEMES: Final = {"s3": "s3a", "az": "abfs"}
"""What Hadoop calls stores."""


def register(
    spark: SparkSession, store: Target, version: DatabaseVersion, before: DatabaseVersion | None
) -> None:
    """Give names to the tables that a version of the database has anew.

    Raises:
        ConfigError: a name belongs to another table.
        LandingError: the catalog failed.
    """
    known = {} if before is None else before.tables
    changed = [table for table, v in version.tables.items() if known.get(table) != v]
    for name, location in _wanted(store, changed, is_first=before is None):
        text = ".".join(map(quoted, name))
        try:
            if spark.catalog.tableExists(text):
                _check_location(spark, text, location)
                continue
            space = ".".join(map(quoted, name[:-1]))
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
            spark.sql(f"CREATE TABLE {text} USING DELTA LOCATION {literal(location)}")
        except (PySparkException, Py4JJavaError) as error:
            raise LandingError(
                f"{store.root}: the catalog did not take the name {text} ({why(error)}); the table itself is "
                "written. Apply again when the catalog can"
            ) from None


def _wanted(store: Target, tables: list[str], *, is_first: bool) -> Iterator[tuple[Name, str]]:
    if is_first:
        yield positions_name(store.catalog), location_of(store.root / POSITIONS)
    for table in tables:
        name = name_of(store.catalog, table)
        for folder in store.log(table).folders():
            beside = "" if folder == CURRENT else f"_{folder}"
            place = store.table_root(table) / folder
            yield (*name[:-1], name[-1] + beside), location_of(place)


def location_of(place: Place) -> str:
    """Where Spark finds a place."""
    if isinstance(place, Path):
        return f"file://{quote(str(place))}"
    scheme, _, rest = str(place).partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"


def _check_location(spark: SparkSession, name: str, location: str) -> None:
    """See that a name is of our table.

    Raises:
        ConfigError: it is of another one.
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
