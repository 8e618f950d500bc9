"""Land the rows of a table as they are now, while the daemon streams.

For a table that was added, that failed before, or whose landed state is in doubt. The rows
replace what readers have of the table; changes go on landing meanwhile. With --where only rows
that fulfil the condition land, for a table with a key: each is put in the place of the row
with its key, and no row is removed, also none that is gone at the source. The daemon does it:
this command asks it, shows how far it is, and waits for the end. What was asked stays asked
when this command is interrupted, or while no daemon runs.

--dropped is for a table that the server has no more: it lands as one without rows, so that readers
empty it, and nothing of it stands still. History and changelog stay. A table that is made anew under
its name lands as any other.

Ends with 0 when all rows have landed, and with 69 when a table could not be landed.

Examples:
  gaussdecode snapshot orders.yaml --table public.orders
  gaussdecode snapshot orders.yaml --table public.orders --where "created > '2026-01-01'"
  gaussdecode snapshot orders.yaml --table 'public."with.dot"'
  gaussdecode snapshot orders.yaml --table public.orders --dropped
  gaussdecode snapshot orders.yaml --all
"""

import argparse
import secrets
import sys
import time
from pathlib import Path
from typing import Final

from gaussdecode.commands._asking import ask_status
from gaussdecode.commands._owner import load_as_owner
from gaussdecode.commands._progress import describe
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE, ConfigError, SourceError
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.layout import read_layout
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.title import split_title, table_title
from gaussdecode.model.words import counted
from gaussdecode.settings.load import Config
from gaussdecode.snapshot.choice import NEEDS_ALL_ROWS, needs_all_rows
from gaussdecode.snapshot.dropped import DROPPED, REFUSED
from gaussdecode.source.relations import WhiteList

_POLL_SECONDS: Final = 0.3
_PLAIN_SECONDS: Final = 5.0  # between two lines where there is no terminal; arbitrary
_CLEAR: Final = "\r\x1b[K"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="configuration file of one slot")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--table", action="append", metavar="SCHEMA.NAME", help="may be repeated")
    which.add_argument("--all", action="store_true", help="every published table")
    parser.add_argument(
        "--where", metavar="CONDITION", help="SQL: put only these rows, by their key"
    )
    parser.add_argument(
        "--dropped",
        action="store_true",
        help="the table is gone from the server: have its rows leave what is built from the landing",
    )
    parser.add_argument("--no-wait", action="store_true", help="ask, and do not wait for the end")


def execute(args: argparse.Namespace) -> int:
    """Ask for snapshots and wait for them."""
    config = load_as_owner(args.config)
    reason = config.snapshot_refusal
    if reason is not None:
        raise ConfigError(f"snapshot: {reason}; see docs/operate.md")
    if args.where and args.all:
        raise ConfigError("--where is for single tables; name them with --table")
    if args.dropped and (args.where or args.all):
        raise ConfigError("--dropped is for whole tables; name them with --table")
    titles = _titles(args.table or [])
    for title in () if args.dropped else titles:
        _check_listed(config, title)
    root = config.landing.root
    if not root.is_dir():
        raise ConfigError(f"{root} does not exist; start the daemon first")
    files = Files(root)
    try:
        disk = Disk(files, SpaceWait(should_stop=lambda: True), secrets.token_hex(8))
        if read_layout(disk) is None:
            raise ConfigError(f"{root} is no landing yet; start the daemon first")
        store = SnapshotStore(disk)
        if args.where:
            _check_whole(store, titles)
        waiter = _Waiter(config, store)
        waiter.ask(titles, args.where or None, is_dropped=args.dropped)
        return EX_OK if args.no_wait else waiter.wait()
    finally:
        files.close()


def _titles(written: list[str]) -> list[str]:
    """How the daemon spells the tables that were asked for.

    Raises:
        ConfigError: one of them is no table, or could be several.
    """
    try:
        return [table_title(*split_title(each)) for each in written]
    except ValueError as error:
        raise ConfigError(f"--table: {error}") from error


