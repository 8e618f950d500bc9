"""From row groups to published entries, with the disk's slowness kept from the collector.

Given row groups and, at transaction boundaries, the word to publish; promises that what one
word covers becomes one entry, entries in the order of the words, and that `on_durable` is
called only for what is durable. Refuses to know what a transaction is.

Threads
    The *collector* calls the public methods, always the same one. *Lanes* encode; a file is
    with one lane at a time (`TableFile.is_scheduled`). The *publisher* runs one publication
    at a time. One lock guards all shared state; nobody encodes or touches the disk with it.

Who waits for whom
    collector: in `write` while `queue_bytes` are waiting for lanes, in `publish` while the
    publication before is not done. Publisher: for the lanes to finish the files of its
    publication. Lanes wait for nobody but the disk. The arrows make no circle, so there is
    no deadlock; with a full disk everybody waits until there is room or a stop is asked for.

Errors
    The first one ends the writer: it is given to `on_error` once, and every later call
    raises it. Nothing is confirmed afterwards.
"""

import dataclasses
import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from gaussdecode.errors import GaussDecodeError, LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.failpoints import Step
from gaussdecode.land.names import data_directory
from gaussdecode.land.parquet import ParquetSink
from gaussdecode.land.publication import Draft, PendingSchema
from gaussdecode.land.schemas import SchemaStore
from gaussdecode.land.tablefile import OpenPublication, TableFile
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import SourcePosition
from gaussdecode.model.publication import PublicationRequest, RowGroup

MIB: Final = 1 << 20


@dataclasses.dataclass(slots=True)
class _Sealed:
    request: PublicationRequest
    content: OpenPublication
    schemas: tuple[PendingSchema, ...]
    requested: float


