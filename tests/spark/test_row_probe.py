"""Single rows of landed files, read without the rest of them."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gaussdecode.errors import LandingError
from gaussdecode.model.landing import LandingFile, Position
from gaussdecode.spark.log.change_file import ChangeFile, in_window
from gaussdecode.spark.log.row_probe import first_row, rows_of_op

ORDER = ("gd_epoch", "gd_csn", "gd_lsn", "gd_seq")
NAMES = (*ORDER, "gd_op")


def damage(path: Path, spared: set[int], *, column: str | None = None) -> None:
    """Overwrite the pages of all row groups but some, or of all columns but one in them."""
    facts, raw = pq.ParquetFile(path).metadata, bytearray(path.read_bytes())
    for group in set(range(facts.num_row_groups)) - spared:
        for index in range(facts.num_columns):
            chunk = facts.row_group(group).column(index)
            if chunk.path_in_schema == column:
                continue
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            raw[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    path.write_bytes(raw)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("with_statistics", [True, False])
def test_first_row_is_the_least(seed: int, with_statistics: bool, tmp_path: Path) -> None:
    """In any order of rows, with NULL as 0, with statistics or without: the least tuple."""
    rng = Random(seed)
    rows = [
        {"gd_epoch": rng.randint(0, 2), "gd_csn": rng.choice((None, 1, 2)),
         "gd_lsn": rng.randint(-1, 3), "gd_seq": i, "gd_op": rng.choice("IUDT")}
        for i in range(rng.randint(1, 60))
    ]  # fmt: skip
    rng.shuffle(rows)
    schema = pa.schema([*((name, pa.int64()) for name in ORDER), ("gd_op", pa.string())])
    table, path = pa.Table.from_pylist(rows, schema), tmp_path / "rows.parquet"
    pq.write_table(table, path, row_group_size=7, write_statistics=with_statistics)
    least = min(rows, key=lambda row: tuple(int(row[name] or 0) for name in ORDER))
    assert first_row(path, ORDER, NAMES) == least
    assert rows_of_op(path, "T", NAMES) == [row for row in rows if row["gd_op"] == "T"]


def test_nothing_else_is_read(tmp_path: Path) -> None:
    """Where all that is not needed is damaged, the first row and the markers are found."""
    count, path = 50_000, tmp_path / "rows.parquet"
    ops = ["R"] * count
    ops[25_000] = "T"
    table = pa.table({**{name: pa.array(range(count)) for name in ORDER}, "gd_op": pa.array(ops)})
    pq.write_table(table, path, row_group_size=1000)
    whole = path.read_bytes()
    damage(path, {0})
    assert first_row(path, ORDER, NAMES) == {**dict.fromkeys(ORDER, 0), "gd_op": "R"}
    path.write_bytes(whole)
    damage(path, {25}, column="gd_op")
    (found,) = rows_of_op(path, "T", NAMES)
    assert found == {**dict.fromkeys(ORDER, 25_000), "gd_op": "T"}
    with pytest.raises(LandingError, match="is the landing complete"):
        first_row(path, ORDER, ("gd_epoch", "gd_op"))


@pytest.mark.parametrize("content", [b"", b"PAR1 damaged PAR1", None])
def test_damage_is_named(content: bytes | None, tmp_path: Path) -> None:
    """A file that is missing, empty or torn is named with what to look at."""
    path = tmp_path / "rows.parquet"
    if content is not None:
        path.write_bytes(content)
    for read in (lambda: first_row(path, ORDER, NAMES), lambda: rows_of_op(path, "T", NAMES)):
        with pytest.raises(LandingError, match=r"rows\.parquet cannot be read"):
            read()


def test_file_without_rows_is_refused(tmp_path: Path) -> None:
    """There is no first row in it."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({name: pa.array([], pa.int64()) for name in ORDER}), path)
    with pytest.raises(LandingError, match="has no rows"):
        first_row(path, ORDER, ORDER)


def test_columns_that_only_the_landing_has_are_left_out() -> None:
    """So that files from before and after they began stand together."""
    old = pa.table({"gd_op": ["I"], "gd_lsn": [1], "id": [1], "col_gd_x": [2]})
    new = old.append_column("gd_change_lsn", pa.array([5]))
    file = LandingFile("t", "p", 1, 1, Position(1, 0), Position(1, 0), "s", {}, False, False, "")
    change = ChangeFile(0, 0, False, file)
    assert pa.concat_tables([in_window(rows, change) for rows in (old, new)]).schema == old.schema
