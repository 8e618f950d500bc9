"""Work is cut into the tasks it asks for, by bytes."""

from pathlib import Path
from random import Random

import pytest
from kit.history import History, shop

from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.change_file import ChangeFile
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.sizing import Sizes, power_of_two, shared_out
from gaussdecode.spark.merge.work import part_read, portions
from gaussdecode.spark.target.store import Target


@pytest.mark.parametrize("seed", range(50))
def test_groups_are_shared_out_by_bytes(seed: int) -> None:
    """Every group has a task, none is above the size but a group alone, none is empty."""
    rng = Random(seed)
    weights = {group: rng.choice((0, 1, 10, 100)) for group in range(rng.randint(1, 40))}
    shares = shared_out(weights.items(), 64)
    assert list(shares) == list(weights)
    assert set(shares.values()) == set(range(max(shares.values()) + 1))
    for task in set(shares.values()):
        groups = [group for group, at in shares.items() if at == task]
        assert len(groups) == 1 or sum(weights[group] for group in groups) <= 64


def one_table(root: Path, transactions: int, seed: int = 1) -> History:
    """A source of one table with a few hundred keys, and no truncate in its life."""
    source = History(root, seed, with_schema_changes=False, tables=shop()[:1], keys=400)
    grow(source, transactions)
    return source


def grow(source: History, transactions: int) -> None:
    """One more entry: rows are put, or removed where their key is taken."""
    (table,) = source.tables
    for _ in range(3 * transactions):
        source.lsn += 1
        row = source.new_row(table)
        assert isinstance(table.rows, dict)
        taken = table.rows.get(table.key_of(row))
        change = source.put(table, row) if taken is None else source.delete(table, taken)
        source.land(table, 0, *change)
    source.commit()


def test_a_large_file_is_cut_by_row_groups(tmp_path: Path) -> None:
    """Parts of a file together are the file; small files share a task."""
    one_table(tmp_path / "landing", 60)
    entry = Landing(tmp_path / "landing").entry(1)
    change = ChangeFile(1, 1, False, entry.files[0])
    parts = portions([change], change.file.bytes // 4 + 1)
    assert [part[0].part for part in parts] == [(k, 4) for k in range(4)]
    assert len(portions([change, change, change], 2 * change.file.bytes)) == 2
    assert portions([], 10) == []


def test_a_bulk_load_is_spread_by_what_comes(tmp_path: Path) -> None:
    """A few rows, then many: the table has more buckets in the same apply, and its rows."""
    source = one_table(tmp_path / "landing", 1)
    sizes = Sizes(first_bucket=1 << 20, bucket=4096, full_bucket=8192, read=4096)
    for rows in (0, 150):
        if rows:
            grow(source, rows)
        apply_with(
            LocalEngine(), tmp_path / "landing", tmp_path / "target",
            Options(history=True, changelog="gd_commit_date", sizes=sizes),
        )  # fmt: skip
    store = Target(tmp_path / "target")
    version = store.newest("public.plain")
    assert version is not None
    landed = Landing(tmp_path / "landing").entry(2).files[0]
    assert landed.bytes > sizes.full_bucket
    assert version.buckets >= power_of_two(landed.bytes / sizes.bucket) > 1
    assert sum(f.rows for f in version.current) == len(source.tables[0].rows)
    assert sum(f.rows for f in version.changelog) == 3 * 151


def test_few_changes_read_keys_alone() -> None:
    """A sixteenth counts, up to the share of a bucket above which it is written whole."""
    assert part_read(True, 20, 100, Sizes()) == 16
    assert part_read(True, 21, 100, Sizes()) == 1
    assert part_read(False, 1, 100, Sizes()) == 1
