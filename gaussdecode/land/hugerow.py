"""Write a row that is too large for pyarrow's Parquet writer, which copies each value three times.

pyarrow writes the row with its huge values empty. Then this module puts the values in their place: from the
memory they are in, through the compression, into the file, a piece at a time. pyarrow still decides levels,
encodings and all other columns.

Layout, of a row group as of any other; `#` is what is replaced::

    column chunk    pages of the columns before, as pyarrow wrote them
    page header     # sizes
    page            compressed: levels as pyarrow wrote them, # length and bytes of each value
    column chunk    pages of the columns after
    footer          # sizes and offsets of the row group, which joins those of the file

A page's header comes before it and holds its size. So huge values are compressed twice,
first only to be measured: memory is dearer here than time.

Rejected: a Parquet writer of our own (all types and nestings, for one page) and data pages of version 2 (one
copy less of four, but the compressed form twice).
"""

import io
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gaussdecode.errors import LandingError
from gaussdecode.host import lazy_pyarrow
from gaussdecode.land import rowgroups, thrift
from gaussdecode.land.encodings import FORMAT, fits
from gaussdecode.land.thrift import Struct

HUGE_BYTES: Final = 16 << 20
"""A value above this is put into its file by this module; arbitrary."""

_LENGTH: Final = struct.Struct("<I")
_PIECE_BYTES: Final = 1 << 20
_MAX_PAGE_BYTES: Final = (1 << 31) - 1

# Fields of Parquet's Thrift structs, as parquet.thrift numbers them.
_META_PATH, _META_BYTES, _META_PACKED_BYTES = 3, 6, 7
_META_STATISTICS, _META_SIZES = 12, 16
_META_OF_VALUES: Final = (_META_STATISTICS, _META_SIZES)
_PAGE_TYPE, _PAGE_BYTES, _PAGE_PACKED_BYTES, _PAGE_OF_DATA = 1, 2, 3, 5
_DATA_STATISTICS: Final = 5
_DATA_PAGE: Final = 0

Path = tuple[str, ...]
Write = Callable[[bytes | memoryview], object]


def parts(table: pa.Table) -> Iterator[tuple[pa.Table, bool]]:
    """Cut out the rows with huge values.

    Returns:
        Each part with whether it is such a row; the parts joined are the table.
    """
    if fits(table, HUGE_BYTES):  # nothing in it can be larger: nearly all tables
        yield table, False
        return
    start = 0
    for row in _huge_rows(table):
        if row > start:
            yield table.slice(start, row - start), False
        yield table.slice(row, 1), True
        start = row + 1
    if start < table.num_rows or not start:
        yield table.slice(start), False


def put_row(row: pa.Table, compression: str, level: int | None, at: int, write: Write) -> Struct:
    """Write a row group of one row.

    Args:
        row: row with huge values.
        compression: compression of the file: ``zstd``, ``snappy`` or ``none``.
        level: level of the compression; None for its own.
        at: offset of its first byte in the file.
        write: takes its bytes.

    Returns:
        The row group for the file's footer.

    Raises:
        LandingError: pyarrow writes pages of another kind than these.
    """
    huge: dict[Path, pa.Array] = {}
    columns = [
        _emptied(_only(column), (name,), huge)
        for name, column in zip(row.schema.names, row.columns, strict=True)
    ]
    data = _written(pa.Table.from_arrays(columns, schema=row.schema), compression, level)
    group, _ = rowgroups.only_group(data)
    shift = at - rowgroups.HEAD_BYTES
    for chunk in rowgroups.chunks_of(group):
        meta = rowgroups.meta_of(chunk)
        start, size = rowgroups.extent(meta)
        values = huge.get(tuple(part.decode() for part in meta[_META_PATH][1].values))
        rowgroups.shift_chunk(chunk, shift)
        if values is None:
            write(data[start : start + size])
            continue
        plain, packed = _put_chunk(data, start, values, compression, write)
        rowgroups.grow(group, plain - meta[_META_BYTES][1], packed - size)
        thrift.add(meta, _META_BYTES, plain - meta[_META_BYTES][1])
        thrift.add(meta, _META_PACKED_BYTES, packed - size)
        for field in _META_OF_VALUES:
            meta.pop(field, None)
        shift += packed - size
    rowgroups.shift_group(group, at - rowgroups.HEAD_BYTES)
    return group


# ---- rows and values


def _huge_rows(table: pa.Table) -> list[int]:
    found: set[int] = set()
    for column in table.columns:
        start = 0
        for chunk in column.chunks:
            found.update((start + _rows_of(chunk)).tolist())
            start += len(chunk)
    return sorted(found)


def _rows_of(array: pa.Array) -> npt.NDArray[np.int64]:
    """Rows of an array with huge values, in any leaf."""
    none = np.empty(0, dtype=np.int64)
    if array.nbytes <= HUGE_BYTES:
        return none
    if _is_bytes(array):
        lengths = lazy_pyarrow.pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        return np.flatnonzero(lengths > HUGE_BYTES)
    if pa.types.is_struct(array.type):
        return np.concatenate([none, *map(_rows_of, array.flatten())])
    if not _is_list(array):
        return none
    ends = array.offsets.to_numpy()[1:] - array.offsets[0].as_py()
    found = [_rows_of(child) for _, child in _elements(array)]
    return np.searchsorted(ends, np.concatenate([none, *found]), side="right")


