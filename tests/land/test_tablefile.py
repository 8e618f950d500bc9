"""Which row group goes into which file: as few files as there are tables and lanes."""

import random

import pytest
from kit.landrun import row_group

from gaussdecode.land import tablefile
from gaussdecode.land.tablefile import OpenEntry, TableFile
from gaussdecode.model.request import RowGroup

TARGET = 1 << 20


def group(table: str, first: int = 0) -> RowGroup:
    """A row group of one table."""
    return row_group(table, "s", 10, range(first, first + 3))


@pytest.fixture(autouse=True)
def _split_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row group is large enough for a file of its own."""
    monkeypatch.setattr(tablefile, "_SPLIT_BYTES", 1)


def occupy(entry: OpenEntry, table: str) -> TableFile:
    """Give a row group while a lane is idle; a lane takes the file and keeps it."""
    file, _ = entry.assign(group(table), has_idle_lane=True)
    file.is_scheduled = True
    return file


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_hot_tables_get_as_many_files_as_there_are_lanes(lanes: int) -> None:
    """However often a lane is idle, the files beside the first ones are bounded."""
    entry = OpenEntry(TARGET, 100, lanes)
    rng = random.Random(lanes)
    tables = [f"public.t{number}" for number in range(5)]
    for _ in range(200):
        occupy(entry, rng.choice(tables))
        free = rng.choice(entry.files)
        free.is_scheduled = rng.random() < 0.9
    assert len(entry.files) == len(tables) + lanes
    assert not entry.is_crowded


def test_a_file_that_no_lane_has_is_taken_first() -> None:
    """A table that is not faster than one lane has one file."""
    entry = OpenEntry(TARGET, 100, 4)
    first = occupy(entry, "public.t")
    first.is_scheduled = False
    assert occupy(entry, "public.t") is first


def test_waiting_row_groups_go_where_fewest_wait() -> None:
    """When no more files may be opened, the files of a table share its row groups."""
    entry = OpenEntry(TARGET, 100, 1)
    files = [occupy(entry, "public.t") for _ in range(2)]
    assert files[0] is not files[1]
    files[0].pending.append(group("public.t"))
    assert occupy(entry, "public.t") is files[1]


def test_more_tables_than_open_files_are_crowded() -> None:
    """It is said as soon as a file is closed for another table, and not before."""
    entry = OpenEntry(TARGET, 2, 2)
    for number in range(2):
        entry.assign(group(f"public.t{number}"), has_idle_lane=False)
        assert not entry.is_crowded
    _, evicted = entry.assign(group("public.t2"), has_idle_lane=False)
    assert entry.is_crowded
    assert evicted is entry.files[0]
    assert evicted.is_sealed
