"""Tables of Delta Lake and of Iceberg: replaced or merged, the position in the same commit.

Given a session that has the jars. A commit of either format is atomic; the number of the
commit entry it brings the table to goes with it: in Delta as the table's transaction id
(which also makes it skip what it has), in Iceberg in the summary of the snapshot. Columns
are ours, those of the table, and ``gd_key``: the bytes that tell rows apart, see `keys`.
"""

import contextlib
import dataclasses
import math
import secrets
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark import java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.catalog import Name, name_of
from gaussdecode.spark.events import ACTION, PUT, REMOVE
from gaussdecode.spark.formats import DELTA, ICEBERG, coordinate, settings
from gaussdecode.spark.frames import quoted
from gaussdecode.spark.schema import RAW, UNCHANGED
from gaussdecode.spark.session import beside, configured
from gaussdecode.spark.store import Target

_CLASSES: Final = {
    DELTA: "org.apache.spark.sql.delta.DeltaLog",
    ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
}
_POSITION: Final = "gaussdecode.n"
_OWNER: Final = "gaussdecode.landing"
_MERGE_ON_READ: Final = {
    "format-version": "2",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
}
"""Of new tables: an apply writes what changed, not the files that held it."""
_DELTA_HOURS: Final = 168
"""Delta Lake's own bound: readers and writers may need files for so long after they were taken away."""

_FEW_TASKS: Final = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "16"}
"""VACUUM lists files in so many tasks; 10,000 where nobody says less."""

_NOT_IN_DELTA: Final = frozenset(" ,;{}()\n\t=")
"""Characters that a column's name may have only where Delta maps names."""


@dataclasses.dataclass(frozen=True, slots=True)
class Merge:
    """Changes of a table.

    Attributes:
        rows: at most one per row of the table.
        on: rows are the same where these columns are.
        unsent: columns whose values a row that is there keeps, where ``gd_unchanged`` names them.
        bounds: least and greatest value of columns, in every row that `rows` is about.
    """

    rows: DataFrame
    on: Sequence[str]
    unsent: Collection[str] = frozenset()
    bounds: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)


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

    def merge(self, changes: Merge, n: int) -> None:
        """Apply changes."""

    def compact(self) -> None:
        """Write small files anew, without those of their rows that are gone."""

    def forget(self, before: float, keep: Collection[int]) -> None:
        """Remove versions from before a time in seconds since 1970, but those to keep and the newest."""