def _emptied(array: pa.Array, path: Path, huge: dict[Path, pa.Array]) -> pa.Array:
    """The same with "" for each value of a leaf that has huge ones; notes these leaves."""
    if not len(_rows_of(array)):
        return array
    of = array.type
    if _is_bytes(array):
        huge[path] = array
        return lazy_pyarrow.pc.if_else(
            array.is_valid(), pa.scalar(b"", pa.binary()).cast(of), pa.scalar(None, of)
        )
    if pa.types.is_struct(of):
        children = [
            _emptied(child, (*path, field.name), huge)
            for field, child in zip(of, array.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(of), mask=array.is_null())
    children = [_emptied(child, (*path, *names), huge) for names, child in _elements(array)]
    if pa.types.is_map(of):
        fields = [of.key_field, of.item_field]
        children = [pa.StructArray.from_arrays(children, fields=fields)]
    offsets = array.offsets.to_numpy() - array.offsets[0].as_py()
    validity = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    buffers = [pa.py_buffer(validity), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(of, len(array), buffers, children=children)


def _is_bytes(array: pa.Array) -> bool:
    return bool(pa.types.is_string(array.type) or pa.types.is_binary(array.type))


def _is_list(array: pa.Array) -> bool:
    return bool(pa.types.is_list(array.type) or pa.types.is_map(array.type))


def _elements(array: pa.Array) -> list[tuple[Path, pa.Array]]:
    """What the rows of a list or a map hold, with Parquet's names on the way there."""
    start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
    if pa.types.is_map(array.type):
        found = [(("key_value", "key"), array.keys), (("key_value", "value"), array.items)]
    else:
        found = [(("list", "element"), array.values)]
    return [(names, values.slice(start, stop - start)) for names, values in found]


def _only(column: pa.ChunkedArray) -> pa.Array:
    """The array of a column with one row."""
    return next(chunk for chunk in column.chunks if len(chunk))


def _encoded(values: pa.Array) -> Iterator[bytes | memoryview]:
    """Parquet's plain encoding, without a copy, in pieces."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[values.offset :][: len(values) + 1].tolist()
    with memoryview(data) as view:
        for (start, stop), is_valid in zip(
            itertools.pairwise(bounds), values.is_valid().to_pylist(), strict=True
        ):
            if is_valid:
                yield _LENGTH.pack(stop - start)
                for piece in range(start, stop, _PIECE_BYTES):
                    yield view[piece : min(stop, piece + _PIECE_BYTES)]


# ---- pages


def _written(row: pa.Table, compression: str, level: int | None) -> memoryview:
    """A Parquet file of one row."""
    file = io.BytesIO()
    lazy_pyarrow.pq.write_table(
        row,
        file,
        compression=compression,
        compression_level=level,
        use_dictionary=False,
        **FORMAT,
    )
    return file.getbuffer()


def _put_chunk(
    data: memoryview, start: int, values: pa.Array, compression: str, write: Write
) -> tuple[int, int]:
    """Write a column chunk of one page, with values in place of the empty ones.

    Returns:
        Its bytes before and after compression, with the page's header.
    """
    header, stop = thrift.load(data, start)
    body = bytes(data[stop : stop + header[_PAGE_PACKED_BYTES][1]])
    plain_bytes = header[_PAGE_BYTES][1]
    if compression != "none":
        body = pa.Codec(compression).decompress(body, plain_bytes, asbytes=True)
    empty = _LENGTH.pack(0) * (len(values) - values.null_count)
    if header[_PAGE_TYPE][1] != _DATA_PAGE or not body.endswith(empty):
        raise LandingError(
            "this version of pyarrow writes Parquet pages in an unknown way, so a row with huge "
            "values cannot be written"
        )
    levels = body.removesuffix(empty)
    total = plain_bytes + sum(lazy_pyarrow.pc.binary_length(values).drop_null().to_pylist())
    if total > _MAX_PAGE_BYTES:
        raise LandingError(f"one row has {total} bytes of huge values, more than Parquet allows")
    packed_bytes = 0

    def count(piece: bytes | memoryview) -> None:
        nonlocal packed_bytes
        packed_bytes += len(piece)

    _pack(compression, total, itertools.chain((levels,), _encoded(values)), count)
    header[_PAGE_BYTES] = (thrift.I32, total)
    header[_PAGE_PACKED_BYTES] = (thrift.I32, packed_bytes)
    header[_PAGE_OF_DATA][1].pop(_DATA_STATISTICS, None)
    head = thrift.dump(header)
    write(head)
    _pack(compression, total, itertools.chain((levels,), _encoded(values)), write)
    return len(head) + total, len(head) + packed_bytes


def _pack(compression: str, total: int, pieces: Iterable[bytes | memoryview], write: Write) -> None:
    """Compress what comes in pieces; the same pieces give the same bytes."""
    if compression == "zstd":
        stream = pa.CompressedOutputStream(_Calling(write), compression)
        for piece in pieces:
            stream.write(piece)
        stream.close()
    elif compression == "snappy":
        # Its blocks know nothing of each other: only the length at the head is of all.
        snappy = pa.Codec(compression)
        write(thrift.varint(total))
        for piece in pieces:
            write(snappy.compress(piece, asbytes=True)[len(thrift.varint(len(piece))) :])
    else:
        for piece in pieces:
            write(piece)


class _Calling(io.RawIOBase):
    """A file that calls for what is written to it."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]  # pyarrow gives only these
        self._write(data)
        return len(data)