class Writer:
    """Lands row groups.

    Args:
        log: open and recovered; the writer is its main but not its only user.
        schemas: whose pending files go with the next publication.
        lanes: encoding threads.
        queue_bytes: Arrow bytes that may wait for a lane; one row group always may.
        target_file_size: a file with this many bytes takes no more row groups.
        max_open_files: files being written at once.
        compression: of the Parquet files.
        on_durable: told the position of each publication, from the publisher's thread.
        on_error: told the first error, from the thread it happened in.
        on_landed: told each published entry, before `on_durable`.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        schemas: SchemaStore | None = None,
        lanes: int = 2,
        queue_bytes: int = 256 * MIB,
        target_file_size: int = 128 * MIB,
        max_open_files: int = 256,
        compression: str = "zstd",
        on_durable: Callable[[SourcePosition], object],
        on_error: Callable[[BaseException], object],
        on_landed: Callable[[CommitEntry], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.publication_seconds = 0.0
        self.visible_seconds = 0.0
        self.published_seconds = 0.0
        self.encoded_seconds = 0.0
        self.blocked_seconds = 0.0
        self.moved_ns = time.monotonic_ns()
        self._log = log
        self._schemas = schemas
        self._lane_count = lanes
        self._queue_bytes = queue_bytes
        self._limits = (target_file_size, max_open_files, lanes)
        self._compression = compression
        self._on_durable = on_durable
        self._on_error = on_error
        self._on_landed = on_landed
        self._clock = clock
        self._changed = threading.Condition()
        self._ready: deque[TableFile] = deque()
        self._owner: dict[TableFile, OpenPublication] = {}
        self._open = OpenPublication(*self._limits)
        self._sealed: _Sealed | None = None
        self._waiting_bytes = 0
        self._busy_lanes = 0
        self._is_publisher_busy = False
        self._failure: BaseException | None = None
        self._is_discarding = False
        self._is_closing = False
        self._threads = [
            threading.Thread(
                target=self._run, args=(self._lane,), name=f"lane-{index}", daemon=True
            )
            for index in range(lanes)
        ]
        self._threads.append(
            threading.Thread(
                target=self._run, args=(self._publisher,), name="publisher", daemon=True
            )
        )
        for thread in self._threads:
            thread.start()

    @property
    def largest_file_bytes(self) -> int:
        """Size of the largest file that is not yet handed to a publication."""
        with self._changed:
            return self._open.largest_file_bytes

    @property
    def is_crowded(self) -> bool:
        """Files of the open publication were closed early, for other tables' sake."""
        with self._changed:
            return self._open.is_crowded

    @property
    def waiting_bytes(self) -> int:
        """Arrow bytes that wait for a lane or are being encoded."""
        return self._waiting_bytes

    @property
    def is_publishing(self) -> bool:
        """A publication is under way; `publish` would block."""
        return self._sealed is not None

    @property
    def is_waiting_for_space(self) -> bool:
        """The disk is full and somebody waits for room."""
        return self._log.disk.space.is_waiting

    def write(self, group: RowGroup) -> None:
        """Hand over a row group; blocks while too much waits.

        Raises:
            LandingError: the writer has failed.
        """
        size = group.table.nbytes
        with self._changed:
            self._block_until(
                lambda: not self._waiting_bytes or self._waiting_bytes + size <= self._queue_bytes
            )
            has_idle_lane = self._busy_lanes + len(self._ready) < self._lane_count
            file, evicted = self._open.assign(group, has_idle_lane=has_idle_lane)
            file.pending.append(group)
            self._waiting_bytes += size
            for changed in (file, evicted):
                if changed is not None:
                    self._schedule(changed, self._open)

    def publish(self, request: PublicationRequest) -> None:
        """Make one entry of everything written since the last call; returns at once.

        Blocks only while the publication before is under way.

        Raises:
            LandingError: the writer has failed.
        """
        with self._changed:
            self._block_until(lambda: self._sealed is None)
            schemas = () if self._schemas is None else self._schemas.take_pending()
            for file in self._open.seal():
                self._schedule(file, self._open)
            self._sealed = _Sealed(request, self._open, schemas, self._clock())
            self._open = OpenPublication(*self._limits)
            self._changed.notify_all()

    def note(self, request: PublicationRequest) -> None:
        """Publish an entry without files at once; the positions of the log do not move.

        It may come between the sealing of a publication and its entry: it says nothing of
        what those files hold.

        Raises:
            LandingError: the writer or the log has failed.
            DiskError: the file system failed.
        """
        with self._changed:
            self._wait_until(lambda: True)
        self._log.publish(Draft(kind=request.kind, extra=request.extra), self._on_landed)

    def drain(self, seconds: float | None = None) -> bool:
        """Wait until every requested publication is durable.

        Args:
            seconds: at most; None for as long as it takes.

        Returns:
            Whether it is.

        Raises:
            LandingError: the writer has failed.
        """
        with self._changed:
            return self._wait_until(lambda: self._sealed is None, seconds)

    def discard(self) -> None:
        """Throw away everything no publication was asked for, and its files.

        A publication that was asked for holds whole transactions: it is waited for. After a
        failure nothing is waited for, and files that a decided entry may name are kept.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._sealed is None or self._failure is not None)
            self._is_discarding = True
            self._changed.wait_for(lambda: not self._busy_lanes and not self._is_publisher_busy)
            doomed = self._open.files
            if self._sealed is not None and not self._log.is_uncertain:
                doomed = doomed + self._sealed.content.files
            self._open = OpenPublication(*self._limits)
            self._ready.clear()
            self._owner.clear()
            self._waiting_bytes = 0
        for file in doomed:
            if file.sink is not None:
                file.sink.abandon()
                self._remove(file.sink.path)
        if self._schemas is not None:
            self._schemas.forget()
        with self._changed:
            self._is_discarding = False
            self._changed.notify_all()

    def close(self) -> None:
        """Discard what is not published and end the threads; the log stays open."""
        self.discard()
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _block_until(self, condition: Callable[[], bool]) -> None:
        """Let the collector wait, and count for how long."""
        started = self._clock()
        self._wait_until(condition)
        self.blocked_seconds += self._clock() - started

    def _wait_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        is_met = self._changed.wait_for(lambda: self._failure is not None or condition(), seconds)
        if self._is_closing:
            raise LandingError("the writer is closed")
        if self._failure is not None:
            if isinstance(self._failure, GaussDecodeError):
                raise self._failure
            raise LandingError(f"the writer has failed: {self._failure!r}") from self._failure
        return is_met

    def _schedule(self, file: TableFile, owner: OpenPublication) -> None:
        if not file.is_scheduled:
            file.is_scheduled = True
            self._owner[file] = owner
            self._ready.append(file)
        self._changed.notify_all()

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:  # noqa: BLE001  # a thread must not die in silence
            with self._changed:
                is_first = self._failure is None
                if is_first:
                    self._failure = error
                self._changed.notify_all()
            if is_first:
                self._on_error(error)

    # Lanes

    def _lane(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._is_closing
                        or self._failure is not None
                        or (self._ready and not self._is_discarding)
                    )
                )
                if self._is_closing or self._failure is not None:
                    return
                file = self._ready.popleft()
                group = file.pending.popleft() if file.pending else None
                self._busy_lanes += 1
            started = self._clock()
            try:
                if group is not None:
                    self._encode(file, group)
                self._settle(file, group)
            finally:
                with self._changed:
                    self._busy_lanes -= 1
                    self.moved_ns = time.monotonic_ns()
                    self.encoded_seconds += self._clock() - started
                    self._changed.notify_all()

    def _encode(self, file: TableFile, group: RowGroup) -> None:
        if file.sink is None:
            directory = data_directory(file.table, self._log.today())
            self._log.disk.ensure_directory(directory)
            file.sink = ParquetSink(
                self._log.disk,
                self._log.disk.unfinished(directory, self._log.next_n, "parquet"),
                group.schema.with_metadata({**(group.schema.metadata or {}), **group.metadata}),
                self._compression,
                group.table,
            )
        file.encode(group)

    def _settle(self, file: TableFile, group: RowGroup | None) -> None:
        """Put the file back, or close it when nothing more comes."""
        with self._changed:
            if group is not None:
                self._waiting_bytes -= group.table.nbytes
            owner = self._owner[file]
            owner.close_if_full(file)
            if file.pending:
                self._ready.append(file)
                self._changed.notify_all()
                return
            if not file.is_sealed:
                file.is_scheduled = False
                self._changed.notify_all()
                return
        file.finish()
        with self._changed:
            owner.unfinished -= 1
            del self._owner[file]
            self._changed.notify_all()

    # Publisher

    def _publisher(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._is_closing
                        or self._failure is not None
                        or (self._sealed is not None and not self._sealed.content.unfinished)
                    )
                )
                if self._sealed is None or self._failure is not None:
                    return
                sealed = self._sealed
                self._is_publisher_busy = True
            try:
                started = self._clock()
                self._log.disk.files.reach(Step.FILES_CLOSED)
                self._log.publish(_draft(sealed), functools.partial(self._confirm, sealed))
                with self._changed:
                    ended = self._clock()
                    self.publication_seconds = ended - started
                    self.visible_seconds = ended - sealed.requested
                    self.published_seconds += self.publication_seconds
                    self._sealed = None
            finally:
                with self._changed:
                    self._is_publisher_busy = False
                    self.moved_ns = time.monotonic_ns()
                    self._changed.notify_all()

    def _confirm(self, sealed: _Sealed, entry: CommitEntry) -> None:
        if self._on_landed is not None:
            self._on_landed(entry)
        self._on_durable(sealed.request.position)

    def _remove(self, path: str) -> None:
        try:
            self._log.disk.files.unlink(path)
        except OSError:
            return  # the next start sweeps it


def _draft(sealed: _Sealed) -> Draft:
    request = sealed.request
    return Draft(
        kind=request.kind,
        position=request.position,
        commit_time=request.commit_time,
        files=tuple(file.result for file in sealed.content.files if file.result is not None),
        schemas=sealed.schemas,
        truncates=request.truncates,
        schema_changes=request.schema_changes,
        extra=request.extra,
    )
