"""Views, readers, holds and the last step, for both ways of taking a snapshot.

Knows the source and the landing. Other modules decide which tables are wanted.
"""

import contextlib
import datetime as dt
import functools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Final

from gaussdecode.collect import keyset
from gaussdecode.collect.arrow import table_schema, with_source
from gaussdecode.collect.snapshot_gate import CollectorPort, Hold, HoldLostError
from gaussdecode.collect.tables import Landed, generated_columns, schema_record
from gaussdecode.errors import SourceError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.failpoints import SnapshotStep
from gaussdecode.land.schemas import SOURCE, fingerprint
from gaussdecode.land.snapshots import WHY_STOPPED, Json, SnapshotStore
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.columns import Known, Placed
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.names import safe_columns
from gaussdecode.model.quarantine import stopped_by
from gaussdecode.model.title import table_title
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot.file import Stamp
from gaussdecode.snapshot.item import Context, Progress, Wanted, title_of
from gaussdecode.snapshot.output import Output, SnapshotEntry
from gaussdecode.snapshot.read import ChunkReaders, Counts, TableTask, Total, open_reader
from gaussdecode.source.export import CANCELLED, TableReader, View
from gaussdecode.source.exporters import exporter_of
from gaussdecode.source.lookup import lookup_of

_LONGEST_HOLD: Final = 64  # times the first wait
PAGE_BYTES: Final = 8192
_RUNNING: Final = "waiting for the transactions that run on the server"
_log = get_logger("snapshot")


