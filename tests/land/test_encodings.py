"""How columns are encoded: dictionaries, differences, compression and statistics where they pay."""

import decimal
import io
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.simdisk import SimFiles

from gaussdecode.land.disk import Disk
from gaussdecode.land.encodings import (
    delta_columns,
    dictionary_columns,
    leaf_paths,
    leaves,
    statistics_columns,
    writer_options,
)
from gaussdecode.land.parquet import ParquetSink
from gaussdecode.land.space import SpaceWait

ROWS = 20_000


def table() -> pa.Table:
    """Columns of each kind that lands, some with few values and some with many."""
    few = [f"c{index % 7}" for index in range(ROWS)]
    many = [f"v{index}" for index in range(ROWS)]
    rng = random.Random(1)
    return pa.table(
        {
            "gd_op": pa.array(["I"] * ROWS),
            "gd_epoch": pa.array([0] * ROWS, pa.int32()),
            "gd_seq": pa.array(range(ROWS), pa.int64()),
            "gd_csn": pa.nulls(ROWS, pa.int64()),
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
            "id": pa.array(range(ROWS), pa.int64()),
            "small": pa.array([rng.randrange(1000) for _ in range(ROWS)], pa.int64()),
            "wide": pa.array([rng.randrange(2**62) for _ in range(ROWS)], pa.int64()),
            "short": pa.array([rng.randrange(-(2**15), 2**15) for _ in range(ROWS)], pa.int16()),
            "time": pa.array(range(0, 1000 * ROWS, 1000), pa.timestamp("us", "UTC")),
            "date": pa.array([rng.randrange(20_000) for _ in range(ROWS)], pa.date32()),
            "amount": pa.array(
                [decimal.Decimal(rng.randrange(10**6)) / 100 for _ in range(ROWS)],
                pa.decimal128(18, 2),
            ),
            "huge": pa.array(
                [decimal.Decimal(rng.randrange(10**6)) for _ in range(ROWS)], pa.decimal128(38, 0)
            ),
            "real": pa.array([rng.random() for _ in range(ROWS)]),
        }
    )


DICTIONARY = [
    "gd_op",
    "gd_epoch",
    "few",
    "price",
    "gd_old.few",
    "tags.list.element",
    "gd_raw.key_value.key",
]
DELTA = {"gd_seq", "gd_csn", "id", "small", "short", "time", "date", "amount"}


def test_dictionaries_where_they_pay() -> None:
    """Few values: dictionary. Many values, booleans, nulls, our own numbers: none."""
    assert dictionary_columns(table(), leaves(table())) == DICTIONARY


def test_differences_where_they_are_narrow() -> None:
    """Of integers, times, dates and decimals that an integer holds; never of what fills its bits."""
    assert set(delta_columns(table(), leaves(table()))) == DELTA | {"price", "gd_epoch"}


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_tiny_tables_are_fine(rows: int) -> None:
    """A sample of nothing decides nothing."""
    tiny = table().slice(0, rows)
    assert dictionary_columns(tiny, leaves(tiny)) == ["gd_op", "gd_epoch"]
    assert delta_columns(tiny, leaves(tiny)) == ["gd_seq", "gd_csn"]


@pytest.mark.parametrize("rows", [0, 1, 10])
def test_few_rows_need_no_look(rows: int) -> None:
    """Their types alone say the same as a look at them."""
    tiny = table().slice(0, rows)
    found = leaves(tiny)
    options = writer_options(tiny, "zstd", 1)
    paths = [leaf for field in tiny.schema for leaf in leaf_paths(field.name, field.type)]
    assert paths == [path for path, _ in found]
    assert options["use_dictionary"] == dictionary_columns(tiny, found)
    assert list(options["column_encoding"]) == delta_columns(tiny, found)
    assert options["write_statistics"] == statistics_columns(tiny, found)
    assert options["compression"] == "none"  # of so small columns


def test_a_small_table_gets_our_own_dictionaries_only() -> None:
    """A look at the values of some rows takes longer than what it saves; of more, or of large ones, not."""
    city = pa.table({"gd_op": ["I"] * 65, "city": ["Turin"] * 65})
    assert writer_options(city.slice(0, 64), "zstd", 1)["use_dictionary"] == ["gd_op"]
    assert writer_options(city, "zstd", 1)["use_dictionary"] == ["gd_op", "city"]
    large = pa.table({"gd_op": ["I"] * 20, "text": ["t" * 4096] * 20})
    assert writer_options(large, "zstd", 1)["use_dictionary"] == ["gd_op", "text"]


