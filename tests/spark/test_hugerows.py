"""Files whose huge values went past pyarrow's writer, read by Spark's own reader of Parquet."""

import hashlib
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gaussdecode.land import hugerow
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.parquet import ParquetSink
from gaussdecode.land.space import SpaceWait

pytestmark = pytest.mark.spark

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("v", pa.string()),
        pa.field("old", pa.struct([("id", pa.int64()), ("v", pa.string())])),
        pa.field("raw", pa.map_(pa.string(), pa.string())),
        pa.field("list", pa.list_(pa.field("element", pa.binary()))),
    ]
)


def rows_of(huge: str) -> list[dict[str, object]]:
    """Small rows around huge ones, with nothing and with all leaves huge."""
    small = {"id": 1, "v": "x", "old": None, "raw": None, "list": [b"y", None]}
    leaves: dict[str, object] = {
        "v": huge,
        "old": {"id": 3, "v": huge},
        "raw": [("k", "v"), ("m", huge), ("n", None)],
        "list": [b"", None, huge.encode(), b"z"],
    }
    one = [{**small, "id": number, name: leaves[name]} for number, name in enumerate(leaves, 2)]
    return [small, *one, {"id": 6, **leaves}, {**small, "id": 7, "v": None}]


@pytest.mark.parametrize("is_vectorized", ["true", "false"])
@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_spark_reads_huge_values(
    spark: SparkSession,
    tmp_path: Path,
    compression: str,
    is_vectorized: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every shape, by either of its readers, whole, by one column and behind a filter."""
    monkeypatch.setattr(hugerow, "HUGE_BYTES", 2 << 20)  # above the pieces that are compressed
    huge = "é'\\ " * (hugerow.HUGE_BYTES // 4)  # five bytes each
    rows = rows_of(huge)
    disk = Disk(Files(tmp_path), SpaceWait(), "w")
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    sink = ParquetSink(disk, "f.parquet", SCHEMA, compression, table)
    sink.write(table)
    sink.write(table.slice(0, 1))
    sink.finish()
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", is_vectorized)

    frame = spark.read.parquet(str(tmp_path / "f.parquet"))

    def shown(column: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in frame.selectExpr("id", column).orderBy("id").collect()]

    size, digest = len(huge.encode()), hashlib.sha256(huge.encode()).hexdigest()
    assert frame.count() == len(rows) + 1
    assert shown("octet_length(v)") == [
        (1, 1), (1, 1), (2, size), (3, 1), (4, 1), (5, 1), (6, size), (7, None),
    ]  # fmt: skip
    for number, value in enumerate(("v", "old.v", "get(map_values(raw), 1)", "get(list, 2)"), 2):
        same = frame.where(f"sha2({value}, 256) = '{digest}'").select("id").orderBy("id")
        wanted = {number, 6}
        assert {row.id for row in same.collect()} == wanted, value
    assert frame.where("id = 7").select("v", "list").collect() == [(None, [b"y", None])]
