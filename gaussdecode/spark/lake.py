"""Tables of Delta Lake and of Iceberg: replaced or merged, the position in the same commit.

Given a session that has the jars. A commit of either format is atomic; the number of the
commit entry it brings the table to goes with it: in Delta as the table's transaction id
(which also makes it skip what it has), in Iceberg in the summary of the snapshot. Columns
are ours, those of the table, and ``gd_key``: the bytes that tell rows apart, see `keys`.
"""

import contextlib
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark import java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.events import ACTION, PUT, REMOVE
from gaussdecode.spark.formats import DELTA, ICEBERG, coordinate, settings
from gaussdecode.spark.frames import quoted
from gaussdecode.spark.store import Target

_CLASSES: Final = {
    DELTA: "org.apache.spark.sql.delta.DeltaLog",
    ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
}
_POSITION: Final = "gaussdecode.n"
_NOT_IN_DELTA: Final = frozenset(" ,;{}()\n\t=")
"""Characters that a column's name may have only where Delta maps names."""


class LakeTable(Protocol):
    """One table."""

    def is_there(self) -> bool:
        """Whether it was made."""

    def position(self) -> int | None:
        """Number of the entry it is at; None when there is no table."""

    def version(self) -> int:
        """What its format calls its newest version."""

    def read(self, version: int | None = None) -> DataFrame:
        """Rows of a version, of the newest by default."""

    def replace(self, rows: DataFrame, n: int) -> None:
        """Put rows and their columns in place of all there is, or make the table."""

    def add_columns(self, fields: Sequence[T.StructField]) -> None:
        """Add columns that are not there yet; they are NULL in the rows there are."""

    def merge(self, changes: DataFrame, on: Sequence[str], n: int) -> None:
        """Apply changes, at most one per row; rows are the same where `on` is."""


def check_session(spark: SparkSession, kept_as: str) -> None:
    """Look whether a session can keep tables so.

    Raises:
        ConfigError: it lacks the jars or a setting.
    """
    loader = _jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
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


def open_lake(spark: SparkSession, store: Target) -> "Lake":
    """Open the tables of a target.

    Raises:
        ConfigError: see `check_session`.
    """
    check_session(spark, store.format)
    if store.format == DELTA:  # what others committed since is to be seen
        _jvm(spark).org.apache.spark.sql.delta.DeltaLog.clearCache()
    return Lake(spark, store)


class Lake:
    """The tables of a target."""

    def __init__(self, spark: SparkSession, store: Target) -> None:
        self._spark = spark
        self._store = store

    def table(self, directory: str) -> LakeTable:
        """One of them, there or not."""
        root = self._store.root / "lake"
        if self._store.format == DELTA:
            return DeltaTable(self._spark, root / directory, self._store.landing_id)
        return IcebergTable(self._spark, root, directory)


class DeltaTable:
    """A table of Delta Lake in a directory."""

    def __init__(self, spark: SparkSession, path: Path, owner: str) -> None:
        self._spark = spark
        self._path = path
        self._app = f"gaussdecode-{owner}"
        self._name = f"delta.{quoted(str(path))}"

    def is_there(self) -> bool:
        """See `LakeTable`."""
        return (self._path / "_delta_log").is_dir()

    def _snapshot(self) -> Any:  # Any: an object of the JVM
        log = _jvm(self._spark).org.apache.spark.sql.delta.DeltaLog
        return log.forTable(_session(self._spark), str(self._path)).unsafeVolatileSnapshot()

    def position(self) -> int | None:
        """See `LakeTable`."""
        if not self.is_there():
            return None
        found = self._snapshot().transactions().get(self._app)
        if not found.isDefined():
            raise LandingError(f"{self._path} was not made by this target, or is damaged")
        return int(found.get())

    def version(self) -> int:
        """See `LakeTable`."""
        return int(self._snapshot().version())

    def read(self, version: int | None = None) -> DataFrame:
        """See `LakeTable`."""
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(str(self._path))

    def replace(self, rows: DataFrame, n: int) -> None:
        """See `LakeTable`."""
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer = writer.option("txnAppId", self._app).option("txnVersion", n)
        if self.is_there():
            self._map_names(rows.columns)
        else:
            writer = writer.option("delta.feature.timestampNtz", "supported")
            if _is_odd(rows.columns):
                writer = writer.option("delta.columnMapping.mode", "name")
        with _named(self._name):
            writer.save(str(self._path))

    def _map_names(self, names: Sequence[str]) -> None:
        """Let Delta map names before one comes that it would refuse."""
        if _is_odd(names) and not _is_odd(self.read().columns):
            mapped = "('delta.columnMapping.mode' = 'name')"
            self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES {mapped}")

    def add_columns(self, fields: Sequence[T.StructField]) -> None:
        """See `LakeTable`."""
        held = self.read().columns
        self._map_names([*held, *(field.name for field in fields)])
        _add_columns(self._spark, self._name, held, fields)

    def merge(self, changes: DataFrame, on: Sequence[str], n: int) -> None:
        """See `LakeTable`."""
        conf = {
            "spark.databricks.delta.write.txnAppId": self._app,
            "spark.databricks.delta.write.txnVersion": str(n),
        }
        with configured(self._spark, conf), _merge_text(self._name, changes, on) as text:
            with _named(self._name):
                self._spark.sql(text).collect()


