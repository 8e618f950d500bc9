"""Read chunks of tables over several connections, all in one view.

Each piece is read in a short transaction of its own. The first error ends all, and nothing is read after a
stop. The caller decides where the rows go.
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
from gaussdecode.collect._copyrows import CopyRows, hash_text, sum_rows
from gaussdecode.collect.arrow import table_rows
from gaussdecode.collect.snapshot_gate import HoldLostError
from gaussdecode.collect.tables import Landed
from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.land.schemas import SOURCE
from gaussdecode.model.words import counted
from gaussdecode.settings.sections import Config
from gaussdecode.source.export import (
    Chunk,
    Exported,
    Exporter,
    Measure,
    TableReader,
    TableShape,
    VerifyError,
)
from gaussdecode.source.exporters import exporter_of
from gaussdecode.source.gaussdb._copylines import respell
from gaussdecode.source.relations import relation_record

_SLICE_SECONDS: Final = 0.5  # how soon a stop ends a wait for the rate limit
_PROBE: Final = "a text to see that the server hashes as is done here"
_UTF8_PROBE: Final = f"{_PROBE}, and in UTF-8: \u6f22"


@dataclasses.dataclass(frozen=True, slots=True)
class TableTask:
    """One table that is being read.

    Attributes:
        shape: columns and leaves, as the view has them.
        landed: directory and schema of its rows.
        where: condition of the operator's, or None.
        record: description of its schema.
    """

    shape: TableShape
    landed: Landed
    where: str | None
    record: dict[str, Any]  # Any: JSON

    @property
    def source(self) -> str | None:
        """Whose rows they are, where there are several; else None."""
        return self.record.get(SOURCE)


class Total:
    """Rows and bytes of all tables together since the start; they only rise. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read = (0, 0)

    def add(self, rows: int, size: int) -> None:
        """Count a piece."""
        with self._lock:
            self._read = self._read[0] + rows, self._read[1] + size

    @property
    def read(self) -> tuple[int, int]:
        """Rows, and bytes of COPY's text."""
        return self._read


@dataclasses.dataclass(slots=True)
class Counts:
    """Counts of a table's rows read so far, for the status.

    Attributes:
        chunks: pieces in all.
        chunks_done: pieces read.
        rows: rows read.
        bytes: bytes of COPY's text.
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
        open_one: opens a connection that reads.
        epoch: epoch of the landing.
        should_stop: asked between two pieces of COPY.
        total: total of what is read.
    """

    def __init__(
        self,
        config: Config,
        open_one: Callable[[], TableReader],
        epoch: int,
        should_stop: Callable[[], bool],
        total: Total,
    ) -> None:
        self._config = config
        self._open_one = open_one
        self._epoch = epoch
        self._should_stop = should_stop
        self._total = total
        self._throttle = Throttle(config.snapshot.rate_limit)
        self._has_failed = False

    def read_all(
        self,
        view: Exported,
        work: Iterable[tuple[TableTask, Chunk, Counts]],
        take: Callable[[TableTask, Chunk, Iterator[pa.Table]], object],
        deadline: float = float("inf"),
    ) -> None:
        """Read chunks, several at a time.

        Args:
            view: imported by every transaction.
            work: chunks to read.
            take: given the rows of a chunk, in the reading thread; what it makes of them
                must stand only when the rows have come to their end without an error.
            deadline: monotonic; no piece is begun after it.

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
        view: Exported,
        pieces: "queue.SimpleQueue[tuple[TableTask, Chunk, Counts]]",
        take: Callable[[TableTask, Chunk, Iterator[pa.Table]], object],
        deadline: float,
    ) -> None:
        try:
            with self._open_one() as reader:
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
            raise HoldLostError("reading was stopped")

    def _rows(
        self, reader: TableReader, task: TableTask, chunk: Chunk, counts: Counts
    ) -> Iterator[pa.Table]:
        """Rows of one chunk, checked when they are all there."""
        expected = self._expected(reader, task, chunk)
        read = 0
        decoder = RowDecoder(task, has_checksum=self._has_checksum)
        lines = reader.copy_chunk(task.shape, chunk, task.where)
        for rows in self._decoded(decoder, lines, counts):
            read += rows.num_rows
            yield rows
        reader.check_files(task.shape, [chunk.leaf])
        found = Measure(read, decoder.checksum)
        if expected is not None and expected != found:
            raise VerifyError(
                f"table {task.shape.table.title}: for one chunk, in one view, the server reports "
                f"{_said(expected)}, but {_said(found)} arrived"
            )
        counts.chunks_done += 1

    @property
    def _has_checksum(self) -> bool:
        return self._config.snapshot.verify == "checksums"

    def _expected(self, reader: TableReader, task: TableTask, chunk: Chunk) -> Measure | None:
        """What the server says that a chunk holds; None where nobody wants to know."""
        if self._config.snapshot.verify == "none":
            return None
        if self._has_checksum:
            _check_hash(reader)
        return reader.measure_chunk(task.shape, chunk, task.where, has_checksum=self._has_checksum)

    def decode(self, task: TableTask, lines: Iterable[bytes]) -> Iterator[pa.Table]:
        """Turn COPY's lines into row groups; position and number are filled in later."""
        return self._decoded(RowDecoder(task, has_checksum=False), lines, None)

    def _decoded(
        self, decoder: "RowDecoder", lines: Iterable[bytes], counts: Counts | None
    ) -> Iterator[pa.Table]:
        landing = self._config.landing
        for piece in lines:
            self.check()
            rows = decoder.add(piece)
            if counts is not None:
                counts.rows += rows
                counts.bytes += len(piece)
                self._total.add(rows, len(piece))
            self._throttle.take(len(piece), self.check)
            if decoder.is_full(landing.row_group_bytes, landing.row_group_rows):
                yield decoder.take(self._epoch)
        if decoder.row_count:
            yield decoder.take(self._epoch)


