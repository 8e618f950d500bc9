"""Seeded histories of a few tables: what a source did, and the landing it would give.

The source is simulated row by row, and its state is written down after every change, so
that anything made from the landing can be compared at every position. The landing is
written in the real format, without the daemon: entries, schema files, Parquet.
"""

import copy
import dataclasses
import datetime as dt
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.collect.arrow import GD_FIELDS
from gaussdecode.land.names import table_directory
from gaussdecode.land.schemas import fingerprint, with_renames
from gaussdecode.model.entry import FIRST_PREVIOUS, CommitEntry
from gaussdecode.model.landing import (
    EntryKind,
    LandingFile,
    Position,
    Replacement,
    SourcePosition,
)
from gaussdecode.model.seal import canonical_json

SOURCE: Final = "orders"
START: Final = dt.datetime(2026, 1, 31, 23, 59, 50, tzinfo=dt.UTC)
RAW: Final = pa.map_(pa.string(), pa.string())
SPELLED: Final = {pa.int32(): "integer", pa.int64(): "bigint", pa.string(): "text"}
Row = dict[int, Any]  # value by attribute number
Key = tuple[Any, ...]
Place = tuple[int, int, int]
Keyed = dict[Key, Row]
Bag = list[Row]


@dataclasses.dataclass
class Column:
    """One column: number, name, type, whether its values may be left out."""

    number: int
    name: str
    type: pa.DataType
    toast: bool = False


@dataclasses.dataclass
class Table:
    """One table of the source.

    Attributes:
        name: in schema ``public``.
        columns: in order.
        key: numbers of the columns that identify a row; empty for a multiset.
        full: REPLICA IDENTITY FULL.
        source: of several, that a schema file is of; there a table may have other numbers of columns.
        rows: current ones by key, or a list for a multiset.
    """

    name: str
    columns: list[Column]
    key: tuple[int, ...]
    full: bool
    oid: int = 1
    source: str | None = None
    shift: int = 0
    rows: Keyed | Bag = dataclasses.field(default_factory=dict)
    next_number: int = 10

    @property
    def directory(self) -> str:
        """Of its files."""
        return table_directory("public", self.name)

    def record(self) -> dict[str, Any]:
        """Content of its schema file."""
        key = [c.name for c in self.columns if c.number in self.key]
        return {
            **({} if self.source is None else {"source": self.source}),
            "schema": "public", "name": self.name, "oid": self.oid,
            "identity": "f" if self.full else "d", "key": key or None,
            "columns": [
                {"name": c.name, "landed": c.name, "type": SPELLED.get(c.type, str(c.type)), "type_oid": 0,
                 "type_modifier": -1, "type_text": None, "arrow": str(c.type),
                 "identity": self.full or c.number in self.key, "toastable": c.toast,
                 "attribute_number": c.number + self.shift}
                for c in self.columns
            ],
        }  # fmt: skip

    def schema(self) -> pa.Schema:
        """Of its files."""
        fields = [pa.field(c.name, c.type) for c in self.columns]
        old = [f for f, c in zip(fields, self.columns, strict=True)
               if self.full or c.number in self.key]  # fmt: skip
        return pa.schema(
            [*GD_FIELDS, pa.field("gd_old", pa.struct(old)), pa.field("gd_raw", RAW), *fields]
        )

    def key_of(self, row: Row) -> Key:
        """Values of the key."""
        return tuple(row[number] for number in self.key)

    def visible(self) -> list[tuple[Any, ...]]:
        """Rows as the target shows them, in a comparable order."""
        rows = self.rows.values() if isinstance(self.rows, dict) else self.rows
        return canon([tuple(row[c.number] for c in self.columns) for row in rows])