class Tools:
    """Opens, holds and commits for one landing.

    Args:
        config: checked.
        context: the pipeline.
        should_stop: asked while something waits.

    Attributes:
        config: the same.
        context: the same.
        should_stop: the same.
        progress: progress by table.
        total: total of what has been read.
        attempts: attempts by table, how often it could not be taken; forgotten when it has landed.
        chunk_pages: size of a chunk.
    """

    def __init__(self, config: Config, context: Context, should_stop: Callable[[], bool]) -> None:
        self.config = config
        self.context = context
        self.should_stop = should_stop
        self.progress: dict[str, Progress] = {}
        self.total = Total()
        self.attempts: dict[str, int] = {}
        self.chunk_pages = max(1, config.snapshot.chunk_bytes // PAGE_BYTES)
        self._exporter = exporter_of(config)
        self._catalog = lookup_of(config)
        self._wait_seconds = config.snapshot.hold_timeout

    def close(self) -> None:
        """Let go of the catalogue."""
        self._catalog.close()

    # ---- the landing -----------------------------------------------------------------

    @property
    def log(self) -> CommitLog:
        """The commit log, which is open."""
        assert self.context.log is not None
        return self.context.log

    @property
    def store(self) -> SnapshotStore:
        """Stored files of unfinished snapshots."""
        return self.context.snapshots

    @property
    def epoch(self) -> int:
        """Of the landing, where the source is."""
        return self.log.positions[self.source or self.log.source].epoch

    @property
    def source(self) -> str | None:
        """Whose tables they are, where there are several; else None."""
        return self.context.source

    def check_stop(self) -> None:
        """See whether to go on.

        Raises:
            HoldLostError: a stop was asked for.
        """
        if self.should_stop():
            raise HoldLostError("a stop was asked for")

    # ---- the source ------------------------------------------------------------------

    def readers(self) -> ChunkReaders:
        """Several connections that read."""
        return ChunkReaders(self.config, self.reader, self.epoch, self.should_stop, self.total)

    def reader(self) -> TableReader:
        """One connection that reads."""
        return open_reader(self._exporter, self.config, self.should_stop)

    def view(self, seconds: float) -> View:
        """Take a view; what hinders it is no table's error."""
        with self._said_to_wait():
            return self._open_view(seconds)

    @contextlib.contextmanager
    def _said_to_wait(self) -> Iterator[None]:
        """Tell those who look on what tables wait for that have no other reason."""
        waiting = [of for of in list(self.progress.values()) if of.reason is None]
        for progress in waiting:
            progress.wait_for(_RUNNING)
        yield
        for progress in waiting:
            if progress.reason == _RUNNING:
                progress.reason = None

    def _open_view(self, seconds: float) -> View:
        try:
            return self._exporter.open_view(seconds, self.should_stop)
        except SourceError as error:
            if error.sqlstate == CANCELLED:
                text = f"transactions on the server ran longer than {seconds:.0f} seconds"
                raise HoldLostError(f"{text}; the snapshot tries again") from error
            raise SourceError(error.reason, error.sqlstate) from error

    def task(self, reader: TableReader, item: Wanted) -> TableTask:
        """Look a table up, in the transaction of the reader; its rows land as the stream's do."""
        shape = reader.shape(item.table)
        relation = shape.relation
        names = safe_columns([column.name for column in relation.columns])
        known = self._catalog.look_up(relation)
        skipped = frozenset[int]()
        if self.config.decoding.skip_generated_columns:
            skipped = generated_columns(relation, known, shape.numbers)
        # The numbers are those of the view itself.
        placed = Placed(shape.numbers, None, Known(frozenset(shape.numbers)))
        record = schema_record(relation, names, known, placed, skipped)
        schema = table_schema(relation.columns, names, skipped)
        if self.source is not None:
            record[SOURCE] = self.source
            schema = with_source(schema)
        schema_id = fingerprint(record)
        landed = Landed(item.directory, schema_id, schema, tuple(names), relation, 0, skipped)
        return TableTask(shape, landed, item.where, record)

    def output(self, item: Wanted, task: TableTask, view: View, since_n: int) -> Output:
        """Output for the rows of a table, at the position of a view; see `Output`."""
        stamp = Stamp(int(view.lsn), view.through_csn, dt.datetime.now(dt.UTC), task.source)
        return Output(item, task, stamp, self.log, self.config.landing, since_n)

    def begin_progress(
        self, item: Wanted, task: TableTask, chunks: int, chunks_done: int = 0
    ) -> Counts:
        """Show that a table is being read."""
        progress = self.progress.setdefault(item.title, Progress())
        return progress.begin_reading(chunks, chunks_done, task.shape.row_estimate)

    # ---- together --------------------------------------------------------------------

    @contextlib.contextmanager
    def held(self, columns: Mapping[str, Sequence[str]]) -> Iterator[tuple[Hold, View]]:
        """Hold entries up and take a view after all that is committed.

        Args:
            columns: columns by directory, what is to be seen of the changes of these tables.
        """
        gate, settings = self.context.gate, self.config.snapshot
        # The transactions that run now are waited for here, where nobody waits for us.
        self.view(settings.transaction_timeout).close()
        hold = gate.hold(columns)
        try:
            longest = _LONGEST_HOLD * settings.hold_timeout
            seconds, self._wait_seconds = self._wait_seconds, min(2 * self._wait_seconds, longest)
            with self.view(seconds) as view:
                self._wait_seconds = settings.hold_timeout
                shown = functools.partial(gate.shown, hold)
                reach = functools.partial(gate.reach_csn, hold)
                with self._said_to_wait():
                    view.find_position(hold.boundary, shown, reach)
                if view.lsn < hold.boundary:
                    raise HoldLostError("the server's view is before the committed position")
                self.store.reach(SnapshotStep.SNAPSHOT_HELD)
                yield hold, view
        finally:
            gate.release(hold)

    def commit(
        self,
        hold: Hold,
        view: View,
        outputs: Sequence[Output],
        noted: Mapping[str, object] | None = None,
    ) -> None:
        """Commit one entry with the rows that were read; in the collector's thread.

        Args:
            hold: hold of the tables.
            view: view that they were read in.
            outputs: outputs of each.
            noted: records for the ledger, besides that the tables are done.
        """
        view.confirm(functools.partial(self.context.gate.shown, hold))
        files = [file for output in outputs for file in output.finish(self.epoch)]
        entry = SnapshotEntry(outputs, files, self.epoch, self.source)
        store = self.store
        store.reach(SnapshotStep.SNAPSHOT_WRITTEN)
        committed: list[CommitEntry] = []

        def act(port: CollectorPort) -> None:
            committed.append(entry.commit(self.context, port))

        self.context.gate.run(hold, act)
        store.reach(SnapshotStep.SNAPSHOT_COMMITTED)
        self.note_done(committed[0], noted)
        store.reach(SnapshotStep.SNAPSHOT_NOTED)
        for output in outputs:
            item = output.item
            self.attempts.pop(item.title, None)
            if item.request is not None:
                store.answered(item.request)
            progress = self.progress[item.title]
            progress.state, progress.reason = "done", None
        store.reach(SnapshotStep.SNAPSHOT_ANSWERED)

    def finish_earlier(self) -> None:
        """Note what was committed when an earlier process ended, but not noted."""
        log, store = self.log, self.store
        for directory in store.tables():
            state = store.load(directory) or {}
            first = max(int(state.get("since_n", 0)) + 1, log.floor + 1)
            for entry in log.iterate(first, log.next_n - 1):
                tables = entry.extra.get("snapshot", {}).get("tables", {})
                if self._is_ours(entry) and directory in tables:
                    after = log.iterate(entry.n + 1, log.next_n - 1)
                    self.note_done(entry, stopped=stopped_by(after))
                    store.drop(directory)
                    break
        last = log.next_n - 1
        recent = list(log.iterate(max(last - 8, log.floor + 1), last))
        for entry in recent:
            if self._is_ours(entry):
                later = [of for of in recent if of.n > entry.n]
                self.note_done(entry, stopped=stopped_by(later))

    def _is_ours(self, entry: CommitEntry) -> bool:
        """Whether an entry has tables of this source that were read."""
        return entry.kind is EntryKind.SNAPSHOT and entry.extra.get("source") == self.context.source

    def note_done(
        self,
        entry: CommitEntry,
        noted: Mapping[str, object] | None = None,
        stopped: Container[str] = (),
    ) -> None:
        """Record that the tables of an entry are done.

        Args:
            entry: of a snapshot.
            noted: records for the ledger, besides.
            stopped: directories of tables that went into quarantine after the entry.
        """
        said = entry.extra["snapshot"]
        ledger = self.store.ledger()
        found: dict[str, Json] = {}
        for directory, record in said["tables"].items():
            title = table_title(record["schema"], record["name"])
            known = ledger.get(title, {})
            if known.get("n", -1) >= entry.n or directory in stopped:
                continue
            done = {"state": "done", "n": entry.n, "lsn": said["lsn"], "rows": record["rows"]}
            found[title] = {**done, "oid": record["oid"], "request": known.get("request")}
            found[title] |= noted or {}
            if record.get("where") is None:
                found[title][WHY_STOPPED] = None
        if found:
            self.store.note(found)
        for title, done in found.items():
            named = title_of(self.source, title)
            _log.info(Event.SNAPSHOT_LANDED, table=named, entry=entry.n, rows=done["rows"])


def key_names(task: TableTask) -> list[str] | None:
    """Names of the key's columns as they land; None without a key that can be used."""
    key = task.record["key"]
    if not key:
        return None
    columns = {column.name: column for column in task.shape.relation.columns}
    if not keyset.is_usable([columns[name].type for name in key]):
        return None
    landed = dict(zip(columns, task.landed.names, strict=True))
    return [landed[name] for name in key]
