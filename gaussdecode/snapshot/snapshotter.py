"""Take snapshots: rows that were there before the stream, and those of tables added or repaired.

One thread beside the stream. It finds the tables to read, reads them, and commits them as entries of kind
snapshot. The rows of a table come to one position in one of two ways:

*At once* (small tables, tables without a usable key): hold publications, take a view of the
database, read, commit at the view's position, let go.

*In chunks* (large tables): read chunk after chunk while the stream goes on, in views that are
renewed before they grow old, each chunk durable when it is read. Then hold publications,
take a last view, and wait until the stream has passed it: now every change since the first
view is known, landed or shown to the hold. Rows whose keys are among the changes are left out
of the chunks and read again in the last view; all others are what they were. So all rows
stand at the position of the last view.

Either way nothing after that position has been committed when the entry is, and what is
committed later at or before it is ignored by readers for this table. See docs/adr/0050.

An error of one table is that table's: it is marked, the command that tries again is logged,
the others go on. After any end of the process, what `SnapshotStore` has goes on.
"""

import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from gaussdecode.collect.snapshot_gate import HoldLostError
from gaussdecode.errors import ConfigError, LoginRefusedError, SourceError, SourceRefusedError
from gaussdecode.land.failpoints import SnapshotStep
from gaussdecode.land.names import table_directory
from gaussdecode.land.snapshots import Json
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.quarantine import DROPPED
from gaussdecode.model.title import split_title
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot.attempts import Attempts
from gaussdecode.snapshot.choice import (
    ALL,
    LEFT_OUT,
    NEEDS_ALL_ROWS,
    QUARANTINED,
    Beginning,
    Choice,
    Chooser,
    Origin,
    needs_all_rows,
)
from gaussdecode.snapshot.doubts import Doubts, answered
from gaussdecode.snapshot.dropped import EVERY_SOURCE, REFUSED, let_go
from gaussdecode.snapshot.following import follow_names
from gaussdecode.snapshot.item import Context, Progress, Wanted, title_of
from gaussdecode.snapshot.tools import Tools
from gaussdecode.source.coverage import listing
from gaussdecode.source.export import PublishedTable
from gaussdecode.source.relations import WhiteList
from gaussdecode.source.sqlstate import WRONG_PASSWORD

_ROUND_SECONDS: Final = 1.0  # between two looks at requests
_LIST_SECONDS: Final = 15.0  # between two looks at the publications; arbitrary
_RETRY_SECONDS: Final = 2.0
_MOST_TOLD: Final = 20  # tables in a line of the log; arbitrary
_NOT_PUBLISHED: Final = "no configured publication has this table"
_NOT_LISTED: Final = (
    "it is not on decoding.white-table-list, so its changes do not land, and rows without them "
    "would stay as they are; put it on the list, restart the daemon, and ask again"
)
_OF_THE_FIRST: Final = "it is on landing.replicated-tables, and lands from the first source alone"
_EARLIER: Final = "this landing began without snapshots, and takes none until they are asked for"
_IGNORED: Final = "its changes are left out (snapshot.on-new-table)"
_log = get_logger("snapshot")


