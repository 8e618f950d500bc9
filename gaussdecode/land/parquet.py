"""One Parquet file in the making.

Given Arrow tables of one schema; promises one row group per table, another for each row
with huge values, and types that Spark reads. Dictionaries only where a sample says they pay: elsewhere they cost time and space.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gaussdecode.land import hugerow
from gaussdecode.land.disk import Disk
from gaussdecode.land.sink import Sink
from gaussdecode.land.thrift import Struct

ZSTD_LEVEL: Final = 1
_SAMPLE_ROWS: Final = 4096
_PAYS_BELOW: Final = 0.1
"""Distinct values per row in the sample below which a dictionary is used."""

_HUGE_BYTES: Final = 1 << 20
"""A value above this has its column go without statistics; arbitrary."""

_OPERATIONS: Final = "DIRTU"
_ALWAYS: Final = frozenset({"gd_op", "gd_epoch"})


class ParquetSink:
    """Encodes tables into a hidden file. Owned by one thread at a time.

    Attributes:
        path: of the hidden file.
        rows: written so far; once it is finished, what the file's own footer says.
    """

    def __init__(
        self, disk: Disk, path: str, schema: pa.Schema, compression: str, sample: pa.Table
    ) -> None:
        """Create the file.

        Args:
            disk: the landing.
            path: hidden.
            schema: with the metadata that shall be in the file.
            compression: ``zstd``, ``snappy`` or ``none``.
            sample: the first rows, to choose encodings by.
        """
        self.path = path
        self.rows = 0
        self._sink = Sink(disk, path)
        self._compression = compression
        self._level = ZSTD_LEVEL if compression == "zstd" else None
        self._group_count = 0  # of those that pyarrow writes
        self._grafts: list[tuple[int, int, Struct]] = []
        self._footer: list[Any] = []  # Any: pyarrow has no types
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=compression,
            compression_level=self._level,
            use_dictionary=dictionary_columns(sample),
            write_statistics=statistics_columns(sample),
            version=hugerow.FORMAT,
            metadata_collector=self._footer,
        )

    @property
    def size(self) -> int:
        """Bytes encoded so far."""
        return self._sink.size

    def write(self, table: pa.Table) -> None:
        """Append one row group, and one more for each row with huge values."""
        for part, is_huge in hugerow.parts(table):
            if is_huge:
                self._graft(part)
            else:
                self._writer.write_table(part, row_group_size=max(1, part.num_rows))
                self._group_count += 1
        self.rows += table.num_rows

    def _graft(self, row: pa.Table) -> None:
        start = self._sink.size
        group = hugerow.put_row(row, self._compression, self._level, start, self._sink.write)
        self._grafts.append((self._group_count, self._sink.size - start, group))

    def finish(self) -> tuple[int, str]:
        """Write the footer, make the file durable; give its size and checksum."""
        if self._grafts:
            with self._sink.diverted() as footer:
                self._writer.close()
            content, self.rows = hugerow.joined(footer, self._grafts)
            self._sink.write(content)
        else:
            self._writer.close()
            self.rows = self._footer[-1].num_rows
        self._footer.clear()
        del self._writer  # what it knows of the columns is more than a small file holds
        checksum = self._sink.finish()
        return self._sink.size, checksum

    def abandon(self) -> None:
        """Give the file up; it stays on disk, unfinished."""
        self._sink.abandon()


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


def dictionary_columns(table: pa.Table) -> list[str]:
    """Choose the leaf columns that get a dictionary, by a sample of the rows.

    Args:
        table: the first row group.

    Returns:
        Parquet paths, such as ``city`` or ``gd_old.city``.
    """
    rows = table.num_rows
    if rows * _PAYS_BELOW <= 1:  # a single value is too many: small files need no look
        return [name for name in table.schema.names if name in _ALWAYS]
    if rows > _SAMPLE_ROWS:
        step = rows // _SAMPLE_ROWS
        table = table.take(pa.array(range(0, step * _SAMPLE_ROWS, step), pa.int64()))
    chosen = []
    for field, column in zip(table.schema, table.columns, strict=True):
        for path, values in _leaves(field.name, column):
            if field.name in _ALWAYS or _pays(values):
                chosen.append(path)
    return chosen


def statistics_columns(table: pa.Table) -> list[str] | bool:
    """Choose the leaf columns that get statistics: all, but for those with huge values.

    Least and greatest value are copied several times on their way into the file, and help
    no reader when they are so long.

    Args:
        table: the first row group.

    Returns:
        True for all, else Parquet paths.
    """
    leaves = [
        leaf
        for field, column in zip(table.schema, table.columns, strict=True)
        for leaf in _leaves(field.name, column)
    ]
    short = [path for path, values in leaves if _longest(values) <= _HUGE_BYTES]
    return len(short) == len(leaves) or short


def _longest(values: pa.ChunkedArray) -> int:
    """Bytes of the longest text or binary; 0 for other types."""
    if values.nbytes <= _HUGE_BYTES or not (
        pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    ):
        return 0
    return pc.max(pc.binary_length(values)).as_py() or 0


def _leaves(path: str, column: pa.ChunkedArray) -> list[tuple[str, pa.ChunkedArray]]:
    kind = column.type
    if pa.types.is_struct(kind):
        found = []
        for index in range(kind.num_fields):
            child = pa.chunked_array(
                [chunk.field(index) for chunk in column.chunks], kind.field(index).type
            )
            found += _leaves(f"{path}.{kind.field(index).name}", child)
        return found
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        child = pa.chunked_array([chunk.flatten() for chunk in column.chunks], kind.value_type)
        return _leaves(f"{path}.list.element", child)
    if pa.types.is_map(kind):
        keys = pa.chunked_array([_keys(chunk) for chunk in column.chunks], kind.key_type)
        return [(f"{path}.key_value.key", keys)]
    return [(path, column)]


def _keys(chunk: pa.MapArray) -> pa.Array:
    """Keys of the rows of a chunk; `chunk.keys` has those of its whole buffer."""
    if not len(chunk):
        return chunk.keys.slice(0, 0)
    start, stop = chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()
    return chunk.keys.slice(start, stop - start)


def _pays(values: pa.ChunkedArray) -> bool:
    if pa.types.is_boolean(values.type) or len(values) == values.null_count:
        return False
    distinct: int = pc.count_distinct(values, mode="only_valid").as_py()
    present: int = len(values) - values.null_count
    return distinct < _PAYS_BELOW * present