def _check_listed(config: Config, title: str) -> None:
    """Refuse a table whose changes do not land.

    Raises:
        ConfigError: it is not on the white list.
    """
    if not WhiteList(config.decoding.white_tables).allows(*split_title(title)):
        raise ConfigError(
            f"table {title} is not on decoding.white-table-list, so its changes do not land, and rows "
            "without them would stay as they are; put it on the list, restart the daemon, and ask again"
        )


def _check_whole(store: SnapshotStore, titles: list[str]) -> None:
    """Refuse some rows of a table that needs all of them.

    Raises:
        ConfigError: changes of it have not landed.
    """
    ledger = store.ledger()
    for title in titles:
        if needs_all_rows(ledger.get(title, {})):
            raise ConfigError(f"table {title}: {NEEDS_ALL_ROWS}")


class _Waiter:
    """Asks for tables, and follows them until each has landed or failed.

    Args:
        config: checked.
        store: of the landing.
    """

    def __init__(self, config: Config, store: SnapshotStore) -> None:
        self._config = config
        self._store = store
        self._asked: dict[str, str] = {}
        self._all: str | None = None
        self._where: str | None = None
        self._is_dropped = False
        self._status = EX_OK
        self._is_terminal = sys.stderr.isatty()
        self._shown = ""
        self._show_at = time.monotonic() + _PLAIN_SECONDS

    def ask(self, titles: list[str], where: str | None, *, is_dropped: bool) -> None:
        """Ask for tables, or for all of them when none is named."""
        self._where = where
        self._is_dropped = is_dropped
        more = {DROPPED: True} if is_dropped else {}
        for title in titles:
            self._asked[title] = self._store.ask({"table": title, "where": where, **more})
        if not titles:
            self._all = self._store.ask({"all": True})

    def wait(self) -> int:
        """Wait until nothing is left; gives the exit status."""
        while self._asked or self._all is not None:
            time.sleep(_POLL_SECONDS)
            if self._all is not None and not self._store.is_asked(self._all):
                path, self._all = self._all, None
                ledger = self._store.ledger().items()
                self._asked = {title: path for title, of in ledger if of.get("request") == path}
            self._report()
            self._show()
        self._clear()
        return self._status

    def _report(self) -> None:
        """Say what became of tables that are done or have failed."""
        ledger = self._store.ledger()
        for title, path in list(self._asked.items()):
            record = ledger.get(title, {})
            if self._store.is_asked(path) or record.get("state") == "asked":
                continue
            del self._asked[title]
            self._clear()
            if self._where and needs_all_rows(record):
                self._status = EX_UNAVAILABLE
                print(f"{title}: {NEEDS_ALL_ROWS}", file=sys.stderr)
            elif record.get("state") == "done" and not (self._is_dropped and record.get(REFUSED)):
                print(
                    f"{title}: {counted(record['rows'], 'row')} in entry {record['n']}", flush=True
                )
            else:
                self._status = EX_UNAVAILABLE
                reason = record.get(REFUSED) or record.get("reason", "failed")
                print(f"{title}: {reason}", file=sys.stderr)

    def _show(self) -> None:
        """Show how far the daemon is: on a terminal in one line, else every few seconds."""
        if not self._is_terminal and time.monotonic() < self._show_at:
            return
        self._show_at = time.monotonic() + _PLAIN_SECONDS
        try:
            tables = ask_status(self._config).get("snapshot") or {}
        except SourceError as error:
            text = f"{error.reason}; what was asked stays asked"
        else:
            found = {title: tables[title] for title in self._asked if title in tables}
            text = describe(found) or "waiting for the daemon"
        if self._is_terminal:
            sys.stderr.write(f"{_CLEAR}{text}")
            sys.stderr.flush()
        elif text != self._shown:
            print(text, file=sys.stderr)
        self._shown = text

    def _clear(self) -> None:
        if self._is_terminal and self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
