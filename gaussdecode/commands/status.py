"""Show the status of running daemons, one line per slot.

Asks the monitoring port of each configuration; a directory stands for all its *.yaml files. The columns
up to decode_change_queue_length are those of GaussDB's gs_get_parallel_decode_status(). limit is the
stage that limits the throughput; a line below the table gives the reason and the setting that changes
it.

Exits with 0 when every daemon answers, streams, lands, and misses nothing. Exits with 69 when one does
not answer, does not stream, waits for room on its disk, has lost changes or may have, has tables in
quarantine or tables whose existing rows could not be landed, or lags more than --max-lag. A lag that
is not known is shown as a dash, null in --json, and is not within --max-lag either. Warnings alone exit
with 0. A configuration that is wrong is named after the others, with status 78. docs/alerts.md has the
table of states. For a live view: gaussdecode top.

With --wait it first waits until all of that is fulfilled and no table waits for its existing rows. It
waits at most this long, and then exits with 69.

Examples:
  gaussdecode status --wait 3600 orders.yaml && start-the-readers
  gaussdecode status /etc/gaussdecode
  gaussdecode status --max-lag 60 /etc/gaussdecode || page-somebody
  gaussdecode status --json orders.yaml | jq .limit.setting
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gaussdecode.console.arguments import seconds
from gaussdecode.console.progress import describe_table
from gaussdecode.console.table import print_table
from gaussdecode.daemon.status.clients import serve_line, slot_line
from gaussdecode.daemon.status.holders import HOLDERS
from gaussdecode.daemon.status.members import member_line
from gaussdecode.daemon.status.text import size
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE, ConfigError, SourceError
from gaussdecode.model.words import counted, printable
from gaussdecode.operations.ask_daemon import Record, ask_status
from gaussdecode.operations.fleet import config_files
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config

_COLUMNS: Final = (
    "slot_name",
    "parallel_decode_num",
    "read_change_queue_length",
    "decode_change_queue_length",
    "reader_lsn",
    "durable_lsn",
    "lag_bytes",
    "lag_seconds",
    "state",
    "limit",
)

_SHOWN_TABLES: Final = 20  # of those whose rows are being landed; arbitrary
_SHOWN_SLOTS: Final = 20  # virtual slots; arbitrary
_WAIT_SECONDS: Final = 0.5
_MUCH_WAL: Final = 1_000_000_000  # bytes; arbitrary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "config", type=Path, nargs="+", help="configuration files, or directories of them"
    )
    parser.add_argument("--json", action="store_true", help="print all fields, one object a line")
    parser.add_argument(
        "--max-lag",
        type=seconds,
        metavar="SECONDS",
        help="exit with 69 if the lag is above this, or not known",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        help="wait at most this long until the exit status is 0 and all existing rows have landed",
    )


def execute(args: argparse.Namespace) -> int:
    """Ask every daemon and print the answers."""
    configs: list[Config] = []
    broken: list[ConfigError] = []
    for path in config_files(args.config):
        try:
            configs.append(load(path))
        except ConfigError as error:
            broken.append(error)
    has_settled = args.wait is None or bool(broken) or _has_settled(args, configs)
    status, silent = _show(args, configs)
    if len(broken) == 1 and not silent:
        raise broken[0]
    if broken:
        raise ConfigError("\n".join([*map(str, broken), *silent]))
    if silent:
        raise SourceError("\n".join(silent))
    return status if has_settled else EX_UNAVAILABLE


def _has_settled(args: argparse.Namespace, configs: Sequence[Config]) -> bool:
    """Wait for the condition of --wait; return whether it came in time."""
    end = time.monotonic() + args.wait
    while not all(_is_settled(config, args.max_lag) for config in configs):
        if time.monotonic() > end:
            return False
        time.sleep(_WAIT_SECONDS)
    return True


def _is_settled(config: Config, max_lag: float | None) -> bool:
    try:
        record = ask_status(config)
    except SourceError:
        return False
    return _is_good(record, max_lag) and record.get("is_snapshot_settled") is True


def _show(args: argparse.Namespace, configs: Sequence[Config]) -> tuple[int, list[str]]:
    """Print one reading; return the exit status, and errors about silent daemons."""
    records: list[Record] = []
    silent: list[str] = []
    for config in configs:
        try:
            records.append(ask_status(config))
        except SourceError as error:
            silent.append(error.reason)
    if args.json:
        for record in records:
            print(json.dumps(record))
    elif records:
        rows = [[_cell(name, record.get(name)) for name in _COLUMNS] for record in records]
        print_table(_COLUMNS, rows)
        for record in records:
            _explain(record)
    if args.max_lag is not None:
        for record in records:
            _explain_unknown_lag(record)
    is_good = not silent and all(_is_good(record, args.max_lag) for record in records)
    return EX_OK if is_good else EX_UNAVAILABLE, silent


def _is_good(record: Record, max_lag: float | None) -> bool:
    lag = record.get("lag_seconds")
    is_late = max_lag is not None and (not isinstance(lag, int | float) or lag > max_lag)
    return record.get("is_well") is True and not is_late


def _explain_unknown_lag(record: Record) -> None:
    """Print why --max-lag is not fulfilled where the lag is not known."""
    if record.get("lag_seconds") is None:
        print(
            f"{record['slot_name']}: The lag is not known, so it is not within --max-lag: the daemon has "
            "not yet seen where the server's WAL ends. It is known once the stream begins.",
            file=sys.stderr,
        )


def _explain(record: Record) -> None:
    """Print the limiting stage and all problems."""
    limit = record.get("limit")
    if isinstance(limit, dict) and limit.get("setting"):
        text = f"{limit.get('sentence')} Remedy: {limit['setting']}"
        print(f" {record['slot_name']}: {text}")
    _show_spool(record)
    _show_prepared(record)
    _show_sources(record)
    _show_holder(record)
    _show_snapshots(record)
    _show_virtual_slots(record)
    for trouble in record.get("troubles") or []:
        text = f"{record['slot_name']}: {trouble['what']} {trouble['action']}"
        print(printable(text), file=sys.stderr)


def _show_spool(record: Record) -> None:
    """Print how much of open transactions is in the spool."""
    batches = record.get("working_txn_spooled_batches") or 0
    if batches:
        print(
            f" {record['slot_name']}: {counted(batches, 'decoded batch', 'decoded batches')} of open "
            f"transactions, {size(record['working_txn_spooled'])}, are in spool/ and in no queue"
        )


def _show_prepared(record: Record) -> None:
    """Print how many prepared transactions have not ended."""
    waiting = record.get("prepared_txn_cnt") or 0
    if waiting:
        verb = "waits" if waiting == 1 else "wait"
        print(
            f" {record['slot_name']}: {counted(waiting, 'prepared transaction')} {verb} for "
            "COMMIT PREPARED or ROLLBACK PREPARED"
        )


def _show_sources(record: Record) -> None:
    """Print each source's progress, and whether the CSN mark waits for it."""
    for of in record.get("sources") or []:
        print(f" {record['slot_name']}: {member_line(of)}")