def test_of_few_rows_large_columns_are_compressed() -> None:
    """What a column holds decides, not how many there are; the rows come back."""
    short, long = pa.array(["x"]), pa.array(["it says the same again. " * 40])
    few = pa.table({
        "short": short, "long": long, "of.it": pa.StructArray.from_arrays([short, long], ["a", "b"])
    })  # fmt: skip
    for compression, level in (("zstd", 1), ("snappy", None), ("none", None)):
        options = writer_options(few, compression, level)
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, few.schema, **options) as writer:
            writer.write_table(few)
        file = pq.ParquetFile(io.BytesIO(sink.getvalue()))
        group = file.metadata.row_group(0)
        chunks = [group.column(n) for n in range(group.num_columns)]
        found = {of.path_in_schema for of in chunks if of.compression == compression.upper()}
        assert found == ({"long", "of.it.a", "of.it.b"} if compression != "none" else set())
        assert file.read() == few


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
    chunks = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert {path for path, chunk in chunks.items() if chunk.has_dictionary_page} == set(DICTIONARY)
    delta = {path for path, chunk in chunks.items() if "DELTA_BINARY_PACKED" in chunk.encodings}
    assert delta == DELTA
    assert chunks["amount"].physical_type == "INT64"
    assert chunks["price"].physical_type == "INT32"
    assert chunks["huge"].physical_type == "FIXED_LEN_BYTE_ARRAY"
    assert {path for path, chunk in chunks.items() if not chunk.is_stats_set} == {"gd_op"}
    loose = {path for path, chunk in chunks.items() if chunk.compression == "UNCOMPRESSED"}
    assert {"short", "small", "wide"} <= loose
    assert not loose & {"many", "few", "time", "huge"}
    assert parquet.read() == pa.concat_tables([content, content.slice(0, 10)])


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_other_compressions_are_kept(compression: str) -> None:
    """The choice of columns is the same; with none there is nothing to choose."""
    options = writer_options(table(), compression, None)
    kinds = options["compression"]
    assert kinds == "none" if compression == "none" else set(kinds.values()) == {"snappy", "none"}
    assert options["compression_level"] is None
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table().schema, **options) as writer:
        writer.write_table(table())
    assert pq.read_table(io.BytesIO(sink.getvalue())) == table()


def test_a_small_file_is_compressed_whatever_it_holds() -> None:
    """A trial costs as much as the file."""
    assert writer_options(table().slice(0, 5000), "zstd", 1)["compression"] == "zstd"


def test_names_with_a_point_are_no_paths() -> None:
    """Where two columns have one path, neither is told to be numbers."""
    interval = pa.StructArray.from_arrays([pa.array(range(1000), pa.int32())], ["months"])
    content = pa.table({"d": interval, "d.months": [f"m{n}" for n in range(1000)]})
    options = writer_options(content, "zstd", 1)
    assert options["column_encoding"] == {}
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, content.schema, **options) as writer:
        writer.write_table(content)
    assert pq.read_table(io.BytesIO(sink.getvalue())) == content


def test_huge_values_have_no_statistics(tmp_path: Path) -> None:
    """They are copied several times for nobody; all other columns keep theirs."""
    huge = "x" * (3 << 20)
    content = pa.table({"id": [1, 2], "v": [huge, None], "old": [{"v": "a"}, {"v": huge}]})
    assert statistics_columns(content, leaves(content)) == ["id"]
    empty = content.slice(0, 0)
    assert statistics_columns(empty, leaves(empty)) == ["id", "v", "old.v"]
    options = writer_options(content, "zstd", 1)
    pq.write_table(content, tmp_path / "f", **options)
    group = pq.ParquetFile(tmp_path / "f").metadata.row_group(0)
    assert [group.column(n).is_stats_set for n in range(3)] == [True, False, False]
    assert pq.read_table(tmp_path / "f").equals(content)


NUMBERS = {
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.timestamp("us"): st.integers(-(2**63), 2**63 - 1),
    pa.decimal128(9, 3): st.integers(-(10**9) + 1, 10**9 - 1).map(
        lambda n: decimal.Decimal(n) / 1000
    ),
    pa.decimal128(18, 0): st.integers(-(10**18) + 1, 10**18 - 1).map(decimal.Decimal),
}


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_number_comes_back(kind: pa.DataType, data: st.DataObject) -> None:
    """Extremes and NULLs, whichever encoding is chosen, and as differences in any case."""
    drawn = data.draw(st.lists(st.one_of(st.none(), NUMBERS[kind]), min_size=1, max_size=40))
    values = (drawn * 200)[: data.draw(st.integers(1, 600))]
    plain = kind if pa.types.is_decimal(kind) else pa.int64()
    column = pa.array(values, plain)
    if not pa.types.is_decimal(kind):
        narrower = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        column = narrower.cast(kind)
    for name in ("v", "gd_seq"):  # the second is written as differences whatever it holds
        content = pa.table({name: column})
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, content.schema, **writer_options(content, "zstd", 1)) as writer:
            writer.write_table(content)
        assert pq.read_table(io.BytesIO(sink.getvalue())) == content


def test_slices_are_looked_at_where_they_begin() -> None:
    """A sample of rows in the middle of an array is of those rows."""
    noise = np.random.default_rng(1).integers(0, 2**62, 5000)
    column = pa.array(np.concatenate([noise, np.arange(5000)]), pa.int64())
    digits = [decimal.Decimal(number) / 100 for number in range(5000)]
    joined = pa.chunked_array([[None], digits], pa.decimal128(18, 2))
    whole = pa.table({"id": column})
    assert delta_columns(whole, leaves(whole)) == []
    later = whole.slice(5000)
    assert delta_columns(later, leaves(later)) == ["id"]
    half = pa.table({"d": joined}).slice(17)
    assert delta_columns(half, leaves(half)) == ["d"]
