"""A table of Iceberg: replaced or merged, with its position in the summary of the same snapshot.

``gd_raw`` and ``gd_unchanged`` are kept flat, as JSON: Iceberg reads files column by column only while no
column that is read is nested.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pyspark import java_gateway
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from gaussdecode.errors import LandingError
from gaussdecode.spark.catalog import Name
from gaussdecode.spark.comments import Changed, Comments, kept
from gaussdecode.spark.laketable import (
    LakeTable,
    Merge,
    add_columns,
    column_comments,
    commented,
    exists,
    flat_columns,
    jvm_of,
    make_namespace,
    merging,
    named,
    opened,
    read_version,
    rename_columns,
    session_of,
)
from gaussdecode.spark.layout import PLAIN, Layout, Partition
from gaussdecode.spark.mergesql import NESTED
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


def _transform(part: Partition) -> Column:
    """What a table is partitioned by, as Spark has it."""
    of = F.col(quoted(part.column))
    if part.transform == "bucket":
        return F.partitioning.bucket(part.buckets, of)
    by: Column = getattr(F.partitioning, part.transform)(of) if part.transform else of
    return by


class IcebergTable(LakeTable):
    """A table of Iceberg.

    Args:
        spark: running.
        name: parts of its name; the first is the catalog.
        owner: id of the landing; None in a catalog that nobody else has.
        writer: id of the landing where several write the table; empty where one does.
    """

    def __init__(
        self, spark: SparkSession, name: Name, owner: str | None, writer: str = ""
    ) -> None:
        self._spark = spark
        self._parts = name
        self._name = ".".join(map(quoted, name))
        self._owner = owner
        self._position = f"{_POSITION}.{writer}" if writer else _POSITION

    def name(self) -> str:
        """See `LakeTable`."""
        return self._name

    def is_there(self) -> bool:
        """See `LakeTable`."""
        return exists(self._spark, self._name)

    def _table(self) -> Any:  # Any: an object of the JVM
        spark3 = jvm_of(self._spark).org.apache.iceberg.spark.Spark3Util
        with opened(self._name):
            return spark3.loadIcebergTable(session_of(self._spark), self._name)

    def noted(self) -> int | None:
        """See `LakeTable`: of the newest snapshot that has one, or what was noted last."""
        if not self.is_there():
            return None
        table = self._table()
        if self._owner is not None and table.properties().get(_OWNER) != self._owner:
            raise LandingError(f"{self._name} was not made by this target; choose another name")
        noted = table.properties().get(self._position)
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            found = snapshot.summary().get(self._position)
            if found is not None:
                return max(int(found), int(noted or -1))
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        return None if noted is None else int(noted)

    def version(self) -> int:
        """See `LakeTable`."""
        return int(self._table().currentSnapshot().snapshotId())

    def read(self, version: int | None = None) -> DataFrame:
        """See `LakeTable`."""
        rows = read_version(self._spark, self._name, version)
        return rows.withColumns({n: F.from_json(n, NESTED[n]) for n in flat_columns(rows)})

    def replace(self, rows: DataFrame, n: int, layout: Layout = PLAIN) -> None:
        """See `LakeTable`."""
        is_new = not self.is_there()
        said = layout.comment
        if is_new:
            make_namespace(self._spark, self._parts)
        else:
            before = self.comments()
            rows = commented(rows, before.columns)
            said = said and kept(said, before.table)
        with named(self._name):
            nested = [name for name in NESTED if name in rows.columns]
            rows = rows.withColumns({name: F.to_json(name) for name in nested})
            if layout.cluster and not layout.partition:
                rows = rows.sort(*map(quoted, layout.cluster))
            writer = rows.writeTo(self._name).using("iceberg")
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

    def rename_columns(self, renamed: Mapping[str, str]) -> None:
        """See `LakeTable`."""
        if renamed:
            held = read_version(self._spark, self._name, None)
            rename_columns(self._spark, self._name, held, renamed)

    def append(self, rows: DataFrame, n: int) -> None:
        """See `LakeTable`."""
        if not self.is_there():
            self.replace(rows, n)
            return
        flat = flat_columns(read_version(self._spark, self._name, None))
        rows = rows.withColumns({name: F.to_json(name) for name in flat})
        with named(self._name):
            rows.writeTo(self._name).option(f"snapshot-property.{self._position}", str(n)).append()
        self._note(n)

    def add_columns(self, fields: Sequence[T.StructField]) -> None:
        """See `LakeTable`."""
        add_columns(self._spark, self._name, self.read().columns, fields)

    def merge(self, changes: Merge, n: int) -> None:
        """See `LakeTable`."""
        flat = flat_columns(
            read_version(self._spark, self._name, None)
        )  # older tables have nested ones
        with merging(self._name, changes, flat) as text, named(self._name):
            _with_summary(self._spark, {self._position: str(n)}, text)
        self._note(n)

    def comments(self) -> Comments:
        """See `LakeTable`."""
        table = self._table()
        table.refresh()  # its catalog may keep what another process has changed since
        rows = read_version(self._spark, self._name, None)
        return Comments(table.properties().get(_COMMENT) or "", column_comments(rows))

    def set_comments(self, changed: Changed) -> None:
        """See `LakeTable`: one commit, and no snapshot."""
        with named(self._name):
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
        """See `LakeTable`."""
        actions = jvm_of(self._spark).org.apache.iceberg.spark.actions.SparkActions
        with named(self._name):
            table = self._table()
            rewrite = actions.get(session_of(self._spark)).rewriteDataFiles(table)
            (rewrite.sort() if table.sortOrder().isSorted() else rewrite).execute()

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
        with named(self._name):
            expire.commit()

    def _note(self, n: int) -> None:
        """Keep the position where it outlives the snapshot."""
        note = f"('{self._position}' = '{n}')"
        with named(self._name):
            self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES {note}")


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
