"""List changes that are missing from a landing, or may be.

Reads the commit log and the records of snapshots, changes nothing, and may run beside the daemon.
It lists:

  gap         changes after a position can never be landed; an accepted gap is one after which the
              daemon continued (`gaussdecode slot accept-gap`)
  suspect     the server may have sent transactions incompletely, or changed rows of a table in a
              way that it does not send; with the tables that have been read again since
  quarantine  a table is, or was, left out until a snapshot of it

Exits with 0 when there is none, and with 74 otherwise.

Examples:
  gaussdecode gaps /var/lib/gaussdecode/orders
  gaussdecode gaps --json /var/lib/gaussdecode/orders
  gaussdecode gaps --unaccepted /var/lib/gaussdecode/orders || page-somebody
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from gaussdecode.console.table import print_table
from gaussdecode.errors import EX_IOERR, EX_OK, LandingError
from gaussdecode.land.entry import Entries
from gaussdecode.land.layout import read_layout
from gaussdecode.land.names import SYSTEM_TABLES, table_directory
from gaussdecode.land.schemas import read_schema
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.model import words
from gaussdecode.model.entry import SETTLED, WITHOUT_ROWS, CommitEntry
from gaussdecode.model.landing import EntryKind, SchemaChange, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import ended_by, oids_read_by
from gaussdecode.model.title import split_title
from gaussdecode.operations.landing_files import opened
from gaussdecode.operations.owner import work_as_owner_of
from gaussdecode.snapshot.choice import LEFT_OUT, tables_of
from gaussdecode.snapshot.doubts import answered_n, names_all, read_again_by
from gaussdecode.source.coverage import listing

Json = dict[str, Any]  # Any: JSON
Ledgers = dict[str | None, Json]
"""Ledgers by source; the key of the only source is None."""
_KINDS: Final = (EntryKind.GAP, EntryKind.SUSPECT, EntryKind.QUARANTINE)
_COLUMNS: Final = (
    "entry",
    "kind",
    "recorded (UTC)",
    "from",
    "until",
    "tables",
    "read again",
    "what",
)
_NOT_READ: Final = LEFT_OUT | {"missed", None}  # states of tables that no order means
_MOST_NAMED: Final = 5  # tables in a cell; arbitrary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("root", type=Path, help="directory of the landing")
    parser.add_argument("--json", action="store_true", help="print one object a line")
    parser.add_argument(
        "--unaccepted",
        action="store_true",
        help="leave out accepted gaps, quarantines that have ended, and suspect "
        "entries whose tables have all been read again",
    )


def execute(args: argparse.Namespace) -> int:
    """List them."""
    work_as_owner_of(args.root)
    counted = Counter[str]()
    records = list(_records(args.root, counted))
    if args.unaccepted:
        accepted = {record["from_lsn"] for record in records if record["is_accepted"]}
        records = [record for record in records if not _is_answered(record, accepted)]
    if args.json:
        for record in records:
            print(json.dumps(record))
    elif records:
        print_table(_COLUMNS, [_row(record) for record in records])
    else:
        print("nothing is missing")
    if counted[SETTLED] and not args.json:
        named = words.counted(counted[SETTLED], "transaction with DDL", "transactions with DDL")
        print(f"{named} lost nothing, as the server's WAL shows")
    if counted[WITHOUT_ROWS] and not counted[EntryKind.SNAPSHOT] and not args.json:
        print("the rows that were there when the landing began are not in it (snapshot.mode: none)")
    return EX_IOERR if records else EX_OK


def _is_answered(record: Json, accepted: set[str]) -> bool:
    if record["kind"] == EntryKind.QUARANTINE:
        return not record["is_open"]
    if record["kind"] == EntryKind.SUSPECT:
        return bool(record["is_read_again"])
    return record["kind"] == EntryKind.GAP and record["from_lsn"] in accepted


def _records(root: Path, counted: Counter[str]) -> Iterator[Json]:
    stopped: list[tuple[str, int | None, Json]] = []  # table, its OID, the record
    suspects: list[_Suspect] = []
    landed: dict[str | None, set[str]] = {}  # by source
    ledgers: Ledgers = {}
    for entry, oid_of in _entries(root, ledgers):
        counted[SETTLED] += int(entry.extra.get(SETTLED, 0))
        counted[WITHOUT_ROWS] += bool(entry.extra.get(WITHOUT_ROWS))
        counted[entry.kind] += 1
        for change in entry.schema_changes:
            if change.table not in SYSTEM_TABLES:
                landed.setdefault(change.source, set()).add(change.table)
        for suspect in suspects:
            suspect.take(entry, oid_of)
        whole = ended_by(entry)
        is_of_one = len(entry.positions) == 1
        ended = [
            of
            for table, oid, of in stopped
            if table in whole or (is_of_one and oid in oids_read_by(entry, of["epoch"]))
        ]
        stopped = [of for of in stopped if of[2] not in ended]
        for record in ended:
            _, position = _where(entry)
            lsn = entry.extra.get("snapshot", {}).get("lsn", position.lsn)
            record.update(until_lsn=str(Lsn(lsn)), is_open=False)
        if entry.kind in _KINDS:
            record = _record(entry)
            if entry.kind is EntryKind.QUARANTINE:
                tables, oid = entry.extra.get("tables", ()), entry.extra.get("oid")
                stopped += [(table, oid, record) for table in tables]
            elif entry.kind is EntryKind.SUSPECT:
                suspects.append(_Suspect(entry, record))
            yield record
    for suspect in suspects:
        ledger = ledgers.get(suspect.source, {})
        tables = {
            table_directory(*split_title(title))
            for title, of in tables_of(ledger).items()
            if of.get("state") not in _NOT_READ
        }
        suspect.finish(tables, landed.get(suspect.source, set()), answered_n(ledger))


class _Suspect:
    """A suspect entry, and the tables that snapshots have read again since.

    A snapshot repairs a table only if it was taken after the entry. If the entry may mean any table, it
    is repaired only when snapshots of all published tables were requested.

    Attributes:
        source: source of the entry, if there are several; None for the only one.
    """

    def __init__(self, entry: CommitEntry, record: Json) -> None:
        self.source: str | None = entry.extra.get("source")
        self._entry = entry
        self._named = set(entry.extra.get("tables", ())) if names_all(entry) else None
        self._read: dict[str, int] = {}  # by table, which entry
        self._record = record
        changes = entry.extra.get("changes", {})
        # Tables made anew, of which all rows come as changes.
        self._whole = {
            table: of["oid"] for table, of in changes.items() if of["oid"] and of["comes_whole"]
        }

    def take(self, entry: CommitEntry, oid_of: Callable[[SchemaChange], int]) -> None:
        """Evaluate a later entry.

        Args:
            entry: the next one.
            oid_of: returns the OID of a table from a schema change on.
        """
        for table in read_again_by(entry, self._entry):
            if self._named is None or table in self._named:
                self._read.setdefault(table, entry.n)
        for change in entry.schema_changes:
            if change.source != self.source:
                continue
            if change.table in self._whole and oid_of(change) == self._whole[change.table]:
                self._read.setdefault(change.table, entry.n)

    def finish(self, listed: set[str], landed: set[str], asked_n: int) -> None:
        """Put the result into the record.

        Args:
            listed: tables in the ledger of the source.
            landed: tables of the source in the landing.
            asked_n: for suspect entries up to this one, snapshots of all tables were requested.
        """
        is_asked = asked_n >= self._entry.n
        meant = self._named if self._named is not None else listed if is_asked else listed | landed
        left = meant - self._read.keys()
        self._record.update(
            read_again={_shown(table): n for table, n in sorted(self._read.items())},
            not_read_again=sorted(map(_shown, left)),
            is_read_again=bool(self._read) and not left and (is_asked or self._named is not None),
        )


def _shown(table: str) -> str:
    return unquote(table, errors="replace")


def _entries(
    root: Path, ledgers: Ledgers
) -> Iterator[tuple[CommitEntry, Callable[[SchemaChange], int]]]:
    """Every entry with a function that reads the OID in a schema; then the snapshot ledgers."""
    with opened(root) as disk:
        layout = read_layout(disk)
        if layout is None:
            raise LandingError(f"{root}: no landing (there is no layout.json)")
        entries = Entries(disk)
        numbers = entries.numbers()
        first = min((first for first, _, _ in entries.checkpoints()), default=None)
        begin = min([*numbers[:1], *([] if first is None else [first])], default=0)

        def oid_of(change: SchemaChange) -> int:
            return int((read_schema(disk, change.table, change.schema_id) or {}).get("oid", 0))

        if numbers:
            for entry in entries.iterate(begin, numbers[-1]):
                yield entry, oid_of
        sources: list[str | None] = [*layout.sources] if len(layout.sources) > 1 else [None]
        ledgers.update({source: SnapshotStore(disk).of(source).ledger() for source in sources})


def _where(entry: CommitEntry) -> tuple[str | None, SourcePosition]:
    """The source of an entry, if it names one, and a position.

    An entry without a source gives the position of the first source.
    """
    source = entry.extra.get("source")
    if source in entry.positions and len(entry.positions) > 1:
        return str(source), entry.positions[str(source)]
    return None, next(iter(entry.positions.values()))


def _sources(entry: CommitEntry, source: str | None) -> Json:
    """Fields of a record for several sources: the entry's source, or the position of each."""
    if len(entry.positions) == 1:
        return {}
    if source is not None:
        return {"source": source}
    return {"sources": {name: str(Lsn(at.lsn)) for name, at in entry.positions.items()}}


