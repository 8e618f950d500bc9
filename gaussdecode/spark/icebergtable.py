"""A table of Iceberg: replaced or merged, with its position in the summary of the same snapshot.

``gd_raw`` and ``gd_unchanged`` are kept flat, as JSON: Iceberg reads files column by column only while no
column that is read is nested.
"""

import contextlib
import dataclasses
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark import java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql import types as T  # noqa: N812 - the same

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.catalog import Name
from gaussdecode.spark.comments import Changed, Comments, kept
from gaussdecode.spark.events import ACTION
from gaussdecode.spark.layout import PLAIN, Layout, Partition
from gaussdecode.spark.mergesql import NESTED, Bounds, Values, merge_text, rename_text
from gaussdecode.spark.schema import TableSchema, renamed_columns
from gaussdecode.spark.sqltext import quoted

_POSITION: Final = "gaussdecode.n"
_OWNER: Final = "gaussdecode.landing"
_COMMENT: Final = "comment"
_MERGE_ON_READ: Final = {
    "format-version": "2",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
}
"""Of new tables: an apply writes what changed, not the files that held it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Merge:
    """Changes of a table.

    Attributes:
        rows: at most one per row of the table.
        on: rows are the same where these columns are.
        unsent: columns whose values a row that is there keeps, where ``gd_unchanged`` names them.
        bounds: least and greatest value of columns, in every row that `rows` is about.
        values: of columns, all those in rows that `rows` is about.
    """

    rows: DataFrame
    on: Sequence[str]
    unsent: Collection[str] = frozenset()
    bounds: Bounds = dataclasses.field(default_factory=dict)
    values: Values = dataclasses.field(default_factory=dict)


class IcebergTable:
    """One table.

    Args:
        spark: running.
        name: parts of its name; the first is the catalog.
        owner: id of the landing; None in a catalog that nobody else has.
        writer: id of the landing where several write the table; empty where one does.

    Attributes:
        name: in SQL.
    """

    def __init__(
        self, spark: SparkSession, name: Name, owner: str | None, writer: str = ""
    ) -> None:
        self._spark = spark
        self._space = ".".join(map(quoted, name[:-1]))
        self.name = ".".join(map(quoted, name))
        self._owner = owner
        self._position = f"{_POSITION}.{writer}" if writer else _POSITION

    def is_there(self) -> bool:
        """Whether it was made."""
        with _opened(self.name):
            return self._spark.catalog.tableExists(self.name)

    def _table(self) -> Any:  # Any: an object of the JVM
        spark3 = jvm_of(self._spark).org.apache.iceberg.spark.Spark3Util
        with _opened(self.name):
            return spark3.loadIcebergTable(_session_of(self._spark), self.name)

    def position(self) -> int | None:
        """Number of the entry it is at; None when there is no table.

        Raises:
            LandingError: it is not this target's.
        """
        if not self.is_there():
            return None
        found = self.noted()
        if found is None:
            raise LandingError(f"{self.name} was not made by this target, or is damaged")
        return found

    def noted(self) -> int | None:
        """The same of a table that others write too; None as well where this target did not yet."""
        if not self.is_there():
            return None
        table = self._table()
        if self._owner is not None and table.properties().get(_OWNER) != self._owner:
            raise LandingError(f"{self.name} was not made by this target; choose another name")
        noted = table.properties().get(self._position)
        snapshot = table.currentSnapshot()
        while snapshot is not None:  # the newest that has one
            found = snapshot.summary().get(self._position)
            if found is not None:
                return max(int(found), int(noted or -1))
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        return None if noted is None else int(noted)

    def version(self) -> int:
        """Its newest snapshot."""
        return int(self._table().currentSnapshot().snapshotId())

    def read(self, version: int | None = None) -> DataFrame:
        """Rows of a version, of the newest by default."""
        rows = self._kept(version)
        return rows.withColumns({n: F.from_json(n, NESTED[n]) for n in _flat_columns(rows)})

    def _kept(self, version: int | None = None) -> DataFrame:
        """The same as they are kept."""
        at = "" if version is None else f" VERSION AS OF {version}"
        with _opened(self.name):
            return self._spark.sql(f"SELECT * FROM {self.name}{at}")  # noqa: S608 - our own names

    def replace(self, rows: DataFrame, n: int, layout: Layout = PLAIN) -> None:
        """Put rows and their columns in place of all there is but the comments, or make the table."""
        is_new = not self.is_there()
        said = layout.comment
        if is_new:
            self._make_namespace()
        else:
            before = self.comments()
            rows = _commented(rows, before.columns)
            said = said and kept(said, before.table)
        with _named(self.name):
            nested = [name for name in NESTED if name in rows.columns]
            rows = rows.withColumns({name: F.to_json(name) for name in nested})
            if layout.cluster and not layout.partition:
                rows = rows.sort(*map(quoted, layout.cluster))
            writer = rows.writeTo(self.name).using("iceberg")
            for name, value in _MERGE_ON_READ.items() if is_new else ():
                writer = writer.tableProperty(name, value)
            if layout.partition:
                writer = writer.partitionedBy(*map(_transform, layout.partition))
            if said:
                writer = writer.tableProperty(_COMMENT, said)
            if self._owner is not None:
                writer = writer.tableProperty(_OWNER, self._owner)
            writer.option(f"snapshot-property.{self._position}", str(n)).createOrReplace()
            if layout.cluster:  # what is written from now on, compaction too
                order = self._table().replaceSortOrder()
                iceberg = jvm_of(self._spark).org.apache.iceberg
                for column in layout.cluster:
                    term = iceberg.expressions.Expressions.ref(column)
                    order = order.asc(term, iceberg.NullOrder.NULLS_FIRST)
                order.commit()
        self._note(n)

    def _make_namespace(self) -> None:
        """Make what it is to be in.

        Raises:
            ConfigError: the session may not.
        """
        try:
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._space}")
        except (PySparkException, Py4JJavaError) as error:
            raise ConfigError(
                f"namespace {self._space} cannot be made ({why(error)}): make it yourself, "
                "or give another catalog or namespace"
            ) from None

    def add_columns(self, fields: Sequence[T.StructField]) -> None:
        """Add columns that are not there yet; they are NULL in the rows there are."""
        held = self._kept().columns
        new = [
            f"{quoted(field.name)} {field.dataType.simpleString()}"
            for field in fields
            if field.name not in held
        ]
        if new:
            with _named(self.name):
                self._spark.sql(f"ALTER TABLE {self.name} ADD COLUMNS ({', '.join(new)})")

    def rename_columns(self, renamed: Mapping[str, str]) -> None:
        """Give columns other names, in our columns that name them too; those that have them stay."""
        if not renamed:
            return
        held = self._kept()
        with _named(self.name):
            for old, new in renamed.items():
                if old in held.columns:
                    names = f"{quoted(old)} TO {quoted(new)}"
                    self._spark.sql(f"ALTER TABLE {self.name} RENAME COLUMN {names}")
            self._spark.sql(rename_text(self.name, renamed, _flat_columns(held))).collect()

    def append(self, rows: DataFrame, n: int) -> None:
        """Put rows beside those there are, or make the table."""
        if not self.is_there():
            self.replace(rows, n)
            return
        flat = _flat_columns(self._kept())
        rows = rows.withColumns({name: F.to_json(name) for name in flat})
        with _named(self.name):
            rows.writeTo(self.name).option(f"snapshot-property.{self._position}", str(n)).append()
        self._note(n)

    def merge(self, changes: Merge, n: int) -> None:
        """Apply changes."""
        view = f"gd_changes_{secrets.token_hex(6)}"
        text = merge_text(
            self.name,
            view,
            [column for column in changes.rows.columns if column != ACTION],
            on=changes.on,
            unsent=changes.unsent,
            bounds=changes.bounds,
            values=changes.values,
            flat=_flat_columns(self._kept()),  # older tables have nested ones
        )
        changes.rows.createOrReplaceTempView(view)
        try:
            with _named(self.name):
                _with_summary(self._spark, {self._position: str(n)}, text)
        finally:
            self._spark.catalog.dropTempView(view)
        self._note(n)

    def comments(self) -> Comments:
        """What it says of itself and of its columns; empty for nothing."""
        table = self._table()
        table.refresh()  # its catalog may keep what another process has changed since
        columns = {f.name: f.metadata.get("comment", "") for f in self._kept().schema.fields}
        return Comments(table.properties().get(_COMMENT) or "", columns)

    def set_comments(self, changed: Changed) -> None:
        """Say something else, in one commit; there is no snapshot of it, and no position changes."""
        with _named(self.name):
            transaction = self._table().newTransaction()
            if changed.table is not None:
                transaction.updateProperties().set(_COMMENT, changed.table).commit()
            if changed.columns:
                update = transaction.updateSchema()
                for name, text in changed.columns.items():
                    update = update.updateColumnDoc(name, text or None)
                update.commit()
            transaction.commitTransaction()

    def compact(self) -> None:
        """Write small files anew, without those of their rows that are gone."""
        actions = jvm_of(self._spark).org.apache.iceberg.spark.actions.SparkActions
        with _named(self.name):
            table = self._table()
            rewrite = actions.get(_session_of(self._spark)).rewriteDataFiles(table)
            (rewrite.sort() if table.sortOrder().isSorted() else rewrite).execute()

    def forget(self, before: float, keep: Collection[int]) -> None:
        """Remove versions from before a time in seconds since 1970, but those to keep and the newest."""
        table = self._table()
        newest = table.currentSnapshot().snapshotId()
        expire = table.expireSnapshots().expireOlderThan(0)  # none but those that are named
        for snapshot in table.snapshots():
            number = snapshot.snapshotId()
            is_old = snapshot.timestampMillis() < before * 1000
            if is_old and number != newest and number not in keep:
                expire = expire.expireSnapshotId(number)
        with _named(self.name):
            expire.commit()

    def _note(self, n: int) -> None:
        """Keep the position where it outlives the snapshot."""
        note = f"('{self._position}' = '{n}')"
        with _named(self.name):
            self._spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES {note}")


def _transform(part: Partition) -> Column:
    """What a table is partitioned by, as Spark has it."""
    of = F.col(quoted(part.column))
    if part.transform == "bucket":
        return F.partitioning.bucket(part.buckets, of)
    by: Column = getattr(F.partitioning, part.transform)(of) if part.transform else of
    return by


def _flat_columns(rows: DataFrame) -> list[str]:
    """Which of our columns are kept as JSON."""
    return [f.name for f in rows.schema if f.name in NESTED and f.dataType == T.StringType()]


def _commented(rows: DataFrame, comments: Mapping[str, str]) -> DataFrame:
    """Rows whose columns say of themselves what columns of these names said."""
    return rows.select(
        *(
            F.col(quoted(name)).alias(name, metadata={"comment": comments[name]})
            if comments.get(name)
            else quoted(name)
            for name in rows.columns
        )
    )


def named_back(rows: DataFrame, old: TableSchema, newer: Iterable[TableSchema]) -> DataFrame:
    """Rows by the names of a version, where a killed apply has renamed columns already.

    Args:
        rows: of the table.
        old: version it is of, by its position.
        newer: versions it was about to become, the oldest first.
    """
    for new in newer:
        for before, after in (renamed_columns(old, new) or {}).items():
            if after in rows.columns and before not in rows.columns:
                rows = rows.withColumnRenamed(after, before)
    return rows


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Say which table could not be written, without what was in its rows.

    Raises:
        LandingError: the format refused the commit; another writer may have been quicker.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        cause = why(error)
    else:
        return
    raise LandingError(f"{name} was not changed: {cause}; was another writer quicker? run it again")


@contextlib.contextmanager
def _opened(name: str) -> Iterator[None]:
    """Say which table could not be opened.

    Raises:
        LandingError: it is of another format, a view, may not be read, or its catalog does not answer.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise LandingError(
            f"{name} cannot be opened ({why(error)}): it is not a table that this target made, may not "
            "be read, or its catalog does not answer; choose another name, restore it, or run it again"
        ) from None


def why(error: PySparkException | Py4JJavaError) -> str:
    """What went wrong by its name: texts of errors may hold values."""
    if isinstance(error, PySparkException):
        return error.getCondition() or type(error).__name__
    return str(error.java_exception.getClass().getName())


def jvm_of(spark: SparkSession) -> Any:  # Any: py4j's view of the JVM
    """The JVM of a session."""
    return spark._jvm  # noqa: SLF001 - there is no other way to it


def _session_of(spark: SparkSession) -> Any:  # Any: an object of the JVM
    """The session as the JVM has it."""
    return spark._jsparkSession  # noqa: SLF001 - there is no other way to it


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
    jvm, statement = jvm_of(spark), _Statement(spark, text)
    properties = jvm.java.util.HashMap()
    for name, value in summary.items():
        properties.put(name, value)
    error = jvm.java.lang.Class.forName("java.lang.RuntimeException")
    jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(properties, statement, error)
    if statement.error is not None:
        raise statement.error
