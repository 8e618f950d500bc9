"""Write row groups into committed entries, without making the collector wait for the disk.

The collector gives row groups and, at transaction boundaries, asks for a commit. Each commit becomes one entry,
in the order of the requests. `on_durable` is called only for what is durable. The writer does not know
transactions.

Generations
    Row groups come through an `Intake`, of which one is open at a time: `begin` opens one
    for a session, `discard` and `close` end it. From then on whatever comes through it is
    refused, also what was waiting already: a session that is over can neither add to what
    the next one lands nor move the position. States and rules: `land.writer_state`.

Threads
    The *collector* calls the intake; where there are several sources, the collector of each.
    *Lanes* encode; a file is with one lane at a time (`TableFile.has_lane`). A lane without a file
    encodes a large row group of another one's file ahead of its turn, and leaves it where it waits: so
    all lanes may work for one table, and its rows stay in order. A collector
    starts more of them, where that helps (`land.lanes`). *Syncers* make files durable whose
    lane has other files to write; they are there from the first such file on. The *committer*
    runs one entry at a time. One lock guards all shared state; nobody encodes or touches the disk with it.

Who waits for whom
    collector: in `write` while enough is waiting for lanes, in `commit` while the
    entry before is not done. Committer: for lanes and syncers to finish the files of its
    entry. These wait for nobody but the disk; a file whose next row group is being encoded ahead
    waits for it, without a lane. The arrows make no circle, so there is
    no deadlock; with a full disk everybody waits until there is room or a stop is asked for.
    `note` and `insert` ask for the lock with the log's lock held; nobody asks the other way.

Errors
    The first one ends the writer: it is given to `on_error` once, and every later call
    raises it. Nothing is confirmed afterwards.
"""

import contextlib
import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from gaussdecode.errors import AccountError
from gaussdecode.host.memory import REST_SECONDS, give_back
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.encodings import SmallOptions
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.failpoints import Step
from gaussdecode.land.lanes import WINDOW_SECONDS, Lanes
from gaussdecode.land.names import data_directory
from gaussdecode.land.parquet import ParquetSink
from gaussdecode.land.schemas import SchemaStore
from gaussdecode.land.stopwatch import Stopwatch
from gaussdecode.land.tablefile import OpenEntry, QueuedGroup, TableFile
from gaussdecode.land.writer_state import Sealed, Work, WriterState
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.histogram import Histogram
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.request import EntryRequest, RowGroup

STAGES: Final = ("encode", "sync", "publish")
MIB: Final = 1 << 20
_SYNCERS: Final = 16  # threads that wait for the disk; arbitrary
_MOST_SCHEMAS: Final = 1000  # some kilobytes each; arbitrary
_OF_THE_STREAM: Final = frozenset({EntryKind.DATA, EntryKind.IDLE})


