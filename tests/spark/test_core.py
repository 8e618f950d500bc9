"""The merge in Arrow alone, on hundreds of random histories, against the source itself."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kit.history import History, Place, Table, canon

from gaussdecode.spark.log.events import KEY, Reset, base_events, row_keys, to_events
from gaussdecode.spark.log.keys import buckets_of
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.merge import key_changes
from gaussdecode.spark.merge.merge import merge

ORDER = ("gd_epoch", "gd_lsn", "gd_seq")
OPEN: Place = (1 << 62, 0, 0)


class Memory(History):
    """A source whose changes are kept instead of landed; it is never snapshotted."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, seed, with_schema_changes=False)
        self.schemas = {table.name: schema_of(table) for table in self.tables}

    def take(self, table: Table) -> pa.Table:
        """Changes of a table since they were taken last."""
        rows = [row for _, _, row in self.landed.pop(table.directory, [])]
        return pa.Table.from_pylist(rows, schema=table.schema())


def schema_of(table: Table) -> TableSchema:
    """The one version of a table."""
    return TableSchema.from_record("s", table.record())


class Applied:
    """A table as apply keeps it: rows in buckets, and closed intervals."""

    def __init__(self, schema: TableSchema, buckets: int) -> None:
        self.schema = schema
        self.buckets = buckets
        self.held: dict[int, pa.Table] = {}
        self.closed: list[pa.Table] = []
        self.unmatched = 0

    def apply(self, rows: pa.Table) -> None:
        """Bring changes into it, bucket by bucket."""
        resets = [
            Reset(tuple(row[name] for name in ORDER), {**row, "gd_n": 0})
            for row in rows.filter(pc.equal(rows["gd_op"], "T")).to_pylist()
        ]
        numbers = np.zeros(rows.num_rows, dtype=np.int64)
        events = self.resolved(to_events(rows, self.schema, numbers, order=ORDER), resets)
        where = buckets_of(events[KEY].combine_chunks(), self.buckets)
        touched = set(where.tolist()) | (set(self.held) if resets else set())
        for bucket in touched:
            part = events.filter(pa.array(where == bucket))
            merged = merge(self.held.get(bucket), part, resets, self.schema, ORDER)
            self.held[bucket] = merged.current
            self.closed.append(merged.closed)
            self.unmatched += merged.unmatched

    def resolved(self, events: pa.Table, resets: list[Reset]) -> pa.Table:
        """Follow key changes that leave out values."""
        tied = key_changes.components(key_changes.edges(events, ORDER)) if self.schema.key else {}
        if not tied:
            return events
        base = [
            base_events(rows, row_keys(rows, self.schema), self.schema)
            for rows in self.held.values()
        ]
        known = pa.concat_tables([*base, events])
        known = known.filter(pc.is_in(known[KEY], value_set=pa.array(list(tied), pa.binary())))
        whole = key_changes.resolve(known, resets, self.schema, ORDER)
        return pa.concat_tables(
            [events.filter(pc.invert(key_changes.needs_resolving(events))), whole]
        )

    def rows(self) -> list[dict[str, Any]]:
        """All versions of its rows, those of now without an end."""
        tables = [*self.held.values(), *self.closed]
        return [row for table in tables for row in table.to_pylist()]


def valid_at(rows: list[dict[str, Any]], place: Place, names: list[str]) -> list[tuple[Any, ...]]:
    """Rows that had begun and not ended."""
    return canon([
        tuple(row[name] for name in names)
        for row in rows
        if tuple(row[name] for name in ORDER) <= place < end_of(row)
    ])  # fmt: skip


def end_of(row: dict[str, Any]) -> Place:
    """Where an interval ends."""
    if row.get("gd_to_lsn") is None:
        return OPEN
    return (row["gd_to_epoch"], row["gd_to_lsn"], row["gd_to_seq"])


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_current_state_and_history(block: int, tmp_path: Path) -> None:
    """Merged in batches of any size: rows now, and at places of the past, are the source's."""
    compared = 0
    for seed in range(block * 75, block * 75 + 75):
        rng = Random(seed)
        source = Memory(tmp_path / str(seed), seed)
        targets = {
            t.name: Applied(source.schemas[t.name], rng.choice((1, 3))) for t in source.tables
        }
        for _ in range(3):
            for _ in range(rng.randint(1, 6)):
                source.transaction()
            for table in source.tables:
                targets[table.name].apply(source.take(table))
        for table in source.tables:
            target, states = targets[table.name], source.states[table.name]
            rows = target.rows()
            assert target.unmatched == 0
            names = [column.name for column in table.columns]
            assert valid_at(rows, (OPEN[0] - 1, 0, 0), names) == table.visible(), (seed, table.name)
            for place in rng.sample(sorted(states), min(4, len(states))):
                assert valid_at(rows, place, names) == states[place].rows, (seed, place)
                compared += 1
    assert compared > 500
