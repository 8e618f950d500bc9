"""Rows whose values are put into the file past pyarrow."""

import io
import tracemalloc
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.simdisk import SimFiles

from gaussdecode.land import hugerow
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.parquet import ParquetSink
from gaussdecode.land.space import SpaceWait

HUGE_BYTES: Final = 10_000
HUGE: Final = "".join(map(str, range(HUGE_BYTES)))
MIB: Final = 1 << 20
Row = dict[str, Any]  # Any: values of all types


@pytest.fixture(autouse=True)
def smaller_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call values huge that are quickly compared."""
    monkeypatch.setattr(hugerow, "HUGE_BYTES", HUGE_BYTES)


SCHEMA: Final = pa.schema(
    [
        pa.field("gd_op", pa.string(), nullable=False),
        pa.field("id", pa.int64()),
        pa.field("a.b", pa.string()),
        pa.field("old", pa.struct([("id", pa.int64()), ("v", pa.string())])),
        pa.field("raw", pa.map_(pa.string(), pa.string())),
        pa.field("list", pa.list_(pa.field("element", pa.binary()))),
        pa.field("n", pa.int32()),
    ]
)
SMALL: Final[Row] = {
    "gd_op": "I",
    "id": 1,
    "a.b": "x",
    "old": None,
    "raw": None,
    "list": [b"y"],
    "n": 7,
}
ROWS: Final[dict[str, Row]] = {
    "text": {"a.b": HUGE},
    "old": {"old": {"id": 3, "v": HUGE}},
    "map": {"raw": [("k", "v"), ("m", HUGE), ("n", None)]},
    "list": {"list": [b"", None, HUGE.encode(), b"z", HUGE.encode()]},
    "all": {
        "a.b": HUGE, "old": {"id": None, "v": HUGE}, "raw": [("k", HUGE)], "list": [HUGE.encode()],
    },
}  # fmt: skip


def landed(tables: list[pa.Table], compression: str) -> tuple[bytes, int, int]:
    """Content of a file, its size and rows as the sink tells them."""
    files = SimFiles()
    sink = ParquetSink(Disk(files, SpaceWait(), "w"), "f", SCHEMA, compression, tables[0])
    for table in tables:
        sink.write(table)
    size, _ = sink.finish()
    content = files.read("f")
    assert content is not None
    return content, size, sink.rows


def table(*rows: Row) -> pa.Table:
    """Rows that differ from the small one."""
    return pa.Table.from_pylist([{**SMALL, **row} for row in rows], schema=SCHEMA)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
@pytest.mark.parametrize("name", ROWS)
def test_huge_values_come_back(name: str, compression: str) -> None:
    """In a column of any shape and under any compression, other rows before and after."""
    huge = ROWS[name]
    content = [table({}, huge, {"n": 1}), table(huge), table({"n": 2}, {"n": 3})]
    data, size, rows = landed(content, compression)
    file = pq.ParquetFile(io.BytesIO(data))
    assert size == len(data)
    assert rows == file.metadata.num_rows == 6
    assert [file.metadata.row_group(n).num_rows for n in range(5)] == [1, 1, 1, 1, 2]
    assert file.read().equals(pa.concat_tables(content))
    for n in range(5):
        assert file.read_row_group(n).num_rows == file.metadata.row_group(n).num_rows


def test_only_huge_leaves_lack_statistics() -> None:
    """All other columns of the row keep theirs, and its sizes and offsets are the file's."""
    data, _, _ = landed([table({}), table(ROWS["old"])], "zstd")
    file = pq.ParquetFile(io.BytesIO(data)).metadata
    end = 4
    for group in map(file.row_group, range(2)):
        chunks = [group.column(n) for n in range(group.num_columns)]
        for chunk in chunks:
            assert end == (chunk.dictionary_page_offset or chunk.data_page_offset)
            end += chunk.total_compressed_size
        assert group.total_byte_size == sum(chunk.total_uncompressed_size for chunk in chunks)
    mirrored_only_until = [chunk.path_in_schema for chunk in chunks if not chunk.is_stats_set]
    assert mirrored_only_until == ["old.v"]
    assert end < len(data)


@pytest.mark.parametrize("size", [HUGE_BYTES, HUGE_BYTES + 1])
def test_limit(size: int) -> None:
    """Beyond it, a row has a row group of its own."""
    content = table({}, {"a.b": "x" * size}, {})
    assert [part.num_rows for part, _ in hugerow.parts(content)] == (
        [3] if size == HUGE_BYTES else [1, 1, 1]
    )


def test_table_without_rows_is_one_part() -> None:
    """It becomes a row group without rows, as ever."""
    assert [part.num_rows for part, _ in hugerow.parts(table())] == [0]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_huge_row_is_not_copied(compression: str, tmp_path: Path) -> None:
    """On its way from Arrow into the file: neither by pyarrow nor by us."""
    content = table({"a.b": HUGE * (64 * MIB // len(HUGE))})
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        disk = Disk(Files(tmp_path), SpaceWait(), "w")
        sink = ParquetSink(disk, "f", SCHEMA, compression, content)
        sink.write(content)
        sink.finish()
        taken = pool.max_memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert taken < 12 * MIB
    assert pq.read_table(tmp_path / "f").equals(content)
