"""A reader of landings by somebody who has only docs/landing-format.md.

Imports nothing of the product and nothing of the kit. Section names in the comments are those of
the page.
"""

import dataclasses
import decimal
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

Json = dict[str, Any]  # Any: JSON
Place = tuple[int, int]
Key = tuple[str, ...]
Change = tuple[Json, Json]
"""Schema and row."""

_KINDS: Final = frozenset(
    (
        "genesis",
        "data",
        "idle",
        "snapshot",
        "gap",
        "prepared",
        "fork",
        "suspect",
        "quarantine",
        "compact",
        "retention",
    )
)
_CAPABILITIES: Final = frozenset({"checkpoints", "compact", "retention", "hides-truncate", "ddl"})
_SEVERAL: Final = "several-sources"
_SYSTEM: Final = ("gd_transactions", "gd_messages", "gd_ddl")
_SEAL: Final = re.compile(rb'(.*),"hash":"([0-9a-f]{64})"\}', re.DOTALL)
_BLOCK: Final = re.compile(r"(\d{20})-(\d{20})\.jsonl")


class UnreadableError(Exception):
    """What the page says must be refused."""


class Value(NamedTuple):
    """A value, or the text of one that does not fit."""

    value: Any  # Any: whatever pyarrow gives
    text: str | None = None


Row = dict[int, Value]
"""By attribute number."""


@dataclasses.dataclass
class Table:
    """One table as the changes make it.

    Attributes:
        schema: of the newest row.
        rows: by key; empty for a multiset.
        waiting: rows of snapshots with a condition, with their position.
        bag: rows of a multiset.
        through: position of its last whole snapshot.
        stopped: why it cannot be read on.
        suspects: entries that name it: number, OID of the table that has its name since, and whether all of
            that one comes.
    """

    schema: Json = dataclasses.field(default_factory=dict)
    rows: dict[Key, Row] = dataclasses.field(default_factory=dict)
    waiting: list[tuple[Place, list[Change]]] = dataclasses.field(default_factory=list)
    bag: list[Row] = dataclasses.field(default_factory=list)
    through: Place | None = None
    stopped: str | None = None
    suspects: list[tuple[int, int, bool]] = dataclasses.field(default_factory=list)

    def named(self) -> list[dict[str, Value]]:
        """Rows by the true names of the columns."""
        names = {c["attribute_number"]: c["name"] for c in self.schema["columns"]}
        held = self.rows.values() if self.schema["key"] is not None else self.bag
        return [{name: row.get(n, Value(None)) for n, name in names.items()} for row in held]


