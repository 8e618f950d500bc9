"""What others spend on the same bytes and the same values: the bases of `cost.py`.

copy      the recording's bytes are copied once, in memory
csv       the same values as CSV text become the same Arrow types (pyarrow.csv, one thread)
parquet   the same Arrow tables become a Parquet file (pyarrow.parquet, its defaults but for
          compression and rows of a row group, which are ours)
encoded   likewise, with the encodings that we choose for each column

Values are those of rows that landed; columns that a landing adds are left out.
"""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kit import landing
from pyarrow import csv

from gaussdecode.land import encodings
from gaussdecode.land.parquet import ZSTD_LEVEL
from gaussdecode.settings.landing_sections import LandingConfig

_OURS: Final = "gd_"
_COPIED_BYTES: Final = 512 << 20
_PIECE_BYTES: Final = 64 << 20  # more than caches hold
_BLOCK_BYTES: Final = 1 << 20
_DEFAULTS: Final = LandingConfig(root=Path("/"))
_COMPRESSION: Final = _DEFAULTS.compression
_ROW_GROUP_ROWS: Final = _DEFAULTS.row_group_rows
_LEVEL: Final = ZSTD_LEVEL if _COMPRESSION == "zstd" else None


@dataclasses.dataclass(frozen=True, slots=True)
class Values:
    """Rows of a recording, in both forms.

    Attributes:
        table: in memory.
        text: the same rows as CSV.
    """

    table: pa.Table
    text: pa.Buffer

    @property
    def rows(self) -> int:
        """How many."""
        rows: int = self.table.num_rows
        return rows


def _files(root: Path) -> list[tuple[Path, int]]:
    """Files with rows of the source's tables, and their rows, in the order they landed."""
    return [
        (root / file["path"], file["rows"])
        for entry in landing.read_entries(root)
        for file in entry["files"]
        if not file["table"].startswith(_OURS)
    ]


def landed_rows(root: Path) -> int:
    """Rows of the source's tables in a landing."""
    return sum(rows for _, rows in _files(root))


def values_of(root: Path, rows: int) -> Values:
    """The first rows of a landing, about so many."""
    tables: list[pa.Table] = []
    for path, _ in _files(root):
        found = pq.ParquetFile(path).read()
        own = [name for name in found.schema.names if not name.startswith(_OURS)]
        tables.append(found.select(own).slice(0, rows - sum(map(len, tables))))
        if sum(map(len, tables)) >= rows:
            break
    table = pa.concat_tables(tables).replace_schema_metadata(None).combine_chunks()
    out = pa.BufferOutputStream()
    csv.write_csv(table, out)
    values = Values(table, out.getvalue())
    _check(table, parse(values))
    return values


def _check(table: pa.Table, parsed: pa.Table) -> None:
    """What is parsed are the same values: else it is no base."""
    assert parsed.schema.types == table.schema.types
    for name in table.schema.names:
        one, other = table[name], parsed[name]
        if pa.types.is_floating(one.type):  # NaN is not equal to itself
            one, other = one.cast(pa.string()), other.cast(pa.string())
        assert one.null_count == other.null_count, name
        assert pc.all(pc.equal(one, other)).as_py() in (True, None), name


def parse(values: Values) -> pa.Table:
    """Parse the text into the types of the table."""
    return csv.read_csv(
        pa.BufferReader(values.text),
        csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=values.table.schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def write(values: Values, path: Path, *, is_as_ours: bool = False) -> None:
    """Write the table as a Parquet file, encoded as pyarrow does or as we choose to."""
    options = {"compression": _COMPRESSION, "compression_level": _LEVEL}
    if is_as_ours:
        options = encodings.writer_options(values.table, _COMPRESSION, _LEVEL)
    pq.write_table(values.table, path, row_group_size=_ROW_GROUP_ROWS, **options)


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of this process for some work, user and system, all threads."""
    before = time.process_time()
    work()
    return time.process_time() - before


def copy_seconds_per_gb(path: Path) -> float:
    """CPU seconds to copy a GB of a recording's bytes from memory to memory, once."""
    source = np.fromfile(path, dtype=np.uint8, count=_COPIED_BYTES)
    target = np.ones_like(source)  # touched: what is measured meets no new page

    def copy() -> None:
        for start in range(0, len(source), _PIECE_BYTES):
            target[start : start + _PIECE_BYTES] = source[start : start + _PIECE_BYTES]

    return cpu_seconds(copy) / len(source) * 1e9