def canon(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Bring rows into a comparable order."""
    return sorted(rows, key=repr)


@dataclasses.dataclass
class Snapshot:
    """State of a table after a position: the names of its columns, and its rows."""

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class LandingWriter:
    """Writes entries of a landing one after the other."""

    def __init__(
        self, root: Path, *, order: str = "lsn", sources: Sequence[str] = (SOURCE,)
    ) -> None:
        self.root = root
        self.sources = tuple(sources)
        self.n = 0
        self.previous = FIRST_PREVIOUS
        self.epoch = 0
        self.schemas: dict[str, str] = {}
        self.records: dict[str, dict[str, Any]] = {}
        for name in ("commits", "data", "schemas"):
            (root / name).mkdir(parents=True)
        layout = {
            "version": 1, "landing_id": hashlib.sha256(str(root).encode()).hexdigest()[:32],
            "created": START.isoformat(), "order": order,
            "sources": {source: {} for source in self.sources},
            "capabilities": [
                "checkpoints", "compact", "retention",
                *(["several-sources"] if len(self.sources) > 1 else []),
            ],
        }  # fmt: skip
        (root / "layout.json").write_text(json.dumps(layout))
        self.entry(EntryKind.GENESIS, 0)

    def schema_id(self, table: Table) -> str:
        """Write the schema file of a table as it is now."""
        record = table.record()
        found = fingerprint(record)
        path = self.root / "schemas" / table.directory / f"{found}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            before = self.records.get(table.directory)
            path.write_bytes(canonical_json(with_renames(record, before)))
        self.records[table.directory] = record
        return found

    def file(self, table: str, schema_id: str, rows: pa.Table, k: int) -> LandingFile:
        """Write a Parquet file of the next entry."""
        path = f"data/{table}/gd_date=2026-01-31/{self.n:020d}-{k}.parquet"
        return describe(self.root, path, table, schema_id, rows)

    def entry(
        self, kind: EntryKind, lsn: int, files: Sequence[LandingFile] = (),
        time: dt.datetime | None = None, replaced: Sequence[Replacement] = (),
        extra: dict[str, Any] | None = None, csn: int | None = None,
    ) -> int:  # fmt: skip
        """Publish an entry; give its number."""
        entry = CommitEntry(
            n=self.n, kind=kind, previous=self.previous,
            positions={s: SourcePosition(self.epoch, 1, lsn, csn) for s in self.sources},
            committed_time=START, mtime_ms=0,
            commit_time=time, files=tuple(files),
            hidden=tuple(f".gd-x-{i}" for i in range(len(files))),
            replaced=tuple(replaced), extra=extra or {},
        ).sealed()[0]  # fmt: skip
        path = self.root / "commits" / f"{self.n:020d}.json"
        path.with_suffix(".tmp").write_bytes(entry.to_bytes())
        path.with_suffix(".tmp").rename(path)
        self.previous = entry.hash
        self.n += 1
        return entry.n


def describe(
    root: Path, path: str, table: str, schema_id: str, rows: pa.Table, *, group_rows: int = 7
) -> LandingFile:
    """Write rows into a file, by default in many small row groups; describe it as an entry does."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, root / path, row_group_size=group_rows)
    ops: dict[str, int] = {}
    for op in rows.column("gd_op").to_pylist():
        ops[op] = ops.get(op, 0) + 1
    order = rows.select(["gd_lsn", "gd_seq"]).to_pylist()
    places = sorted((row["gd_lsn"], row["gd_seq"]) for row in order)
    moved = any(
        op == "U" and old is not None
        for op, old in zip(
            rows.column("gd_op").to_pylist(), rows.column("gd_old").to_pylist(), strict=True
        )
    )
    return LandingFile(
        table, path, rows.num_rows, (root / path).stat().st_size, Position(*places[0]),
        Position(*places[-1]), schema_id, ops,
        rows.column("gd_unchanged").null_count < rows.num_rows, moved, "sha256:" + "0" * 64,
    )  # fmt: skip


def shop() -> list[Table]:
    """Tables of every kind of identity."""
    text, int4 = pa.string(), pa.int32()
    return [
        Table("plain", [Column(1, "id", int4), Column(2, "a", text, toast=True),
                        Column(3, "b", pa.binary(), toast=True), Column(4, "c", int4)],
              (1,), full=False),
        Table("pair", [Column(1, "k1", int4), Column(2, "k2", text),
                       Column(3, "doc", text, toast=True), Column(4, "d", pa.date32())],
              (1, 2), full=False),
        Table("full_key", [Column(1, "id", pa.int64()), Column(2, "a", text, toast=True),
                           Column(3, "l", pa.list_(pa.field("element", int4)))],
              (1,), full=True),
        Table("bag", [Column(1, "x", int4), Column(2, "y", text, toast=True)], (), full=True,
              rows=[]),
    ]  # fmt: skip


class History:
    """A source with a seeded life, and its landing.

    Attributes:
        tables: of the source.
        alternates: schemas go back and forth, inside of transactions too.
        writer: of the landing.
        states: per table, its state after each place (epoch, LSN, seq) at which it changed.
        ends: per entry, the place after its last row.
    """

    def __init__(self, root: Path, seed: int, *, with_schema_changes: bool = True,
                 tables: list[Table] | None = None, keys: int = 6) -> None:  # fmt: skip
        self.rng = Random(seed)
        self.tables = shop() if tables is None else tables
        self.writer = self.make_writer(root)
        self.with_schema_changes = with_schema_changes
        self.alternates = False
        self.keys = keys
        self.lsn = 1000
        self.time = START
        self.landed: dict[str, list[tuple[str, pa.Schema, dict[str, Any]]]] = {}
        self.states: dict[str, dict[Place, Snapshot]] = {t.name: {} for t in self.tables}
        self.ends: dict[int, Place] = {0: (0, 0, 0)}

    def make_writer(self, root: Path) -> LandingWriter:
        """Of its landing."""
        return LandingWriter(root)

    def run(self, entries: int) -> None:
        """Let it live for so many data entries."""
        for _ in range(entries):
            self.step()

    def step(self) -> None:
        """One data entry of a few transactions, and now and then a snapshot before it."""
        for _ in range(self.rng.randint(1, 3)):
            self.transaction()
        if self.rng.random() < 0.15:
            self.snapshot(self.rng.choice(self.tables))
        self.commit()
        if self.rng.random() < 0.1:
            self.ends[self.writer.entry(EntryKind.IDLE, self.lsn)] = self.place(1 << 40)

    def place(self, seq: int) -> Place:
        """A place in the last transaction."""
        return (self.writer.epoch, self.lsn, seq)

    # --- the source ----------------------------------------------------------------------

    def transaction(self) -> None:
        """Change a few rows of a few tables."""
        self.lsn += self.rng.randint(1, 50)
        self.time += dt.timedelta(seconds=self.rng.choice((0, 1, 3)))
        if self.with_schema_changes and self.rng.random() < 0.12:
            self.alter(self.tables[0])
        seq = 0
        for _ in range(self.rng.randint(1, 7)):
            table = self.rng.choice(self.tables)
            if self.alternates and self.rng.random() < 0.4:
                self.alternate(table)
            found = self.changes(table)
            for change in found:
                self.land(table, seq, *change)
                seq += 1
            if found:
                self.states[table.name][self.place(seq - 1)] = state_of(table)

    def changes(self, table: Table) -> list[tuple[str, Row | None, Row | None, list[str]]]:
        """Do something to a table; give op, new row, old row and columns that were not sent."""
        rng = self.rng
        dice = rng.random()
        if dice < 0.03:
            table.rows = {} if table.key else []
            return [("T", None, None, [])]
        held = list(table.rows.values()) if isinstance(table.rows, dict) else list(table.rows)
        if not held or dice < 0.35:
            return self.insert(table)
        row = rng.choice(held)
        if dice < 0.5:
            found = [self.delete(table, row)]
            if rng.random() < 0.5:  # the same key again, in the same transaction
                new = self.new_row(table)
                new.update({number: row[number] for number in table.key})
                found.append(self.put(table, new))
            return found
        new, unsent = self.updated(table, row)
        if table.key and dice > 0.8:
            new.update({n: self.key_value(table, n) for n in table.key})
            if table.key_of(new) != table.key_of(row) and table.key_of(new) in table.rows:
                new.update({n: row[n] for n in table.key})
        self.remove(table, row)
        self.add(table, new)
        is_moved = bool(table.key) and table.key_of(new) != table.key_of(row)
        old = self.old_row(table, row) if table.full or is_moved else None
        return [("U", {**new, **dict.fromkeys(unsent)}, old,
                 [c.name for c in table.columns if c.number in unsent])]  # fmt: skip

    def insert(self, table: Table) -> list[tuple[str, Row | None, Row | None, list[str]]]:
        """Add a row, if its key is free."""
        row = self.new_row(table)
        if isinstance(table.rows, dict) and table.key_of(row) in table.rows:
            return []
        return [self.put(table, row)]

    def put(self, table: Table, row: Row) -> tuple[str, Row | None, Row | None, list[str]]:
        """Add a row."""
        self.add(table, row)
        return ("I", row, None, [])

    def delete(self, table: Table, row: Row) -> tuple[str, Row | None, Row | None, list[str]]:
        """Remove a row."""
        self.remove(table, row)
        return ("D", None, self.old_row(table, row), [])

    def add(self, table: Table, row: Row) -> None:
        if isinstance(table.rows, dict):
            table.rows[table.key_of(row)] = row
        else:
            table.rows.append(row)

    def remove(self, table: Table, row: Row) -> None:
        if isinstance(table.rows, dict):
            del table.rows[table.key_of(row)]
        else:
            table.rows.remove(row)

    def old_row(self, table: Table, row: Row) -> Row:
        """What the server sends of the row before."""
        wanted = {c.number for c in table.columns} if table.full else set(table.key)
        return {number: row[number] for number in wanted}

    def updated(self, table: Table, row: Row) -> tuple[Row, list[int]]:
        """Change some columns; out-of-line ones that stay are not sent."""
        new, unsent = copy.copy(row), []
        for column in table.columns:
            if column.number in table.key:
                continue
            if self.rng.random() < 0.5:
                new[column.number] = self.value(column)
            elif column.toast and row[column.number] is not None and not table.full:
                unsent.append(column.number)
        return new, unsent

    def new_row(self, table: Table) -> Row:
        return {
            c.number: self.key_value(table, c.number) if c.number in table.key else self.value(c)
            for c in table.columns
        }

    def key_value(self, table: Table, number: int) -> Any:
        column = next(c for c in table.columns if c.number == number)
        chosen = self.rng.randrange(self.keys)
        return f"k{chosen}'" if pa.types.is_string(column.type) else chosen

    def value(self, column: Column) -> Any:
        """A value of a column; few different ones, so that they repeat."""
        rng = self.rng
        if rng.random() < 0.2:
            return None
        if pa.types.is_string(column.type):
            return rng.choice(("", "x", "long " * rng.randint(1, 3), "é"))
        if pa.types.is_binary(column.type):
            return rng.choice((b"", b"\x00", b"big" * 5))
        if pa.types.is_list(column.type):
            return [rng.choice((None, 1, 2)) for _ in range(rng.randrange(3))]
        if pa.types.is_date(column.type):
            return dt.date(2026, 1, rng.randint(1, 3))
        return rng.randrange(4)

    def alter(self, table: Table) -> None:
        """Add, drop, rename or retype a column; rows change over as the server has them."""
        rows = table.rows.values() if isinstance(table.rows, dict) else table.rows
        plain = [c for c in table.columns if c.number not in table.key]
        what = self.rng.choice(("add", "drop", "rename", "retype", "key type"))
        table.columns = [copy.copy(c) for c in table.columns]
        plain = [c for c in table.columns if c.number not in table.key]
        if what == "add":
            table.next_number += 1
            name = self.rng.choice(("p", "q", "r"))
            if name in {c.name for c in table.columns}:
                return
            table.columns.append(Column(table.next_number, name, pa.int32(), toast=False))
            for row in rows:
                row[table.next_number] = None
        elif what == "drop" and len(plain) > 1:
            gone = self.rng.choice(plain)
            table.columns.remove(gone)
        elif what == "rename":
            chosen = self.rng.choice(plain)
            if chosen.name.startswith("z_"):
                return
            chosen.name = f"z_{chosen.name}{chosen.number}"
        elif what == "retype":
            chosen = self.rng.choice(plain)
            if chosen.type == pa.int32():
                chosen.type = pa.string()
                for row in rows:
                    before = row[chosen.number]
                    row[chosen.number] = None if before is None else str(before)
        elif what == "key type":
            key = next(c for c in table.columns if c.number in table.key)
            key.type = pa.int64()

    def alternate(self, table: Table) -> None:
        """Change the schema of a table, or change it back."""
        table.columns = [copy.copy(c) for c in table.columns]
        what = self.rng.choice(("identity", "column", "name", "key type"))
        if what == "identity" and table.key:
            table.full = not table.full
        elif what == "column" and "extra" in {c.name for c in table.columns}:
            table.columns = [c for c in table.columns if c.name != "extra"]
        elif what == "column":
            table.next_number += 1
            table.columns.append(Column(table.next_number, "extra", pa.int32()))
            for row in table.rows.values() if isinstance(table.rows, dict) else table.rows:
                row[table.next_number] = None
        elif what == "name":
            column = next(c for c in table.columns if c.number not in table.key)
            column.name = column.name[:-1] if column.name.endswith("_") else f"{column.name}_"
        elif what == "key type" and table.key:
            column = next(c for c in table.columns if c.number in table.key)
            column.type = pa.int64() if column.type == pa.int32() else column.type

    # --- the landing -------------------------------------------------------------------------

    def land(self, table: Table, seq: int, op: str, new: Row | None, old: Row | None,
             unsent: list[str]) -> None:  # fmt: skip
        """Keep a row for the next entry."""
        names = {c.number: c.name for c in table.columns}
        row: dict[str, Any] = {
            "gd_op": op, "gd_epoch": self.writer.epoch, "gd_lsn": self.lsn, "gd_seq": seq,
            "gd_csn": None, "gd_xid": self.lsn, "gd_ts": self.time,
            "gd_unchanged": unsent or None, "gd_raw": None,
            "gd_old": None if old is None else {names[n]: v for n, v in old.items() if n in names},
        }  # fmt: skip
        row.update({names[n]: v for n, v in (new or {}).items() if n in names})
        schema_id = self.writer.schema_id(table)
        self.landed.setdefault(table.directory, []).append((schema_id, table.schema(), row))

    def commit(self) -> int:
        """Publish what waits as a data entry, one file per table and schema."""
        n = self.writer.entry(EntryKind.DATA, self.lsn, self.files(), self.time)
        self.ends[n] = self.place(1 << 40)
        return n

    def files(self) -> list[LandingFile]:
        """Write what waits."""
        files: list[LandingFile] = []
        for directory, rows in self.landed.items():
            for schema_id, schema, part in runs(rows):
                content = pa.Table.from_pylist(part, schema=schema)
                files.append(self.writer.file(directory, schema_id, content, len(files)))
        self.landed = {}
        return files

    def snapshot(self, table: Table, where: str | None = None) -> None:
        """Land a table as it is now, before the changes that led there.

        With a condition every other row of it, which leaves the others to the changes.
        """
        held = list(table.rows.values() if isinstance(table.rows, dict) else table.rows)
        held = held if where is None else held[::2]
        if not held:
            return
        self.lsn += where is not None  # a view stands between two transactions
        names = {c.number: c.name for c in table.columns}
        rows = [
            {"gd_op": "R", "gd_epoch": self.writer.epoch, "gd_lsn": self.lsn, "gd_seq": i,
             "gd_ts": self.time, **{names[n]: v for n, v in row.items() if n in names}}
            for i, row in enumerate(held)
        ]  # fmt: skip
        schema_id = self.writer.schema_id(table)
        content = pa.Table.from_pylist(rows, schema=table.schema())
        file = self.writer.file(table.directory, schema_id, content, 0)
        before = max(self.ends.values())
        said = {"epoch": self.writer.epoch, "lsn": self.lsn,
                "tables": {table.directory: {"where": where, "rows": len(rows)}}}  # fmt: skip
        n = self.writer.entry(EntryKind.SNAPSHOT, before[1], [file], extra={"snapshot": said})
        self.ends[n] = before
        states = self.states[table.name]
        if where is None:  # from here on only the snapshot tells what was there at its position
            for place in [p for p in states if p > before]:
                del states[place]
        states[self.place(1 << 39)] = state_of(table)


def runs(
    rows: list[tuple[str, pa.Schema, dict[str, Any]]],
) -> list[tuple[str, pa.Schema, list[dict[str, Any]]]]:
    """Group rows that follow each other under one schema."""
    found: list[tuple[str, pa.Schema, list[dict[str, Any]]]] = []
    for schema_id, schema, row in rows:
        if not found or found[-1][0] != schema_id:
            found.append((schema_id, schema, []))
        found[-1][2].append(row)
    return found


def state_of(table: Table) -> Snapshot:
    """The rows of a table, by name."""
    return Snapshot(tuple(c.name for c in table.columns), copy.deepcopy(table.visible()))


def state_at(states: dict[Place, Snapshot], place: Place) -> Snapshot | None:
    """The newest state that is not after a place."""
    found = [known for known in states if known <= place]
    return states[max(found)] if found else None


def merge_first(history: History, table: str, entries: range) -> Replacement:
    """Merge the files of one table in some entries, as compaction does."""
    root = history.writer.root
    paths = [root / "commits" / f"{n:020d}.json" for n in entries]
    read = [CommitEntry.from_bytes(path.read_bytes()) for path in paths]
    found = [file for entry in read for file in entry.files if file.table == table]
    content = pa.concat_tables([pq.read_table(root / f.path, partitioning=None) for f in found])
    path = f"compact/{0:020d}/{table}/{history.writer.n:020d}-0.parquet"
    merged = describe(root, path, table, found[0].schema_id, content)
    old = tuple(file.path for file in found)
    replaced = Replacement(path, old, entries[0], entries[-1])
    history.writer.entry(
        EntryKind.COMPACT, history.lsn, [merged], replaced=[replaced],
        extra={"first": 0, "through": entries[-1], "skipped": []},
    )  # fmt: skip
    return replaced


Choose = Callable[[Random], int]
