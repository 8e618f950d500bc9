"""Row groups that were made in memory stand in a file as those that pyarrow wrote to it."""

import datetime as dt
import decimal
import io
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.simdisk import SimFiles

from gaussdecode.land import hugerow
from gaussdecode.land.disk import Disk
from gaussdecode.land.parquet import ParquetSink, encode
from gaussdecode.land.space import SpaceWait

HUGE_BYTES: Final = 100_000
SCHEMA: Final = pa.schema(
    [
        pa.field("gd_op", pa.string(), nullable=False),
        pa.field("gd_seq", pa.int64(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("amount", pa.decimal128(12, 2)),
        pa.field("day", pa.date32()),
        pa.field("old", pa.struct([("id", pa.int64()), ("v", pa.string())])),
        pa.field("raw", pa.map_(pa.string(), pa.string())),
        pa.field("list", pa.list_(pa.field("element", pa.binary()))),
        pa.field("nothing", pa.int32()),
    ]
)


def rows(first: int, count: int) -> pa.Table:
    """With values that repeat, that are narrow, that are nested and that are missing."""
    made: list[dict[str, Any]] = [  # Any: values of all types
        {
            "gd_op": "IUD"[n % 3], "gd_seq": n, "kind": f"kind {n % 5}",
            "amount": decimal.Decimal(n) / 4, "day": dt.date(2026, 1, 1 + n % 28),
            "old": None if n % 4 else {"id": n, "v": None if n % 8 else "x" * (n % 50)},
            "raw": [("k", str(n))] if n % 7 == 0 else None,
            "list": [b"", None, str(n).encode()][: n % 4],
        }
        for n in range(first, first + count)
    ]  # fmt: skip
    return pa.Table.from_pylist(made, schema=SCHEMA)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
@pytest.mark.parametrize("where", ["ppp", "aaa", "apa", "pap", "aHp", "paHa"])
def test_a_file_of_any_of_them(
    where: str, compression: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Written by pyarrow, appended, or with a huge value: rows, sizes, offsets and statistics are right."""
    monkeypatch.setattr(hugerow, "HUGE_BYTES", HUGE_BYTES)
    files, content = SimFiles(), list[pa.Table]()
    for number, how in enumerate(where):
        table = rows(1000 * number, 1000 if how != "H" else 1)
        if how == "H":
            huge = pa.array(["x" * (HUGE_BYTES + 1)])
            table = table.set_column(2, SCHEMA.field("kind"), huge)
        content.append(table)
    sink = ParquetSink(Disk(files, SpaceWait(), "w"), "f", SCHEMA, compression, content[0])
    for number, (table, how) in enumerate(zip(content, where, strict=True)):
        made = encode(table, compression, sink.options if number % 2 else None)
        assert (made is None) == (how == "H")
        if how == "a":
            assert made is not None
            sink.append(made)
        else:
            sink.write(table)
    size, _ = sink.finish()
    data = files.read("f")
    file = pq.ParquetFile(io.BytesIO(data))
    assert size == len(data)
    assert sink.rows == file.metadata.num_rows == sum(table.num_rows for table in content)
    assert file.schema_arrow.equals(SCHEMA)
    assert file.read().equals(pa.concat_tables(content))
    for number, table in enumerate(content):
        assert file.read_row_group(number).equals(table)
    end = 4
    for number, table in enumerate(content):
        group = file.metadata.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            assert end == (chunk.dictionary_page_offset or chunk.data_page_offset)
            end += chunk.total_compressed_size
        seqs = group.column(1).statistics
        assert (seqs.min, seqs.max) == (table["gd_seq"][0].as_py(), table["gd_seq"][-1].as_py())
    path = tmp_path / "f.parquet"
    path.write_bytes(data)
    query = f"SELECT count(*), sum(gd_seq), sum(len(list)) FROM '{path}'"
    (found,) = duckdb.connect().execute(query).fetchall()
    every = pa.concat_tables(content)
    assert found[:2] == (every.num_rows, sum(every["gd_seq"].to_pylist()))
    assert found[2] == sum(len(of) for of in every["list"].to_pylist())
