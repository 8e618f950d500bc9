"""Encoding choices: dictionaries where they pay, one row group per table."""

import decimal
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.simdisk import SimFiles

from gaussdecode.land.disk import Disk
from gaussdecode.land.parquet import ParquetSink, dictionary_columns, statistics_columns
from gaussdecode.land.space import SpaceWait

ROWS = 10_000


def table() -> pa.Table:
    """Columns of each kind that lands, some with few values and some with many."""
    few = [f"c{index % 7}" for index in range(ROWS)]
    many = [f"v{index}" for index in range(ROWS)]
    return pa.table(
        {
            "gd_op": pa.array(["I"] * ROWS),
            "gd_seq": pa.array(range(ROWS), pa.int64()),
            "few": few,
            "many": many,
            "flag": pa.array([index % 2 == 0 for index in range(ROWS)]),
            "nothing": pa.nulls(ROWS, pa.string()),
            "price": pa.array(
                [decimal.Decimal(index % 3) for index in range(ROWS)], pa.decimal128(9, 2)
            ),
            "gd_old": pa.StructArray.from_arrays([pa.array(few), pa.array(many)], ["few", "many"]),
            "tags": pa.array([[few[index], few[0]] for index in range(ROWS)]),
            "gd_raw": pa.array(
                [[("few", many[index])] for index in range(ROWS)], pa.map_(pa.string(), pa.string())
            ),
        }
    )


def test_dictionaries_where_they_pay() -> None:
    """Few values: dictionary. Many values, booleans, nulls: none."""
    assert dictionary_columns(table()) == [
        "gd_op",
        "few",
        "price",
        "gd_old.few",
        "tags.list.element",
        "gd_raw.key_value.key",
    ]


def test_choices_reach_the_file() -> None:
    """The encodings in the file are the chosen ones, and the rows come back."""
    files = SimFiles()
    content = table()
    sink = ParquetSink(Disk(files, SpaceWait(), "w"), "f", content.schema, "zstd", content)
    sink.write(content)
    sink.write(content.slice(0, 10))
    size, _ = sink.finish()
    raw = files.read("f")
    assert size == len(raw)
    parquet = pq.ParquetFile(io.BytesIO(raw))
    assert [parquet.metadata.row_group(n).num_rows for n in range(2)] == [ROWS, 10]
    group = parquet.metadata.row_group(0)
    coded = {
        group.column(n).path_in_schema
        for n in range(group.num_columns)
        if group.column(n).has_dictionary_page
    }
    assert coded == set(dictionary_columns(content))
    assert parquet.read() == pa.concat_tables([content, content.slice(0, 10)])


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_tiny_tables_are_fine(rows: int) -> None:
    """A sample of nothing decides nothing."""
    assert set(dictionary_columns(table().slice(0, rows))) == {"gd_op"}


def test_huge_values_have_no_statistics(tmp_path: Path) -> None:
    """They are copied several times for nobody; all other columns keep theirs."""
    huge = "x" * (3 << 20)
    content = pa.table({"id": [1, 2], "v": [huge, None], "old": [{"v": "a"}, {"v": huge}]})
    assert statistics_columns(content) == ["id"]
    assert statistics_columns(content.slice(0, 0)) is True
    pq.write_table(content, tmp_path / "f", write_statistics=statistics_columns(content))
    group = pq.ParquetFile(tmp_path / "f").metadata.row_group(0)
    assert [group.column(n).is_stats_set for n in range(3)] == [True, False, False]
    assert pq.read_table(tmp_path / "f").equals(content)
