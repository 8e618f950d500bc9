"""Set the comments of tables of Iceberg to those of the source's tables.

The stream carries no comments, so whoever calls has asked the database. Rows and positions stay what they are, and a
table that says what it should gets no commit. A table's columns are those of its own position: its history may
be an apply ahead, and a column that a killed apply has renamed is left to the next run.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession

from gaussdecode.errors import LandingError, TargetBusyError
from gaussdecode.spark.comments import Changed, Described, difference, removed, wanted
from gaussdecode.spark.icebergtable import IcebergTable
from gaussdecode.spark.lake import Lake, open_lake
from gaussdecode.spark.lakechangelog import CHANGELOG
from gaussdecode.spark.lakehistory import HISTORY
from gaussdecode.spark.landing import Landing
from gaussdecode.spark.layout import comment
from gaussdecode.spark.store import COMMITS, LOGGED, Target

CURRENT: Final = "current"
_ALL: Final = {
    "": (CURRENT, COMMITS, ""),
    HISTORY: (HISTORY, COMMITS, "History of "),
    CHANGELOG: (CHANGELOG, LOGGED, "Changelog of "),
}
"""What is beside a table: its word, where its records are, what its sentence begins with."""
_PAUSE_SECONDS: Final = 0.1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one table of the lake.

    Attributes:
        table: ``schema.name``.
        of: ``current``, ``history`` or ``changelog``.
        name: in SQL.
        is_table_changed: the table's own comment is another one now.
        columns: whose comment is another one now, in order.
        removed: of them, those that have none any more.
        left: why its comments were left as they are; None where they were compared.
        is_failed: that was a mistake, not the way things are.
    """

    table: str
    of: str
    name: str
    is_table_changed: bool = False
    columns: Sequence[str] = ()
    removed: Sequence[str] = ()
    left: str | None = None
    is_failed: bool = False

    @property
    def is_changed(self) -> bool:
        """Anything is another one now."""
        return self.is_table_changed or bool(self.columns)


@dataclasses.dataclass(frozen=True, slots=True)
class CommentRun:
    """One run over the tables of a target.

    Attributes:
        spark: running.
        landing: it is made from.
        store: the target.
        wait: seconds, at most, for another writer to end.
        is_dry: nothing is changed, only said.
    """

    spark: SparkSession
    landing: Landing
    store: Target
    wait: float = 60.0
    is_dry: bool = False

    def run(self, tables: Mapping[str, str], described: Mapping[str, Described]) -> list[Outcome]:
        """Set what differs.

        Args:
            tables: titles, by directory.
            described: what the database says, by title.

        Raises:
            ConfigError: this session cannot open the tables.
            TargetBusyError: another writer does not end.
        """
        lake = open_lake(self.spark, self.store)
        return [
            self._outcome(lake, directory, title, beside, described.get(title))
            for directory, title in tables.items()
            for beside in _ALL
            if not beside or lake.table(directory, beside).is_there()
        ]

    def _outcome(
        self, lake: Lake, directory: str, title: str, beside: str, here: Described | None
    ) -> Outcome:
        table = lake.table(directory, beside)
        found = Outcome(table=title, of=_ALL[beside][0], name=table.name)
        if here is None:
            return dataclasses.replace(found, left="the source has no such table")
        try:
            changed = self._difference(table, directory, beside, here)
            if changed and not self.is_dry:
                with _alone(self.store, self.wait):  # and looked at again, now that nobody writes
                    changed = self._difference(table, directory, beside, here)
                    if changed:
                        table.set_comments(changed)
        except TargetBusyError:
            raise
        except LandingError as error:
            return dataclasses.replace(found, left=str(error), is_failed=True)
        return dataclasses.replace(
            found,
            is_table_changed=changed.table is not None,
            columns=tuple(changed.columns),
            removed=tuple(removed(changed)),
        )

    def _difference(
        self, table: IcebergTable, directory: str, beside: str, here: Described
    ) -> Changed:
        _, records, begin = _ALL[beside]
        n = table.position()  # refuses a table of somebody else's
        if n is None:
            raise LandingError(f"{table.name} is gone; restore it")
        schema = self.store.schema(directory, self.store.record(directory, n, records)["schema_id"])
        to_be = wanted(schema, here, begin + comment(schema, self.landing))
        return difference(table.comments(), to_be)


@contextlib.contextmanager
def _alone(store: Target, seconds: float) -> Iterator[None]:
    """Keep other writers out, once the one that is at work has ended.

    Raises:
        TargetBusyError: it did not within so many seconds.
    """
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(store.locked())
                break
            except TargetBusyError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
        yield
