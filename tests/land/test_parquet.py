"""A Parquet file in the making: row groups as they come, and what is counted of them."""

import gc
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.simdisk import SimFiles

from gaussdecode.land.disk import Disk
from gaussdecode.land.parquet import ParquetSink, operations
from gaussdecode.land.space import SpaceWait


def _sink(files: SimFiles, content: pa.Table) -> ParquetSink:
    return ParquetSink(Disk(files, SpaceWait(), "w"), "f", content.schema, "zstd", content)


def test_each_table_is_a_row_group() -> None:
    """Rows, size and checksum are the file's own."""
    files = SimFiles()
    content = pa.table({"id": range(10_000), "name": [f"n{n}" for n in range(10_000)]})
    sink = _sink(files, content)
    sink.write(content)
    sink.write(content.slice(0, 10))
    size, checksum = sink.finish()
    raw = files.read("f")
    assert size == len(raw)
    assert checksum.startswith("sha256:")
    assert sink.rows == 10_010
    parquet = pq.ParquetFile(io.BytesIO(raw))
    assert [parquet.metadata.row_group(n).num_rows for n in range(2)] == [10_000, 10]
    assert parquet.read() == pa.concat_tables([content, content.slice(0, 10)])


def test_rows_are_counted_by_operation() -> None:
    """From the letters themselves, in slices and chunks too."""
    letters = pa.chunked_array([list("IIUD"), [], list("TRX")])
    content = pa.table({"gd_op": letters})
    assert operations(content) == {"I": 2, "U": 1, "D": 1, "T": 1, "R": 1}
    assert operations(content.slice(1, 2)) == {"I": 1, "U": 1}
    assert operations(pa.table({"id": [1]})) == {}


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_without_rows_are_fine(rows: int) -> None:
    """They are row groups without rows."""
    files = SimFiles()
    content = pa.table({"id": pa.array([1], pa.int64())}).slice(0, rows)
    sink = _sink(files, content)
    sink.write(content)
    sink.finish()
    assert pq.read_table(io.BytesIO(files.read("f"))) == content


def test_a_file_that_was_given_up_takes_nothing_more(capfd: pytest.CaptureFixture[str]) -> None:
    """What pyarrow still has in buffers when it is collected goes nowhere, without a word."""
    files = SimFiles()
    content = pa.table({"id": range(100)})
    sink = _sink(files, content)
    sink.write(content)
    sink.abandon()
    before = files.read("f")
    del sink
    gc.collect()
    assert files.read("f") == before
    assert capfd.readouterr().err == ""
