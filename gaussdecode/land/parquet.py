"""Write one Parquet file.

Given Arrow tables of one schema, writes one row group per table, one more for each row with huge values, and
types that Spark reads. `encodings` chooses how each column is written.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from gaussdecode.host import lazy_pyarrow
from gaussdecode.land import encodings, hugerow, rowgroups
from gaussdecode.land.disk import Disk
from gaussdecode.land.rowgroups import Encoded
from gaussdecode.land.sink import Sink
from gaussdecode.land.thrift import Struct

ZSTD_LEVEL: Final = 1
_OPERATIONS: Final = "DIRTU"
_STREAM_BYTES: Final = 32 * 1024  # a file of a few rows is smaller; arbitrary


class ParquetSink:
    """Encodes tables into a hidden file. Owned by one thread at a time.

    Attributes:
        path: path of the hidden file.
        options: options given to pyarrow's writer.
        rows: written so far; once it is finished, what the file's own footer says.
        size: bytes encoded so far.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        schema: pa.Schema,
        compression: str,
        sample: pa.Table,
        small: encodings.SmallOptions | None = None,
    ) -> None:
        """Create the file.

        Args:
            disk: the landing.
            path: hidden.
            schema: schema with the metadata that shall be in the file.
            compression: ``zstd``, ``snappy`` or ``none``.
            sample: the first rows, to choose encodings by.
            small: options of its schema for few rows, where somebody keeps them.
        """
        self.path = path
        self.rows = 0
        self.size = 0
        self._sink = Sink(disk, path)
        self._compression = compression
        self._level = _level(compression)
        self._group_count = 0  # of those that pyarrow writes
        self._grafts: list[tuple[int, int, Struct]] = []
        self._footer: list[Any] = []  # Any: pyarrow has no types
        # Its many small writes do not each take the GIL, which other threads may hold for long.
        self._stream = pa.output_stream(self._sink, buffer_size=_STREAM_BYTES)
        self.options = encodings.writer_options(sample, compression, self._level, small)
        self._writer = lazy_pyarrow.pq.ParquetWriter(
            self._stream, schema, metadata_collector=self._footer, **self.options
        )

    def write(self, table: pa.Table) -> None:
        """Append one row group, and one more for each row with huge values."""
        for part, is_huge in hugerow.parts(table):
            if is_huge:
                self._graft(part)
            else:
                self._writer.write_table(part, row_group_size=max(1, part.num_rows))
                self._group_count += 1
        self._count(table.num_rows)

    def append(self, encoded: Encoded) -> None:
        """Append what `encode` made."""
        self._stream.flush()
        start = self._sink.size
        self._sink.write(encoded.content)
        self._put(start, rowgroups.moved(encoded.group, start))
        self._count(encoded.rows)

    def _graft(self, row: pa.Table) -> None:
        self._stream.flush()
        start = self._sink.size
        self._put(
            start, hugerow.put_row(row, self._compression, self._level, start, self._sink.write)
        )

    def _put(self, start: int, group: Struct) -> None:
        """Remember a row group that pyarrow does not know of, whose bytes are in the file."""
        self._grafts.append((self._group_count, self._sink.size - start, group))

    def _count(self, rows: int) -> None:
        self.rows += rows
        self.size = self._stream.tell() + sum(size for _, size, _ in self._grafts)

    def finish(self) -> tuple[int, str]:
        """Write the footer, make the file durable; give its size and checksum."""
        self.close()
        return self.sync()

    def close(self) -> None:
        """Write the footer. The file is whole then, but not durable."""
        if self._grafts:
            self._stream.flush()
            with self._sink.diverted() as footer:
                self._writer.close()
                self._stream.flush()
            content, self.rows = rowgroups.joined(footer, self._grafts)
            self._sink.write(content)
        else:
            self._writer.close()
            self._stream.flush()
            self.rows = self._footer[-1].num_rows
        self._footer.clear()
        # What they know of the columns, and a buffer, is more than a small file holds.
        del self._writer, self._stream
        self._sink.drain()

    def sync(self) -> tuple[int, str]:
        """Make a closed file durable; give its size and checksum. Any thread may do it."""
        checksum = self._sink.finish()
        self.size = self._sink.size
        return self.size, checksum

    def abandon(self) -> None:
        """Give the file up; it stays on disk, unfinished."""
        self._sink.abandon()


def encode(
    table: pa.Table, compression: str, options: dict[str, Any] | None
) -> Encoded | None:  # Any: pyarrow's
    """Make a row group that a `ParquetSink` appends.

    Args:
        table: its rows.
        compression: compression of the file.
        options: options of the file, where it is open already.

    Returns:
        It; None where it has huge values.
    """
    if any(is_huge for _, is_huge in hugerow.parts(table)):
        return None
    chosen = options or encodings.writer_options(table, compression, _level(compression))
    return rowgroups.encode(table, chosen)


def _level(compression: str) -> int | None:
    return ZSTD_LEVEL if compression == "zstd" else None


def operations(table: pa.Table) -> dict[str, int]:
    """Count rows by operation, from the rows themselves; nothing for a table without any."""
    if "gd_op" not in table.schema.names:
        return {}
    total = dict.fromkeys(_OPERATIONS, 0)
    for chunk in table.column("gd_op").chunks:
        letters = _letters(chunk)
        for letter in _OPERATIONS:
            total[letter] += int(np.count_nonzero(letters == ord(letter)))
    return {letter: count for letter, count in total.items() if count}


def _letters(chunk: pa.StringArray) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of a column of letters; a row that is none counts as nothing."""
    _, offsets, data = chunk.buffers()
    if not len(chunk) or data is None:
        return np.empty(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    return np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
