"""Blocks of a landing have every change of every transaction, in order, however small the blocks are."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database
from kit.workload import Workload

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.serve import reader
from gaussdecode.serve.block import MESSAGES, Block
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.reader import LandingReader, ReadPosition

pytestmark = pytest.mark.integration

Row = tuple[int, str, str, str]  # end of the transaction, schema, table, operation


def _rows(blocks: Iterator[Block]) -> tuple[list[int], list[Row]]:
    """Transactions and rows, after a look at how the blocks hang together."""
    ends: list[int] = []
    rows: list[Row] = []
    is_open = False
    for block in blocks:
        of = block.transactions
        assert block.is_continued == is_open
        is_open = block.is_open
        if block.is_continued:
            assert ends.pop() == int(of.end_lsn[0])
        assert len(block.row_table) == len(block.row_index) == len(block.change_lsn)
        assert (of.row_ends[-1] if len(of.row_ends) else 0) == len(block.row_table)
        ends += of.end_lsn.tolist()
        owner = np.searchsorted(of.row_ends, np.arange(len(block.row_table)), "right")
        for at, table, index in zip(owner, block.row_table, block.row_index, strict=True):
            held = block.tables[table]
            op = held.rows.column("gd_op")[int(index)].as_py()
            rows.append((int(of.end_lsn[at]), held.schema.schema, held.schema.name, op))
    assert not is_open
    return ends, rows


def _read(root: Path, position: ReadPosition, **options: object) -> tuple[list[int], list[Row]]:
    of = LandingReader(root, include_messages=False, **options)  # type: ignore[arg-type]
    return _rows(block for entry in of.entries(position.n) for block in of.blocks(entry, position))


def _messages(root: Path, lsn: int = 0) -> list[bytes]:
    """Contents of the messages after an LSN, of those outside of transactions the last ones."""
    of = LandingReader(root)
    position = of.at(lsn) if lsn else of.beginning()
    found: tuple[list[bytes], list[bytes]] = ([], [])
    last = 0
    for entry in of.entries(position.n):
        for block in of.blocks(entry, position):
            ends = block.transactions.end_lsn
            assert (np.diff(ends.astype(np.int64)) > 0).all()
            assert block.is_continued or not len(ends) or last < ends[0]
            last = int(ends[-1]) if len(ends) else last
            owner = np.searchsorted(
                block.transactions.row_ends, np.arange(len(block.row_table)), "right"
            )
            for at, table, index in zip(owner, block.row_table, block.row_index, strict=True):
                held = block.tables[table]
                if held.schema is MESSAGES:
                    content = held.rows.column("content")[int(index)].as_py()
                    found[int(block.transactions.is_outside[at])].append(content)
    return [*found[0], *found[1]]


@pytest.mark.parametrize("chunk_bytes", [600, 1 << 22])
def test_all_changes_in_order(
    database: Database,
    make_daemon: Callable[..., Daemon],
    monkeypatch: pytest.MonkeyPatch,
    chunk_bytes: int,
) -> None:
    """From the beginning, and from the end of any transaction; with and without a table."""
    monkeypatch.setattr(reader, "_CHUNK_BYTES", chunk_bytes)
    # The workload changes tables by commands that the stream does not show; the last test is about that.
    monkeypatch.setattr(LandingReader, "check", lambda *_: None)
    workload = Workload(database, 5, sessions=4)
    workload.create()
    database.create_slot()
    with make_daemon(database) as daemon:
        workload.run(30)
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    expected = [(c.order[1], *c.schema.table, c.op) for c in landed.changes]
    transactions = [row["gd_lsn"] for row in landed.transactions]
    of = LandingReader(daemon.root)
    ends, rows = _read(daemon.root, of.beginning())
    assert ends == transactions
    assert rows == expected
    for end in transactions[:: max(1, len(transactions) // 4)]:
        after, later = _read(daemon.root, of.at(end))
        assert after == [lsn for lsn in transactions if lsn > end]
        assert later == [row for row in expected if row[0] > end]
    name = expected[0][2]
    _, without = _read(daemon.root, of.beginning(), wanted=lambda _, table: table != name)
    assert without == [row for row in expected if row[2] != name]
    assert _read(daemon.root, of.end()) == ([], [])
    told = sorted(landed.messages, key=lambda row: (not row["transactional"], row["gd_lsn"]))
    assert _messages(daemon.root) == [row["content"] for row in told]
    for row in told[-3:]:  # what a message outside of transactions begins after
        contents = [
            other["content"] for other in told
            if other["gd_lsn"] + (not other["transactional"]) > row["gd_lsn"]
        ]  # fmt: skip
        assert _messages(daemon.root, row["gd_lsn"]) == contents


def test_truncates_keep_their_flags(database: Database, make_daemon: Callable[..., Daemon]) -> None:
    """CASCADE and RESTART IDENTITY stand with the row."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.create_slot()
    with make_daemon(database) as daemon:
        database.execute("INSERT INTO t VALUES (1)")
        database.execute("TRUNCATE t RESTART IDENTITY CASCADE")
        database.execute("TRUNCATE t")
        daemon.catch_up()
        assert daemon.stop() == 0
    of = LandingReader(daemon.root)
    position = of.beginning()
    blocks = [b for entry in of.entries(0) for b in of.blocks(entry, position)]
    flags = [
        flags for block in blocks for table in block.tables for flags in table.truncates.values()
    ]
    assert flags == [(True, True), (False, False)]


