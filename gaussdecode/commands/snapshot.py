"""Land the rows of a table as they are now, while the daemon streams.

For a table that was added, that failed before, or whose landed state is in doubt. The rows
replace what readers have of the table; changes go on landing meanwhile. The daemon does it:
this command asks it, and waits for the end.

Examples:
  gaussdecode snapshot orders.yaml --table public.orders
  gaussdecode snapshot orders.yaml --table public.orders --where "created > '2026-01-01'"
"""

import argparse
import secrets
import sys
import time
from pathlib import Path
from typing import Final

from gaussdecode.config import load
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE, ConfigError
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.layout import read_layout
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.space import SpaceWait
from gaussdecode.options import SourceKind

_POLL_SECONDS: Final = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="configuration file of one slot")
    parser.add_argument(
        "--table", action="append", required=True, metavar="SCHEMA.NAME", help="may be repeated"
    )
    parser.add_argument("--where", metavar="CONDITION", help="SQL: land only these rows")
    parser.add_argument("--no-wait", action="store_true", help="ask, and do not wait for the end")


def execute(args: argparse.Namespace) -> int:
    """Ask for snapshots and wait for them."""
    config = load(args.config)
    if config.source.kind is not SourceKind.POSTGRESQL:
        raise ConfigError("snapshot: only tables of PostgreSQL can be read; see docs/operations.md")
    root = config.landing.root
    if not root.is_dir():
        raise ConfigError(f"{root} does not exist; start the daemon first")
    files = Files(root)
    try:
        disk = Disk(files, SpaceWait(should_stop=lambda: True), secrets.token_hex(8))
        if read_layout(disk) is None:
            raise ConfigError(f"{root} is no landing yet; start the daemon first")
        store = SnapshotStore(disk)
        asked = {title: store.ask({"table": title, "where": args.where}) for title in args.table}
        if args.no_wait:
            return EX_OK
        return _wait(store, asked)
    finally:
        files.close()


def _wait(store: SnapshotStore, asked: dict[str, str]) -> int:
    """Wait until every request is answered; say what became of each."""
    status = EX_OK
    while asked:
        time.sleep(_POLL_SECONDS)
        ledger = store.ledger()
        for title, path in list(asked.items()):
            if store.is_asked(path):
                continue
            del asked[title]
            record = ledger.get(title, {})
            if record.get("state") == "done":
                print(f"{title}: {record['rows']} rows in entry {record['n']}")
            else:
                status = EX_UNAVAILABLE
                print(f"{title}: {record.get('reason', 'failed')}", file=sys.stderr)
    return status
