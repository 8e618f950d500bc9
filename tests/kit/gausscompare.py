"""Compares two landings of the same changes, row for row, whatever source they came by."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from kit.landing import Change, Landing
from kit.oracle import new_row, old_row


class Landed(NamedTuple):
    """One landed row without what differs by source: positions and CSN."""

    table: tuple[str, str]
    op: str
    seq: int
    new: dict[str, Any]  # Any: canonical values
    old: dict[str, Any] | None
    key: tuple[str, ...] | None
    types: dict[str, str]


def transactions(landed: Landing) -> Iterator[tuple[int, Any, list[Landed]]]:
    """Give xid, commit time and rows of each transaction with rows, in order."""
    times = {(row["gd_epoch"], row["gd_lsn"]): row["gd_ts"] for row in landed.transactions}
    for where, changes in itertools.groupby(landed.changes, key=lambda change: change.order[:2]):
        held = list(changes)
        yield held[0].xid, times[where], [_landed(change) for change in held]


def _landed(change: Change) -> Landed:
    new = {name: cell.canon for name, cell in new_row(change).items()}
    old = old_row(change)
    return Landed(
        change.schema.table,
        change.op,
        change.order[2],
        {name: value for name, value in new.items() if name not in change.unchanged},
        None if old is None else {name: cell.canon for name, cell in old.items()},
        change.schema.key,
        {name: str(of) for name, of in change.types.items()},
    )


def assert_same(one: Landing, other: Landing) -> None:
    """Assert that both landings hold the same transactions, rows, values, types and keys.

    `one` came by pgoutput: what it did not send (values that did not change, keys of updates
    that did not change) is not compared.
    """
    first, second = list(transactions(one)), list(transactions(other))
    assert [xid for xid, _, _ in first] == [xid for xid, _, _ in second]
    counts: dict[str, int] = defaultdict(int)
    for (xid, time, rows), (_, other_time, others) in zip(first, second, strict=True):
        assert time == other_time, f"commit time of {xid}"
        assert len(rows) == len(others), f"rows of {xid}"
        for row, same in zip(rows, others, strict=True):
            counts[row.op] += 1
            _compare(xid, row, same)
    assert all(counts[op] for op in "IUD"), f"the workload is too small: {dict(counts)}"


def _compare(xid: int, row: Landed, same: Landed) -> None:
    where = f"{row.op} {row.table} seq {row.seq} of {xid}"
    assert (row.table, row.op, row.seq) == (same.table, same.op, same.seq), where
    assert row.key == same.key, f"{where}: keys {row.key} and {same.key}"
    for name, of in row.types.items():
        assert same.types[name] == of, f"{where}: {name} lands as {of} and as {same.types[name]}"
    for name, value in row.new.items():
        assert same.new[name] == value, f"{where}: {name} is {value!r} and {same.new[name]!r}"
    old = row.old
    if old is None and row.op == "U" and same.old is not None:
        old = {name: row.new[name] for name in same.old if name in row.new}
    if old is not None:
        assert same.old is not None, f"{where}: no old row"
        for name, value in old.items():
            assert same.old[name] == value, f"{where}: old {name}"