def check_session(spark: SparkSession, kept_as: str, catalog: str = "") -> None:
    """Look whether a session can keep tables so.

    Args:
        spark: running.
        kept_as: the format.
        catalog: pattern of names; empty for none.

    Raises:
        ConfigError: it lacks the jars, a setting or the catalog.
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
    if catalog:
        _check_catalog(spark, catalog.partition(".")[0])


def _check_catalog(spark: SparkSession, name: str) -> None:
    try:
        beside(spark).catalog.setCurrentCatalog(name)
    except (PySparkException, Py4JJavaError) as error:
        raise ConfigError(
            f"this Spark session cannot use catalog {name} ({_why(error)}): "
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


def _make_namespace(spark: SparkSession, name: Name) -> None:
    """Make what a table is to be in.

    Raises:
        ConfigError: the session may not.
    """
    space = ".".join(map(quoted, name[:-1]))
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
    except (PySparkException, Py4JJavaError) as error:
        raise ConfigError(
            f"namespace {space} cannot be made ({_why(error)}): make it yourself, "
            "or give another catalog or namespace"
        ) from None


class DeltaTable:
    """A table of Delta Lake, in a directory or by a name in a catalog.

    Args:
        spark: running.
        place: directory, or parts of the name.
        owner: id of the landing.
    """

    def __init__(self, spark: SparkSession, place: Path | Name, owner: str) -> None:
        self._spark = spark
        self._place = place
        self._app = f"gaussdecode-{owner}"
        parts = ("delta", str(place)) if isinstance(place, Path) else place
        self._name = ".".join(map(quoted, parts))

    def is_there(self) -> bool:
        """See `LakeTable`."""
        if isinstance(self._place, Path):
            return (self._place / "_delta_log").is_dir()
        return self._spark.catalog.tableExists(self._name)

    def _snapshot(self) -> Any:  # Any: an object of the JVM
        log = _jvm(self._spark).org.apache.spark.sql.delta.DeltaLog
        place = str(self._place)
        with _opened(self._name):
            if not isinstance(self._place, Path):
                place = self._spark.sql(f"DESCRIBE DETAIL {self._name}").collect()[0]["location"]
            found = log.forTableWithSnapshot(_session(self._spark), place)
        return found._2()  # noqa: SLF001 - a pair of Scala

    def position(self) -> int | None:
        """See `LakeTable`."""
        if not self.is_there():
            return None
        found = self._snapshot().transactions().get(self._app)
        if not found.isDefined():
            raise LandingError(f"{self._name} was not made by this target, or is damaged")
        return int(found.get())

    def version(self) -> int:
        """See `LakeTable`."""
        return int(self._snapshot().version())

    def read(self, version: int | None = None) -> DataFrame:
        """See `LakeTable`."""
        return _read(self._spark, self._name, version)

    def replace(self, rows: DataFrame, n: int) -> None:
        """See `LakeTable`."""
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer = writer.option("txnAppId", self._app).option("txnVersion", n)
        if self.is_there():
            self._map_names(rows.columns)
        else:
            writer = writer.option("delta.feature.timestampNtz", "supported")
            writer = writer.option("delta.enableDeletionVectors", "true")
            if _is_odd(rows.columns):
                writer = writer.option("delta.columnMapping.mode", "name")
        with _named(self._name):
            if isinstance(self._place, Path):
                writer.save(str(self._place))
            else:
                _make_namespace(self._spark, self._place)
                writer.saveAsTable(self._name)

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

    def merge(self, changes: Merge, n: int) -> None:
        """See `LakeTable`."""
        conf = {
            "spark.databricks.delta.write.txnAppId": self._app,
            "spark.databricks.delta.write.txnVersion": str(n),
        }
        with configured(self._spark, conf), _merge_text(self._name, changes) as text:
            with _named(self._name):
                self._spark.sql(text).collect()

    def compact(self) -> None:
        """See `LakeTable`."""
        with _named(self._name):
            self._spark.sql(f"OPTIMIZE {self._name}").collect()

    def forget(self, before: float, keep: Collection[int]) -> None:
        """See `LakeTable`: files that were taken away within a week stay, with all versions that need them."""
        del keep  # what they name is younger, or is the newest
        hours = max(_DELTA_HOURS, math.ceil((time.time() - before) / 3600))
        with configured(self._spark, _FEW_TASKS), _named(self._name):
            self._spark.sql(f"VACUUM {self._name} RETAIN {hours} HOURS").collect()


class IcebergTable:
    """A table of Iceberg.

    Args:
        spark: running.
        name: parts of its name; the first is the catalog.
        owner: id of the landing; None in a catalog that nobody else has.
    """

    def __init__(self, spark: SparkSession, name: Name, owner: str | None) -> None:
        self._spark = spark
        self._parts = name
        self._name = ".".join(map(quoted, name))
        self._owner = owner

    def is_there(self) -> bool:
        """See `LakeTable`."""
        return self._spark.catalog.tableExists(self._name)

    def _table(self) -> Any:  # Any: an object of the JVM
        spark3 = _jvm(self._spark).org.apache.iceberg.spark.Spark3Util
        with _opened(self._name):
            return spark3.loadIcebergTable(_session(self._spark), self._name)

    def position(self) -> int | None:
        """See `LakeTable`: the newest snapshot that has one, or what was noted last."""
        if not self.is_there():
            return None
        table = self._table()
        if self._owner is not None and table.properties().get(_OWNER) != self._owner:
            raise LandingError(f"{self._name} was not made by this target; choose another name")
        noted = table.properties().get(_POSITION)
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            found = snapshot.summary().get(_POSITION)
            if found is not None:
                return max(int(found), int(noted or -1))
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        if noted is None:
            raise LandingError(f"{self._name} was not made by this target, or is damaged")
        return int(noted)

    def version(self) -> int:
        """See `LakeTable`."""
        return int(self._table().currentSnapshot().snapshotId())

    def read(self, version: int | None = None) -> DataFrame:
        """See `LakeTable`."""
        return _read(self._spark, self._name, version)

    def replace(self, rows: DataFrame, n: int) -> None:
        """See `LakeTable`."""
        is_new = not self.is_there()
        if is_new:
            _make_namespace(self._spark, self._parts)
        with _named(self._name):
            writer = rows.writeTo(self._name).using("iceberg")
            for name, value in _MERGE_ON_READ.items() if is_new else ():
                writer = writer.tableProperty(name, value)
            if self._owner is not None:
                writer = writer.tableProperty(_OWNER, self._owner)
            writer.option(f"snapshot-property.{_POSITION}", str(n)).createOrReplace()
        self._note(n)

    def add_columns(self, fields: Sequence[T.StructField]) -> None:
        """See `LakeTable`."""
        _add_columns(self._spark, self._name, self.read().columns, fields)

    def merge(self, changes: Merge, n: int) -> None:
        """See `LakeTable`."""
        with _merge_text(self._name, changes) as text, _named(self._name):
            _with_summary(self._spark, {_POSITION: str(n)}, text)
        self._note(n)

    def compact(self) -> None:
        """See `LakeTable`."""
        actions = _jvm(self._spark).org.apache.iceberg.spark.actions.SparkActions
        with _named(self._name):
            actions.get(_session(self._spark)).rewriteDataFiles(self._table()).execute()

    def forget(self, before: float, keep: Collection[int]) -> None:
        """See `LakeTable`."""
        table = self._table()
        newest = table.currentSnapshot().snapshotId()
        expire = table.expireSnapshots().expireOlderThan(0)  # none but those that are named
        for snapshot in table.snapshots():
            number = snapshot.snapshotId()
            is_old = snapshot.timestampMillis() < before * 1000
            if is_old and number != newest and number not in keep:
                expire = expire.expireSnapshotId(number)
        with _named(self._name):
            expire.commit()

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


def _read(spark: SparkSession, name: str, version: int | None) -> DataFrame:
    at = "" if version is None else f" VERSION AS OF {version}"
    return spark.sql(f"SELECT * FROM {name}{at}")  # noqa: S608 - our own names


@contextlib.contextmanager
def _merge_text(name: str, changes: Merge) -> Iterator[str]:
    """Give the MERGE, with its source as a view."""
    view = f"gd_changes_{secrets.token_hex(6)}"
    columns = [column for column in changes.rows.columns if column != ACTION]
    names = [quoted(column) for column in columns]
    updates = ", ".join(f"t.{quoted(c)} = {_updated(c, changes.unsent)}" for c in columns)
    changes.rows.createOrReplaceTempView(view)
    try:
        yield (
            f"MERGE INTO {name} AS t USING {view} AS s ON {_same_row(changes)} "  # noqa: S608
            f"WHEN MATCHED AND s.{ACTION} = {REMOVE} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {updates} "
            f"WHEN NOT MATCHED AND s.{ACTION} = {PUT} THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f's.{column}' for column in names)})"
        )
    finally:
        changes.rows.sparkSession.catalog.dropTempView(view)


def _same_row(changes: Merge) -> str:
    """When a row of the table is the row of a change.

    The bounds follow from the key; said of the table alone they let files be skipped.
    """
    spans = [
        f"t.{quoted(name)} >= {low} AND t.{quoted(name)} <= {high}"
        for name, (low, high) in sorted(changes.bounds.items())
    ]
    return " AND ".join([*(f"t.{name} = s.{name}" for name in changes.on), *spans])


def _updated(column: str, unsent: Collection[str]) -> str:
    """What a column is after an update: as it was where that was not sent."""
    new, old = f"s.{quoted(column)}", f"t.{quoted(column)}"
    if not unsent:
        return new
    if column == UNCHANGED:  # what the table does not know either
        return f"nullif(array_intersect({new}, {old}), array())"
    if column == RAW:
        kept = f"map_filter({old}, (name, _) -> array_contains(s.{UNCHANGED}, name))"
        both = f"map_concat(coalesce({new}, map()), {kept})"
        is_old = f"s.{UNCHANGED} IS NOT NULL AND {old} IS NOT NULL"
        return f"CASE WHEN {is_old} AND cardinality({both}) > 0 THEN {both} ELSE {new} END"
    if column not in unsent:
        return new
    name = column.replace("\\", "\\\\").replace("'", "\\'")
    return f"CASE WHEN array_contains(s.{UNCHANGED}, '{name}') THEN {old} ELSE {new} END"


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
    except (PySparkException, Py4JJavaError) as error:
        why = _why(error)
    else:
        return
    raise LandingError(f"{name} was not changed: {why}; was another writer quicker? run it again")


@contextlib.contextmanager
def _opened(name: str) -> Iterator[None]:
    """Say which table could not be opened.

    Raises:
        LandingError: it is of another format, a view, or may not be read.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise LandingError(
            f"{name} cannot be opened ({_why(error)}): it is not a table that this target made, or may "
            "not be read; choose another name, or restore it"
        ) from None


def _why(error: PySparkException | Py4JJavaError) -> str:
    """What went wrong by its name: texts of errors may hold values."""
    if isinstance(error, PySparkException):
        return error.getCondition() or type(error).__name__
    return str(error.java_exception.getClass().getName())


def _is_odd(names: Sequence[str]) -> bool:
    return any(_NOT_IN_DELTA & set(name) for name in names)


def _jvm(spark: SparkSession) -> Any:  # Any: py4j's view of the JVM
    return spark._jvm  # noqa: SLF001 - there is no other way to it


def _session(spark: SparkSession) -> Any:  # Any: an object of the JVM
    return spark._jsparkSession  # noqa: SLF001 - there is no other way to it
