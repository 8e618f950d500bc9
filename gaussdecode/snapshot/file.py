"""Write the files of a snapshot entry: rows that were read, stamped with its position.

Several threads write, each its own file of each table; they share a `Stamper`, which counts
the rows of a table. Until `finish` a file is unfinished and swept by the next start.
"""

import dataclasses
import datetime as dt
import threading
from collections import Counter
from typing import Final

import numpy as np
import pyarrow as pa

from gaussdecode.collect.arrow import GD_FIELDS, SOURCE_FIELD
from gaussdecode.collect.collector import metadata_of
from gaussdecode.collect.tables import Landed
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.names import data_directory
from gaussdecode.land.parquet import ParquetSink, operations
from gaussdecode.model.landing import LandingFile, Position

_TYPES: Final = {field.name: field.type for field in GD_FIELDS}


@dataclasses.dataclass(frozen=True, slots=True)
class Stamp:
    """The columns that all rows of a snapshot have in common.

    Attributes:
        lsn: its position.
        csn: the same in a landing by CSN; else None.
        time: when it was taken; aware.
        source: source whose they are, where there are several; else None.
    """

    lsn: int
    csn: int | None
    time: dt.datetime
    source: str | None = None


class Stamper:
    """Numbers the rows of one table of a snapshot from 0. Thread-safe.

    Attributes:
        count: rows so far.
    """

    def __init__(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self.count = 0
        self._lock = threading.Lock()

    def fill(self, rows: pa.Table) -> tuple[pa.Table, int]:
        """Stamp rows; gives them, and the number of the first."""
        size = rows.num_rows
        with self._lock:
            first = self.count
            self.count += size
        values = {
            "gd_lsn": pa.array(np.full(size, self.stamp.lsn, dtype=np.int64)),
            "gd_seq": pa.array(np.arange(first, first + size, dtype=np.int64)),
            "gd_ts": pa.repeat(pa.scalar(self.stamp.time, _TYPES["gd_ts"]), size),
        }
        if self.stamp.csn is not None:
            values["gd_csn"] = pa.array(np.full(size, self.stamp.csn, dtype=np.int64))
        for name, column in values.items():
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(index), column)
        return rows, first


class SnapshotFile:
    """One file of one table, written by one thread.

    Args:
        log: log of the landing.
        landed: the table.
        stamper: stamper of the table.
        compression: compression of the file.
    """

    def __init__(self, log: CommitLog, landed: Landed, stamper: Stamper, compression: str) -> None:
        self._log = log
        self._landed = landed
        self._stamper = stamper
        self._compression = compression
        self._sink: ParquetSink | None = None
        self._first = self._last = 0
        self._rows = 0
        self._ops: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """Bytes so far."""
        return 0 if self._sink is None else self._sink.size

    def write(self, rows: pa.Table) -> None:
        """Stamp rows and append them as one row group."""
        if not rows.num_rows:
            return
        rows, first = self._stamper.fill(rows)
        self._append(rows, first)

    def write_empty(self, epoch: int) -> None:
        """Say that the table has no row: a truncate marker, as the only row."""
        landed = self._landed
        ours = {"gd_op": "T", "gd_epoch": epoch, SOURCE_FIELD.name: self._stamper.stamp.source}
        arrays = [
            pa.array([ours.get(field.name)], field.type)
            if field.name in ours
            else pa.nulls(1, field.type)
            for field in landed.schema
        ]
        rows, first = self._stamper.fill(pa.table(arrays, schema=landed.schema))
        self._append(rows, first)

    def _append(self, rows: pa.Table, first: int) -> None:
        self._log.disk.space.reserve(f"write {self._landed.directory}")
        if self._sink is None:
            log, landed = self._log, self._landed
            directory = data_directory(landed.directory, log.today())
            self._sink = ParquetSink(
                log.disk,
                log.disk.unfinished(directory, log.next_n, "parquet"),
                landed.schema.with_metadata(metadata_of(landed)),
                self._compression,
                rows,
            )
            self._first = first
        self._sink.write(rows)
        self._last = first + rows.num_rows - 1
        self._rows += rows.num_rows
        self._ops.update(operations(rows))

    def finish(self) -> LandingFile | None:
        """Close the file and make it durable; None when nothing was written."""
        if self._sink is None:
            return None
        size, checksum = self._sink.finish()
        lsn = self._stamper.stamp.lsn
        return LandingFile(
            path=self._sink.path,
            table=self._landed.directory,
            rows=self._sink.rows,
            bytes=size,
            first=Position(lsn, self._first),
            last=Position(lsn, self._last),
            schema_id=self._landed.schema_id,
            ops=dict(sorted(self._ops.items())),
            has_unchanged=False,
            has_key_change=False,
            checksum=checksum,
            source=self._stamper.stamp.source,
        )

    def abandon(self) -> None:
        """Remove the file."""
        if self._sink is not None:
            self._sink.abandon()
            self._log.disk.remove(self._sink.path)
