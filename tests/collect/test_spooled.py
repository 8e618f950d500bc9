"""Tables that wait on disk instead of in memory."""

from pathlib import Path

import pyarrow as pa
import pytest

from gaussdecode.collect.spool import Spool
from gaussdecode.collect.spooled import SpooledRows
from gaussdecode.land.space import SpaceWait


@pytest.fixture
def rows(tmp_path: Path) -> SpooledRows:
    """Nothing so far."""
    return SpooledRows(Spool(tmp_path, SpaceWait().run))


def test_tables_come_back_in_order_and_again(rows: SpooledRows) -> None:
    """Tables of several schemas, texts and NULL among them, are what they were, twice."""
    given = [
        pa.table({"id": [1, None], "text": ["a", ""]}),
        pa.table({"id": pa.array([], pa.int64())}),
        pa.table({"old": [{"id": 1}, None]}),
    ]
    for table in given:
        rows.add(table)
    pieces = rows.pieces()
    assert list(pieces) == given
    assert list(pieces) == given
    assert len(pieces) == 3
    assert rows.row_count == 4


def test_what_comes_while_they_are_read_is_not_read(rows: SpooledRows) -> None:
    """A reader sees what was there when it began, and a closed store takes no more."""
    rows.add(pa.table({"id": [1]}))
    pieces = rows.pieces()
    rows.add(pa.table({"id": [2]}))
    assert [table["id"].to_pylist() for table in pieces] == [[1]]
    assert len(rows.pieces()) == 2
    rows.close()
    rows.add(pa.table({"id": [3]}))
    assert len(rows.pieces()) == 0