class RowDecoder:
    """Turns COPY's lines of one table into row groups.

    Args:
        task: the table.
        has_checksum: keep one of the rows.

    Attributes:
        checksum: checksum of all rows so far, see `export.Measure`; None where nobody asked for it.
    """

    def __init__(self, task: TableTask, *, has_checksum: bool) -> None:
        landed, relation = task.landed, task.shape.relation
        self._source = task.source
        kinds, old_count = landed.kinds()
        self._accumulator = Accumulator(landed, kinds, old_count)
        record = relation_record(relation, task.shape.encoding)
        self._column_count = len(relation.columns)
        self._rows = CopyRows(record, relation.oid, self._column_count, self._accumulator)
        self._spelling = task.shape.spelling
        self.checksum: int | None = 0 if has_checksum else None

    @property
    def row_count(self) -> int:
        """Rows that were not taken yet."""
        return self._accumulator.row_count

    def add(self, lines: bytes) -> int:
        """Decode whole lines; gives the number of rows."""
        if self.checksum is not None:
            self.checksum += sum_rows(lines, self._column_count > 0)
        return self._rows.add(respell(lines, self._spelling) if self._spelling else lines)

    def is_full(self, most_bytes: int, most_rows: int) -> bool:
        """Whether a row group is complete."""
        held = self._accumulator
        return held.byte_count >= most_bytes or held.row_count >= most_rows

    def take(self, epoch: int) -> pa.Table:
        """Give a row group."""
        landed = self._accumulator.table
        return table_rows(
            self._accumulator.take(),
            landed.schema,
            landed.columns,
            landed.names,
            epoch,
            with_xid=True,
            with_time=True,
            source=self._source,
        )


def _check_hash(reader: TableReader) -> None:
    """See that checksums of server and ours can be compared at all."""
    probe = _UTF8_PROBE if reader.is_translated else _PROBE
    if reader.hash_of(probe) != hash_text(probe.encode()):
        raise VerifyError(
            "this server's hashtext() differs from PostgreSQL's over UTF-8: use snapshot.verify: "
            "counts"
        )


def _said(measure: Measure) -> str:
    text = counted(measure.rows, "row")
    return text if measure.checksum is None else f"{text} with checksum {measure.checksum}"


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


def open_reader(exporter: Exporter, config: Config, should_stop: Callable[[], bool]) -> TableReader:
    """Open a connection that reads; what hinders it is no table's error."""
    try:
        return exporter.open_reader(config.snapshot.statement_timeout, should_stop)
    except SourceRefusedError as error:
        raise SourceError(error.reason, error.sqlstate) from error


def published_oids(config: Config) -> dict[str, int]:
    """OID by title of every published table."""
    with open_reader(exporter_of(config), config, lambda: False) as reader:
        return {table.title: table.oid for table in reader.published()}
