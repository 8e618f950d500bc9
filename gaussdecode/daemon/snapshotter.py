"""Snapshots: rows that were there before the stream, and those of tables added or repaired.

One thread beside the stream. It finds out what is to be read, reads it, and has it published
as entries of kind snapshot. How the rows of a table come to stand at one position:

*At once* (small tables, tables without a usable key): hold publications, take a view of the
database, read, publish at the view's position, let go.

*In chunks* (large tables): read chunk after chunk while the stream goes on, in views that are
renewed before they grow old, each chunk durable when it is read. Then hold publications,
take a last view, and wait until the stream has passed it: now every change since the first
view is known, landed or shown to the hold. Rows whose keys are among the changes are left out
of the chunks and read again in the last view; all others are what they were. So all rows
stand at the position of the last view.

Either way nothing behind that position has been published when the entry is, and what is
published later at or before it is ignored by readers for this table. See docs/adr/0050.

An error of one table is that table's: it is marked, the command that tries again is logged,
the others go on. After any end of the process, what `SnapshotStore` has goes on.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gaussdecode.collect.gate import HoldLostError
from gaussdecode.daemon.snapshotchunks import ATTEMPTS, ChunkedTable
from gaussdecode.daemon.snapshotitem import Context, Progress, Wanted
from gaussdecode.daemon.snapshotonce import take_at_once
from gaussdecode.daemon.snapshottools import Tools, key_names
from gaussdecode.errors import SourceError
from gaussdecode.land.names import table_directory
from gaussdecode.land.snapshots import Json
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.landing import EntryKind
from gaussdecode.settings import Config
from gaussdecode.source.export import PublishedTable, TableChangedError
from gaussdecode.source.relations import WhiteList

_ROUND_SECONDS: Final = 1.0  # between two looks at requests
_LIST_SECONDS: Final = 15.0  # between two looks at the publications; arbitrary
_RETRY_SECONDS: Final = 2.0
_TABLES_AT_ONCE: Final = 64  # small tables that share one hold; arbitrary
_CHANGES: Final = 20  # of a table, until it is given up; arbitrary
_CHANGED: Final = frozenset({"42703", "42P01"})  # undefined column, undefined table
_CONNECTION_CLASSES: Final = ("08", "53", "57P")  # SQLSTATEs that are no table's fault
_log = get_logger("snapshot")


class Snapshotter:
    """Takes snapshots in a thread of its own.

    Args:
        config: checked.
        context: the pipeline.
        on_finished: called with mode only, when every table is done.
    """

    def __init__(self, config: Config, context: Context, on_finished: Callable[[], object]) -> None:
        self._config = config
        self._settings = config.snapshot
        self._context = context
        self._on_finished = on_finished
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)
        self._tools = Tools(config, context, self._stop.is_set)
        self._white_list = WhiteList(config.decoding.white_tables)
        self._listed_at = float("-inf")
        self._is_prepared = False
        self._failed: set[str] = set()
        self._progress = self._tools.progress

    def start(self) -> None:
        """Begin to look for work."""
        self._thread.start()

    def close(self) -> None:
        """Stop at the next possible place; finished chunks stay."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._tools.close()

    def status(self) -> dict[str, Json]:
        """Progress by table."""
        return {title: progress.to_record() for title, progress in list(self._progress.items())}

    # ---- what is to be read ----------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            wait = _ROUND_SECONDS
            try:
                self._round()
            except (HoldLostError, SourceError) as error:
                wait = _RETRY_SECONDS
                if not self._stop.is_set():
                    _log.warning(Event.SNAPSHOT_WAITS, reason=str(error))
            except BaseException as error:  # noqa: BLE001 - a thread must not die in silence
                self._context.fail(error)
                return
            self._stop.wait(wait)

    def _round(self) -> None:
        """Look for work and do it."""
        log = self._context.log
        if log is None or log.position is None or not self._context.gate.is_attended:
            return
        store = self._tools.store
        if not self._is_prepared:
            store.prepare()
            self._settle_published()
            self._is_prepared = True
        requests = store.requests()
        is_initial = self._settings.mode != "none"
        is_list_due = is_initial and time.monotonic() - self._listed_at >= _LIST_SECONDS
        if not requests and not is_list_due and not store.tables():
            return
        with self._tools.reader() as reader:
            published = {
                table.title: table for table in reader.published(self._config.source.publication)
            }
        self._listed_at = time.monotonic()
        for title in self._progress.keys() - published.keys() - self._failed:
            del self._progress[title]  # it is gone
        wanted = self._requested(requests, published)
        wanted += self._missing(published, {item.title for item in wanted})
        self._take(wanted)
        states = {self._progress[item.title].state for item in wanted}
        if self._settings.mode == "only" and states <= {"done", "failed"}:
            self._on_finished()

    def _requested(
        self, requests: Sequence[tuple[str, Json]], published: dict[str, PublishedTable]
    ) -> list[Wanted]:
        store = self._tools.store
        found = []
        for path, request in requests:
            title = str(request.get("table"))
            table = published.get(title)
            if table is None:
                reason = "no configured publication has this table"
                self._mark_failed(title, reason, request.get("where"))
                store.answered(path)
                continue
            self._failed.discard(title)
            item = Wanted(table, request.get("where"), path)
            if (store.load(item.directory) or {}).get("request") != path:
                store.drop(item.directory)
            found.append(item)
        return found

    def _missing(self, published: dict[str, PublishedTable], taken: set[str]) -> list[Wanted]:
        """Tables that have no snapshot: those begun before, and with mode initial all."""
        store = self._tools.store
        ledger = store.ledger()
        begun = set(store.tables())
        found = []
        for title, table in published.items():
            directory = table_directory(table.schema, table.name)
            if title in taken or title in self._failed:
                continue
            if directory in begun:
                state = store.load(directory) or {}
                found.append(Wanted(table, state.get("where")))
            elif self._is_known(ledger, title, table) or not self._is_wanted(table):
                continue
            elif "*" in ledger and self._settings.on_new_table == "stream":
                store.note(title, {"state": "streamed", "oid": table.oid})
            else:
                found.append(Wanted(table))
        if "*" not in ledger and self._settings.mode != "none":
            store.note("*", {"state": "listed", "tables": sorted(published)})
        return found

    def _is_wanted(self, table: PublishedTable) -> bool:
        """Whether a table's rows are wanted without being asked for."""
        if self._settings.mode == "none" or table.title in self._settings.skip:
            return False
        return self._white_list.allows(table.schema, table.name)

    def _is_known(self, ledger: Json, title: str, table: PublishedTable) -> bool:
        """Whether the rows of this table were landed, or are not wanted; not of a namesake."""
        record = ledger.get(title)
        return record is not None and record.get("oid") in (table.oid, None)

    def _settle_published(self) -> None:
        """What was published when an earlier process ended, but not noted."""
        log, store, tools = self._tools.log, self._tools.store, self._tools
        for directory in store.tables():
            state = store.load(directory) or {}
            first = max(int(state.get("since_n", 0)) + 1, log.floor + 1)
            for entry in log.iterate(first, log.next_n - 1):
                tables = entry.extra.get("snapshot", {}).get("tables", {})
                if entry.kind is EntryKind.SNAPSHOT and directory in tables:
                    tools.note_done(entry)
                    store.drop(directory)
                    break
        last = log.next_n - 1
        for entry in log.iterate(max(last - 8, log.floor + 1), last):
            if entry.kind is EntryKind.SNAPSHOT:
                tools.note_done(entry)

    # ---- doing it --------------------------------------------------------------------

    def _take(self, wanted: list[Wanted]) -> None:
        for item in wanted:
            self._progress.setdefault(item.title, Progress()).state = "waiting"
        tools = self._tools
        small: list[Wanted] = []
        large: list[Wanted] = []
        for item in wanted:
            with self._isolated(item):
                with tools.reader() as reader:
                    task = tools.task(reader, item)
                    reader.check_readable(task.shape)
                fits = task.shape.pages <= tools.chunk_pages
                is_stubborn = tools.attempts.get(item.title, 0) >= ATTEMPTS
                is_small = fits or key_names(task) is None or is_stubborn
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
        except SourceError as error:
            if _is_nobodys(error):
                raise
            _log.info(Event.SNAPSHOT_WAITS, tables=len(group), reason=str(error))
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
        except SourceError as error:
            if _is_nobodys(error):
                raise
            count = tools.attempts[item.title] = tools.attempts.get(item.title, 0) + 1
            most = _CHANGES if _has_changed(error) else ATTEMPTS if error.retryable else 1
            self._listed_at = float("-inf")
            if _has_changed(error) or count >= most:
                tools.store.drop(item.directory)
            if count < most:
                _log.info(Event.SNAPSHOT_WAITS, table=item.title, attempt=count, reason=str(error))
                return
            self._mark_failed(item.title, str(error), item.where)
            if item.request is not None:
                tools.store.answered(item.request)

    def _mark_failed(self, title: str, reason: str, where: object = None) -> None:
        self._failed.add(title)
        condition = f" --where {str(where)!r}" if where else ""
        command = f"gaussdecode snapshot {self._config.path} --table {title!r}{condition}"
        progress = self._progress.setdefault(title, Progress())
        progress.state, progress.reason = "failed", f"{reason}; to try again: {command}"
        self._tools.store.note(title, {"state": "failed", "reason": reason, "oid": -1})
        _log.error(Event.SNAPSHOT_FAILED, table=title, reason=reason, retry=command)


def _has_changed(error: SourceError) -> bool:
    """Whether a table is not any more what it was."""
    return isinstance(error, TableChangedError) or error.sqlstate in _CHANGED


def _is_nobodys(error: SourceError) -> bool:
    """Whether an error is no table's, but the server's or the connection's."""
    if not error.retryable or _has_changed(error):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_CONNECTION_CLASSES)
