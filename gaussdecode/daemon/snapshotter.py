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
import dataclasses
import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gaussdecode.collect import keyset
from gaussdecode.collect.arrow import table_schema
from gaussdecode.collect.gate import Gate, Hold, HoldLostError, Port
from gaussdecode.collect.tables import Landed, generated_columns, schema_record
from gaussdecode.daemon.snapshotfile import SnapshotFile, Stamp, Stamper
from gaussdecode.daemon.snapshotread import (
    ChunkReaders,
    Counts,
    TableTask,
    open_reader,
    parallel,
)
from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.names import safe_columns, table_directory
from gaussdecode.land.publication import Draft, HiddenFile
from gaussdecode.land.schemas import SchemaStore, fingerprint
from gaussdecode.land.snapshots import Json, SnapshotStore
from gaussdecode.land.writer import Writer
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, Position, SchemaChange, Truncate
from gaussdecode.settings import Config
from gaussdecode.source.export import (
    CANCELLED,
    Chunk,
    Leaf,
    PublishedTable,
    TableChangedError,
    TableReader,
    TableShape,
    View,
    cut,
)
from gaussdecode.source.lookup import lookup_of
from gaussdecode.source.relations import WhiteList
from gaussdecode.source.settings import source_address

_ROUND_SECONDS: Final = 1.0  # between two looks at requests
_LIST_SECONDS: Final = 15.0  # between two looks at the publications; arbitrary
_RETRY_SECONDS: Final = 2.0
_TABLES_AT_ONCE: Final = 64  # small tables that share one hold; arbitrary
_KEYS_AT_ONCE: Final = 5000  # rows read again by one statement; arbitrary
_ATTEMPTS: Final = 5  # a table that changes its shape so often is read at once
_CHANGES: Final = 20  # of a table, until it is given up; arbitrary
_CHANGED: Final = frozenset({"42703", "42P01"})  # undefined column, undefined table
_LONGEST_HOLD: Final = 64  # times the first wait
_PAGE_BYTES: Final = 8192
_CONNECTION_CLASSES: Final = ("08", "53", "57P")  # SQLSTATEs that are no table's fault
_log = get_logger("snapshot")


class Context(Protocol):
    """What a snapshot needs of the pipeline."""

    @property
    def log(self) -> CommitLog | None:
        """The commit log, once the landing is open."""

    @property
    def writer(self) -> Writer | None:
        """The stream's writer."""

    @property
    def schemas(self) -> SchemaStore:
        """Of the landing."""

    @property
    def gate(self) -> Gate:
        """Holds publications up."""

    def snapshot_landed(self, entry: CommitEntry) -> None:
        """Count an entry."""

    def fail(self, error: BaseException) -> None:
        """End the daemon."""


@dataclasses.dataclass(slots=True)
class Wanted:
    """A table to be read.

    Attributes:
        table: as published.
        where: condition, or None.
        request: path of the request that asked for it, or None.
    """

    table: PublishedTable
    where: str | None = None
    request: str | None = None

    @property
    def title(self) -> str:
        """``schema.name``."""
        return self.table.title

    @property
    def directory(self) -> str:
        """Encoded name."""
        return table_directory(self.table.schema, self.table.name)


