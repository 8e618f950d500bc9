"""Read ranges of tables on an executor, over its own connection.

Given descriptions that pickle: the view, the tables as they were looked up in it, and the directory for
files. The daemon's own reader and decoder of snapshots are used, so that every value is what the stream would
bring. The executor needs this package with its extensions, and network access to the database, but no
pyspark.
"""

import dataclasses
import datetime as dt
import itertools
import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from gaussdecode.collect import keyset
from gaussdecode.errors import LandingError, SourceError, SourceRefusedError
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot.file import Stamp, Stamper
from gaussdecode.snapshot.read import ChunkReaders, Counts, TableTask, Total
from gaussdecode.snapshot.staging import Staging, write_rows
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.export import Chunk, TableChangedError, TableReader, VerifyError
from gaussdecode.source.exporters import exporter_of
from gaussdecode.spark.log.place import Place, parquet_file, read_table
from gaussdecode.spark.target.failpoint import Step, reach

_SEQ_BITS: Final = 32  # rows of a range are below 2**32; the rest of gd_seq is its number
_KEYS_AT_ONCE: Final = 5000  # rows read again by one statement; arbitrary
# A column or the table is gone by that name, or a lock was not to be had while it is altered.
MOVING: Final = frozenset({"42703", "42P01", "55P03"})


@dataclasses.dataclass(frozen=True, slots=True)
class Imported:
    """A view that readers import.

    Attributes:
        name: name for SET TRANSACTION SNAPSHOT.
        lsn: its position.
        epoch: epoch of the landing.
        time: when it was taken; aware.
    """

    name: str
    lsn: int
    epoch: int
    time: dt.datetime


