"""Set the comments of a target's tables to those of the source's.

The stream carries no comments, so whoever calls has asked the database. Rows and positions stay what they are, and a
table that says what it should gets no commit.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from gaussdecode.errors import LandingError, TargetBusyError
from gaussdecode.spark.comments import Changed, Comments, Described, difference, removed, wanted
from gaussdecode.spark.landing import Landing
from gaussdecode.spark.layout import comment
from gaussdecode.spark.schema import TableSchema
from gaussdecode.spark.store import Target
from gaussdecode.spark.tablelog import BEGINS

_PAUSE_SECONDS: Final = 0.1


class Commented(Protocol):
    """A table that has comments."""

    @property
    def of(self) -> str:
        """``current``, ``history`` or ``changelog``."""

    @property
    def name(self) -> str:
        """In SQL, or its place."""

    def schema(self) -> TableSchema:
        """Of its rows.

        Raises:
            LandingError: it is gone, or of somebody else.
        """

    def comments(self) -> Comments:
        """Those it has."""

    def set_comments(self, changed: Changed) -> None:
        """Change some.

        Raises:
            LandingError: the format failed.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one table.

    Attributes:
        table: ``schema.name``.
        of: ``current``, ``history`` or ``changelog``.
        name: in SQL, or its place.
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
        landing: it is made from.
        store: the target.
        open: gives a table and those beside it, by directory.
        wait: seconds, at most, for another writer to end.
        is_dry: nothing is changed, only said.
    """

    landing: Landing
    store: Target
    open: Callable[[str], Sequence[Commented]]
    wait: float = 60.0
    is_dry: bool = False

    def run(self, tables: Mapping[str, str], described: Mapping[str, Described]) -> list[Outcome]:
        """Set what differs.

        Args:
            tables: titles, by directory.
            described: what the database says, by title.

        Raises:
            TargetBusyError: another writer does not end.
        """
        return [
            self._outcome(table, title, described.get(title))
            for directory, title in tables.items()
            for table in self.open(directory)
        ]

    def _outcome(self, table: Commented, title: str, here: Described | None) -> Outcome:
        found = Outcome(table=title, of=table.of, name=table.name)
        if here is None:
            return dataclasses.replace(found, left="the source has no such table")
        try:
            changed = self._difference(table, here)
            if changed and not self.is_dry:
                with _alone(self.store, self.wait):  # and looked at again, now that nobody writes
                    changed = self._difference(table, here)
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

    def _difference(self, table: Commented, here: Described) -> Changed:
        schema = table.schema()
        to_be = wanted(schema, here, BEGINS[table.of] + comment(schema, self.landing))
        return difference(table.comments(), to_be)


@dataclasses.dataclass(frozen=True, slots=True)
class DeltaComments:
    """Comments of a Delta table of a target.

    Attributes:
        store: the target.
        directory: of the table.
        of: which of its Delta tables.
    """

    store: Target
    directory: str
    of: str

    @property
    def name(self) -> str:
        """See `Commented`."""
        return str(self.store.table_root(self.directory) / self.of)

    def schema(self) -> TableSchema:
        """See `Commented`."""
        version = self.store.newest(self.directory)
        if version is None:
            raise LandingError(f"{self.name} is gone; restore it")
        return self.store.schema(self.directory, version.schema_id)

    def comments(self) -> Comments:
        """See `Commented`."""
        return self.store.log(self.directory).comments(self.of)

    def set_comments(self, changed: Changed) -> None:
        """See `Commented`."""
        self.store.log(self.directory).set_comments(self.of, changed)


def delta_tables(store: Target, directory: str) -> Sequence[Commented]:
    """A Delta table and those beside it."""
    there = store.log(directory).folders()
    return [DeltaComments(store, directory, folder) for folder in BEGINS if folder in there]


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
