"""Judges a landing: replays what landed and compares it with the source itself.

`check` is called when the daemon has caught up and nobody writes. What it asserts:

* the log is contiguous and its positions never go back;
* the sums of each entry are what its files hold, add up with what was left out to what the
  reader framed, and follow each other without a gap;
* no (epoch, lsn, seq) twice, seq without holes in each transaction over all tables and
  messages, one xid per transaction and one row in ``gd_transactions``;
* every transaction of the workload's journal landed once with as many changes as the
  journal says, and nothing else landed;
* replaying the changes gives each table of the source, row for row, column for column.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from psycopg import sql

from kit import canon, landing
from kit.canon import Canon
from kit.daemon import MARK
from kit.landing import Change, Landing
from kit.postgres import Database, Session

TableName = tuple[str, str]
JOURNAL: Final = ("kit", "journal")

# As the daemon asks the server to print values.
OUTPUT_SETTINGS: Final = (
    "SET DateStyle = ISO; SET IntervalStyle = postgres; SET TimeZone = 'UTC'; "
    "SET extra_float_digits = 3; SET bytea_output = hex; SET client_encoding = 'UTF8'"
)


class Cell(NamedTuple):
    """A value as it landed: in its column, or as text in ``gd_raw``."""

    value: Any  # Any: whatever pyarrow gives
    raw: str | None
    type: pa.DataType

    @property
    def canon(self) -> Canon:
        """The comparable form."""
        return self.raw if self.raw is not None else canon.of_value(self.value, self.type)

    def agrees(self, text: str | None) -> bool:
        """Tell whether the server prints the same value."""
        if self.raw is not None:
            return text == self.raw
        return canon.of_value(self.value, self.type) == canon.of_text(text, self.type)


ReplayedRow = dict[str, Cell]


class TableState:
    """Current rows of one table, as the changes up to now make them."""

    def __init__(self) -> None:
        self.keyed: dict[tuple[Canon, ...], ReplayedRow] = {}
        self.bag: Counter[tuple[tuple[str, Canon], ...]] = Counter()
        self.key: tuple[str, ...] | None = None
        self.types: dict[str, pa.DataType] = {}
        self.takes_again = False

    def apply(self, change: Change) -> None:
        """Apply one change.

        Raises:
            AssertionError: it changes a row that is not there.
        """
        self.types = change.types
        if change.op == "T":
            self.keyed.clear()
            self.bag.clear()
            return
        self.key = change.schema.key
        if self.key is None:
            self._apply_to_bag(change)
        else:
            self._apply_to_keyed(change, self.key)

    def _apply_to_keyed(self, change: Change, key: tuple[str, ...]) -> None:
        new, old = new_row(change), old_row(change)
        previous: ReplayedRow = {}
        if change.op in "UD":
            before = old if old is not None else new
            where = tuple(before[name].canon for name in key)
            assert where in self.keyed, f"{change.op} of a row that is not there: {change.order}"
            previous = self.keyed.pop(where)
        is_put = change.op == "I" and self.takes_again
        if is_put or (change.op == "R" and not change.is_snapshot):  # put by its key
            self.keyed.pop(tuple(new[name].canon for name in key), None)
        if change.op != "D":
            for name in change.unchanged:
                new[name] = previous[name]
            where = tuple(new[name].canon for name in key)
            assert where not in self.keyed, f"{change.op} of a key twice: {change.order}"
            self.keyed[where] = new

    def _apply_to_bag(self, change: Change) -> None:
        if change.op in "UD":
            old = old_row(change)
            assert old is not None, f"{change.op} without its old row: {change.order}"
            assert self.bag[_bag_item(old)] > 0, f"{change.op} of an absent row: {change.order}"
            self.bag[_bag_item(old)] -= 1
        if change.op != "D":
            self.bag[_bag_item(new_row(change))] += 1


def new_row(change: Change) -> ReplayedRow:
    """The new values of a change."""
    return {
        name: Cell(value, change.raw.get(name), change.types[name])
        for name, value in change.new.items()
    }


def old_row(change: Change) -> ReplayedRow | None:
    """The old values of a change, or None when none were sent."""
    if change.old is None:
        return None
    return {
        name: Cell(value, change.raw.get(f"old.{name}"), change.types[name])
        for name, value in change.old.items()
    }


def _bag_item(row: ReplayedRow) -> tuple[tuple[str, Canon], ...]:
    return tuple(sorted((name, cell.canon) for name, cell in row.items() if cell.canon is not None))


def replay(
    changes: Iterable[Change], again: AbstractSet[TableName] = frozenset()
) -> dict[TableName, TableState]:
    """Apply changes in order; give the state of every table.

    Args:
        changes: in order.
        again: tables in ustore, into which a row may be inserted whose key is there: it replaces that.
    """
    states: dict[TableName, TableState] = defaultdict(TableState)
    for change in changes:
        state = states[change.schema.table]
        state.takes_again = change.schema.table in again
        state.apply(change)
    return states


def check(root: Path, database: Database, *, only_journal: bool = True) -> Landing:
    """Assert everything; see the head of this module.

    Args:
        root: of the landing.
        database: the source, at rest.
        only_journal: transactions without a journal row are an error.

    Returns:
        The landing, for what else a test wants to know.
    """
    landed = landing.read(root)
    check_log(landed.entries)
    check_sums(landed)
    check_order(landed)
    check_snapshots(landed)
    if any(change.schema.table == JOURNAL for change in landed.changes):
        check_journal(landed, database, only_journal=only_journal)
    check_tables(landed, database)
    return landed


def check_log(entries: Sequence[landing.Json]) -> None:
    """Assert that the log has no hole and never goes back."""
    assert [entry["n"] for entry in entries] == list(range(len(entries)))
    assert entries[0]["kind"] == "genesis"
    for source in entries[0]["positions"]:
        positions = [(at["epoch"], at["lsn"]) for at in (e["positions"][source] for e in entries)]
        assert positions == sorted(positions)
    for before, entry in itertools.pairwise(entries):
        assert entry["previous"] == before["hash"]


def check_sums(landed: Landing) -> None:
    """Assert that every entry of the stream accounts for all that came, and no other does."""
    rows: Counter[str] = Counter()
    for before, entry in itertools.pairwise(landed.entries):
        sums = entry["extra"].get("sums")
        if entry["kind"] not in {"data", "idle", "snapshot"}:
            assert sums is None, f"entry {entry['n']} is a {entry['kind']} and has sums"
            continue
        since, until = ([at["epoch"], at["lsn"]] for at in map(_only_position, (before, entry)))
        assert sums["since"] == since, f"a gap before entry {entry['n']}"
        assert sums["until"] == until
        parts = [Counter(sums["landed"]), *map(Counter, sums["left_out"].values())]
        assert sum(parts, Counter()) == Counter(sums["framed"])
        rows.update(sums["landed"])
    found = Counter(change.op for change in landed.changes)
    found["transactions"] = len(landed.transactions)
    found["messages"] = len(landed.messages) + len(landed.ddl)
    assert rows == +found, "the sums of all entries are not what landed"


def _only_position(entry: landing.Json) -> landing.Json:
    (where,) = entry["positions"].values()
    held: landing.Json = where
    return held


def check_order(landed: Landing) -> None:
    """Assert that every transaction is whole, once, and numbered without holes."""
    seqs: dict[tuple[int, int], list[int]] = defaultdict(list)
    xids: dict[tuple[int, int], set[int]] = defaultdict(set)
    for change in landed.streamed:
        seqs[change.order[:2]].append(change.order[2])
        xids[change.order[:2]].add(change.xid)
    for message in [*landed.messages, *landed.ddl]:
        if message["gd_seq"] is not None:
            where = (message["gd_epoch"], message["gd_lsn"])
            seqs[where].append(message["gd_seq"])
            xids[where].add(message["gd_xid"])
    for where, numbers in seqs.items():
        assert sorted(numbers) == list(range(len(numbers))), f"holes or doubles in {where}"
        assert len(xids[where]) == 1, f"several transactions at {where}"
    commits = [(row["gd_epoch"], row["gd_lsn"]) for row in landed.transactions]
    assert commits == sorted(set(commits)), "a transaction landed twice, or out of order"
    counts = {where: len(numbers) for where, numbers in seqs.items()}
    with_rows = {where for where, count in counts.items() if count}
    assert with_rows <= set(commits), "rows without their transaction"
    for row in landed.transactions:
        where = (row["gd_epoch"], row["gd_lsn"])
        assert row["rows"] == counts.get(where, 0), f"gd_transactions miscounts {where}"
        assert xids.get(where, {row["gd_xid"]}) == {row["gd_xid"]}


def check_snapshots(landed: Landing) -> None:
    """Assert that no change after a snapshot's position landed in an entry before it.

    A reader that goes by the log would otherwise apply it and then lose it.
    """
    highest: dict[str, int] = defaultdict(int)
    for entry in landed.entries:
        if entry["kind"] == "snapshot":
            said = entry["extra"]["snapshot"]
            assert said["lsn"] >= landing.position(entry)
            rows: Counter[str] = Counter()
            for file in entry["files"]:
                assert file["first"][0] == file["last"][0] == said["lsn"]
                rows[file["table"]] += file["ops"].get("R", 0)
            for table, record in said["tables"].items():
                assert highest[table] <= said["lsn"], f"{table} was further than its snapshot"
                assert rows[table] == record["rows"], f"{table}: {rows[table]} rows landed"
        elif entry["kind"] == "data":
            for file in entry["files"]:
                highest[file["table"]] = max(highest[file["table"]], file["last"][0])


def check_journal(landed: Landing, database: Database, *, only_journal: bool = True) -> None:
    """Assert that exactly what the journal says landed, no more and no less."""
    journal: dict[int, int] = dict(database.execute("SELECT xid, changes FROM kit.journal"))
    counts: Counter[int] = Counter(change.xid for change in landed.streamed)
    counts.update(row["gd_xid"] for row in landed.messages if row["gd_seq"] is not None)
    counts.update(row["gd_xid"] for row in landed.ddl)
    marks = {row["gd_xid"] for row in landed.messages if row["prefix"] == MARK}
    read = {
        change.new["xid"]
        for change in landed.changes
        if change.is_snapshot and change.op == "R" and change.schema.table == JOURNAL
    }  # these may be older than the slot
    journal = {xid: want for xid, want in journal.items() if xid in counts or xid not in read}
    missing = journal.keys() - counts.keys()
    assert not missing, f"{len(missing)} committed transactions did not land"
    wrong = {xid: (counts[xid], want) for xid, want in journal.items() if counts[xid] != want}
    assert not wrong, f"transactions with (landed, committed) changes: {wrong}"
    if only_journal:
        others = counts.keys() - journal.keys() - marks
        assert not others, f"{len(others)} transactions landed that did not commit"


def check_tables(landed: Landing, database: Database) -> None:
    """Assert that replaying the changes gives the tables of the source."""
    states = replay(landed.effective())
    with database.connect() as session:
        session.execute(OUTPUT_SETTINGS)
        tables = source_tables(session)
        for table in tables:
            rows = source_rows(session, table)
            compare(table, states.get(table, TableState()), rows)


def source_tables(session: Session) -> list[TableName]:
    """Name the published tables of the source."""
    return [
        (schema, name)
        for schema, name in session.execute(
            "SELECT n.nspname::text, c.relname::text FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' "
            "AND c.relpersistence = 'p' AND c.oid >= 16384 "
            "AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
        )
    ]


def source_rows(session: Session, table: TableName) -> list[dict[str, str | None]]:
    """Read a table as the server prints it."""
    name = sql.Identifier(*table)
    with session.cursor() as cursor:
        cursor.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(name))
        names = [column.name for column in cursor.description or ()]
        with cursor.copy(sql.SQL("COPY {} TO STDOUT").format(name)) as copy:
            # A table without columns has one empty field per row in COPY's text form.
            return [dict(zip(names, row, strict=False)) for row in copy.rows()]


def source_rows_of(session: Session, query: str) -> list[dict[str, str | None]]:
    """Read what a query gives as the server prints it."""
    with session.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({query}) q LIMIT 0")
        names = [column.name for column in cursor.description or ()]
        with cursor.copy(f"COPY ({query}) TO STDOUT") as copy:
            return [dict(zip(names, row, strict=True)) for row in copy.rows()]


def compare(table: TableName, state: TableState, rows: list[dict[str, str | None]]) -> None:
    """Assert that a replayed table equals the source's."""
    if state.key is None:
        assert not state.keyed
        _compare_bags(table, state, rows)
        return
    assert len(rows) == len(state.keyed), f"{table}: {len(state.keyed)} rows, not {len(rows)}"
    for row in rows:
        key = tuple(canon.of_text(row[name], state.types[name]) for name in state.key)
        replayed = state.keyed.get(key)
        assert replayed is not None, f"{table}: no row {key}"
        for name, text in row.items():
            cell = replayed.get(name)
            same = text is None if cell is None else cell.agrees(text)
            assert same, f"{table}.{name} of {key}: landed {cell}, source {text!r}"


def _compare_bags(table: TableName, state: TableState, rows: list[dict[str, str | None]]) -> None:
    expected = Counter(
        tuple(
            sorted(
                (name, canon.of_text(text, state.types[name]))
                for name, text in row.items()
                if text is not None
            )
        )
        for row in rows
    )
    assert +state.bag == expected, f"{table}: {state.bag.total()} rows, not {expected.total()}"
