"""Put row groups into a Parquet file beside those that pyarrow writes to it.

Given the bytes of a row group and its description, makes a footer that has it in its place. The content of a
column chunk is not looked at; it has no offsets, which are all in the footer. So a row group may be encoded
anywhere, and written at its turn.

Lanes encode ahead instead of writing a second file. A second open file per table would mix the order of
rows, and readers would have to sort.
"""

import dataclasses
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from gaussdecode.host import lazy_pyarrow
from gaussdecode.land import thrift
from gaussdecode.land.thrift import Items, Struct

HEAD_BYTES: Final = 4
"""Letters at the start of a file, before its first row group."""

_MAGIC: Final = b"PAR1"
_LENGTH: Final = struct.Struct("<I")

# Fields of Parquet's Thrift structs, as parquet.thrift numbers them.
_FILE_ROWS, _FILE_GROUPS = 3, 4
_GROUP_CHUNKS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET = 1, 2, 3, 5
_GROUP_PACKED_BYTES, _GROUP_ORDINAL = 6, 7
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_META_PACKED_BYTES = 7
_META_DATA, _META_INDEX, _META_DICTIONARY, _META_BLOOM = 9, 10, 11, 14
_META_OFFSETS: Final = (_META_DATA, _META_INDEX, _META_DICTIONARY, _META_BLOOM)


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """A row group that is in no file yet.

    Attributes:
        content: its column chunks.
        group: its description, as if it were the first of a file.
        rows: how many it has.
    """

    content: memoryview
    group: Struct
    rows: int


def encode(table: pa.Table, options: dict[str, Any]) -> Encoded:  # Any: pyarrow's
    """Make a row group in memory.

    Args:
        table: its rows.
        options: options of `pyarrow.parquet.ParquetWriter`.
    """
    stream = pa.BufferOutputStream()
    with lazy_pyarrow.pq.ParquetWriter(stream, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    data = memoryview(stream.getvalue()).cast("B")
    group, stop = only_group(data)
    return Encoded(data[HEAD_BYTES:stop], group, table.num_rows)


def only_group(file: memoryview) -> tuple[Struct, int]:
    """The row group of a file that has one, and where the file's footer begins."""
    tail = len(_MAGIC) + _LENGTH.size
    (size,) = _LENGTH.unpack_from(file, len(file) - tail)
    at = len(file) - tail - int(size)
    footer, _ = thrift.load(file, at)
    group: Struct
    (group,) = footer[_FILE_GROUPS][1].values
    return group, at


def chunks_of(group: Struct) -> list[Struct]:
    """Column chunks of a row group."""
    found: list[Struct] = group[_GROUP_CHUNKS][1].values
    return found


def meta_of(chunk: Struct) -> Struct:
    """Its metadata."""
    found: Struct = chunk[_CHUNK_META][1]
    return found


def extent(meta: Struct) -> tuple[int, int]:
    """Where a column chunk begins, and its bytes."""
    offsets = [meta[field][1] for field in (_META_DICTIONARY, _META_DATA) if field in meta]
    return min(offsets), meta[_META_PACKED_BYTES][1]


def shift_chunk(chunk: Struct, shift: int) -> None:
    """Say that a column chunk stands so many bytes further on."""
    thrift.add(chunk, _CHUNK_OFFSET, shift)
    for field in _META_OFFSETS:
        thrift.add(meta_of(chunk), field, shift)


def shift_group(group: Struct, shift: int) -> None:
    """Say so of a row group; not of its column chunks."""
    thrift.add(group, _GROUP_OFFSET, shift)


def moved(group: Struct, at: int) -> Struct:
    """Say at which offset of a file the first row group of another one stands; gives it."""
    for chunk in chunks_of(group):
        shift_chunk(chunk, at - HEAD_BYTES)
    shift_group(group, at - HEAD_BYTES)
    return group


def grow(group: Struct, plain_bytes: int, packed_bytes: int) -> None:
    """Say that a row group has so many bytes more, before and after compression."""
    thrift.add(group, _GROUP_BYTES, plain_bytes)
    thrift.add(group, _GROUP_PACKED_BYTES, packed_bytes)


def joined(
    footer: bytes | bytearray, grafts: Sequence[tuple[int, int, Struct]]
) -> tuple[bytes, int]:
    """Add row groups to a file's footer.

    Args:
        footer: footer as pyarrow wrote it, with the length and letters at its end.
        grafts: before which of pyarrow's row groups each stands, its bytes, and itself.

    Returns:
        The footer to write instead, and the rows that it counts.
    """
    file, _ = thrift.load(footer)
    groups: Items = file[_FILE_GROUPS][1]
    all_groups: list[Struct] = []
    waiting = deque(grafts)
    shift = 0
    for index in range(len(groups.values) + 1):
        while waiting and waiting[0][0] == index:
            _, size, group = waiting.popleft()
            all_groups.append(group)
            shift += size
        if index < len(groups.values):
            group = groups.values[index]
            for chunk in chunks_of(group):
                shift_chunk(chunk, shift)
            shift_group(group, shift)
            all_groups.append(group)
    for ordinal, group in enumerate(all_groups):
        if _GROUP_ORDINAL in group:
            group[_GROUP_ORDINAL] = (thrift.I16, ordinal)
    rows = sum(group[_GROUP_ROWS][1] for group in all_groups)
    groups.kind, groups.values = thrift.STRUCT, all_groups
    file[_FILE_ROWS] = (thrift.I64, rows)
    content = thrift.dump(file)
    return content + _LENGTH.pack(len(content)) + _MAGIC, rows