def _record(entry: CommitEntry) -> Json:
    extra = entry.extra
    source, position = _where(entry)
    return {
        "entry": entry.n,
        "kind": str(entry.kind),
        **_sources(entry, source),
        "recorded": entry.committed_time.isoformat(),
        "from_lsn": str(Lsn(extra.get("from_lsn", position.lsn))),
        "until_lsn": str(Lsn(extra["until_lsn"])) if "until_lsn" in extra else None,
        "is_open": bool(extra.get("is_open", False)),
        "is_accepted": bool(extra.get("is_accepted", False)),
        "epoch": position.epoch,
        "tables": [_shown(str(table)) for table in extra.get("tables", ())],
        "reason": str(extra.get("reason", entry.kind)),
        "text": str(extra.get("text", "")),
    }


def _row(record: Json) -> list[str]:
    until = record["until_lsn"] or "-"
    return [
        str(record["entry"]),
        record["kind"],
        record["recorded"][:19].replace("T", " "),
        _from(record),
        f"{until} and on" if record["is_open"] else until,
        ", ".join(record["tables"]) or ("all" if record["kind"] == EntryKind.GAP else "not named"),
        _read_again(record),
        record["text"] or record["reason"],
    ]


def _from(record: Json) -> str:
    """Beginning of a record: LSN of its source, or of each source if it names none."""
    if "sources" in record:
        return ", ".join(f"{name} {lsn}" for name, lsn in record["sources"].items())
    source = f"{record['source']} " if "source" in record else ""
    return f"{source}{record['from_lsn']}"


def _read_again(record: Json) -> str:
    """Tables of a suspect entry that have been read again, by which entries, and those that have not."""
    if "read_again" not in record:
        return "-"
    by_entry: dict[int, list[str]] = {}
    for table, n in record["read_again"].items():
        by_entry.setdefault(n, []).append(table)
    done = [f"{_named(tables)} by entry {n}" for n, tables in sorted(by_entry.items())]
    if record["is_read_again"]:
        return "; ".join(done)
    left = _named(record["not_read_again"]) or "others that may be meant"
    return "; ".join([*done, f"not yet: {left}"])


def _named(tables: list[str]) -> str:
    return listing(tables[:_MOST_NAMED], len(tables))
