"""Attempt to read tables, and keep an error of one table from the others."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from gaussdecode.errors import SourceRefusedError
from gaussdecode.logs import Event, get_logger
from gaussdecode.snapshot.chunks import ATTEMPTS, ChunkedTable
from gaussdecode.snapshot.failures import (
    NO_COLUMN,
    has_changed,
    is_in_motion,
    is_nobodys,
    may_pass,
    text_of,
)
from gaussdecode.snapshot.item import Wanted, title_of
from gaussdecode.snapshot.once import take_at_once
from gaussdecode.snapshot.read import TableTask
from gaussdecode.snapshot.tools import Tools, key_names

_TABLES_AT_ONCE: Final = 64  # small tables that share one hold; arbitrary
_CHANGES: Final = 20  # of a table, until it is given up; arbitrary
_log = get_logger("snapshot")


class Attempts:
    """Reads tables of one source.

    Args:
        tools: of the source.
        mark_failed: told of a table that is given up: its title, the reason, and the condition of its rows.

    Attributes:
        has_failed: whether an attempt at a table has failed since `take` began.
    """

    def __init__(self, tools: Tools, mark_failed: Callable[[str, str, object], None]) -> None:
        self._tools = tools
        self._mark_failed = mark_failed
        self.has_failed = False

    def take(self, wanted: list[Wanted]) -> None:
        """Read tables: first the small ones together, then each large one."""
        self.has_failed = False
        tools = self._tools
        small: list[Wanted] = []
        large: list[Wanted] = []
        with tools.reader() as reader:
            for item in wanted:
                with self._isolated(item):
                    task = tools.task(reader, item)
                    reader.check_readable(task.shape)
                    _check_condition(task)
                    fits = task.shape.pages <= tools.chunk_pages
                    is_stubborn = tools.attempts.get(item.title, 0) >= ATTEMPTS
                    is_small = fits or key_names(task) is None or is_stubborn
                    if not is_small and task.shape.unseen is not None:
                        reason = task.shape.unseen
                        named = title_of(tools.context.source, item.title)
                        _log.info(Event.SNAPSHOT_AT_ONCE, table=named, reason=reason)
                        is_small = True
                    (small if is_small else large).append(item)
        for first in range(0, len(small), _TABLES_AT_ONCE):
            self._take_together(small[first : first + _TABLES_AT_ONCE])
        for item in large:
            with self._isolated(item):
                ChunkedTable(tools, item).take()

    def _take_together(self, group: list[Wanted]) -> None:
        """Read several tables at once; after an error of one, each by itself."""
        self._tools.check_stop()
        try:
            take_at_once(self._tools, group)
            return
        except Exception as error:
            if is_nobodys(error):
                raise
            source, reason = self._tools.context.source, text_of(error)
            reason = reason if source is None else f"{source}: {reason}"
            _log.info(Event.SNAPSHOT_WAITS, tables=len(group), reason=reason)
        for item in group:
            with self._isolated(item):
                take_at_once(self._tools, [item])

    @contextlib.contextmanager
    def _isolated(self, item: Wanted) -> Iterator[None]:
        """Keep an error of one table from the others."""
        tools = self._tools
        tools.check_stop()
        try:
            yield
        except Exception as error:
            if is_nobodys(error):
                raise
            count = tools.attempts[item.title] = tools.attempts.get(item.title, 0) + 1
            is_typo = item.where is not None and getattr(error, "sqlstate", None) == NO_COLUMN
            most = _CHANGES if is_in_motion(error) else ATTEMPTS if may_pass(error) else 1
            most = 1 if is_typo else most
            self.has_failed = True
            if has_changed(error) or count >= most:
                tools.store.drop(item.directory)
            if count < most:
                named = title_of(tools.context.source, item.title)
                _log.info(Event.SNAPSHOT_WAITS, table=named, attempt=count, reason=text_of(error))
                tools.progress[item.title].begin_waiting(text_of(error))
                return
            tools.attempts.pop(item.title, None)
            self._mark_failed(item.title, text_of(error), item.where)
            if item.request is not None:
                tools.store.answered(item.request)


def _check_condition(task: TableTask) -> None:
    """See that rows chosen by a condition can be put in the place of those that are there.

    Raises:
        SourceRefusedError: nothing tells which rows these are.
    """
    if task.where is not None and not task.record["key"]:
        raise SourceRefusedError(
            f"table {task.shape.table.title} has no key that changes show, so rows of a condition "
            "would be duplicates of existing rows; run it without --where"
        )