def _show_holder(record: Record) -> None:
    """Print why the server keeps much WAL, if changes still to land are not the reason."""
    server = record.get("server") or {}
    slot = server.get("slot") or {}
    holder = HOLDERS.get(server.get("held_by") or "")
    kept = slot.get("retained_bytes") or 0
    if holder is None or not holder.query or kept < _MUCH_WAL:
        return
    print(
        f" {record['slot_name']}: the server keeps {size(kept)} of WAL for {holder.told(slot)}: "
        f"{holder.query}"
    )


def _show_snapshots(record: Record) -> None:
    """Print the progress of snapshots, and tables whose snapshot failed."""
    tables = record.get("snapshot") or {}
    open_tables = [(title, of) for title, of in tables.items() if of.get("state") != "done"]
    for title, of in open_tables[:_SHOWN_TABLES]:
        print(printable(f" {record['slot_name']}: snapshot of {title}: {describe_table(of)}"))
    if len(open_tables) > _SHOWN_TABLES:
        print(f" {record['slot_name']}: {len(open_tables) - _SHOWN_TABLES} more; see --json")


def _show_virtual_slots(record: Record) -> None:
    """Print the server in the daemon, and virtual slots, the one that is furthest behind first."""
    serve = record.get("serve")
    if serve is not None:
        print(printable(f" {record['slot_name']}: {serve_line(serve)}"))
    slots = sorted(record.get("virtual_slots") or [], key=_behind, reverse=True)
    for of in slots[:_SHOWN_SLOTS]:
        print(printable(f" {record['slot_name']}: {slot_line(of)}"))
    if len(slots) > _SHOWN_SLOTS:
        print(f" {record['slot_name']}: {len(slots) - _SHOWN_SLOTS} more; see --json")


def _behind(of: Record) -> tuple[bool, float]:
    """Lost ones, and those of which nothing is known, come first."""
    behind = of.get("behind_bytes")
    return of.get("is_lost") is not False, math.inf if behind is None else float(behind)


def _cell(name: str, value: object) -> str:
    if name == "limit" and isinstance(value, dict):
        value = value.get("stage")
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
