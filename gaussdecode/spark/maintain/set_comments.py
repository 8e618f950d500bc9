"""Set the comments of a target's tables and columns to those of the source.

The stream carries no comments, so the caller has asked the database. Rows and positions do not change.
A table whose comments are already right gets no commit.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gaussdecode.errors import LandingError, TargetBusyError
from gaussdecode.spark.catalogs.announce import announce_newest
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.target.comments import Changed, Described, difference, removed, wanted
from gaussdecode.spark.target.formats import ICEBERG
from gaussdecode.spark.target.layout import comment
from gaussdecode.spark.target.store import Target
from gaussdecode.spark.target.table_log import BEGINS

_PAUSE_SECONDS: Final = 0.1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result for one table.

    Attributes:
        table: ``schema.name``.
        of: ``current``, ``history`` or ``changelog``.
        name: name in SQL, or its place.
        is_table_changed: whether the table's own comment changed.
        columns: columns whose comment changed, in order.
        removed: those of `columns` that have no comment any more.
        left: why the comments were left as they are; None if they were compared.
        is_failed: whether `left` is an error, and not a normal reason.
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
        """Whether a comment changed."""
        return self.is_table_changed or bool(self.columns)


@dataclasses.dataclass(frozen=True, slots=True)
class CommentRun:
    """One run over the tables of a target.

    Attributes:
        landing: landing that the target is made from.
        store: the target.
        wait: longest wait for another writer to end, in seconds.
        is_dry: change nothing, only report.
    """

    landing: Landing
    store: Target
    wait: float = 60.0
    is_dry: bool = False

    def run(self, tables: Mapping[str, str], described: Mapping[str, Described]) -> list[Outcome]:
        """Set the comments that differ.

        Args:
            tables: table titles, by directory.
            described: comments in the database, by title.

        Raises:
            TargetBusyError: another writer does not end.
        """
        found = [
            self._outcome(directory, of, title, described.get(title))
            for directory, title in tables.items()
            for of in self._folders(directory)
        ]
        if self.store.format == ICEBERG and any(of.is_changed for of in found) and not self.is_dry:
            with _alone(self.store, self.wait):
                announce_newest(self.store)
        return found

    def _folders(self, directory: str) -> list[str]:
        there = self.store.log(directory).folders()
        return [of for of in BEGINS if of in there]

    def _outcome(self, directory: str, of: str, title: str, here: Described | None) -> Outcome:
        name = str(self.store.table_root(directory) / of)
        found = Outcome(table=title, of=of, name=name)
        if here is None:
            return dataclasses.replace(found, left="the source has no such table")
        try:
            changed = self._difference(directory, of, here)
            if changed and not self.is_dry:
                with _alone(self.store, self.wait):  # and looked at again, now that nobody writes
                    changed = self._difference(directory, of, here)
                    if changed:
                        self.store.log(directory).set_comments(of, changed)
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

    def _difference(self, directory: str, of: str, here: Described) -> Changed:
        version = self.store.newest(directory)
        if version is None:
            raise LandingError(f"{self.store.table_root(directory) / of} is gone; restore it")
        schema = self.store.schema(directory, version.schema_id)
        to_be = wanted(schema, here, BEGINS[of] + comment(schema, self.landing))
        return difference(self.store.log(directory).comments(of), to_be)


@contextlib.contextmanager
def _alone(store: Target, seconds: float) -> Iterator[None]:
    """Wait for a running writer to end, then keep other writers out.

    Raises:
        TargetBusyError: it did not end in time.
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