@dataclasses.dataclass(slots=True)
class Progress:
    """How far one table is, for those who look on."""

    state: str = "waiting"
    counts: Counts = dataclasses.field(default_factory=Counts)
    reason: str | None = None
    began: float = dataclasses.field(default_factory=time.monotonic)

    def to_record(self) -> Json:
        """Make it fit for JSON."""
        counts = self.counts
        left = None
        if self.state == "reading" and counts.chunks_done:
            spent = time.monotonic() - self.began
            left = round(spent * (counts.chunks - counts.chunks_done) / counts.chunks_done, 1)
        record = dataclasses.asdict(counts)
        return {"state": self.state, **record, "seconds_left": left, "reason": self.reason}


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
        self._address = source_address(config)
        self._catalog = lookup_of(config)
        self._white_list = WhiteList(config.decoding.white_tables)
        self._wait_seconds = self._settings.hold_timeout
        self._listed_at = float("-inf")
        self._is_prepared = False
        self._failed: set[str] = set()
        self._attempts: dict[str, int] = {}
        self.progress: dict[str, Progress] = {}

    def start(self) -> None:
        """Begin to look for work."""
        self._thread.start()

    def close(self) -> None:
        """Stop at the next possible place; finished chunks stay."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._catalog.close()

    def status(self) -> dict[str, Json]:
        """Progress by table."""
        return {title: progress.to_record() for title, progress in list(self.progress.items())}

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
        store = SnapshotStore(log.disk)
        if not self._is_prepared:
            store.prepare()
            self._settle_published(log, store)
            self._is_prepared = True
        requests = store.requests()
        is_initial = self._settings.mode != "none"
        is_list_due = is_initial and time.monotonic() - self._listed_at >= _LIST_SECONDS
        if not requests and not is_list_due and not store.tables():
            return
        with self._reader() as reader:
            published = {
                table.title: table for table in reader.published(self._config.source.publication)
            }
        self._listed_at = time.monotonic()
        for title in self.progress.keys() - published.keys() - self._failed:
            del self.progress[title]  # it is gone
        wanted = self._requested(store, requests, published)
        wanted += self._missing(store, published, {item.title for item in wanted})
        self._take(log, store, wanted)
        states = {self.progress[item.title].state for item in wanted}
        if self._settings.mode == "only" and states <= {"done", "failed"}:
            self._on_finished()

    def _requested(
        self, store: SnapshotStore, requests: Sequence[tuple[str, Json]],
        published: dict[str, PublishedTable],
    ) -> list[Wanted]:  # fmt: skip
        found = []
        for path, request in requests:
            title = str(request.get("table"))
            table = published.get(title)
            if table is None:
                reason = "no configured publication has this table"
                self._mark_failed(store, title, reason, request.get("where"))
                store.answered(path)
                continue
            self._failed.discard(title)
            item = Wanted(table, request.get("where"), path)
            if (store.load(item.directory) or {}).get("request") != path:
                store.drop(item.directory)
            found.append(item)
        return found

    def _missing(
        self, store: SnapshotStore, published: dict[str, PublishedTable], taken: set[str]
    ) -> list[Wanted]:
        """Tables that have no snapshot: those begun before, and with mode initial all."""
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

    def _settle_published(self, log: CommitLog, store: SnapshotStore) -> None:
        """What was published when an earlier process ended, but not noted."""
        for directory in store.tables():
            state = store.load(directory) or {}
            first = max(int(state.get("since_n", 0)) + 1, log.floor + 1)
            for entry in log.iterate(first, log.next_n - 1):
                tables = entry.extra.get("snapshot", {}).get("tables", {})
                if entry.kind is EntryKind.SNAPSHOT and directory in tables:
                    self._note_done(store, entry)
                    store.drop(directory)
                    break
        last = log.next_n - 1
        for entry in log.iterate(max(last - 8, log.floor + 1), last):
            if entry.kind is EntryKind.SNAPSHOT:
                self._note_done(store, entry)

    # ---- doing it --------------------------------------------------------------------

    def _take(self, log: CommitLog, store: SnapshotStore, wanted: list[Wanted]) -> None:
        for item in wanted:
            self.progress.setdefault(item.title, Progress()).state = "waiting"
        small: list[Wanted] = []
        large: list[Wanted] = []
        for item in wanted:
            with self._isolated(store, item):
                with self._reader() as reader:
                    task = self._task(reader, item)
                    reader.check_readable(task.shape)
                fits = task.shape.pages <= self._chunk_pages
                has_key = self._key_names(task) is not None
                is_stubborn = self._attempts.get(item.title, 0) >= _ATTEMPTS
                (small if fits or not has_key or is_stubborn else large).append(item)
        for first in range(0, len(small), _TABLES_AT_ONCE):
            self._take_together(log, store, small[first : first + _TABLES_AT_ONCE])
        for item in large:
            with self._isolated(store, item):
                self._take_in_chunks(log, store, item)

    def _take_together(self, log: CommitLog, store: SnapshotStore, group: list[Wanted]) -> None:
        """Read several tables at once; after an error of one, each by itself."""
        self._check_stop()
        try:
            self._take_at_once(log, store, group)
            return
        except (SourceRefusedError, TableChangedError) as error:
            _log.info(Event.SNAPSHOT_WAITS, tables=len(group), reason=str(error))
        for item in group:
            with self._isolated(store, item):
                self._take_at_once(log, store, [item])

    @contextlib.contextmanager
    def _isolated(self, store: SnapshotStore, item: Wanted) -> Iterator[None]:
        """Keep an error of one table from the others."""
        self._check_stop()
        try:
            yield
        except SourceError as error:
            has_changed = isinstance(error, TableChangedError) or error.sqlstate in _CHANGED
            if error.retryable and not has_changed and _is_of_connection(error):
                raise
            count = self._attempts[item.title] = self._attempts.get(item.title, 0) + 1
            most = _CHANGES if has_changed else _ATTEMPTS if error.retryable else 1
            self._listed_at = float("-inf")
            if has_changed or count >= most:
                store.drop(item.directory)
            if count < most:
                _log.info(Event.SNAPSHOT_WAITS, table=item.title, attempt=count, reason=str(error))
                return
            self._mark_failed(store, item.title, str(error), item.where)
            if item.request is not None:
                store.answered(item.request)

    def _mark_failed(
        self, store: SnapshotStore, title: str, reason: str, where: object = None
    ) -> None:
        self._failed.add(title)
        condition = f" --where {str(where)!r}" if where else ""
        command = f"gaussdecode snapshot {self._config.path} --table {title!r}{condition}"
        progress = self.progress.setdefault(title, Progress())
        progress.state, progress.reason = "failed", f"{reason}; to try again: {command}"
        store.note(title, {"state": "failed", "reason": reason, "oid": -1})
        _log.error(Event.SNAPSHOT_FAILED, table=title, reason=reason, retry=command)

    # ---- at once ---------------------------------------------------------------------

    def _take_at_once(self, log: CommitLog, store: SnapshotStore, group: list[Wanted]) -> None:
        """Hold, view, read, publish."""
        with self._held([item.directory for item in group]) as (hold, view):
            readers = self._readers(log)
            outputs: list[_Output] = []
            work: list[tuple[TableTask, Chunk, Counts]] = []
            try:
                with self._reader() as reader:
                    reader.begin(view)
                    for item in group:
                        task = self._task(reader, item)
                        chunks = cut(task.shape.leaves, self._chunk_pages)
                        counts = self._begin_progress(item, task, len(chunks))
                        outputs.append(_Output(item, task, self._stamper(view)))
                        work += [(task, chunk, counts) for chunk in chunks]
                    reader.end()
                by_task = {id(output.task): output for output in outputs}
                readers.read_all(
                    view, work, lambda task, _, rows: self._land(log, by_task[id(task)], rows)
                )
                self._publish(log, store, hold, outputs)
            except BaseException:
                for output in outputs:
                    output.abandon()
                raise

    def _land(self, log: CommitLog, output: "_Output", rows: Iterator[pa.Table]) -> None:
        """Write the rows of a chunk to a file that this thread alone has."""
        file = output.borrow(log, self._config.landing.compression)
        for part in rows:
            file.write(part)
            if file.size >= self._config.landing.target_file_size:
                output.close(file)
                file = output.borrow(log, self._config.landing.compression)
        output.give_back(file)

    # ---- in chunks -------------------------------------------------------------------

    def _take_in_chunks(self, log: CommitLog, store: SnapshotStore, item: Wanted) -> None:
        directory = item.directory
        state = store.load(directory)
        if state is None or "fingerprint" not in state:
            state = {
                "where": item.where,
                "since_n": log.next_n - 1,
                "fingerprint": None,
                "request": item.request,
            }
        while True:
            left = self._read_chunks(log, store, item, state)
            if not left:
                break
        self._finish_chunks(log, store, item, state)

    def _read_chunks(self, log: CommitLog, store: SnapshotStore, item: Wanted, state: Json) -> bool:
        """Read chunks in one view; gives whether some are left."""
        directory = item.directory
        limit = self._settings.transaction_timeout
        with self._view(limit) as view:
            deadline = time.monotonic() + limit
            with self._reader() as reader:
                reader.begin(view)
                task = self._task(reader, item)
                reader.end()
            if state["fingerprint"] is None:
                state["fingerprint"] = task.shape.fingerprint
                state["pages"] = [leaf.pages for leaf in task.shape.leaves]
                state["chunk_pages"] = self._chunk_pages
                store.save(directory, state)
            self._check_shape(task.shape, state)
            chunks = cut(_leaves_then(task.shape, state), int(state["chunk_pages"]))
            counts = self._begin_progress(item, task, len(chunks))
            work = [
                (task, chunk, counts)
                for chunk in chunks
                if not store.has_chunk(directory, chunk.number)
            ]
            counts.chunks_done = len(chunks) - len(work)

            def take(task: TableTask, chunk: Chunk, rows: Iterator[pa.Table]) -> None:
                store.write_chunk(directory, chunk.number, task.landed.schema, rows)

            self._readers(log).read_all(view, work, take, deadline)
            return any(not store.has_chunk(directory, chunk.number) for chunk in chunks)

    def _check_shape(self, shape: TableShape, state: Json) -> None:
        if shape.fingerprint != state["fingerprint"]:
            raise TableChangedError(
                f"table {shape.table.title} was altered or rewritten while it was read; "
                "it is read again from the start"
            )

    def _finish_chunks(
        self, log: CommitLog, store: SnapshotStore, item: Wanted, state: Json
    ) -> None:
        """Hold, view, learn what changed, read that again, publish all."""
        progress = self.progress[item.title]
        progress.state = "landing"
        with self._held([item.directory]) as (hold, view), self._reader() as reader:
            with self._reader() as nudger:
                self._context.gate.reach(hold, view.lsn, nudger.nudge)
            reader.begin(view)
            task = self._task(reader, item)
            self._check_shape(task.shape, state)
            names = self._key_names(task)
            assert names is not None
            output = _Output(item, task, self._stamper(view))
            chunks = cut(_leaves_then(task.shape, state), int(state["chunk_pages"]))
            try:
                keys = self._changed(log, task, hold, names, int(state["since_n"]))
                self._read_again(log, reader, output, names, keys)
                reader.check_files(task.shape, range(len(task.shape.leaves)))
                reader.end()
                jobs = [
                    lambda chunk=chunk: self._land(
                        log, output, _unchanged(store, item.directory, chunk.number, keys)
                    )
                    for chunk in chunks
                ]
                parallel(self._config.landing.writer_lanes, jobs)
                self._publish(log, store, hold, [output])
            except BaseException:
                output.abandon()
                raise
        store.drop(item.directory)

    def _changed(
        self, log: CommitLog, task: TableTask, hold: Hold, names: list[str], since_n: int
    ) -> pa.Table | None:
        """Keys of all rows that changed since the first chunk was read; None for none."""
        writer = self._context.writer
        assert writer is not None
        writer.drain()
        directory = task.landed.directory
        columns = keyset.needed_columns(names, task.landed.schema)
        if log.floor > since_n:
            raise TableChangedError("retention has taken changes that a snapshot needs")
        found = []
        try:
            for entry in log.iterate(since_n + 1, log.next_n - 1):
                if entry.kind is not EntryKind.DATA:
                    continue
                for file in entry.files:
                    if file.table == directory:
                        with log.disk.files.open(file.path) as raw:
                            rows = pq.ParquetFile(raw).read(columns)
                        found.append(keyset.changed_keys(rows, names))
            seen = hold.seen.get(directory, ())
            found += [keyset.changed_keys(rows.select(columns), names) for rows in seen]
        except (keyset.UnknownKeyError, KeyError, pa.ArrowInvalid) as error:
            self._attempts[task.shape.table.title] = _ATTEMPTS
            raise TableChangedError(
                f"table {task.shape.table.title}: changes do not show its key; it is read at once"
            ) from error
        found = [keys for keys in found if keys.num_rows]
        return keyset.distinct(found) if found else None

    def _read_again(
        self, log: CommitLog, reader: TableReader, output: "_Output", names: list[str],
        keys: pa.Table | None,
    ) -> None:  # fmt: skip
        """Read the rows of changed keys in the last view."""
        if keys is None:
            return
        task, shape = output.task, output.task.shape
        indexes = [task.landed.names.index(name) for name in names]
        readers = self._readers(log)
        for first in range(0, keys.num_rows, _KEYS_AT_ONCE):
            piece = keys.slice(first, _KEYS_AT_ONCE)
            lines = reader.copy_keys(shape, indexes, keyset.array_texts(piece), task.where)
            found = (
                # Keys that the server takes for equal need not be.
                rows.filter(keyset.is_changed(rows, piece))
                for rows in readers.decode(task, lines)
            )
            self._land(log, output, found)

    # ---- together --------------------------------------------------------------------

    @contextlib.contextmanager
    def _held(self, directories: Sequence[str]) -> Iterator[tuple[Hold, View]]:
        """Hold publications and take a view behind all that is published."""
        gate = self._context.gate
        # The transactions that run now are waited for here, where nobody waits for us.
        self._view(self._settings.transaction_timeout).close()
        hold = gate.hold(directories)
        try:
            longest = _LONGEST_HOLD * self._settings.hold_timeout
            seconds, self._wait_seconds = self._wait_seconds, min(2 * self._wait_seconds, longest)
            with self._view(seconds) as view:
                self._wait_seconds = self._settings.hold_timeout
                if view.lsn < hold.boundary:
                    raise HoldLostError("the server's view is behind what is published")
                yield hold, view
        finally:
            gate.release(hold)

    def _publish(
        self, log: CommitLog, store: SnapshotStore, hold: Hold, outputs: "list[_Output]"
    ) -> None:
        """Make one entry of what was read; in the collector's thread, which publishes."""
        assert log.position is not None
        epoch = log.position.epoch
        files: list[HiddenFile] = []
        for output in outputs:
            files += output.finish(log, epoch, self._config.landing.compression)
        lsn = outputs[0].stamper.stamp.lsn
        tables = {output.task.landed.directory: output.to_record() for output in outputs}
        published: list[CommitEntry] = []

        def act(port: Port) -> None:
            context = self._context
            assert context.writer is not None
            context.writer.drain()
            known = log.schemas
            changes = []
            for output in outputs:
                landed = output.task.landed
                context.schemas.schema_id_for(landed.directory, output.item_schema)
                previous = known.get(landed.directory)
                if previous != landed.schema_id:
                    where = Position(lsn, 0)
                    changes.append(
                        SchemaChange(landed.directory, where, landed.schema_id, previous)
                    )
            draft = Draft(
                kind=EntryKind.SNAPSHOT,
                files=tuple(files),
                schemas=context.schemas.take_pending(),
                truncates=tuple(
                    Truncate(output.task.landed.directory, Position(lsn, 0), False, False)
                    for output in outputs
                    if output.is_empty
                ),
                schema_changes=tuple(changes),
                extra={"snapshot": {"epoch": epoch, "lsn": lsn, "tables": tables}},
            )
            published.append(log.publish(draft, context.snapshot_landed))
            for change in changes:
                port.schema_landed(change.table, change.schema_id)

        self._context.gate.run(hold, act)
        for output in outputs:
            output.is_published = True
        self._note_done(store, published[0])
        for output in outputs:
            item = output.item
            self._attempts.pop(item.title, None)
            if item.request is not None:
                store.answered(item.request)
            progress = self.progress[item.title]
            progress.state, progress.reason = "done", None

    def _note_done(self, store: SnapshotStore, entry: CommitEntry) -> None:
        said = entry.extra["snapshot"]
        for record in said["tables"].values():
            title = f"{record['schema']}.{record['name']}"
            done = {"state": "done", "n": entry.n, "lsn": said["lsn"], "rows": record["rows"]}
            if store.ledger().get(title, {}).get("n") == entry.n:
                continue
            store.note(title, {**done, "oid": record["oid"]})
            _log.info(Event.SNAPSHOT_LANDED, table=title, entry=entry.n, rows=record["rows"])

    @property
    def _chunk_pages(self) -> int:
        return max(1, self._settings.chunk_bytes // _PAGE_BYTES)

    def _readers(self, log: CommitLog) -> ChunkReaders:
        assert log.position is not None
        return ChunkReaders(self._config, log.position.epoch, self._stop.is_set)

    def _reader(self) -> TableReader:
        return open_reader(self._config, self._stop.is_set)

    def _view(self, seconds: float) -> View:
        """Take a view; what hinders it is no table's error."""
        try:
            return View.open(self._address, self._config.slot, seconds, self._stop.is_set)
        except SourceError as error:
            if error.sqlstate == CANCELLED:
                text = f"transactions on the server ran longer than {seconds:.0f} seconds"
                raise HoldLostError(f"{text}; it is tried again") from error
            raise SourceError(error.reason, error.sqlstate) from error

    def _stamper(self, view: View) -> Stamper:
        return Stamper(Stamp(int(view.lsn), dt.datetime.now(dt.UTC)))

    def _task(self, reader: TableReader, item: Wanted) -> TableTask:
        """Look a table up, in the transaction of the reader."""
        shape = reader.shape(item.table)
        relation = shape.relation
        names = safe_columns([column.name for column in relation.columns])
        catalog = self._catalog.look_up(relation)
        skipped = frozenset[int]()
        if self._config.decoding.skip_generated_columns:
            skipped = generated_columns(relation, catalog)
        record = schema_record(relation, names, catalog, skipped)
        schema = table_schema(relation.columns, names, skipped)
        landed = Landed(
            item.directory, fingerprint(record), schema, tuple(names), relation, 0, skipped
        )
        return TableTask(shape, landed, item.where, record)

    def _key_names(self, task: TableTask) -> list[str] | None:
        """Names of the key's columns as they land; None without a key that can be used."""
        key = task.record["key"]
        if not key:
            return None
        columns = {column.name: column for column in task.shape.relation.columns}
        if not keyset.is_usable([columns[name].type for name in key]):
            return None
        landed = dict(zip(columns, task.landed.names, strict=True))
        return [landed[name] for name in key]

    def _begin_progress(self, item: Wanted, task: TableTask, chunks: int) -> Counts:
        progress = self.progress.setdefault(item.title, Progress())
        if progress.state != "reading":
            progress.counts = Counts()
        progress.state, progress.reason = "reading", None
        progress.counts.chunks = chunks
        progress.counts.estimate = task.shape.row_estimate
        return progress.counts

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise HoldLostError("a stop was asked for")


class _Output:
    """The files of one table; threads borrow them one at a time."""

    def __init__(self, item: Wanted, task: TableTask, stamper: Stamper) -> None:
        self.item = item
        self.task = task
        self.stamper = stamper
        self.is_published = False
        self._lock = threading.Lock()
        self._idle: list[SnapshotFile] = []
        self._all: list[SnapshotFile] = []
        self._finished: list[HiddenFile] = []
        self._open = 0
        self.is_empty = False

    @property
    def item_schema(self) -> Json:
        """Description of the table's columns."""
        return self.task.record

    def borrow(self, log: CommitLog, compression: str) -> SnapshotFile:
        """A file that nobody else writes."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            file = SnapshotFile(log, self.task.landed, self.stamper, compression)
            self._all.append(file)
            return file

    def give_back(self, file: SnapshotFile) -> None:
        """Let others go on with a file."""
        with self._lock:
            self._idle.append(file)

    def close(self, file: SnapshotFile) -> None:
        """Finish a file that is large enough."""
        hidden = file.finish()
        with self._lock:
            self._all.remove(file)
            if hidden is not None:
                self._finished.append(hidden)

    def finish(self, log: CommitLog, epoch: int, compression: str) -> list[HiddenFile]:
        """Finish all files; a table without rows gets one that says so."""
        if not self.stamper.count:
            self.is_empty = True
            file = self.borrow(log, compression)
            file.write_empty(epoch)
            self.give_back(file)
        for file in list(self._all):
            self.close(file)
        return self._finished

    def abandon(self) -> None:
        """Close what is open; the next start removes what is not published."""
        for file in self._all:
            file.abandon()

    def to_record(self) -> Json:
        """What the entry says of the table."""
        table = self.task.shape.table
        rows = 0 if self.is_empty else self.stamper.count
        return {
            "schema": table.schema,
            "name": table.name,
            "oid": table.oid,
            "rows": rows,
            "where": self.task.where,
        }


def _is_of_connection(error: SourceError) -> bool:
    return error.sqlstate is None or error.sqlstate.startswith(_CONNECTION_CLASSES)


def _leaves_then(shape: TableShape, state: Json) -> list[Leaf]:
    """Leaves with the sizes they had when the table was cut."""
    pairs = zip(shape.leaves, state["pages"], strict=True)
    return [dataclasses.replace(leaf, pages=pages) for leaf, pages in pairs]


def _unchanged(
    store: SnapshotStore, directory: str, number: int, keys: pa.Table | None
) -> Iterator[pa.Table]:
    """Rows of a chunk that are still what they were."""
    for rows in store.read_chunk(directory, number):
        yield rows if keys is None else rows.filter(pc.invert(keyset.is_changed(rows, keys)))
