"""Land the current rows of a table, while the daemon streams.

Use it for a table that was added, whose snapshot failed, or whose landed state is in doubt. The rows
replace the table's rows at the readers; changes continue to land meanwhile. With --where only rows that
fulfil the condition land, for a table with a key: each replaces the row with its key. No row is
removed, not even one that the source has deleted. The daemon does the work: this command sends the
request, shows the progress, and waits for the end. The request stays if this command is interrupted, or
if no daemon runs.

--dropped is for a table that the server dropped. It lands as a table without rows, so that readers
empty it and Spark's tables do not stop. History and changelog stay. A new table with its name lands as
any other.

With several sources every source that has the table is read, or with --source one of them.

Exits with 0 when all rows have landed, and with 69 when a table could not be landed.

Examples:
  gaussdecode snapshot orders.yaml --table public.orders
  gaussdecode snapshot orders.yaml --table public.orders --where "created > '2026-01-01'"
  gaussdecode snapshot orders.yaml --table 'public."with.dot"'
  gaussdecode snapshot orders.yaml --table public.orders --dropped
  gaussdecode snapshot shop.yaml --table public.orders --source east
  gaussdecode snapshot orders.yaml --all
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from gaussdecode.console.progress import describe
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE, ConfigError, SourceError
from gaussdecode.land.layout import read_layout
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.model.quarantine import DROPPED
from gaussdecode.model.title import split_title, table_title
from gaussdecode.model.words import counted
from gaussdecode.operations.ask_daemon import ask_status
from gaussdecode.operations.landing_files import opened
from gaussdecode.operations.owner import load_as_owner
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot.choice import NEEDS_ALL_ROWS, needs_all_rows
from gaussdecode.snapshot.dropped import EVERY_SOURCE, REFUSED
from gaussdecode.snapshot.item import title_of
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
        help="the server dropped the table: remove its rows from tables built from the landing",
    )
    parser.add_argument(
        "--source", metavar="NAME", help="of several sources read this one; default: all"
    )
    parser.add_argument("--no-wait", action="store_true", help="send the request, and do not wait")


def execute(args: argparse.Namespace) -> int:
    """Request snapshots and wait for them."""
    config = load_as_owner(args.config)
    reason = config.snapshot_refusal
    if reason is not None:
        raise ConfigError(f"snapshot: {reason}; see docs/operate.md")
    if args.where and args.all:
        raise ConfigError("--where is for single tables; name them with --table")
    if args.dropped and (args.where or args.all):
        raise ConfigError("--dropped is for whole tables; name them with --table")
    titles = _titles(args.table or [])
    sources = _sources(config, args.source)
    for title in () if args.dropped else titles:
        _check_listed(config, title)
    root = config.landing.root
    if not root.is_dir():
        raise _no_landing(config)
    with opened(root) as disk:
        if read_layout(disk) is None:
            raise _no_landing(config)
        store = SnapshotStore(disk)
        if args.where:
            for source in sources:
                _check_whole(store.of(source), titles)
        waiter = _Waiter(config, store, sources, is_of_every=args.source is None)
        waiter.ask(titles, args.where or None, is_dropped=args.dropped)
        return EX_OK if args.no_wait else waiter.wait()


def _no_landing(config: Config) -> ConfigError:
    return ConfigError(
        f"{config.path.name}: there is no landing at {config.landing.root} yet; make it and its slot with "
        f"gaussdecode slot create {config.path}, then start the daemon"
    )


def _titles(written: list[str]) -> list[str]:
    """Titles of the requested tables, as the daemon spells them.

    Raises:
        ConfigError: one of them is not a table name, or has several meanings.
    """
    try:
        return [table_title(*split_title(each)) for each in written]
    except ValueError as error:
        raise ConfigError(f"--table: {error}") from error


def _sources(config: Config, wanted: str | None) -> list[str | None]:
    """The sources to read; None stands for the only one.

    Raises:
        ConfigError: there is no such source.
    """
    if not config.is_several:
        if wanted is not None:
            raise ConfigError("--source is for a landing of several sources")
        return [None]
    if wanted is None:
        return list(config.members)
    if wanted not in config.members:
        raise ConfigError(f"--source: {wanted} is none of {', '.join(config.members)}")
    return [wanted]


def _check_listed(config: Config, title: str) -> None:
    """Refuse a table whose changes do not land.

    Raises:
        ConfigError: the table is not on the white list.
    """
    if not WhiteList(config.decoding.white_tables).allows(*split_title(title)):
        raise ConfigError(
            f"table {title} is not on decoding.white-table-list, so its changes do not land, and rows "
            "without them would stay as they are; put it on the list, restart the daemon, and ask again"
        )


def _check_whole(store: SnapshotStore, titles: list[str]) -> None:
    """Refuse a snapshot with a condition for a table that needs all rows.

    Raises:
        ConfigError: changes of the table have not landed.
    """
    ledger = store.ledger()
    for title in titles:
        if needs_all_rows(ledger.get(title, {})):
            raise ConfigError(f"table {title}: {NEEDS_ALL_ROWS}")


class _Waiter:
    """Requests snapshots of tables, and follows them until each has landed or failed.

    Args:
        config: checked.
        store: snapshot store of the landing.
        sources: the sources to read; None stands for the only one.
        is_of_every: with several sources, skip those that do not have a table.
    """

    def __init__(
        self, config: Config, store: SnapshotStore, sources: list[str | None], *, is_of_every: bool
    ) -> None:
        self._config = config
        self._stores = {source: store.of(source) for source in sources}
        self._is_of_every = is_of_every and config.is_several
        self._asked: dict[tuple[str | None, str], str] = {}
        self._all: dict[str | None, str] = {}
        self._lacking: dict[
            str, list[str]
        ] = {}  # by title, why on each source that was passed over
        self._landed: set[str] = set()
        self._where: str | None = None
        self._is_dropped = False
        self._status = EX_OK
        self._is_terminal = sys.stderr.isatty()
        self._shown = ""
        self._show_at = time.monotonic() + _PLAIN_SECONDS

    def ask(self, titles: list[str], where: str | None, *, is_dropped: bool) -> None:
        """Request tables, or all tables if none is named."""
        self._where = where
        self._is_dropped = is_dropped
        more = {DROPPED: True} if is_dropped else {}
        if self._is_of_every:
            more[EVERY_SOURCE] = True
        for source, store in self._stores.items():
            whose = {} if source is None else {"source": source}
            for title in titles:
                request = {"table": title, "where": where, **more, **whose}
                self._asked[source, title] = store.ask(request)
            if not titles:
                self._all[source] = store.ask({"all": True, **whose})

    def wait(self) -> int:
        """Wait until all are done; return the exit status."""
        while self._asked or self._all:
            time.sleep(_POLL_SECONDS)
            for source, path in list(self._all.items()):
                store = self._stores[source]
                if not store.is_asked(path):
                    del self._all[source]
                    titles = (t for t, of in store.ledger().items() if of.get("request") == path)
                    self._asked |= {(source, title): path for title in titles}
            for source, store in self._stores.items():
                self._report(source, store)
            self._show()
        self._clear()
        for title, lacking in self._lacking.items():
            if title not in self._landed:
                self._status = EX_UNAVAILABLE
            for reason in lacking:
                print(f"{title}: {reason}", file=sys.stderr)
        return self._status

    def _report(self, source: str | None, store: SnapshotStore) -> None:
        """Print the tables of a source that are done or have failed."""
        ledger = store.ledger()
        for title in [title for of, title in self._asked if of == source]:
            record = ledger.get(title, {})
            if store.is_asked(self._asked[source, title]) or record.get("state") == "asked":
                continue
            del self._asked[source, title]
            self._clear()
            named, refused = title_of(source, title), record.get(REFUSED)
            if refused and self._is_of_every:
                self._lacking.setdefault(title, []).append(f"{source}: {refused}")
            elif self._where and needs_all_rows(record):
                self._status = EX_UNAVAILABLE
                print(f"{named}: {NEEDS_ALL_ROWS}", file=sys.stderr)
            elif record.get("state") == "done" and not (self._is_dropped and refused):
                self._landed.add(title)
                print(
                    f"{named}: {counted(record['rows'], 'row')} in entry {record['n']}", flush=True
                )
            else:
                self._status = EX_UNAVAILABLE
                reason = refused or record.get("reason", "failed")
                print(f"{named}: {reason}", file=sys.stderr)

    def _show(self) -> None:
        """Print the daemon's progress: on a terminal in one line, else every few seconds."""
        if not self._is_terminal and time.monotonic() < self._show_at:
            return
        self._show_at = time.monotonic() + _PLAIN_SECONDS
        try:
            tables = ask_status(self._config).get("snapshot") or {}
        except SourceError as error:
            text = f"{error.reason}; what was asked stays asked"
        else:
            titles = [title_of(source, title) for source, title in self._asked]
            found = {title: tables[title] for title in titles if title in tables}
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
