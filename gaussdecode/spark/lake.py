"""The tables of a target that Delta Lake or Iceberg keeps: replaced or merged, the position in the same commit.

Given a session that has the jars. A commit of either format is atomic; the number of the
commit entry it brings the table to goes with it: in Delta as the table's transaction id
(which also makes it skip what it has), in Iceberg in the summary of the snapshot. Columns
are ours, those of the table, and ``gd_key``: the bytes that tell rows apart, see `keys`.
"""

import zlib
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gaussdecode.errors import ConfigError
from gaussdecode.spark.catalog import name_of, positions_name
from gaussdecode.spark.deltatable import DeltaTable
from gaussdecode.spark.formats import DELTA, ICEBERG, coordinate, settings
from gaussdecode.spark.icebergtable import IcebergTable
from gaussdecode.spark.laketable import LakeTable, jvm_of, why
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

    def table(self, directory: str, beside: str = "") -> LakeTable:
        """One of them, there or not.

        Args:
            directory: of the table.
            beside: which table of it, such as ``history``; none for its rows.
        """
        pattern, owner = self._store.catalog, self._store.landing_id
        is_delta = self._store.format == DELTA
        if pattern:
            name = name_of(pattern, directory)
            if beside:
                name = (*name[:-1], f"{name[-1]}_{beside}")
            kind = DeltaTable if is_delta else IcebergTable
            return kind(self._spark, name, owner)
        root = self._store.root / "lake"
        assert isinstance(root, Path)  # at a URL there is a catalog
        directory += f".{beside}" if beside else ""
        if is_delta:
            return DeltaTable(self._spark, root / directory, owner)
        name = (_own_catalog(self._spark, root), "tables", directory)
        return IcebergTable(self._spark, name, None)

    def positions(self) -> LakeTable:
        """The table of positions, in the catalog; see `lakepositions`."""
        name, writer = positions_name(self._store.catalog), self._store.landing_id
        if self._store.format == DELTA:
            return DeltaTable(self._spark, name, writer)
        return IcebergTable(self._spark, name, None, writer)


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