def shared(config: Config, rate: int | None, connections: int) -> Config:
    """Limits for one of several connections that do not know each other.

    Args:
        config: configuration of the daemon.
        rate: bytes of COPY's text per second, of all together; None for no limit.
        connections: connections that read at the same time.
    """
    each = None if rate is None else max(1, rate // connections)
    snapshot = dataclasses.replace(config.snapshot, workers=1, rate_limit=each)
    return dataclasses.replace(config, snapshot=snapshot, _kept=None)


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """How all executors read.

    Attributes:
        config: checked; the rate in it is that of one connection.
        address: address of the server, with what proves who we are.
        view: view that all of them see.
        root: directory for the files, see `staging`.
    """

    config: Config
    address: SourceAddress = dataclasses.field(repr=False)
    view: Imported
    root: Place

    def open(self) -> TableReader:
        """Open a connection."""
        exporter = exporter_of(self.config, self.address)
        return exporter.open_reader(self.config.snapshot.statement_timeout, lambda: False)

    def readers(self) -> ChunkReaders:
        """What reads and decodes, with one connection at a time."""
        return ChunkReaders(self.config, self.open, self.view.epoch, lambda: False, Total())

    def stamper(self, number: int) -> Stamper:
        """Stamps the rows of a range: their position, and numbers that no other range has."""
        stamper = Stamper(Stamp(self.view.lsn, None, self.view.time))
        stamper.count = number << _SEQ_BITS
        return stamper


@dataclasses.dataclass(frozen=True, slots=True)
class RangeTask:
    """The ranges that one connection reads.

    Attributes:
        reading: how.
        tables: tables by number in `work`, the table and the token of its cut.
        work: number of the table, and range.
        seconds: no range is begun after so many.
        unhurried: tables that have to be read in this view.
    """

    reading: Reading
    tables: Mapping[int, tuple[TableTask, str]]
    work: Sequence[tuple[int, Chunk]]
    seconds: float
    unhurried: frozenset[int]


def read_ranges(task: RangeTask) -> Iterator[str]:
    """Read ranges into files, but those that are there.

    Yields:
        JSON of the number of a table that changed while it was read, and in which way.

    Raises:
        SourceError: the server failed, or the view is gone.
    """
    deadline = time.monotonic() + task.seconds
    for number, work in itertools.groupby(task.work, lambda pair: pair[0]):
        until = float("inf") if number in task.unhurried else deadline
        try:
            _read_table(task.reading, *task.tables[number], [chunk for _, chunk in work], until)
        except TableChangedError as error:
            yield json.dumps([number, error.reason])
        except VerifyError as error:
            raise SourceRefusedError(error.reason) from None
        except SourceError as error:
            if error.sqlstate not in MOVING:
                raise
            yield json.dumps(
                [number, f"{task.tables[number][0].shape.table.title}: {error.reason}"]
            )


def _read_table(
    reading: Reading, table: TableTask, token: str, chunks: Sequence[Chunk], until: float
) -> None:
    staging, directory = Staging(reading.root), table.landed.directory
    there = staging.ranges(directory, token)  # of an attempt before this one

    def take(_task: TableTask, chunk: Chunk, rows: Iterator[pa.Table]) -> None:
        stamper = reading.stamper(chunk.number)
        stamped = (stamper.fill(piece)[0] for piece in rows)
        staging.write_range(
            directory, token, chunk.number, reading.view.lsn, table.landed.schema, stamped
        )
        reach(Step.RANGE_READ)

    left = [(table, chunk, Counts()) for chunk in chunks if chunk.number not in there]
    reading.readers().read_all(reading.view, left, take, until)


# --- rows that changed between two views ------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class KeysTask:
    """The keys whose rows are read.

    Attributes:
        files: landed ones.
        names: names of the key's columns.
        directory: directory for the keys.
    """

    files: tuple[Place, ...]
    names: tuple[str, ...]
    directory: Place


def find_keys(task: KeysTask) -> Iterator[str]:
    """Write the keys of rows that changes touched; gives the name of the file, or nothing.

    Raises:
        LandingError: a landed file is missing or damaged.
    """
    names = list(task.names)
    found: list[pa.Table] = []
    for path in task.files:
        try:
            with parquet_file(path) as file:
                columns = keyset.needed_columns(names, file.schema_arrow)
                groups = range(file.num_row_groups)
                found += [
                    _distinct(keyset.changed_keys(file.read_row_group(g, columns), names))
                    for g in groups
                ]
        except (keyset.UnknownKeyError, KeyError):
            yield json.dumps(None)
            return
        except (OSError, pa.ArrowException) as error:
            raise LandingError(
                f"{path} cannot be read: {error}; is the landing complete?"
            ) from error
    if not any(keys.num_rows for keys in found):
        return
    keys = _distinct(pa.concat_tables(found))
    name = f".keys-{secrets.token_hex(8)}"
    write_rows(task.directory, lambda _: name, keys.schema, [keys])
    yield json.dumps(name)


def _distinct(keys: pa.Table) -> pa.Table:
    return keys.group_by(keys.column_names).aggregate([])


@dataclasses.dataclass(frozen=True, slots=True)
class FinishTask:
    """A part of bringing a table's ranges to one view.

    Attributes:
        reading: reading in that view.
        table: table as it was looked up in the view.
        token: token of the cut that results.
        number: number of the range that is written.
        before: a range whose rows are kept, but for those keys; None to read those keys again.
        keys: files with keys: all of them, or those that are read again.
    """

    reading: Reading
    table: TableTask
    token: str
    number: int
    before: Place | None
    keys: tuple[Place, ...]


def finish_range(task: FinishTask) -> Iterator[str]:
    """Write a range as it is in the newer view.

    Yields:
        JSON of a text, how the table changed, if it did.

    Raises:
        SourceError: the server failed, or the view is gone.
    """
    rows = _kept(task) if task.before is not None else _read_again(task)
    schema = task.table.landed.schema
    staging, directory = Staging(task.reading.root), task.table.landed.directory
    try:
        staging.write_range(directory, task.token, task.number, task.reading.view.lsn, schema, rows)
    except TableChangedError as error:
        yield json.dumps(error.reason)
        return
    reach(Step.RANGE_FINISHED)


def _kept(task: FinishTask) -> Iterator[pa.Table]:
    keys = [read_table(path) for path in task.keys]
    schema = task.table.landed.schema
    assert task.before is not None
    with parquet_file(task.before) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            for piece in keys:
                changed = keyset.is_changed(rows, piece)
                rows = rows.filter(pa.compute.invert(changed))
            yield rows.cast(schema)


def _read_again(task: FinishTask) -> Iterator[pa.Table]:
    reading, table = task.reading, task.table
    stamper, readers = reading.stamper(task.number), reading.readers()
    with reading.open() as reader:
        reader.begin(reading.view)
        for path in task.keys:
            for lines, keys in _asked(reader, table, read_table(path)):
                for rows in readers.decode(table, lines):
                    # Keys that the server takes for equal need not be.
                    yield stamper.fill(rows.filter(keyset.is_changed(rows, keys)))[0]
        reader.check_files(table.shape, range(len(table.shape.leaves)))
        reader.end()


def _asked(
    reader: TableReader, table: TableTask, keys: pa.Table
) -> Iterator[tuple[Iterable[bytes], pa.Table]]:
    indexes = [table.landed.names.index(name) for name in keys.column_names]
    for first in range(0, keys.num_rows, _KEYS_AT_ONCE):
        piece = keys.slice(first, _KEYS_AT_ONCE)
        yield reader.copy_keys(table.shape, indexes, keyset.array_texts(piece), None), piece
