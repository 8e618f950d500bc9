"""List what is missing from a landing, or may be.

Reads the commit log only, changes nothing, and may run beside the daemon. A gap says that
changes behind a position can never be landed; one that is accepted, where the daemon went on
behind them (`gaussdecode slot accept-gap`); a suspect entry, that the server may have
sent transactions incompletely; a quarantine entry, that a table is left out until a
snapshot of it, or was until then. Ends with 0 when there is none, and with 74 otherwise.

Examples:
  gaussdecode gaps /var/lib/gaussdecode/orders
  gaussdecode gaps --json /var/lib/gaussdecode/orders
  gaussdecode gaps --unaccepted /var/lib/gaussdecode/orders || page-somebody
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from gaussdecode.commands._table import print_table
from gaussdecode.errors import EX_IOERR, EX_OK, LandingError
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import Entries
from gaussdecode.land.files import Files
from gaussdecode.land.layout import read_layout
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import ended_by

Json = dict[str, Any]  # Any: JSON
_KINDS: Final = (EntryKind.GAP, EntryKind.SUSPECT, EntryKind.QUARANTINE)
_COLUMNS: Final = ("entry", "kind", "recorded (UTC)", "from", "until", "tables", "what")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("root", type=Path, help="directory of the landing")
    parser.add_argument("--json", action="store_true", help="print one object a line")
    parser.add_argument(
        "--unaccepted",
        action="store_true",
        help="leave out gaps that an operator has accepted, and quarantines that are over",
    )


def execute(args: argparse.Namespace) -> int:
    """List them."""
    records = list(_records(args.root))
    if args.unaccepted:
        accepted = {record["from_lsn"] for record in records if record["is_accepted"]}
        records = [record for record in records if not _is_settled(record, accepted)]
    if args.json:
        for record in records:
            print(json.dumps(record))
    elif records:
        print_table(_COLUMNS, [_row(record) for record in records])
    else:
        print("nothing is missing")
    return EX_IOERR if records else EX_OK


def _is_settled(record: Json, accepted: set[str]) -> bool:
    if record["kind"] == EntryKind.QUARANTINE:
        return not record["is_open"]
    return record["kind"] == EntryKind.GAP and record["from_lsn"] in accepted


def _records(root: Path) -> Iterator[Json]:
    stopped: dict[str, list[Json]] = {}  # by table
    for entry in _entries(root):
        for table in ended_by(entry) & stopped.keys():
            (position,) = entry.positions.values()
            lsn = entry.extra.get("snapshot", {}).get("lsn", position.lsn)
            for record in stopped.pop(table):
                record.update(until_lsn=str(Lsn(lsn)), is_open=False)
        if entry.kind in _KINDS:
            record = _record(entry)
            if entry.kind is EntryKind.QUARANTINE:
                for table in entry.extra.get("tables", ()):
                    stopped.setdefault(table, []).append(record)
            yield record


def _entries(root: Path) -> Iterator[CommitEntry]:
    files = Files(root)
    try:
        disk = Disk(files, SpaceWait(should_stop=lambda: True), "gaps")
        if read_layout(disk) is None:
            raise LandingError(f"{root}: no landing (there is no layout.json)")
        entries = Entries(disk)
        numbers = entries.numbers()
        first = min((first for first, _, _ in entries.checkpoints()), default=None)
        begin = min([*numbers[:1], *([] if first is None else [first])], default=0)
        if numbers:
            yield from entries.iterate(begin, numbers[-1])
    finally:
        files.close()


def _record(entry: CommitEntry) -> Json:
    extra = entry.extra
    (position,) = entry.positions.values()
    return {
        "entry": entry.n,
        "kind": str(entry.kind),
        "recorded": entry.published.isoformat(),
        "from_lsn": str(Lsn(extra.get("from_lsn", position.lsn))),
        "until_lsn": str(Lsn(extra["until_lsn"])) if "until_lsn" in extra else None,
        "is_open": bool(extra.get("is_open", False)),
        "is_accepted": bool(extra.get("is_accepted", False)),
        "epoch": position.epoch,
        "tables": [unquote(str(table), errors="replace") for table in extra.get("tables", ())],
        "reason": str(extra.get("reason", entry.kind)),
        "text": str(extra.get("text", "")),
    }


def _row(record: Json) -> list[str]:
    until = record["until_lsn"] or "-"
    return [
        str(record["entry"]),
        record["kind"],
        record["recorded"][:19].replace("T", " "),
        record["from_lsn"],
        f"{until} and on" if record["is_open"] else until,
        ", ".join(record["tables"]) or ("all" if record["kind"] == EntryKind.GAP else "not named"),
        record["text"] or record["reason"],
    ]
