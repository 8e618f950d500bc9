"""A client that wants snapshots gets each once, at its position, wherever it begins again."""

import asyncio
import dataclasses
import datetime as dt
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.serve.block import Block, TableRows, TableSchema, Transactions
from gaussdecode.serve.reader import LEAST_RECORD, ReadPosition
from gaussdecode.serve.walk import Walk

TABLES = ("a", "b")
_NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
Change = tuple[str, str]
"""Table and label of a row."""


@dataclasses.dataclass
class Item:
    """A transaction, or a message outside of any: with its end."""

    end: int
    rows: list[Change]
    is_outside: bool = False


def block_of(items: list[Item]) -> Block:
    """The block with some transactions."""
    rows = [change for item in items for change in item.rows]
    at = {name: [label for of, label in rows if of == name] for name in TABLES}
    seen = dict.fromkeys(TABLES, 0)
    index = []
    for name, _ in rows:
        index.append(seen[name])
        seen[name] += 1
    ends = np.array([item.end for item in items], np.uint64)
    none = np.zeros(len(items), np.int64)
    nobody = (None,) * len(items)
    outside = np.array([item.is_outside for item in items], bool)
    row_ends = np.cumsum([len(item.rows) for item in items], dtype=np.int64)
    tables = tuple(
        TableRows(
            TableSchema(name, "public", name, 0, "d", None, ()),
            pa.record_batch({"label": pa.array(at[name], pa.string())}),
        )
        for name in TABLES
    )
    return Block(
        1,
        Transactions(none, ends, ends, ends, none, none, nobody, nobody, nobody, outside, row_ends),
        tables,
        np.array([TABLES.index(name) for name, _ in rows], np.int32),
        np.array(index, np.int64),
        np.zeros(len(rows), np.uint64),
    )


def items_of(block: Block) -> list[tuple[int, list[Change]]]:
    """Ends and rows of the transactions of a block."""
    found, first = [], 0
    ends = block.transactions.end_lsn.tolist()
    for end, last in zip(ends, block.transactions.row_ends.tolist(), strict=True):
        rows = zip(block.row_table[first:last], block.row_index[first:last], strict=True)
        labels = [
            (block.tables[t].schema.name, block.tables[t].rows.column("label")[int(i)].as_py())
            for t, i in rows
        ]
        found.append((end, labels))
        first = last
    return found