class Reader:
    """Reads a landing, entry by entry.

    Args:
        root: of the landing.
        accepts_gaps: goes on over them.
        accepts_suspects: goes on over entries that name tables.
        with_merged: reads merged files where it may.
        begin: entry to begin after, where retention took the first ones.
        source: where there are several, the one whose rows are read.

    Attributes:
        n: everything up to this entry is read.
        tables: by directory.
        quarantined: directories of tables.
        system: rows of the system tables.
        files: how many were opened.
    """

    def __init__(
        self,
        root: Path,
        *,
        accepts_gaps: bool = False,
        accepts_suspects: bool = False,
        with_merged: bool = False,
        begin: int = -1,
        source: str | None = None,
    ) -> None:
        self.root = root
        layout = json.loads((root / "layout.json").read_text())
        known = _CAPABILITIES if source is None else _CAPABILITIES | {_SEVERAL}
        if layout["version"] != 1 or not known.issuperset(layout["capabilities"]):
            raise UnreadableError("a newer landing")
        self._landing_id = layout["landing_id"]
        self._second = {"lsn": "gd_lsn", "csn": "gd_csn"}[layout["order"]]
        self._accepts_gaps, self._with_merged = accepts_gaps, with_merged
        self._accepts_suspects = accepts_suspects
        self._source = source
        self._hash: str | None = "0" * 64 if begin < 0 else None
        self.n = begin
        self.tables: dict[str, Table] = {}
        self.quarantined: set[str] = set()
        self.system: dict[str, list[Json]] = {name: [] for name in _SYSTEM}
        self.files = 0

    # --- Reading a landing -----------------------------------------------------------------

    def advance(self) -> "Reader":
        """Read all there is."""
        layout = json.loads((self.root / "layout.json").read_text())
        if layout["landing_id"] != self._landing_id:
            raise UnreadableError("another landing")
        found = list(self._entries())
        merged = self._merged(found) if self._with_merged else {}
        done: set[str] = set()
        for entry in found:
            self._take(self._of_source(entry), merged, done)
            self.n = entry["n"]
        return self

    def _of_source(self, entry: Json) -> Json:
        """What an entry has of one of several sources."""
        name = self._source
        if name is None:
            return entry
        if entry["kind"] in {"suspect", "snapshot"} and entry["extra"].get("source") != name:
            entry = {**entry, "kind": "idle"}
        return {
            **entry,
            "files": [file for file in entry["files"] if file["source"] == name],
            "positions": {name: entry["positions"][name]},
        }

    def _entries(self) -> Iterator[Json]:
        n = self.n + 1
        while (line := self._line(n)) is not None:
            entry = _unsealed(line)
            if entry["n"] != n or entry["version"] != 1 or entry["kind"] not in _KINDS:
                raise UnreadableError(f"entry {n}")
            if self._hash not in {entry["previous"], None}:
                raise UnreadableError(f"entry {n} does not follow")
            self._hash = entry["hash"]
            yield entry
            n += 1

    def _line(self, n: int) -> bytes | None:
        path = self.root / "commits" / f"{n:020d}.json"
        if path.exists():
            return path.read_bytes()
        first: list[int] = []
        for block in (self.root / "commits").glob("checkpoints/*.jsonl"):
            match = _BLOCK.fullmatch(block.name)
            if match is not None and int(match[1]) <= n <= int(match[2]):
                return block.read_bytes().split(b"\n")[1 + n - int(match[1])]
            first += [int(match[1])] if match is not None else []
        first += [int(path.stem) for path in (self.root / "commits").glob("[0-9]*.json")]
        if any(other > n for other in first):
            raise UnreadableError(f"retention has taken entry {n}")
        return None

    # --- Tables from changes ---------------------------------------------------------------

    def _take(self, entry: Json, merged: dict[str, str], done: set[str]) -> None:
        kind, extra = entry["kind"], entry["extra"]
        if kind == "gap" and not self._accepts_gaps:
            raise UnreadableError(f"entry {entry['n']} is a gap")
        if kind == "quarantine":
            self.quarantined.update(extra["tables"])
        if kind == "suspect" and not extra["is_any_table"] and not self._accepts_suspects:
            for name in extra["tables"]:
                said = extra.get("changes", {}).get(name, {})
                suspect = (entry["n"], said.get("oid") or 0, bool(said.get("comes_whole")))
                self.tables.setdefault(name, Table()).suspects.append(suspect)
        if kind not in {"data", "snapshot", "idle"}:
            return
        if kind == "snapshot":
            self._begin_snapshot(extra["snapshot"]["tables"])
        changes: dict[str, list[Change]] = {}
        for file in entry["files"]:
            path = merged.get(file["path"], file["path"])
            if path in done or file["table"] in self.quarantined:
                continue
            done.add(path)
            rows = self._rows(path)
            if file["table"] in self.system:
                self.system[file["table"]] += rows
                continue
            schema = self._schema(file)
            changes.setdefault(file["table"], []).extend((schema, row) for row in rows)
        for name, found in changes.items():
            said = extra["snapshot"]["tables"][name] if kind == "snapshot" else None
            if kind == "data" and not extra.get("in_order"):
                found.sort(key=lambda change: self._sort_key(change[1]))
            self._read(self.tables.setdefault(name, Table()), found, said)
        for at in entry["positions"].values():
            for table in self.tables.values():
                self._put_waiting(table, (at["epoch"], at[self._second[3:]], 1))

    def _begin_snapshot(self, tables: dict[str, Json]) -> None:
        for name, said in tables.items():
            if said["where"] is None:
                self.quarantined.discard(name)
                held = self.tables.get(name, Table()).suspects
                left = [of for of in held if of[0] > said["since_n"] and of[1] != said["oid"]]
                if not left:
                    self.tables[name] = Table()

    def _rows(self, path: str) -> list[Json]:
        self.files += 1
        with pq.ParquetFile(self.root / path) as file:
            rows: list[Json] = file.read(use_threads=False).to_pylist()
        return rows

    def _schema(self, file: Json) -> Json:
        path = self.root / "schemas" / file["table"] / f"{file['schema_id']}.json"
        schema: Json = json.loads(path.read_text())
        return schema

    def _sort_key(self, row: Json) -> tuple[int, ...]:
        return (row["gd_epoch"], row[self._second], row["gd_lsn"], row["gd_seq"])

    def _read(self, table: Table, changes: list[Change], said: Json | None) -> None:
        changes = [change for change in changes if _goes_on(table, change[0])]
        if said is not None and said["where"] is not None:
            if changes:
                table.waiting.append((self._place(changes[0][1]), changes))
            return
        for schema, row in changes:
            where = self._place(row)
            if said is not None:
                table.through = where
            elif table.through is not None and where <= table.through:
                continue
            self._put_waiting(table, (*where, 0))
            self._put(table, schema, row)

    def _place(self, row: Json) -> Place:
        return (row["gd_epoch"], row[self._second])

    def _put_waiting(self, table: Table, before: tuple[int, int, int]) -> None:
        """Rows that a condition chose count at their position."""
        while table.waiting and (*table.waiting[0][0], 0) < before:
            for schema, row in table.waiting.pop(0)[1]:
                self._put(table, schema, row)

    def _put(self, table: Table, schema: Json, landed: Json) -> None:
        _change_over(table, schema)
        if table.stopped is not None:
            return
        columns = {c["landed"]: c["attribute_number"] for c in schema["columns"]}
        texts = dict(landed["gd_raw"] or ())
        row = {n: Value(landed[c], texts.get(c)) for c, n in columns.items()}
        old = None
        if landed.get("gd_old") is not None:
            old = {
                columns[c]: Value(value, texts.get(f"old.{c}"))
                for c, value in landed["gd_old"].items()
            }
        unsent = [columns[c] for c in landed["gd_unchanged"] or ()]
        op = landed["gd_op"]
        if op == "T":
            table.rows.clear()
            table.bag.clear()
        elif schema["key"] is None:
            if op in "UD":
                assert old is not None
                wanted = _spelled(old)
                table.bag.remove(next(held for held in table.bag if _spelled(held) == wanted))
            if op != "D":
                table.bag.append(row)
        else:
            _put_by_key(table, op, row, old, unsent)

    def _merged(self, entries: list[Json]) -> dict[str, str]:
        """Merged files, 'Merged files' of 'Tables from changes'."""
        named = {
            file["path"]: file for e in entries if e["kind"] != "compact" for file in e["files"]
        }
        found: dict[str, str] = {}
        for entry in entries:
            for item in entry["replaced"]:
                if not named.keys() >= set(item["replaced"]):
                    continue
                first = named[item["replaced"][0]]
                if not self._is_parted(entries, item, first["table"], first["schema_id"]):
                    found.update(dict.fromkeys(item["replaced"], item["path"]))
        return found

    def _is_parted(self, entries: list[Json], item: Json, table: str, schema_id: str) -> bool:
        inside = [e for e in entries if item["first_n"] <= e["n"] <= item["last_n"]]
        return any(
            (e["kind"] in {"quarantine", "suspect"} and table in e["extra"]["tables"])
            or (e["kind"] != "compact" and file["table"] == table
                and (e["kind"] == "snapshot" or file["schema_id"] != schema_id))
            for e in inside for file in [*e["files"], {"table": None}]
        )  # fmt: skip