class Snapshotter:
    """Takes snapshots of one source in a thread of its own.

    Args:
        config: configuration of the source; checked.
        context: the pipeline.
        on_finished: called with mode only, when every table is done.

    Attributes:
        faults: faults by path, why a request of an operator's cannot be used.
    """

    def __init__(self, config: Config, context: Context, on_finished: Callable[[], object]) -> None:
        self._config = config
        self._settings = config.snapshot
        self._context = context
        self._on_finished = on_finished
        self._stop = threading.Event()
        self._source = context.source
        name = "snapshot" if self._source is None else f"snapshot-{self._source}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._tools = Tools(config, context, self._stop.is_set)
        self._white_list = WhiteList(config.decoding.white_tables)
        self._listed_at = float("-inf")
        self._has_finished_earlier = False
        self._has_looked = False
        self._may_be_asked = True  # the ledger tells
        self._lists = self._settings.wants_rows or self._settings.on_new_table == "ignore"
        self.faults: dict[str, str] = {}
        self._failed: set[str] = set()
        self._unlisted: AbstractSet[str] = frozenset()
        self._doubts: Doubts | None = None
        self._order_at = float("-inf")
        self._progress = self._tools.progress
        self._attempts = Attempts(self._tools, self._mark_failed)

    def start(self) -> None:
        """Begin to look for work."""
        self._thread.start()

    def stop(self) -> None:
        """Have it stop at the next possible place."""
        self._stop.set()

    def close(self) -> None:
        """Stop at the next possible place; finished chunks stay."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._tools.close()

    @property
    def is_settled(self) -> bool:
        """Whether no table waits for its existing rows, as far as the source was asked."""
        waits = any(progress.is_open for progress in list(self._progress.values()))
        return self._has_looked and not waits

    @property
    def read(self) -> tuple[int, int]:
        """Rows and bytes read since the start."""
        return self._tools.total.read

    def status(self) -> dict[str, Json]:
        """Progress by table as `title_of` spells it, and what is left out altogether."""
        table_filter = self._context.table_filter
        ignored = [] if table_filter is None else table_filter.ignored
        found = {title: Progress("ignored", reason=_IGNORED).to_record() for title in ignored}
        for title, progress in list(self._progress.items()):
            found[title] = progress.to_record()
        held = {} if table_filter is None else table_filter.quarantined
        for title, reason in held.items():
            found[title] = Progress("quarantined", reason=reason).to_record()
        return {title_of(self._source, title): record for title, record in found.items()}

    # ---- what is to be read ----------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            wait = _ROUND_SECONDS
            try:
                self._round()
            except (HoldLostError, SourceError) as error:
                wait = _RETRY_SECONDS
                if not self._stop.is_set():
                    self._note_wait(str(error))
                    self._spare_account(error)
            except BaseException as error:  # noqa: BLE001 - a thread must not die in silence
                self._context.fail(error)
                return
            self._stop.wait(wait)

    def _note_wait(self, reason: str) -> None:
        """Nothing can be read now; say why."""
        _log.warning(Event.SNAPSHOT_WAITS, reason=self._of_source(reason))
        for progress in self._progress.values():
            progress.wait_for(reason)

    def _spare_account(self, error: Exception) -> None:
        """Leave a wrong password to the sessions: a GaussDB locks an account after ten of them."""
        is_wrong = isinstance(error, LoginRefusedError) and error.sqlstate == WRONG_PASSWORD
        if is_wrong and self._config.source.kind is SourceKind.GAUSSDB:
            self._context.restart_session()

    def _round(self) -> None:
        """Look for work and do it."""
        log = self._context.log
        if log is None or log.position is None or not self._context.gate.is_attended:
            return
        store = self._tools.store
        if not self._has_finished_earlier:
            self._tools.finish_earlier()
            self._has_finished_earlier = True
        requests = self._requests()
        is_list_due = self._lists and (self._has_news() or self._is_list_old())
        is_in_doubt = self._is_in_doubt()
        if not (requests or is_list_due or store.tables() or self._is_asked() or is_in_doubt):
            self._has_looked = True
            return
        with self._tools.reader() as reader:
            found = {table.title: table for table in reader.published()}
        published = {
            title: table
            for title, table in found.items()
            if self._white_list.allows(table.schema, table.name)
            and not self._context.is_left_to_first(table.schema, table.name)
        }
        self._unlisted = found.keys() - published.keys()
        self._listed_at = time.monotonic()
        self._follow_names(published)
        self._forget_others(published)
        self._give_up_stopped()
        if is_in_doubt:
            self._order(published)
        requests = self._requests()
        wanted = self._requested(requests, published)
        wanted += self._missing(published, {item.title for item in wanted})
        self._attempts.take(self._landing_now(wanted))
        self._has_looked = True
        if self._settings.mode == "only":
            self._finish({self._progress[item.title].state for item in wanted})

    def _requests(self) -> list[tuple[str, Json]]:
        """What operators have asked for; what cannot be read is said once, and passed over."""
        found, faults = self._tools.store.requests()
        for path, reason in faults.items():
            if self.faults.get(path) != reason:
                _log.warning(Event.SNAPSHOT_REQUEST_UNREADABLE, reason=reason)
        self.faults = faults
        return found

    def _is_asked(self) -> bool:
        """Whether a table that was asked for has not landed: it changed while it was read.

        The ledger is as long as there are tables, and is not read again each time for nothing.
        """
        if self._may_be_asked:
            records = self._tools.store.ledger().values()
            self._may_be_asked = any(record.get("state") == "asked" for record in records)
        return self._may_be_asked

    def _is_in_doubt(self) -> bool:
        """Whether suspect entries want tables to be read again, and it is time for it."""
        if self._config.landing.on_suspect != "snapshot":
            return False
        if self._doubts is None:
            self._doubts = Doubts(self._tools.log, self._tools.store, self._source)
        return self._doubts.look() and time.monotonic() >= self._order_at

    def _order(self, published: dict[str, PublishedTable]) -> None:
        """Have the tables that suspect entries may mean read again, all of their rows."""
        doubts, store = self._doubts, self._tools.store
        assert doubts is not None
        ledger = store.ledger()
        records: dict[str, Json] = {}
        for title, table in published.items():
            known = ledger.get(title, {})
            directory = table_directory(table.schema, table.name)
            if not doubts.concerns(directory, table.oid) or known.get("state") in LEFT_OUT:
                continue
            records[title] = {**self._asked(table), "request": known.get("request")}
            store.drop(directory)
            self._failed.discard(title)
        store.note({**records, **doubts.answered()})
        doubts.forget()
        self._order_at = time.monotonic() + self._settings.suspect_interval
        store.reach(SnapshotStep.TABLE_ASKED)
        titles = sorted(title_of(self._source, title) for title in records)
        _log.warning(Event.TABLES_IN_DOUBT, tables=listing(titles[:_MOST_TOLD], len(titles)))

    def _is_list_old(self) -> bool:
        is_late = time.monotonic() - self._listed_at >= _LIST_SECONDS
        return is_late or self._attempts.has_failed

    def _has_news(self) -> bool:
        """Whether a table has shown in the stream that may be new."""
        table_filter = self._context.table_filter
        return table_filter is not None and table_filter.take_news()

    def _forget_others(self, published: dict[str, PublishedTable]) -> None:
        """Forget what was begun of tables that are not published any more."""
        store = self._tools.store
        for title in self._progress.keys() - published.keys() - self._failed:
            del self._progress[title]
        directories = {table_directory(of.schema, of.name) for of in published.values()}
        for directory in set(store.tables()) - directories:
            store.drop(directory)
        for title, record in store.ledger().items():
            if record.get("state") == "asked" and title not in published:
                self._mark_failed(title, self._why_unpublished(title))

    def _follow_names(self, published: dict[str, PublishedTable]) -> None:
        """Write down of which tables changes are missed now, and what goes along with renamed ones."""
        follow_names(self._tools, {title: table.oid for title, table in published.items()})

    def _give_up_stopped(self) -> None:
        """Forget what was begun of tables that have stopped since; who asked for it has waited."""
        store = self._tools.store
        for title, record in store.ledger().items():
            if record.get("state") == QUARANTINED:
                directory = table_directory(*split_title(title))
                begun = store.load(directory) or {}
                for path in {begun.get("request"), record.get("request")} - {None}:
                    store.answered(path)
                store.drop(directory)

    def _refuse_condition(self, title: str, path: str) -> None:
        """Answer who asked for some rows of a table that needs all of them."""
        named, command = title_of(self._source, title), self._command(title)
        _log.error(Event.SNAPSHOT_FAILED, table=named, reason=NEEDS_ALL_ROWS, retry=command)
        self._tools.store.answered(path)

    def _command(self, title: str, more: str = "") -> str:
        """The command that reads a table again."""
        whose = "" if self._source is None else f" --source {self._source}"
        return f"gaussdecode snapshot {self._config.path} --table {title!r}{whose}{more}"

    def _of_source(self, reason: str) -> str:
        return reason if self._source is None else f"{self._source}: {reason}"

    def _requested(
        self, requests: Sequence[tuple[str, Json]], published: dict[str, PublishedTable]
    ) -> list[Wanted]:
        """Tables that an operator asked for by name; those asked for together are noted."""
        store = self._tools.store
        ledger = store.ledger()
        found: list[Wanted] = []
        for path, request in requests:
            if request.get("all"):
                self._ask_all(published, path)
                store.answered(path)
                continue
            title = str(request.get("table"))
            if request.get(DROPPED):
                self._let_go(title, path)
                continue
            if any(item.title == title for item in found):
                continue  # asked for twice: an entry has a table once, so the next round reads it again
            table = published.get(title)
            if table is None:
                reason = self._why_unpublished(title)
                if request.get(EVERY_SOURCE):
                    self._pass_over(title, reason, path)
                    continue
                self._mark_failed(title, reason, request.get("where"))
                store.answered(path)
                continue
            if request.get("where") and needs_all_rows(ledger.get(title, {})):
                self._refuse_condition(title, path)
                continue
            self._failed.discard(title)
            item = Wanted(table, request.get("where"), path)
            if (store.load(item.directory) or {}).get("request") != path:
                store.drop(item.directory)
            found.append(item)
        return found

    def _why_unpublished(self, title: str) -> str:
        """Why a table that was asked for is not read."""
        if self._context.is_left_to_first(*split_title(title)):
            return _OF_THE_FIRST
        return _NOT_LISTED if title in self._unlisted else _NOT_PUBLISHED

    def _pass_over(self, title: str, reason: str, path: str) -> None:
        """Every source was asked for a table, and this one does not have it: nothing of it has failed."""
        store = self._tools.store
        store.note({title: {**store.ledger().get(title, {}), REFUSED: reason}})
        store.answered(path)
        named = title_of(self._source, title)
        _log.warning(Event.SNAPSHOT_FAILED, table=named, reason=reason)

    def _let_go(self, title: str, path: str) -> None:
        """Land that a table has no rows any more; its error is that of who asked."""
        tools = self._tools
        try:
            let_go(tools, title, path)
        except SourceRefusedError as error:
            known = tools.store.ledger().get(title, {})  # what was decided for the table stays
            tools.store.note({title: {**known, REFUSED: error.reason}})
            tools.store.answered(path)
            named = title_of(self._source, title)
            _log.error(Event.SNAPSHOT_FAILED, table=named, reason=error.reason)
            return
        tools.store.drop(table_directory(*split_title(title)))
        self._failed.discard(title)
        table_filter = self._context.table_filter
        if table_filter is not None and title in table_filter.quarantined:
            self._context.restart_session()  # a table of its name lands again

    def _ask_all(self, published: dict[str, PublishedTable], path: str) -> None:
        """Note every table as asked for, and that this landing has snapshots from now on."""
        store = self._tools.store
        beginning = Beginning.of(store.ledger())
        records: dict[str, Json] = answered(self._tools.log.next_n - 1)
        if beginning is not None and self._settings.mode != "none":
            oids = {title: table.oid for title, table in published.items()}
            records[ALL] = beginning.switched("only").listed(oids).to_record()
        for title, table in published.items():
            records[title] = {**self._asked(table), "request": path}
            store.drop(table_directory(table.schema, table.name))
            self._failed.discard(title)
        store.note(records)
        store.reach(SnapshotStep.TABLE_ASKED)

    def _asked(self, table: PublishedTable) -> Json:
        self._may_be_asked = True
        return {"state": "asked", "oid": table.oid, "n": self._tools.log.next_n - 1}

    def _missing(self, published: dict[str, PublishedTable], taken: set[str]) -> list[Wanted]:
        """Tables whose rows are wanted, but not by a request; those begun before first of all."""
        store = self._tools.store
        chooser = Chooser(self._settings, self._listed(published))
        begun = set(store.tables())
        streamed: dict[str, Json] = {}
        found = []
        for title, table in published.items():
            directory = table_directory(table.schema, table.name)
            if title in taken or title in self._failed:
                continue
            if directory in begun:
                found.append(Wanted(table, (store.load(directory) or {}).get("where")))
                continue
            choice = chooser.choose(title, table.oid)
            if choice is Choice.LAND:
                found.append(Wanted(table))
            elif choice is Choice.STREAM:
                streamed[title] = {"state": "streamed", "oid": table.oid}
            elif choice is Choice.IGNORE and self._context.table_filter is not None:
                self._context.table_filter.ignore(title, table.oid)
        if streamed:
            store.note(streamed)
        return found

    def _listed(self, published: dict[str, PublishedTable]) -> Json:
        """The ledger, in which the tables of the beginning are known."""
        store = self._tools.store
        beginning = Beginning.of(store.ledger())
        assert beginning is not None
        if beginning.tables is None:
            oids = {title: table.oid for title, table in published.items()}
            store.note({ALL: beginning.listed(oids).to_record()})
            if beginning.origin is Origin.EARLIER and self._settings.mode != "none":
                command = f"gaussdecode snapshot {self._config.path} --all"
                reason = self._of_source(_EARLIER)
                _log.info(Event.SNAPSHOT_WAITS, tables=len(oids), reason=reason, land_it=command)
        return store.ledger()

    def _landing_now(self, wanted: list[Wanted]) -> list[Wanted]:
        """Those whose changes land; a table that was left out needs a new session first."""
        table_filter = self._context.table_filter
        assert table_filter is not None
        for item in wanted:
            self._progress.setdefault(item.title, Progress()).begin_waiting()
        left_out = [item for item in wanted if table_filter.leaves_out(item.title, item.table.oid)]
        if left_out:
            ledger = self._tools.store.ledger()
            asked = {}
            for item in left_out:
                request = item.request or ledger.get(item.title, {}).get("request")
                asked[item.title] = {**self._asked(item.table), "request": request}
            self._tools.store.note(asked)
            self._tools.store.reach(SnapshotStep.TABLE_ASKED)
            self._context.restart_session()
            self._listed_at = float("-inf")
        return [item for item in wanted if item not in left_out]

    def _finish(self, states: set[str]) -> None:
        """With mode only: end the daemon when nothing is left to do."""
        if not states <= {"done", "failed"}:
            return
        if self._failed:
            titles = ", ".join(sorted(self._failed))
            text = f"snapshot.mode only: not all tables could be landed; failed: {titles}"
            self._context.fail(
                ConfigError(f"{text}; the log has the reason, and the command to try again")
            )
        else:
            self._on_finished()

    def _mark_failed(self, title: str, reason: str, where: object = None) -> None:
        self._failed.add(title)
        condition = f" --where {str(where)!r}" if where else ""
        command = self._command(title, condition)
        progress = self._progress.setdefault(title, Progress())
        progress.state, progress.reason = "failed", f"{reason}; to try again: {command}"
        last = self._tools.log.next_n - 1
        known = self._tools.store.ledger().get(title, {})
        record = {"state": "failed", "reason": reason, "n": last, "request": known.get("request")}
        if known.get("oid"):
            record["oid"] = known["oid"]
        self._tools.store.note({title: record})
        named = title_of(self._source, title)
        _log.error(Event.SNAPSHOT_FAILED, table=named, reason=reason, retry=command)
