"""Choose the encoding of each column of a Parquet file by a sample of its rows.

Given the first row group, chooses the cheapest encoding that saves something and that Spark and other readers
know. Pure except for a trial in memory.

| what | where |
|---|---|
| dictionary | few distinct values in the sample |
| differences (DELTA_BINARY_PACKED) | our own numbers, and integers, times, dates and decimals of up to 18 digits whose differences are narrow |
| plain | everything else |
| compression | all columns, but those of which the trial says that it gains less than a fifth; of few rows those above 512 bytes |
| statistics | all columns, but those with huge values, and the letters of operations |

Decimals of up to 18 digits are integers in the file, as Spark writes them itself.

Rejected: faster zstd levels (-1 saves 8 % CPU for 1.4 times the bytes), lz4 (23 % for 1.8 times),
BYTE_STREAM_SPLIT (Spark's reader does not know it). Impala before 4 cannot read these files.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gaussdecode.host import lazy_pyarrow

FORMAT: Final[dict[str, Any]] = {"version": "2.6", "store_decimal_as_integer": True}
"""Options of every writer of our files: logical types, and the storage of decimals."""

_SAMPLE_ROWS: Final = 4096
_PAYS_BELOW: Final = 0.1
"""Distinct values per row in the sample below which a dictionary is used."""

_NARROW: Final = 0.75
"""Bits of a difference over those of a value, below which differences are used; arbitrary."""

_TRIAL_ROWS: Final = 4 * _SAMPLE_ROWS
"""A first row group below this is compressed whatever it holds: its file is small; arbitrary."""

_TRIAL_BYTES: Final = 16 << 20
"""Larger values are no trial in memory, which has a bound; arbitrary."""

_GAINS_BELOW: Final = 0.8
"""Compressed over plain bytes in the trial, below which a column is compressed; arbitrary."""

_SMALL_BYTES: Final = 512
"""A column up to this is not compressed: the file would be smaller by an eighth at most, and setting up zstd for
each column takes as long as all the rest of a small file (measured with one to 33 rows of twenty columns)."""

_SMALL_ROWS: Final = 64
"""Up to so many rows a number or a time takes no more than `_SMALL_BYTES`."""

_SMALL_TABLE_BYTES: Final = 64 << 10
"""Up to this, in few rows, a dictionary saves little beside the compression; to look for one takes a third of the
time of such a file (measured with 20 rows of 20 columns)."""

_HUGE_BYTES: Final = 1 << 20
"""A value above this has its column go without statistics; arbitrary."""

_DICTIONARY: Final = frozenset({"gd_op", "gd_epoch"})
_DELTA: Final = frozenset(
    {
        "gd_lsn",
        "gd_seq",
        "gd_csn",
        "gd_xid",
        "gd_ts",
        "gd_change_lsn",
        "gd_first_lsn",
        "gd_commit_lsn",
    }
)
_NO_STATISTICS: Final = frozenset({"gd_op"})
_INTEGER_DIGITS: Final = 18  # of a decimal that an integer holds
_SMALL_DIGITS: Final = 9  # same, of 32 bits
_BLOCK: Final = 128  # differences that have their least one in common, in groups of 32
_GROUPS: Final = 4

_VARYING: Final = frozenset({pa.string().id, pa.binary().id})

Leaf = tuple[str, pa.ChunkedArray]


def writer_options(
    table: pa.Table, compression: str, level: int | None, small: "SmallOptions | None" = None
) -> dict[str, Any]:
    """Choose what `pyarrow.parquet.ParquetWriter` is told.

    Args:
        table: the first row group.
        compression: ``zstd``, ``snappy`` or ``none``.
        level: level of the compression; None for its own.
        small: those of its schema, where somebody keeps them.
    """
    if _is_small(table):
        return (small or SmallOptions(table.schema)).options(table, compression, level)
    found = leaves(table)
    dictionary = dictionary_columns(table, found)
    delta = [path for path in delta_columns(table, found) if path not in dictionary]
    options = {
        **FORMAT,
        "use_dictionary": dictionary,
        "column_encoding": dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        "write_statistics": statistics_columns(table, found),
        "compression": compression,
        "compression_level": level,
    }
    loose = _loose_columns(table, options, found) if compression != "none" else frozenset()
    if not loose:
        return options
    kinds = {path: "none" if path in loose else compression for path, _ in found}
    levels = {path: level for path in kinds if path not in loose and level is not None}
    return {**options, "compression": kinds, "compression_level": levels or None}


def _is_small(table: pa.Table) -> bool:
    """Whether a look at its values would take longer than what it saves."""
    if table.num_rows * _PAYS_BELOW <= 1:
        return fits(table, _HUGE_BYTES)
    return table.num_rows <= _SMALL_ROWS and fits(table, _SMALL_TABLE_BYTES)


def fits(rows: pa.Table | pa.ChunkedArray, most: int) -> bool:
    """Whether they have no more bytes; what a slice holds of its buffers takes long to tell."""
    return int(rows.get_total_buffer_size()) <= most or int(rows.nbytes) <= most


class SmallOptions:
    """Options for rows so few, or so small, that their values change nothing; of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        kinds = schema.types
        by_column = [leaf_paths(*column) for column in zip(schema.names, kinds, strict=True)]
        paths = [path for of_column in by_column for path in of_column]
        names = Counter(paths)
        self._options: dict[str, Any] = {
            **FORMAT,
            "use_dictionary": [path for path in paths if path in _DICTIONARY],
            "column_encoding": {
                path: "DELTA_BINARY_PACKED" for path in paths if path in _DELTA and names[path] == 1
            },
            "write_statistics": [path for path in paths if path not in _NO_STATISTICS],
        }
        self._varying = [
            (index, by_column[index]) for index, kind in enumerate(kinds) if _varies(kind)
        ]

    def options(self, table: pa.Table, compression: str, level: int | None) -> dict[str, Any]:
        """Choose them for a table; see `writer_options`."""
        large = [
            path
            for index, of_column in self._varying
            if compression != "none" and not fits(table.column(index), _SMALL_BYTES)
            for path in of_column
        ]
        levels = dict.fromkeys(large, level) if large and level is not None else None
        return {
            **self._options,
            "compression": dict.fromkeys(large, compression) if large else "none",
            "compression_level": levels,
        }


