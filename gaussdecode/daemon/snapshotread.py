"""Several connections that read chunks of tables, all of one view.

Given a view and what is to be read; promises that each piece is read in a short transaction
of its own, that the first error ends all, and that nothing is read on after a stop. Where
the rows go is the caller's matter.
"""

import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa

from gaussdecode.collect._columns import Accumulator
from gaussdecode.collect._copyrows import CopyRows
from gaussdecode.collect.arrow import table_rows
from gaussdecode.collect.gate import HoldLostError
from gaussdecode.collect.tables import Landed
from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.settings import Config
from gaussdecode.source.export import Chunk, TableReader, TableShape, View
from gaussdecode.source.relations import relation_record
from gaussdecode.source.settings import source_address

_SLICE_SECONDS: Final = 0.5  # how soon a stop ends a wait for the rate limit


@dataclasses.dataclass(frozen=True, slots=True)
class TableTask:
    """One table that is being read.

    Attributes:
        shape: columns and leaves, as the view has them.
        landed: where its rows land.
        where: condition of the operator's, or None.
        record: description of its schema.
    """

    shape: TableShape
    landed: Landed
    where: str | None
    record: dict[str, Any]  # Any: JSON


@dataclasses.dataclass(slots=True)
class Counts:
    """What has been read of a table, for those who look on.

    Attributes:
        chunks: pieces in all.
        chunks_done: pieces read.
        rows: rows read.
        bytes: of COPY's text.
        estimate: rows that the server believes it has.
    """

    chunks: int = 0
    chunks_done: int = 0
    rows: int = 0
    bytes: int = 0
    estimate: int = 0


class Throttle:
    """Keeps several readers below one rate.

    Args:
        bytes_per_second: together, or None.
    """

    def __init__(self, bytes_per_second: int | None) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, size: int, check: Callable[[], None]) -> None:
        """Wait until so many bytes may have been read."""
        if self._rate is None:
            return
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._rate
            until = self._free_at
        while (left := until - time.monotonic()) > 0:
            check()
            time.sleep(min(left, _SLICE_SECONDS))


class ChunkReaders:
    """Reads chunks in parallel.

    Args:
        config: checked.
        epoch: of the landing.
        should_stop: asked between two pieces of COPY.
    """

    def __init__(self, config: Config, epoch: int, should_stop: Callable[[], bool]) -> None:
        self._config = config
        self._epoch = epoch
        self._should_stop = should_stop
        self._throttle = Throttle(config.snapshot.rate_limit)
        self._has_failed = False

    def read_all(
        self,
        view: View,
        work: Iterable[tuple[TableTask, Chunk, Counts]],
        take: Callable[[TableTask, Chunk, Iterator[pa.Table]], object],
        deadline: float = float("inf"),
    ) -> None:
        """Read chunks, several at a time.

        Args:
            view: imported by every transaction.
            work: what to read.
            take: given the rows of a chunk, in the reading thread; what it makes of them
                must stand only when the rows have come to their end without an error.
            deadline: monotonic; no piece is begun behind it.

        Raises:
            SourceError: the server failed; of several errors the first.
        """
        pieces: queue.SimpleQueue[tuple[TableTask, Chunk, Counts]] = queue.SimpleQueue()
        for piece in work:
            pieces.put(piece)
        self._has_failed = False
        count = min(self._config.snapshot.workers, pieces.qsize())
        if not count:
            return
        with ThreadPoolExecutor(count, "snapshot") as pool:
            runs = [pool.submit(self._run, view, pieces, take, deadline) for _ in range(count)]
        _raise_first([run.exception() for run in runs])

    def _run(
        self,
        view: View,
        pieces: "queue.SimpleQueue[tuple[TableTask, Chunk, Counts]]",
        take: Callable[[TableTask, Chunk, Iterator[pa.Table]], object],
        deadline: float,
    ) -> None:
        try:
            with open_reader(self._config, self._should_stop) as reader:
                while time.monotonic() < deadline:
                    try:
                        task, chunk, counts = pieces.get_nowait()
                    except queue.Empty:
                        return
                    reader.begin(view)
                    take(task, chunk, self._rows(reader, task, chunk, counts))
                    reader.end()
        except BaseException:
            self._has_failed = True
            raise

    def check(self) -> None:
        """See whether to go on.

        Raises:
            HoldLostError: a stop was asked for, or another reader has failed.
        """
        if self._has_failed or self._should_stop():
            raise HoldLostError("reading was broken off")

    def _rows(
        self, reader: TableReader, task: TableTask, chunk: Chunk, counts: Counts
    ) -> Iterator[pa.Table]:
        """Rows of one chunk, checked when they are all there."""
        expected = None
        if self._config.snapshot.verify == "counts":
            expected = reader.count_chunk(task.shape, chunk, task.where)
        read = 0
        for rows in self.decode(task, reader.copy_chunk(task.shape, chunk, task.where), counts):
            read += rows.num_rows
            yield rows
        reader.check_files(task.shape, [chunk.leaf])
        if expected is not None and expected != read:
            raise SourceError(
                f"table {task.shape.table.title}: the server counts {expected} rows in a piece "
                f"of which {read} were read; it is tried again"
            )
        counts.chunks_done += 1

    def decode(
        self, task: TableTask, lines: Iterable[bytes], counts: Counts | None = None
    ) -> Iterator[pa.Table]:
        """Turn COPY's lines into row groups; position and number are filled in later."""
        landing = self._config.landing
        landed = task.landed
        relation = task.shape.relation
        kinds, old_count = landed.kinds()
        accumulator = Accumulator(landed, kinds, old_count)
        record = relation_record(relation)
        decoder = CopyRows(record, relation.oid, len(relation.columns), accumulator)
        for piece in lines:
            self.check()
            rows = decoder.add(piece)
            if counts is not None:
                counts.rows += rows
                counts.bytes += len(piece)
            self._throttle.take(len(piece), self.check)
            is_full = accumulator.byte_count >= landing.row_group_bytes
            if is_full or accumulator.row_count >= landing.row_group_rows:
                yield self._take(accumulator)
        if accumulator.row_count:
            yield self._take(accumulator)

    def _take(self, accumulator: Accumulator[Landed]) -> pa.Table:
        landed = accumulator.table
        return table_rows(
            accumulator.take(), landed.schema, landed.columns, landed.names, self._epoch,
            with_xid=True, with_time=True,
        )  # fmt: skip


def parallel(count: int, jobs: Sequence[Callable[[], object]]) -> None:
    """Run jobs in several threads; the first error is raised when all have ended."""
    if not jobs:
        return
    with ThreadPoolExecutor(min(count, len(jobs)), "snapshot") as pool:
        runs = [pool.submit(job) for job in jobs]
    _raise_first([run.exception() for run in runs])


def _raise_first(errors: Sequence[BaseException | None]) -> None:
    """Raise what went wrong, rather than that others were broken off for it."""
    found = [error for error in errors if error is not None]
    for error in sorted(found, key=lambda error: isinstance(error, HoldLostError)):
        raise error


def open_reader(config: Config, should_stop: Callable[[], bool]) -> TableReader:
    """Open a connection that reads; what hinders it is no table's error."""
    seconds = config.snapshot.statement_timeout
    try:
        return TableReader(source_address(config), seconds, should_stop)
    except SourceRefusedError as error:
        raise SourceError(error.reason, error.sqlstate) from error


def published_oids(config: Config) -> dict[str, int]:
    """OID by title of every published table."""
    with open_reader(config, lambda: False) as reader:
        return {table.title: table.oid for table in reader.published(config.source.publication)}