class IcebergTable:
    """A table of Iceberg in a catalogue that is a directory."""

    def __init__(self, spark: SparkSession, root: Path, directory: str) -> None:
        self._spark = spark
        catalog = f"gd_{zlib.crc32(str(root).encode()):08x}"
        for name, value in {
            "": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop",
            ".warehouse": str(root), ".cache-enabled": "false",
        }.items():  # fmt: skip
            spark.conf.set(f"spark.sql.catalog.{catalog}{name}", value)
        self._name = f"{catalog}.tables.{quoted(directory)}"
        self._path = root / "tables" / directory

    def is_there(self) -> bool:
        """See `LakeTable`."""
        return self._spark.catalog.tableExists(self._name)

    def _table(self) -> Any:  # Any: an object of the JVM
        spark3 = _jvm(self._spark).org.apache.iceberg.spark.Spark3Util
        return spark3.loadIcebergTable(_session(self._spark), self._name)

    def position(self) -> int | None:
        """See `LakeTable`: the newest snapshot that has one, or what was noted last."""
        if not self.is_there():
            return None
        table = self._table()
        noted = table.properties().get(_POSITION)
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            found = snapshot.summary().get(_POSITION)
            if found is not None:
                return max(int(found), int(noted or -1))
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        if noted is None:
            raise LandingError(f"{self._path} was not made by this target, or is damaged")
        return int(noted)

    def version(self) -> int:
        """See `LakeTable`."""
        return int(self._table().currentSnapshot().snapshotId())

    def read(self, version: int | None = None) -> DataFrame:
        """See `LakeTable`."""
        at = "" if version is None else f" VERSION AS OF {version}"
        return self._spark.sql(f"SELECT * FROM {self._name}{at}")  # noqa: S608 - our own names

    def replace(self, rows: DataFrame, n: int) -> None:
        """See `LakeTable`."""
        with _named(self._name):
            writer = rows.writeTo(self._name).using("iceberg")
            writer.option(f"snapshot-property.{_POSITION}", str(n)).createOrReplace()
        self._note(n)

    def add_columns(self, fields: Sequence[T.StructField]) -> None:
        """See `LakeTable`."""
        _add_columns(self._spark, self._name, self.read().columns, fields)

    def merge(self, changes: DataFrame, on: Sequence[str], n: int) -> None:
        """See `LakeTable`."""
        with _merge_text(self._name, changes, on) as text, _named(self._name):
            _with_summary(self._spark, {_POSITION: str(n)}, text)
        self._note(n)

    def _note(self, n: int) -> None:
        """Keep the position where it outlives the snapshot."""
        self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ('{_POSITION}' = '{n}')")


class _Statement:
    """SQL that Iceberg runs with properties for the snapshot it makes."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        self._spark = spark
        self._text = text
        self.error: Exception | None = None

    def call(self) -> None:
        """Run it; called by the JVM, in this thread."""
        try:
            self._spark.sql(self._text).collect()
        except Exception as error:  # noqa: BLE001 - an error must not cross the JVM
            self.error = error

    class Java:
        """What the JVM takes it for."""

        implements: Final = ["java.util.concurrent.Callable"]


def _with_summary(spark: SparkSession, summary: Mapping[str, str], text: str) -> None:
    gateway: Any = java_gateway  # Any: it has no types
    gateway.ensure_callback_server_started(spark.sparkContext._gateway)  # noqa: SLF001 - as PySpark
    jvm, statement = _jvm(spark), _Statement(spark, text)
    properties = jvm.java.util.HashMap()
    for name, value in summary.items():
        properties.put(name, value)
    error = jvm.java.lang.Class.forName("java.lang.RuntimeException")
    jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(properties, statement, error)
    if statement.error is not None:
        raise statement.error


@contextlib.contextmanager
def _merge_text(name: str, changes: DataFrame, on: Sequence[str]) -> Iterator[str]:
    """Give the MERGE, with its source as a view."""
    view = f"gd_changes_{secrets.token_hex(6)}"
    columns = [quoted(column) for column in changes.columns if column != ACTION]
    matched = " AND ".join(f"t.{column} = s.{column}" for column in on)
    updates = ", ".join(f"t.{column} = s.{column}" for column in columns)
    changes.createOrReplaceTempView(view)
    try:
        yield (
            f"MERGE INTO {name} AS t USING {view} AS s ON {matched} "  # noqa: S608
            f"WHEN MATCHED AND s.{ACTION} = {REMOVE} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {updates} "
            f"WHEN NOT MATCHED AND s.{ACTION} = {PUT} THEN INSERT ({', '.join(columns)}) "
            f"VALUES ({', '.join(f's.{column}' for column in columns)})"
        )
    finally:
        changes.sparkSession.catalog.dropTempView(view)


def _add_columns(
    spark: SparkSession, name: str, held: Sequence[str], fields: Sequence[T.StructField]
) -> None:
    new = [
        f"{quoted(field.name)} {field.dataType.simpleString()}"
        for field in fields
        if field.name not in held
    ]
    if new:
        with _named(name):
            spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(new)})")


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Say which table could not be written, without what was in its rows.

    Raises:
        LandingError: the format refused the commit; another writer may have been quicker.
    """
    try:
        yield
    except PySparkException as error:
        why = error.getCondition() or type(error).__name__
    except Py4JJavaError as error:
        why = str(error.java_exception.getClass().getName())
    else:
        return
    raise LandingError(f"{name} was not changed: {why}; was another writer quicker? run it again")


@contextlib.contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _is_odd(names: Sequence[str]) -> bool:
    return any(_NOT_IN_DELTA & set(name) for name in names)


def _jvm(spark: SparkSession) -> Any:  # Any: py4j's view of the JVM
    return spark._jvm  # noqa: SLF001 - there is no other way to it


def _session(spark: SparkSession) -> Any:  # Any: an object of the JVM
    return spark._jsparkSession  # noqa: SLF001 - there is no other way to it
