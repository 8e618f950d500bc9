"""Which row group goes into which file: in order, and as few files as there are tables and stretches."""

import random

from kit.landrun import row_group

from gaussdecode.land.tablefile import OpenEntry, TableFile
from gaussdecode.model.request import RowGroup

TARGET = 1 << 20


def group(table: str, schema_id: str = "s", source: str | None = None) -> RowGroup:
    """A row group of one table."""
    made = row_group(table, schema_id, 10, range(3))
    object.__setattr__(made, "source", source)
    return made


def scheduled(entry: OpenEntry, table: str) -> TableFile:
    """Give a row group, and the file to a lane that keeps it."""
    file, _ = entry.assign(group(table))
    file.is_scheduled = True
    return file


def test_a_table_has_one_file() -> None:
    """Whether lanes have it or not; several sources have one each."""
    entry = OpenEntry(TARGET, 100)
    rng = random.Random(1)
    tables = [f"public.t{number}" for number in range(5)]
    for _ in range(200):
        scheduled(entry, rng.choice(tables)).is_scheduled = rng.random() < 0.9
    assert sorted(file.table for file in entry.files) == tables
    own = [entry.assign(group(tables[0], source=name))[0] for name in ("a", "b", "a")]
    assert own[0] is own[2]
    assert own[0] is not own[1]
    assert not entry.is_crowded


def test_each_stretch_of_a_schema_has_its_file() -> None:
    """A schema that comes again begins another file; the one before is closed, if no lane has it."""
    entry = OpenEntry(TARGET, 100)
    first, sealed = entry.assign(group("public.t", "a"))
    assert not sealed
    other, _ = entry.assign(group("public.u", "a"))
    second, sealed = entry.assign(group("public.t", "b"))
    assert sealed == [first]
    assert first.is_sealed
    again, sealed = entry.assign(group("public.t", "a"))
    assert sealed == [second]
    assert entry.assign(group("public.t", "a")) == (again, [])
    assert entry.assign(group("public.u", "a")) == (other, [])
    assert entry.files == [first, other, second, again]
    assert entry.seal() == [again, other]


def test_the_last_row_group_closes_its_file() -> None:
    """It is with no other: the lane that encodes it closes it, and no other file is closed for it."""
    entry = OpenEntry(TARGET, 2)
    kept, _ = entry.assign(group("public.kept"))
    for number in range(5):
        last = group(f"public.t{number}")
        object.__setattr__(last, "is_last", True)
        file, sealed = entry.assign(last)
        assert file.is_sealed
        assert not sealed
    last = group("public.kept")
    object.__setattr__(last, "is_last", True)
    assert entry.assign(last) == (kept, [])
    assert kept.is_sealed
    assert entry.seal() == []


def test_many_stretches_are_crowded() -> None:
    """A schema that alternates makes files without end only inside a transaction."""
    entry = OpenEntry(TARGET, 4)
    for number in range(5):
        assert not entry.is_crowded
        entry.assign(group("public.t", f"s{number % 2}"))
    assert entry.is_crowded


def test_more_tables_than_open_files_are_crowded() -> None:
    """It is said as soon as a file is closed for another table, and not before."""
    entry = OpenEntry(TARGET, 2)
    for number in range(2):
        entry.assign(group(f"public.t{number}"))
        assert not entry.is_crowded
    _, sealed = entry.assign(group("public.t2"))
    assert entry.is_crowded
    assert sealed == [entry.files[0]]
    assert sealed[0].is_sealed
