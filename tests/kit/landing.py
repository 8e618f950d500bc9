"""Reads a landing the way a stranger would: the commit log, and the files it names.

Uses pyarrow and JSON only, nothing of the product, so that it can judge the product.
"""

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

TRANSACTIONS: Final = "gd_transactions"
MESSAGES: Final = "gd_messages"
DDL: Final = "gd_ddl"
Json = dict[str, Any]  # Any: JSON
Order = tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """One file below ``schemas/``.

    Attributes:
        table: (schema, name), the true names.
        key: true names of the columns that identify a row, or None.
        names: true name of each landed column.
    """

    table: tuple[str, str]
    key: tuple[str, ...] | None
    names: dict[str, str]


class Change(NamedTuple):
    """One landed row of a table; columns go by their true names.

    Attributes:
        order: (epoch, commit end LSN, seq).
        xid: of the transaction.
        op: I, U, D, T or R.
        schema: it landed under.
        new: values.
        old: identity columns as they were, or None.
        raw: text of values that do not fit, old ones with the prefix ``old.``.
        unchanged: columns that were not sent.
        types: Arrow type of each column.
        is_snapshot: it is in a snapshot entry that replaces its table, and no change.
        lsn: its own, or None.
    """

    order: Order
    xid: int
    op: str
    schema: Schema
    new: Json
    old: Json | None
    raw: dict[str, str]
    unchanged: frozenset[str]
    types: dict[str, pa.DataType]
    is_snapshot: bool = False
    lsn: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Landing:
    """Everything that the log of a landing says has landed.

    Attributes:
        entries: of the log, in order.
        changes: of all tables, in order.
        transactions: rows of ``gd_transactions``, in order.
        messages: rows of ``gd_messages``, in order.
        ddl: rows of ``gd_ddl``, in order.
    """

    root: Path
    entries: list[Json]
    changes: list[Change]
    transactions: list[Json]
    messages: list[Json]
    ddl: list[Json]

    @property
    def streamed(self) -> list[Change]:
        """The changes without the rows of snapshots."""
        return [change for change in self.changes if not change.is_snapshot]

    def effective(self) -> list[Change]:
        """What counts for the state: the last snapshot of each table and the changes after it.

        A snapshot entry must come before every change after its position.
        """
        last: dict[tuple[str, str], Order] = {}
        for change in self.changes:
            if change.is_snapshot:
                last[change.schema.table] = change.order
        return [
            change
            for change in self.changes
            if (where := last.get(change.schema.table)) is None
            or (
                change.order[:2] == where[:2]
                if change.is_snapshot
                else change.order[:2] > where[:2]
            )
        ]

    @property
    def durable_lsn(self) -> int:
        """The last entry's position."""
        return position(self.entries[-1])


def position(entry: Json) -> int:
    """LSN of the only source in an entry."""
    (where,) = entry["positions"].values()
    lsn: int = where["lsn"]
    return lsn


def read_entries(root: Path) -> list[Json]:
    """Read the log, the entries that are only in checkpoints included."""
    entries: dict[int, Json] = {}
    for path in sorted((root / "commits" / "checkpoints").glob("[0-9]*.jsonl")):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            entries[entry["n"]] = entry
    for path in (root / "commits").glob("[0-9]*.json"):
        entry = json.loads(path.read_text())
        entries[entry["n"]] = entry
    return [entries[n] for n in sorted(entries)]


def newest_entry(root: Path) -> Json | None:
    """Read the newest entry alone, as waits do again and again; None while there is none."""
    path = max((root / "commits").glob("[0-9]*.json"), default=None)  # all names are equally long
    if path is None:
        return None
    entry: Json = json.loads(path.read_text())
    return entry


def read(root: Path, source: str | None = None) -> Landing:
    """Read a whole landing, or what it has of one of several sources."""
    entries = read_entries(root)
    changes: list[Change] = []
    system: dict[str, list[Json]] = {TRANSACTIONS: [], MESSAGES: [], DDL: []}
    snapshots = {
        file["path"]
        for entry in entries
        if entry["kind"] == "snapshot"
        for file in entry["files"]
        if entry["extra"]["snapshot"]["tables"][file["table"]]["where"] is None
    }
    for file in files(entries):
        if source is not None and file["source"] != source:
            continue
        with pq.ParquetFile(root / file["path"]) as opened:  # a dataset takes far longer to open
            table = opened.read(use_threads=False)
        if file["table"] in system:
            system[file["table"]] += table.to_pylist()
        else:
            schema = read_schema(root, file["table"], file["schema_id"])
            changes += _changes(table, schema, is_snapshot=file["path"] in snapshots)
    changes.sort(key=lambda change: change.order)
    for rows in system.values():
        rows.sort(key=lambda row: (row["gd_epoch"], row["gd_lsn"], row.get("gd_seq") or 0))
    return Landing(root, entries, changes, system[TRANSACTIONS], system[MESSAGES], system[DDL])


def files(entries: list[Json]) -> Iterator[Json]:
    """Every landed file that an entry names, in the order of the log."""
    for entry in entries:
        if entry["kind"] != "compact":
            yield from entry["files"]


@functools.cache
def read_schema(root: Path, table: str, schema_id: str) -> Schema:
    """Read a file below ``schemas/``."""
    record = json.loads((root / "schemas" / table / f"{schema_id}.json").read_text())
    key = record["key"]
    return Schema(
        (record["schema"], record["name"]),
        None if key is None else tuple(key),
        {column["landed"]: column["name"] for column in record["columns"]},
    )


def _changes(table: pa.Table, schema: Schema, *, is_snapshot: bool) -> Iterator[Change]:
    names = schema.names
    types = {names[f.name]: f.type for f in table.schema if f.name in names}
    for row in table.to_pylist():
        old = row.get("gd_old")
        yield Change(
            (row["gd_epoch"], row["gd_lsn"], row["gd_seq"]),
            row["gd_xid"],
            row["gd_op"],
            schema,
            {names[name]: value for name, value in row.items() if name in names},
            None if old is None else {names[name]: value for name, value in old.items()},
            {_true_name(name, names): text for name, text in row["gd_raw"] or ()},
            frozenset(names[name] for name in row["gd_unchanged"] or ()),
            types,
            is_snapshot,
            row.get("gd_change_lsn"),
        )


def _true_name(name: str, names: dict[str, str]) -> str:
    """Translate a key of ``gd_raw``; a column may itself be called ``old.something``."""
    if name in names:
        return names[name]
    return "old." + names[name.removeprefix("old.")]