# --- Schemas ---------------------------------------------------------------------------------


def _goes_on(table: Table, schema: Json) -> bool:
    """Whether no suspect stops a table, or all of another one comes under its name."""
    if any(of[1] != schema["oid"] or not of[2] for of in table.suspects):
        return False
    table.suspects.clear()
    return True


def _change_over(table: Table, schema: Json) -> None:
    before, table.schema = table.schema, schema
    if not before or before == schema:
        return
    if before["oid"] and schema["oid"] and before["oid"] != schema["oid"]:
        table.rows.clear()
        table.bag.clear()
        table.stopped = None
        return
    if any(c["attribute_number"] is None for c in before["columns"] + schema["columns"]):
        table.stopped = "nobody knows which column is which"
        return
    known = {c["attribute_number"]: c for c in before["columns"]}
    held = [*table.rows.values(), *table.bag]
    for column in schema["columns"]:
        n = column["attribute_number"]
        if n not in known and "constant" in column and n > max(known, default=0):
            for row in held:
                row[n] = _constant(column["constant"], column["arrow"])
        elif n in known and not _is_known_change(known[n], column):
            table.stopped = f"nobody knows what became of values of {column['name']}"
            return
        elif n in known and known[n]["arrow"] != column["arrow"]:
            for row in held:
                row[n] = _cast(row.get(n, Value(None)), column["arrow"])
    for row in held:
        for n in set(known) - {c["attribute_number"] for c in schema["columns"]}:
            row.pop(n, None)
    if before["key"] != schema["key"]:
        table.rows = {} if schema["key"] is None else {_key_of(row, schema): row for row in held}
        table.bag = held if schema["key"] is None else []


# 'Types that change'
_PRINTED: Final = frozenset(
    (
        "smallint",
        "integer",
        "bigint",
        "name",
        "uuid",
        "json",
        "jsonb",
        "xml",
        "text",
        "character varying",
    )
)
_NUMBERS: Final = ("smallint", "integer", "bigint")
_LENGTHS: Final = ("character varying", "bit varying")


