"""Which row group goes into which file: as few files as there are tables and lanes."""

import random

import pytest
from kit.landrun import row_group

from gaussdecode.land import tablefile
from gaussdecode.land.tablefile import OpenPublication, TableFile
from gaussdecode.model.publication import RowGroup

TARGET = 1 << 20


def group(table: str, first: int = 0) -> RowGroup:
    """A row group of one table."""
    return row_group(table, "s", 10, range(first, first + 3))


@pytest.fixture(autouse=True)
def _split_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row group is large enough for a file of its own."""
    monkeypatch.setattr(tablefile, "_SPLIT_BYTES", 1)


def occupy(publication: OpenPublication, table: str) -> TableFile:
    """Give a row group while a lane is idle; a lane takes the file and keeps it."""
    file, _ = publication.assign(group(table), has_idle_lane=True)
    file.is_scheduled = True
    return file


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_hot_tables_get_as_many_files_as_there_are_lanes(lanes: int) -> None:
    """However often a lane is idle, the files beside the first ones are bounded."""
    publication = OpenPublication(TARGET, 100, lanes)
    rng = random.Random(lanes)
    tables = [f"public.t{number}" for number in range(5)]
    for _ in range(200):
        occupy(publication, rng.choice(tables))
        free = rng.choice(publication.files)
        free.is_scheduled = rng.random() < 0.9
    assert len(publication.files) == len(tables) + lanes
    assert not publication.is_crowded


def test_a_file_that_no_lane_has_is_taken_first() -> None:
    """A table that is not faster than one lane has one file."""
    publication = OpenPublication(TARGET, 100, 4)
    first = occupy(publication, "public.t")
    first.is_scheduled = False
    assert occupy(publication, "public.t") is first


def test_waiting_row_groups_go_where_fewest_wait() -> None:
    """When no more files may be opened, the files of a table share its row groups."""
    publication = OpenPublication(TARGET, 100, 1)
    files = [occupy(publication, "public.t") for _ in range(2)]
    assert files[0] is not files[1]
    files[0].pending.append(group("public.t"))
    assert occupy(publication, "public.t") is files[1]


def test_more_tables_than_open_files_are_crowded() -> None:
    """It is said as soon as a file is closed for another table, and not before."""
    publication = OpenPublication(TARGET, 2, 2)
    for number in range(2):
        publication.assign(group(f"public.t{number}"), has_idle_lane=False)
        assert not publication.is_crowded
    _, evicted = publication.assign(group("public.t2"), has_idle_lane=False)
    assert publication.is_crowded
    assert evicted is publication.files[0]
    assert evicted.is_sealed