def _varies(kind: pa.DataType) -> bool:
    """Whether its values have no width that few rows keep below `_SMALL_BYTES`."""
    return kind.id in _VARYING or bool(kind.num_fields)


def leaf_paths(path: str, kind: pa.DataType) -> list[str]:
    """Paths of the leaves of a column, by its type alone."""
    if not kind.num_fields:
        return [path]
    if pa.types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return [leaf for field in fields for leaf in leaf_paths(f"{path}.{field.name}", field.type)]
    if pa.types.is_map(kind):
        return [
            *leaf_paths(f"{path}.key_value.key", kind.key_type),
            *leaf_paths(f"{path}.key_value.value", kind.item_type),
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return leaf_paths(f"{path}.list.element", kind.value_type)
    return [path]


def dictionary_columns(table: pa.Table, found: Sequence[Leaf]) -> list[str]:
    """Choose the leaf columns that get a dictionary.

    Args:
        table: the first row group.
        found: its leaves.

    Returns:
        Parquet paths, such as ``city`` or ``gd_old.city``.
    """
    rows = table.num_rows
    if rows * _PAYS_BELOW <= 1:  # a single value is too many: small files need no look
        return [path for path, _ in found if path in _DICTIONARY]
    if rows > _SAMPLE_ROWS:
        step = rows // _SAMPLE_ROWS
        found = leaves(table.take(pa.array(range(0, step * _SAMPLE_ROWS, step), pa.int64())))
    return [
        path
        for path, values in found
        if path in _DICTIONARY or (path not in _DELTA and _is_repetitive(values))
    ]


def delta_columns(table: pa.Table, found: Sequence[Leaf]) -> list[str]:
    """Choose the leaf columns of which differences are written.

    Args:
        table: the first row group.
        found: its leaves.

    Returns:
        Parquet paths.
    """
    if table.num_rows > _SAMPLE_ROWS:
        found = leaves(table.slice(0, _SAMPLE_ROWS))
    names = Counter(path for path, _ in found)  # `a.b` may be a column, and beside it `b` of `a`
    return [
        path
        for path, values in found
        if names[path] == 1 and (path in _DELTA or _is_narrow(values))
    ]


def statistics_columns(table: pa.Table, found: Sequence[Leaf]) -> list[str]:
    """Choose the leaf columns that get statistics.

    Least and greatest value are copied several times on their way into the file, and help
    no reader when they are very long.

    Args:
        table: the first row group.
        found: its leaves.

    Returns:
        Parquet paths.
    """
    is_small = table.nbytes <= _HUGE_BYTES
    return [
        path
        for path, values in found
        if path not in _NO_STATISTICS and (is_small or _longest(values) <= _HUGE_BYTES)
    ]


def leaves(table: pa.Table) -> list[Leaf]:
    """The columns as Parquet has them: those that hold values, by their paths."""
    return [
        leaf
        for field, column in zip(table.schema, table.columns, strict=True)
        for leaf in _leaves(field.name, column)
    ]


def _leaves(path: str, column: pa.ChunkedArray) -> list[Leaf]:
    kind = column.type
    if pa.types.is_struct(kind):
        found = []
        for index in range(kind.num_fields):
            child = pa.chunked_array(
                [chunk.field(index) for chunk in column.chunks], kind.field(index).type
            )
            found += _leaves(f"{path}.{kind.field(index).name}", child)
        return found
    if pa.types.is_map(kind):
        return [
            *_leaves(f"{path}.key_value.key", _elements(column, "keys", kind.key_type)),
            *_leaves(f"{path}.key_value.value", _elements(column, "items", kind.item_type)),
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        child = pa.chunked_array([chunk.flatten() for chunk in column.chunks], kind.value_type)
        return _leaves(f"{path}.list.element", child)
    return [(path, column)]


def _elements(maps: pa.ChunkedArray, part: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Keys or values of the rows of maps; pyarrow gives those of whole buffers."""
    found = []
    for chunk in maps.chunks:
        start = chunk.offsets[0].as_py() if len(chunk) else 0
        stop = chunk.offsets[-1].as_py() if len(chunk) else 0
        found.append(getattr(chunk, part).slice(start, stop - start))
    return pa.chunked_array(found, kind)


def _is_repetitive(values: pa.ChunkedArray) -> bool:
    if pa.types.is_boolean(values.type) or len(values) == values.null_count:
        return False
    distinct: int = lazy_pyarrow.pc.count_distinct(values, mode="only_valid").as_py()
    present: int = len(values) - values.null_count
    return distinct < _PAYS_BELOW * present


def _is_narrow(values: pa.ChunkedArray) -> bool:
    """Whether the differences of numbers take clearly fewer bits than the numbers."""
    width = _width(values.type)
    if not width or len(values) <= _BLOCK:
        return False
    numbers = _integers(values)
    count = (len(numbers) - 1) // _BLOCK * _BLOCK
    if count <= 0:
        return False
    steps = np.diff(numbers[: count + 1]).reshape(-1, _GROUPS, _BLOCK // _GROUPS)
    above_least = (steps - steps.min(axis=(1, 2), keepdims=True)).view(np.uint64).max(axis=2)
    bits = np.frexp(above_least.astype(np.float64))[1]
    return float(bits.mean()) < _NARROW * width


def _width(kind: pa.DataType) -> int:
    """Bits of a number in the file; 0 for what is no integer there."""
    if pa.types.is_decimal(kind):
        if kind.precision > _INTEGER_DIGITS:
            return 0
        return 32 if kind.precision <= _SMALL_DIGITS else 64
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return max(32, int(kind.bit_width))
    return 0


def _integers(values: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The numbers that are there, as the file holds them."""
    present = values.drop_null()
    if not pa.types.is_decimal(values.type):
        number = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
        return np.asarray(present.cast(number).to_numpy(), dtype=np.int64)
    return np.concatenate(
        [np.empty(0, np.int64)]
        + [
            np.frombuffer(chunk.buffers()[1], np.int64)[2 * chunk.offset :: 2][: len(chunk)]
            for chunk in present.chunks
            if len(chunk)
        ]
    )


def _longest(values: pa.ChunkedArray) -> int:
    """Bytes of the longest text or binary; 0 for other types."""
    if values.nbytes <= _HUGE_BYTES or not (
        pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    ):
        return 0
    longest: int | None = lazy_pyarrow.pc.max(lazy_pyarrow.pc.binary_length(values)).as_py()
    return longest or 0


def _loose_columns(
    table: pa.Table, options: dict[str, Any], found: Sequence[Leaf]
) -> frozenset[str]:
    """The leaf columns that a compression makes hardly smaller: small ones, or as a trial shows."""
    if table.num_rows <= _SMALL_BYTES:
        return frozenset(path for path, values in found if values.nbytes <= _SMALL_BYTES)
    sample = table.slice(0, _SAMPLE_ROWS)
    if table.num_rows < _TRIAL_ROWS or sample.nbytes > _TRIAL_BYTES:
        return frozenset()
    trial = pa.BufferOutputStream()
    footer: list[Any] = []  # Any: pyarrow has no types
    with lazy_pyarrow.pq.ParquetWriter(
        trial, table.schema, metadata_collector=footer, **options
    ) as writer:
        writer.write_table(sample)
    group = footer[0].row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    return frozenset(
        chunk.path_in_schema
        for chunk in chunks
        if chunk.total_compressed_size > _GAINS_BELOW * chunk.total_uncompressed_size
    )