class Writer:
    """Lands row groups.

    Args:
        log: open and recovered; the writer is its main but not its only user.
        lanes: encoding threads, or what finds out how many there are.
        lane_bytes: Arrow bytes that may be encoded by each lane, and once more wait for the
            lane that is done first; one row group always may.
        target_file_size: a file with this many bytes takes no more row groups.
        max_open_files: files being written at once. An open Parquet file holds memory and a descriptor.
        compression: compression of the Parquet files.
        on_durable: told the position of each entry, from the committer's thread.
        on_error: told the first error, from the thread it happened in.
        on_landed: told each committed entry, before `on_durable`.
        on_lanes: told how many lanes there are when there are more, from the collector's thread.
        clock: monotonic seconds.
        wall_clock: seconds since 1970.

    Attributes:
        latency: latency from each transaction's commit at the source until it was durable here.
        durations: durations of encoding a row group, of syncing a file, of committing an
            entry, by stage.
        encoding: time of all lanes.
        syncing: part of it for syncing files.
        syncing_beside: time of the syncers, to which lanes leave files.
        committing: time of the committer.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        lanes: int | Lanes = 2,
        lane_bytes: int = 64 * MIB,
        target_file_size: int = 128 * MIB,
        max_open_files: int = 256,
        compression: str = "zstd",
        on_durable: Callable[[SourcePosition], object],
        on_error: Callable[[BaseException], object],
        on_landed: Callable[[CommitEntry], object] | None = None,
        on_lanes: Callable[[int], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.latency = Histogram()
        self.durations = {stage: Histogram() for stage in STAGES}
        self.commit_seconds = 0.0
        self.visible_seconds = 0.0
        self.encoding, self.syncing, self.committing = Stopwatch(), Stopwatch(), Stopwatch()
        self.syncing_beside = Stopwatch()
        self._log = log
        self._compression = compression
        self._on_durable = on_durable
        self._on_error = on_error
        self._on_landed = on_landed
        self._on_lanes = on_lanes
        self._clock = clock
        self._wall_clock = wall_clock
        self._lanes = lanes if isinstance(lanes, Lanes) else Lanes(lanes, lanes)
        self._looking = threading.Lock()
        self._file_schemas = _FileSchemas()
        make_content = functools.partial(OpenEntry, target_file_size, max_open_files)
        self._writer_state = WriterState(make_content, self._lanes.first, lane_bytes, clock)
        self._intake: Intake | None = None
        self._threads: list[threading.Thread] = []
        self._syncer_count = 0
        self._start("committer", self._committer)
        for number in range(self._lanes.first):
            self._start(f"lane-{number}", self._lane)

    def _start(self, name: str, loop: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._run, args=(loop,), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    @property
    def blocked_seconds(self) -> float:
        """For which the collector has waited."""
        return self._writer_state.blocked.seconds

    @property
    def lane_count(self) -> int:
        """Encoding threads."""
        return self._writer_state.lane_count

    @property
    def moved_ns(self) -> int:
        """Monotonic time at which a lane or the committer last finished something."""
        return self._writer_state.moved_ns

    @property
    def waiting_bytes(self) -> int:
        """Arrow bytes that wait for a lane or are being encoded."""
        return self._writer_state.waiting_bytes

    @property
    def is_committing(self) -> bool:
        """An entry is under way; `Intake.commit` would block."""
        return self._writer_state.is_committing

    @property
    def is_waiting_for_space(self) -> bool:
        """The disk is full and somebody waits for room."""
        return self._log.disk.space.is_waiting

    # ---- generations -----------------------------------------------------------------

    def begin(self, confirm: Callable[[SourcePosition], object] | None = None) -> "Intake":
        """Open the way in for a session; the one before must have been discarded.

        Args:
            confirm: tells the session's source a durable position, from the committer's
                thread, after `on_durable`.

        Raises:
            LandingError: the writer has failed or is closed.
            StateError: the intake before is still open.
        """
        generation = self._writer_state.begin()
        self._intake = Intake(self, self._writer_state, self._log, generation, confirm or _nobody)
        return self._intake

    def intake_of(self, generation: int) -> "Intake":
        """The intake of a generation, if it is the present one.

        Raises:
            SupersededError: it is over.
            LandingError: the writer has failed or is closed.
        """
        self._writer_state.check(generation)
        assert self._intake is not None
        return self._intake

    def drain(self, seconds: float | None = None) -> bool:
        """Wait until every requested entry is durable.

        Args:
            seconds: seconds at most; None for as long as it takes.

        Returns:
            Whether it is.

        Raises:
            LandingError: the writer has failed.
        """
        return self._writer_state.wait_committed(seconds)

    def discard(self) -> None:
        """End the intake; throw away everything no entry was asked for, and its files.

        An entry that was asked for holds whole transactions: it is waited for. After a
        failure nothing is waited for, and files that a decided entry may name are kept.
        """
        self._clear()
        self._writer_state.cleared(is_last=False)

    def close(self) -> None:
        """Discard what is not committed and end the threads; the log stays open."""
        self._clear()
        self._writer_state.cleared(is_last=True)
        with self._looking:  # whoever was adding lanes has; nobody does any more
            threads = tuple(self._threads)
        for thread in threads:
            thread.join()

    def _clear(self) -> None:
        for file in self._writer_state.end(is_uncertain=lambda: self._log.is_uncertain):
            if file.sink is not None:
                file.sink.abandon()
                self._remove(file.sink.path)

    def _remove(self, path: str) -> None:
        try:
            self._log.disk.files.unlink(path)
        except OSError:
            return  # the next start sweeps it

    # ---- threads ---------------------------------------------------------------------

    def add_lanes(self, generation: int) -> None:
        """Start others where they help; where several collectors write, one of them does.

        Raises:
            SupersededError: the caller's generation is over.
            LandingError: the writer has failed.
        """
        if not self._looking.acquire(blocking=False):
            return
        try:
            count = self._writer_state.lane_count
            more = self._start_lanes(generation, count, self._wanted_lanes(count))
        finally:
            self._looking.release()
        if more and self._on_lanes is not None:
            self._on_lanes(count + more)

    def _wanted_lanes(self, count: int) -> int:
        if self.is_waiting_for_space:  # the lanes wait, and so would others
            self._lanes.forget()
            return 0
        waited = self._writer_state.blocked.any_seconds
        return self._lanes.look(self._clock(), self.encoding.seconds, waited, count)

    def _start_lanes(self, generation: int, count: int, more: int) -> int:
        """Start lanes beside so many; gives how many: the system may have no thread for one."""
        self._writer_state.check(generation)
        started = 0
        with contextlib.suppress(RuntimeError):
            for started in range(more):
                self._start(f"lane-{count + started}", self._lane)
            started = more
        self._writer_state.add_lanes(started)
        return started

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:  # noqa: BLE001  # a thread must not die in silence
            if self._writer_state.fail(error):
                self._on_error(error)

    def _lane(self) -> None:
        while (work := self._writer_state.next_work()) is not None:
            try:
                with self.encoding:
                    if work.is_ahead:
                        self._encode_ahead(work)
                    else:
                        self._write(work.file, work.queued)
            finally:
                self._writer_state.rest()
            if not self._writer_state.has_work(REST_SECONDS):
                give_back()

    def _encode_ahead(self, work: Work) -> None:
        assert work.queued is not None
        with self._timed("encode"):
            encoded = work.file.encode_ahead(work.queued.group, self._compression)
        self._writer_state.encoded(work.file, work.queued, encoded)

    def _write(self, file: TableFile, queued: QueuedGroup | None) -> None:
        if queued is not None:
            self._log.disk.space.reserve(f"write {file.table}")
            if file.sink is None:
                file.sink = self._open(file, queued.group)
            if queued.encoded is None:
                with self._timed("encode"):
                    file.encode(queued.group)
            else:
                file.append(queued.group, queued.encoded)
        if self._writer_state.is_complete(file, queued):
            file.close()
            if not self._hand_over(file):
                with self.syncing:
                    self._sync(file)

    def _hand_over(self, file: TableFile) -> bool:
        """Let others sync a file where this lane has something else to do.

        A disk makes many files durable in the time of one, if they come together.
        """
        if not self._writer_state.has_ready or not (self._syncer_count or self._start_syncers()):
            return False
        return self._writer_state.hand_over(file)

    def _start_syncers(self) -> int:
        """Start them, with the first file that they are needed for; gives how many there are."""
        if not self._looking.acquire(blocking=False):
            return 0
        try:
            with contextlib.suppress(RuntimeError):  # the system has no more threads
                while self._syncer_count < _SYNCERS:
                    self._start(f"sync-{self._syncer_count}", self._syncer)
                    self._syncer_count += 1
        finally:
            self._looking.release()
        return self._syncer_count

    def _syncer(self) -> None:
        while (file := self._writer_state.next_unsynced()) is not None:
            try:
                with self.syncing_beside:
                    self._sync(file)
            finally:
                self._writer_state.rest()

    def _sync(self, file: TableFile) -> None:
        with self._timed("sync"):
            file.sync()
        self._writer_state.finished(file)

    @contextlib.contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Count how long something takes that succeeds."""
        started = self._clock()
        yield
        self.durations[stage].add(self._clock() - started)

    def _open(self, file: TableFile, group: RowGroup) -> ParquetSink:
        directory = data_directory(file.table, self._log.today())
        schema, small = self._file_schemas.of(group)
        return ParquetSink(
            self._log.disk,
            self._log.disk.unfinished(directory, self._log.next_n, "parquet"),
            schema,
            self._compression,
            group.table,
            small,
        )

    def _committer(self) -> None:
        while (sealed := self._writer_state.next_sealed()) is not None:
            is_committed = False
            try:
                started = self._clock()
                self._log.disk.files.reach(Step.FILES_CLOSED)
                with self.committing:
                    self._log.commit(_draft(sealed), functools.partial(self._confirm, sealed))
                ended = self._clock()
                self.commit_seconds = ended - started
                self.visible_seconds = ended - sealed.requested
                self.durations["publish"].add(self.commit_seconds)
                is_committed = True
            finally:
                self._writer_state.entry_done(is_committed=is_committed)

    def _confirm(self, sealed: Sealed, entry: CommitEntry) -> None:
        sealed.request.commit_times.tell(self.latency, self._wall_clock())
        self.landed(entry)
        self._on_durable(sealed.request.position)
        sealed.confirm(sealed.request.position)

    def landed(self, entry: CommitEntry) -> None:
        """Tell of an entry."""
        if self._on_landed is not None:
            self._on_landed(entry)


