"""A table of Delta Lake: replaced or merged, with its position as transaction id of the same commit."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from gaussdecode.spark.catalog import Name
from gaussdecode.spark.comments import Changed, Comments
from gaussdecode.spark.laketable import (
    LakeTable,
    Merge,
    add_columns,
    column_comments,
    commented,
    exists,
    jvm_of,
    make_namespace,
    merging,
    named,
    opened,
    read_version,
    rename_columns,
    session_of,
)
from gaussdecode.spark.layout import PLAIN, Layout
from gaussdecode.spark.session import configured
from gaussdecode.spark.sqltext import literal, quoted

_DELTA_HOURS: Final = 168
"""Delta Lake's own bound: readers and writers may need files for so long after they were taken away."""

_FEW_TASKS: Final = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "16"}
"""VACUUM lists files in so many tasks; 10,000 where nobody says less."""

_NOT_IN_DELTA: Final = frozenset(" ,;{}()\n\t=")
"""Characters that a column's name may have only where Delta maps names."""


class DeltaTable(LakeTable):
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
        return exists(self._spark, self._name)

    def _snapshot(self) -> Any:  # Any: an object of the JVM
        log = jvm_of(self._spark).org.apache.spark.sql.delta.DeltaLog
        place = str(self._place)
        with opened(self._name):
            if not isinstance(self._place, Path):
                place = self._spark.sql(f"DESCRIBE DETAIL {self._name}").collect()[0]["location"]
            found = log.forTableWithSnapshot(session_of(self._spark), place)
        return found._2()  # noqa: SLF001 - a pair of Scala

    def noted(self) -> int | None:
        """See `LakeTable`."""
        if not self.is_there():
            return None
        found = self._snapshot().transactions().get(self._app)
        return int(found.get()) if found.isDefined() else None

    def name(self) -> str:
        """See `LakeTable`."""
        return self._name

    def version(self) -> int:
        """See `LakeTable`."""
        return int(self._snapshot().version())

    def read(self, version: int | None = None) -> DataFrame:
        """See `LakeTable`."""
        return read_version(self._spark, self._name, version)

    def replace(self, rows: DataFrame, n: int, layout: Layout = PLAIN) -> None:
        """See `LakeTable`."""
        is_new = not self.is_there()
        if not is_new:
            rows = commented(rows, column_comments(self.read()))
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer = writer.option("txnAppId", self._app).option("txnVersion", n)
        if not is_new:
            self._map_names(rows.columns)
        else:
            writer = writer.option("delta.feature.timestampNtz", "supported")
            writer = writer.option("delta.enableDeletionVectors", "true")
            if _is_odd(rows.columns):
                writer = writer.option("delta.columnMapping.mode", "name")
        if layout.partition:
            writer = writer.partitionBy(*[part.column for part in layout.partition])
        with named(self._name):
            if isinstance(self._place, Path):
                writer.save(str(self._place))
            else:
                make_namespace(self._spark, self._place)
                writer.saveAsTable(self._name)
            if layout.cluster:  # its writer does not take that, and takes it away
                by = ", ".join(map(quoted, layout.cluster))
                self._spark.sql(f"ALTER TABLE {self._name} CLUSTER BY ({by})")
            if is_new and layout.comment:
                self._say(layout.comment)

    def append(self, rows: DataFrame, n: int) -> None:
        """See `LakeTable`."""
        if not self.is_there():
            self.replace(rows, n)
            return
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", self._app).option("txnVersion", n)
        with named(self._name):
            if isinstance(self._place, Path):
                writer.save(str(self._place))
            else:
                writer.saveAsTable(self._name)

    def _map_names(self, names: Sequence[str]) -> None:
        """Let Delta map names before one comes that it would refuse."""
        if _is_odd(names) and not _is_odd(self.read().columns):
            self._map()

    def _map(self) -> None:
        mapped = "('delta.columnMapping.mode' = 'name')"
        self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES {mapped}")

    def rename_columns(self, renamed: Mapping[str, str]) -> None:
        """See `LakeTable`."""
        if not renamed:
            return
        held = self.read()
        if any(old in held.columns for old in renamed):
            with named(self._name):
                self._map()
        rename_columns(self._spark, self._name, held, renamed)

    def add_columns(self, fields: Sequence[T.StructField]) -> None:
        """See `LakeTable`."""
        held = self.read().columns
        self._map_names([*held, *(field.name for field in fields)])
        add_columns(self._spark, self._name, held, fields)

    def merge(self, changes: Merge, n: int) -> None:
        """See `LakeTable`."""
        conf = {
            "spark.databricks.delta.write.txnAppId": self._app,
            "spark.databricks.delta.write.txnVersion": str(n),
        }
        with configured(self._spark, conf), merging(self._name, changes) as text:
            with named(self._name):
                self._spark.sql(text).collect()

    def comments(self) -> Comments:
        """See `LakeTable`."""
        said = self._snapshot().metadata().description()
        return Comments(said or "", column_comments(self.read()))

    def set_comments(self, changed: Changed) -> None:
        """See `LakeTable`: one commit for the columns, and one for the table."""
        with named(self._name):
            if changed.columns:
                texts = (f"{quoted(c)} COMMENT {literal(t)}" for c, t in changed.columns.items())
                self._spark.sql(f"ALTER TABLE {self._name} ALTER COLUMN {', '.join(texts)}")
            if changed.table is not None:
                self._say(changed.table)

    def _say(self, text: str) -> None:
        self._spark.sql(f"COMMENT ON TABLE {self._name} IS {literal(text)}")

    def compact(self) -> None:
        """See `LakeTable`."""
        with named(self._name):
            self._spark.sql(f"OPTIMIZE {self._name}").collect()

    def forget(self, before: float, keep: Collection[int]) -> None:
        """See `LakeTable`: files that were taken away within a week stay, with all versions that need them."""
        del keep  # what they name is younger, or is the newest
        hours = max(_DELTA_HOURS, math.ceil((time.time() - before) / 3600))
        with configured(self._spark, _FEW_TASKS), named(self._name):
            self._spark.sql(f"VACUUM {self._name} RETAIN {hours} HOURS").collect()


def _is_odd(names: Sequence[str]) -> bool:
    return any(_NOT_IN_DELTA & set(name) for name in names)