def _is_known_change(old: Json, new: Json) -> bool:
    before, after = int(old["type_modifier"]), int(new["type_modifier"])
    a, b = str(old["type"]), str(new["type"])
    if before == after and (a == b or 0 != old["type_oid"] == new["type_oid"]):
        return True
    if a != b:
        is_text = b in {"text", "character varying"} and after < 0
        is_number = (a in _NUMBERS and b in _NUMBERS and _NUMBERS.index(a) < _NUMBERS.index(b)) or (
            b == "double precision" and a in {"smallint", "integer", "real"}
        )
        return (a in _PRINTED and is_text) or is_number
    if a in _LENGTHS:
        return after < 0 or 0 <= before <= after
    if a.startswith(("timestamp", "time ")):
        return (6 if after < 0 else after) >= (6 if before < 0 else before)
    if a == "numeric" and before >= 0:
        (p, s), (q, t) = (divmod(m - 4, 1 << 16) for m in (before, after))
        return after < 0 or (t >= s and q - t >= p - s)
    return False


def _constant(text: str, arrow: str) -> Value:
    """A text of the server in a column; enough for what tests add."""
    if arrow == "bool":
        return Value(text == "t")
    try:
        return Value(pa.array([text]).cast(_ARROW[arrow]).to_pylist()[0])
    except (KeyError, pa.ArrowException):
        return Value(None, text)


_ARROW: Final = {"int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "string": pa.string(),
                 "float": pa.float32(), "double": pa.float64()}  # fmt: skip


def _put_by_key(table: Table, op: str, row: Row, old: Row | None, unsent: list[int]) -> None:
    before: Row = {}
    if op in "UD":
        before = table.rows.pop(_key_of(row if old is None else old, table.schema), {})
    if op == "D":
        return
    for n in unsent:
        row[n] = old[n] if old is not None and n in old else before.get(n, Value(None))
    table.rows[_key_of(row, table.schema)] = row


# --- Tables of several sources ---------------------------------------------------------------

_WIDER: Final = ("int16", "int32", "int64")


def as_one(tables: dict[str, Table]) -> list[dict[str, Any]]:  # Any: values
    """Rows of all sources as one table, by true names, each with its source; NULLs are left out.

    Renames on some sources only are for who calls this: at entries where the names are alike.
    """
    keys = {frozenset(table.schema["key"] or ()) for table in tables.values()}
    types: dict[str, set[str]] = {}
    for table in tables.values():
        for column in table.schema["columns"]:
            types.setdefault(column["name"], set()).add(column["arrow"])
    if len(keys) > 1 or any(len(of) > 1 and not of <= set(_WIDER) for of in types.values()):
        raise UnreadableError("the sources have no table together")
    found = []
    for source, table in tables.items():
        for row in table.named():
            values = {name: of.value for name, of in row.items() if of.value is not None}
            found.append({"gd_source": source, **values})
    return found


# --- Hashes ----------------------------------------------------------------------------------


def _unsealed(line: bytes) -> Json:
    match = _SEAL.fullmatch(line)
    if match is None or hashlib.sha256(match[1] + b"}").hexdigest().encode() != match[2]:
        raise UnreadableError("an entry that its hash does not fit")
    record: Json = json.loads(line)
    return record


def check_files(root: Path, entry: Json) -> None:
    """Compare the checksums of an entry's files."""
    for file in entry["files"]:
        found = hashlib.sha256((root / file["path"]).read_bytes()).hexdigest()
        if file["checksum"] != f"sha256:{found}":
            raise UnreadableError(file["path"])


def _key_of(row: Row, schema: Json) -> Key:
    numbers = {c["name"]: c["attribute_number"] for c in schema["columns"]}
    return tuple(_text(row.get(numbers[name], Value(None))) for name in schema["key"])


def _text(value: Value) -> str:
    return f"raw {value.text}" if value.text is not None else repr(value.value)


def _spelled(row: Row) -> Counter[tuple[int, str]]:
    return Counter(
        (n, _text(v)) for n, v in row.items() if v.value is not None or v.text is not None
    )


def _cast(value: Value, arrow: str) -> Value:
    if value.value is None:
        return value
    if arrow == "string":
        return Value(str(value.value))
    if arrow.startswith("decimal128"):
        scale = int(arrow.rstrip(")").rsplit(",", 1)[1])
        return Value(value.value.quantize(decimal.Decimal(1).scaleb(-scale)))
    return Value(float(value.value) if arrow in {"float", "double"} else value.value)