class _FileSchemas:
    """Schemas with the metadata of files, and options that follow from them; of the tables written last.

    To make them takes a tenth of the time of a small file. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[str, tuple[pa.Schema, pa.Schema, SmallOptions]] = OrderedDict()

    def of(self, group: RowGroup) -> tuple[pa.Schema, SmallOptions]:
        """Find or make those of a row group's table."""
        with self._lock:
            made = self._made.pop(group.table_dir, None)
        if made is None or made[0] is not group.schema:
            metadata = {**(group.schema.metadata or {}), **group.metadata}
            schema = group.schema.with_metadata(metadata)
            made = group.schema, schema, SmallOptions(schema)
        with self._lock:
            self._made[group.table_dir] = made
            if len(self._made) > _MOST_SCHEMAS:
                self._made.popitem(last=False)
        return made[1:]


class Intake:
    """The way into a writer for one session; made by `Writer.begin`.

    Every method that adds something raises SupersededError once the intake is over, at
    whatever place it was waiting, and has changed nothing then.

    Attributes:
        generation: its number.
        schemas: schemas whose pending files go with the next entry; of this session alone.
    """

    def __init__(
        self,
        writer: Writer,
        writer_state: WriterState,
        log: CommitLog,
        generation: int,
        confirm: Callable[[SourcePosition], object],
    ) -> None:
        self.generation = generation
        self.schemas = SchemaStore(log)
        self._writer = writer
        self._writer_state = writer_state
        self._log = log
        self._confirm = confirm

    @property
    def largest_file_bytes(self) -> int:
        """Size of the largest file that is not yet handed to an entry."""
        return self._writer_state.largest_file_bytes

    @property
    def is_crowded(self) -> bool:
        """Files of the open entry were closed early, for other tables' sake."""
        return self._writer_state.is_crowded

    @property
    def commit_seconds(self) -> float:
        """What the last entry cost."""
        return self._writer.commit_seconds

    @property
    def visible_seconds(self) -> float:
        """From the last request for an entry until it was to be seen."""
        return self._writer.visible_seconds

    def write(self, group: RowGroup) -> None:
        """Hand over a row group; blocks while too much waits.

        Raises:
            SupersededError: the intake is over.
            LandingError: the writer has failed.
        """
        self._writer.add_lanes(self.generation)
        while not self._writer_state.put(self.generation, group, WINDOW_SECONDS):
            self._writer.add_lanes(self.generation)

    def commit(self, request: EntryRequest) -> None:
        """Make one entry of everything written since the last call; returns at once.

        Blocks only while the entry before is under way.

        Raises:
            SupersededError: the intake is over.
            LandingError: the writer has failed.
        """
        self._writer_state.seal(
            self.generation, request, self.schemas.take_pending(), self._confirm
        )

    def note(self, request: EntryRequest) -> None:
        """Commit an entry without files at once; the positions of the log do not move.

        It may come between the sealing of an entry and that entry: it says nothing of
        what those files hold.

        Raises:
            SupersededError: the intake is over.
            LandingError: the writer or the log has failed.
            DiskError: the file system failed.
        """
        self.insert(Draft(kind=request.kind, extra=request.extra), self._writer.landed)

    def insert(self, draft: Draft, confirm: Callable[[CommitEntry], object]) -> CommitEntry:
        """Commit an entry that was made elsewhere, now, if the intake is not over.

        Args:
            draft: moves no position; its files are hidden and durable.
            confirm: told the entry once it is durable.

        Raises:
            SupersededError: the intake is over.
            LandingError: the writer or the log has failed.
            DiskError: the file system failed.
        """
        return self._log.commit(draft, confirm, self.check)

    def drain(self) -> None:
        """Wait until every requested entry is durable.

        Raises:
            SupersededError: the intake is over.
            LandingError: the writer has failed.
        """
        self._writer_state.wait_committed(generation=self.generation)

    def check(self) -> None:
        """See that the intake is not over.

        Raises:
            SupersededError: it is.
            LandingError: the writer has failed.
        """
        self._writer_state.check(self.generation)

    def end(self) -> None:
        """Refuse everything from now on; waits for nobody, and may be called by anybody."""
        self._writer_state.revoke(self.generation)


def _nobody(_: SourcePosition) -> None:
    """No source waits for a confirmation."""


def _draft(sealed: Sealed) -> Draft:
    request = sealed.request
    if request.account is None and request.kind in _OF_THE_STREAM:
        raise AccountError(f"an entry up to {request.position} has no sums; it was refused")
    return Draft(
        kind=request.kind,
        position=request.position,
        commit_time=request.commit_time,
        files=tuple(file.result for file in sealed.content.files if file.result is not None),
        schemas=sealed.schemas,
        truncates=request.truncates,
        schema_changes=request.schema_changes,
        extra=request.extra,
        account=request.account,
        others=request.others,
    )