def test_a_gap_is_an_error(database: Database, make_daemon: Callable[..., Daemon]) -> None:
    """Reading ends at an entry that says that rows may be missing, unless the table is not wanted."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.create_slot()
    with make_daemon(database) as daemon:
        database.execute("INSERT INTO t VALUES (1)")
        daemon.catch_up()
        assert daemon.stop() == 0
    log = landing.read(daemon.root)
    of = LandingReader(daemon.root)
    entry = of.landing.entry(len(log.entries) - 1)
    gap = {"until_lsn": 5000, "text": "the slot was lost"}
    for kind, extra in (("gap", gap), ("suspect", {"tables": ["public.t"], "text": "DDL"})):
        changed = dataclasses.replace(entry, kind=type(entry.kind)(kind), extra=extra)
        with pytest.raises(ServeError, match=f"entry {entry.n}"):
            list(of.blocks(changed, of.end()))
    whole = {"tables": ["public.t"], "changes": {"public.t": {"comes_whole": True}}}
    assert list(of.blocks(dataclasses.replace(changed, extra=whole), of.end())) == []
    other = dataclasses.replace(changed, extra={"tables": ["public.t"], "text": "DDL"})
    mine = LandingReader(daemon.root, wanted=lambda _, table: table != "t")
    assert list(mine.blocks(other, of.end())) == []


def test_a_start_within_a_quarantine_is_refused(
    database: Database, make_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it began and before a snapshot has the table again; not where the table is not wanted."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.create_slot()
    with make_daemon(database) as daemon:
        while len(landing.read_entries(daemon.root)) < 6:
            database.execute("INSERT INTO t SELECT count(*) FROM t")
            daemon.catch_up()
        assert daemon.stop() == 0
    of = LandingReader(daemon.root)
    real = of.landing.entries
    said = {
        "tables": ["public.t"],
        "namespace": "public",
        "name": "t",
        "oid": 1,
        "from_lsn": 1,
        "error": "why",
    }
    tables = {"epoch": 0, "lsn": 1, "tables": {"public.t": {"where": None}}}

    def changed(first: int, last: int) -> Iterator[CommitEntry]:
        for entry in real(first, last):
            if entry.n == 2:
                yield dataclasses.replace(entry, kind=EntryKind.QUARANTINE, extra=said)
            elif entry.n == 4:
                yield dataclasses.replace(
                    entry, kind=EntryKind.SNAPSHOT, extra={"snapshot": tables}
                )
            else:
                yield entry

    other = LandingReader(daemon.root, wanted=lambda _, table: table != "t")
    for reading, refused in ((of, {3, 4}), (of, {3, 4}), (other, set())):
        monkeypatch.setattr(reading.landing, "entries", changed)
        found = set()
        for n in range(6):
            try:
                reading.check_start(ReadPosition(n, 0, 0))
            except ServeError:
                found.add(n)
        assert found == refused