class Log:
    """A made-up log, and a feed of it."""

    def __init__(self, random: Random, chance: float = 0.4) -> None:
        self.entries: list[CommitEntry] = []
        self.blocks: dict[int, list[Block]] = {}
        self.expected: list[tuple[int, list[Change]]] = []
        self.end = SimpleNamespace(last=-1, see=self._see)
        self.reader = SimpleNamespace(
            check_start=lambda _: None,
            snapshots_ahead=self._ahead,
            has_snapshot=lambda entry: entry.kind is EntryKind.SNAPSHOT,
        )
        self._make(random, chance)

    def _make(self, random: Random, chance: float) -> None:
        items = [
            Item(end + 1, [("b", f"m{end}")], is_outside=True)
            if random.random() < 0.3
            else Item(
                end, [(random.choice(TABLES), f"{end}.{k}") for k in range(random.randrange(3))]
            )
            for end in range(64, 64 * 40, 64)
        ]
        snapshots: list[tuple[int, int, tuple[str, ...]]] = []  # number, position and tables
        at = position = 0
        self._add(EntryKind.GENESIS, 0)
        while at < len(items):
            n = len(self.entries)
            if random.random() < chance:
                ahead = (position + 7) // 8 * 8 + 8 * random.randrange(24)
                ahead += 64 - ahead % 64 if ahead % 64 > 64 - LEAST_RECORD else 0
                before = [lsn for _, lsn, _ in snapshots if lsn >= position]
                lsn = random.choice([ahead, *before])
                tables = tuple(random.sample(TABLES, random.randrange(1, 3)))
                snapshots.append((n, lsn, tables))
                blocks = [block_of([Item(lsn, [(name, f"s{n}") for name in tables])])]
                named = {of: {"schema": "public", "name": of, "where": None} for of in tables}
                said = {"lsn": lsn, "epoch": 1, "tables": named}
                self._add(EntryKind.SNAPSHOT, position, blocks, said)
                continue
            count = random.randrange(1, 6)
            part, at = items[at : at + count], at + count
            cut = random.randrange(len(part) + 1)
            blocks = [block_of(some) for some in (part[:cut], part[cut:]) if some]
            for item in part:
                rows = [
                    (name, label)
                    for name, label in item.rows
                    if not any(item.end <= lsn and name in of for _, lsn, of in snapshots)
                ]
                same = sum(lsn == item.end - 1 for _, lsn, _ in snapshots)
                self.expected.append((item.end + (same if item.is_outside else 0), rows))
            position = part[-1].end + (random.choice((0, 15)) if part[-1].is_outside else 0)
            self._add(EntryKind.DATA, position, blocks)
        for index, (n, lsn, tables) in enumerate(snapshots):
            same = sum(of == lsn for _, of, _ in snapshots[:index])
            if lsn <= position:
                self.expected.append((lsn + same + 1, [(name, f"s{n}") for name in tables]))
        self.expected.sort(key=lambda item: item[0])

    def _add(
        self, kind: EntryKind, lsn: int, blocks: list[Block] | None = None, said: Any = None
    ) -> None:
        extra = {} if said is None else {"snapshot": said}
        n = len(self.entries)
        self.entries.append(
            CommitEntry(
                n=n, kind=kind, previous="", positions={"x": SourcePosition(1, 1, lsn)},
                committed_time=_NOW, mtime_ms=0, extra=extra,
            )
        )  # fmt: skip
        self.blocks[n] = blocks or []
        self.end.last = n

    async def _see(self) -> int:
        return int(self.end.last)

    def _ahead(self, position: ReadPosition) -> list[int]:
        return [
            of.n
            for of in self.entries[: position.n]
            if of.kind is EntryKind.SNAPSHOT
            and of.extra["snapshot"]["lsn"] + LEAST_RECORD > position.lsn
        ]

    async def call(self, work: Callable[[], Any]) -> Any:
        """As of `Feed`."""
        return work()

    async def entry(self, n: int) -> CommitEntry:
        """Likewise."""
        return self.entries[n]

    async def check(self, _: CommitEntry) -> None:
        """Likewise."""

    async def block(self, entry: CommitEntry, index: int) -> Block | None:
        """Likewise."""
        blocks = self.blocks[entry.n]
        return blocks[index] if index < len(blocks) else None

    def position_after(self, entry: CommitEntry) -> ReadPosition:
        """Likewise."""
        return ReadPosition(entry.n + 1, 1, entry.positions["x"].lsn)


async def walk(
    log: Log, start: ReadPosition
) -> tuple[list[tuple[int, list[Change]]], list[ReadPosition]]:
    """All that a client gets, and where one begins again that has confirmed a part."""
    of = Walk(log, start, "copy", include_snapshot=True)  # type: ignore[arg-type]  # as far as it is used
    await of.check_start()
    found: list[tuple[int, list[Change]]] = []
    reached: list[ReadPosition] = []
    again: list[ReadPosition] = []

    def confirm(lsn: int) -> None:
        n = max([start.n, *(at.n for at in reached if at.lsn <= lsn)])
        again.append(ReadPosition(n, 1, lsn))

    while (step := await of.next()) is not None:
        if step.reached is not None:
            reached.append(step.reached)
            confirm(max(start.lsn, step.reached.lsn))
        items = [] if step.block is None else items_of(step.block)
        found += items
        for end, _ in items:
            confirm(end)
    return found, again


@pytest.mark.parametrize(
    ("seed", "chance"), [*((seed, 0.4) for seed in [*range(16, 26), 44]), (1, 0.8), (5, 0.8)]
)
def test_snapshots_come_at_their_positions(seed: int, chance: float) -> None:
    """Once each, after all before it and before all after it, also for a client that comes again."""
    log = Log(Random(seed), chance)
    whole, again = asyncio.run(walk(log, ReadPosition(0, 1, 0)))
    assert whole == log.expected
    for position in dict.fromkeys(again):
        rest, _ = asyncio.run(walk(log, position))
        assert rest == [item for item in log.expected if item[0] > position.lsn], position


def test_a_snapshot_of_another_source_is_nothing() -> None:
    """Its position is another server's: it hides no change, and holds no slot back."""
    log = Log(Random(16))
    log.reader.has_snapshot = lambda _: False
    log.reader.snapshots_ahead = lambda _: []
    expected = [
        item
        for entry in log.entries
        if entry.kind is EntryKind.DATA
        for block in log.blocks[entry.n]
        for item in items_of(block)
    ]
    for entry in log.entries:
        if entry.kind is EntryKind.SNAPSHOT:
            log.blocks[entry.n] = []
    whole, again = asyncio.run(walk(log, ReadPosition(0, 1, 0)))
    assert whole == expected
    assert again[-1].n == len(log.entries)
