"""The tables of a target that Iceberg keeps: replaced or merged, the position in the same commit.

Given a session that has the jar. A commit is atomic, and the number of the commit entry it brings the table to
goes with it. Columns are ours, those of the table, and ``gd_key``: the bytes that tell rows apart, see `keys`.
"""

import zlib
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gaussdecode.errors import ConfigError
from gaussdecode.spark.catalog import name_of, positions_name
from gaussdecode.spark.formats import DELTA, ICEBERG, coordinate, settings
from gaussdecode.spark.icebergtable import IcebergTable, jvm_of, why
from gaussdecode.spark.session import beside
from gaussdecode.spark.store import Target

_CLASSES: Final = {
    DELTA: "org.apache.spark.sql.delta.DeltaLog",
    ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
}


def check_session(spark: SparkSession, kept_as: str, catalog: str = "") -> None:
    """Look whether a session can keep tables so.

    Args:
        spark: running.
        kept_as: the format.
        catalog: pattern of names; empty for none.

    Raises:
        ConfigError: it lacks the jars, a setting or the catalog.
    """
    loader = jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_CLASSES[kept_as])
    except Py4JJavaError:
        needed = coordinate(kept_as, spark.version)
        raise ConfigError(
            f"this Spark {spark.version} has no jars for {kept_as}: add "
            f"--conf spark.jars.packages={needed}, or start Spark with --packages {needed}"
        ) from None
    for name, value in settings(kept_as).items():
        if value not in (spark.conf.get(name, "") or "").split(","):
            raise ConfigError(f"this Spark session was started without {name}={value}")
    if catalog:
        _check_catalog(spark, catalog.partition(".")[0])


def _check_catalog(spark: SparkSession, name: str) -> None:
    try:
        beside(spark).catalog.setCurrentCatalog(name)
    except (PySparkException, Py4JJavaError) as error:
        raise ConfigError(
            f"this Spark session cannot use catalog {name} ({why(error)}): "
            f"configure it with --conf spark.sql.catalog.{name}=... and its settings"
        ) from None


def open_lake(spark: SparkSession, store: Target) -> "Lake":
    """Open the tables of a target.

    Raises:
        ConfigError: see `check_session`.
    """
    check_session(spark, store.format, store.catalog)
    return Lake(spark, store)


class Lake:
    """The tables of a target."""

    def __init__(self, spark: SparkSession, store: Target) -> None:
        self._spark = spark
        self._store = store

    def table(self, directory: str, beside: str = "") -> IcebergTable:
        """One of them, there or not.

        Args:
            directory: of the table.
            beside: which table of it, such as ``history``; none for its rows.
        """
        if pattern := self._store.catalog:
            *space, name = name_of(pattern, directory)
            name += f"_{beside}" if beside else ""
            return IcebergTable(self._spark, (*space, name), self._store.landing_id)
        root = self._store.root / "lake"
        assert isinstance(root, Path)  # at a URL there is a catalog
        directory += f".{beside}" if beside else ""
        return IcebergTable(
            self._spark, (_own_catalog(self._spark, root), "tables", directory), None
        )

    def positions(self) -> IcebergTable:
        """The table of positions, in the catalog; see `lakepositions`."""
        name = positions_name(self._store.catalog)
        return IcebergTable(self._spark, name, None, self._store.landing_id)


def _own_catalog(spark: SparkSession, root: Path) -> str:
    """Make a directory a catalog of the session; give its name."""
    catalog = f"gd_{zlib.crc32(str(root).encode()):08x}"
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": str(root),
        ".cache-enabled": "false",
    }.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}{name}", value)
    return catalog
