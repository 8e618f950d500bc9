"""Comments of tables of Iceberg.

A table's columns are those of its own position: its history may be an apply ahead, and a column that a killed
apply has renamed is left to the next run.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import SparkSession

from gaussdecode.errors import LandingError
from gaussdecode.spark.commentrun import Commented
from gaussdecode.spark.comments import Changed, Comments
from gaussdecode.spark.icebergtable import IcebergTable
from gaussdecode.spark.lake import open_lake
from gaussdecode.spark.schema import TableSchema
from gaussdecode.spark.statefile import CHANGELOG, CURRENT, HISTORY
from gaussdecode.spark.store import COMMITS, LOGGED, Target

_RECORDS: Final = {CURRENT: COMMITS, HISTORY: COMMITS, CHANGELOG: LOGGED}
"""Where the records of a table are."""


@dataclasses.dataclass(frozen=True, slots=True)
class IcebergComments:
    """Comments of one of them; see `Commented`."""

    store: Target
    directory: str
    of: str
    table: IcebergTable

    @property
    def name(self) -> str:
        """See `Commented`."""
        return self.table.name

    def schema(self) -> TableSchema:
        """See `Commented`."""
        n = self.table.position()  # refuses a table of somebody else's
        if n is None:
            raise LandingError(f"{self.name} is gone; restore it")
        record = self.store.record(self.directory, n, _RECORDS[self.of])
        return self.store.schema(self.directory, record["schema_id"])

    def comments(self) -> Comments:
        """See `Commented`."""
        return self.table.comments()

    def set_comments(self, changed: Changed) -> None:
        """See `Commented`."""
        self.table.set_comments(changed)


def iceberg_tables(spark: SparkSession, store: Target) -> Callable[[str], Sequence[Commented]]:
    """What gives a table of a target and those beside it.

    Raises:
        ConfigError: this session cannot open the tables.
    """
    lake = open_lake(spark, store)

    def found(directory: str) -> Sequence[Commented]:
        tables = {of: lake.table(directory, "" if of == CURRENT else of) for of in _RECORDS}
        return [
            IcebergComments(store, directory, of, table)
            for of, table in tables.items()
            if of == CURRENT or table.is_there()
        ]

    return found
