"""Show how far running daemons are, one line per slot.

Asks the monitoring port of each configuration; a directory stands for all its *.yaml
files. The columns up to decode_change_queue_length are those of GaussDB's
gs_get_parallel_decode_status(); limit is the stage that limits the throughput, and a line
below the table says why and which setting would move it.

Ends with 0 when every daemon answers and streams, and with 69 when one does not, or lags
more than --max-lag.

Examples:
  gaussdecode status /etc/gaussdecode
  gaussdecode status --watch /etc/gaussdecode/orders.yaml
  gaussdecode status --max-lag 60 /etc/gaussdecode || page-somebody
  gaussdecode status --json orders.yaml | jq .limit.setting
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gaussdecode.commands._arguments import seconds
from gaussdecode.commands._asking import Record, ask_status
from gaussdecode.commands._progress import describe_table
from gaussdecode.commands._signals import until_signal
from gaussdecode.commands._table import print_table
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE, ConfigError, SourceError
from gaussdecode.settings.load import Config, load

_WATCH_SECONDS: Final = 2.0
_CLEAR: Final = "\x1b[H\x1b[2J"
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "config", type=Path, nargs="+", help="configuration files, or directories of them"
    )
    parser.add_argument("--json", action="store_true", help="print all fields, one object a line")
    parser.add_argument(
        "--watch",
        type=seconds,
        nargs="?",
        const=_WATCH_SECONDS,
        metavar="SECONDS",
        help="show it again and again, every 2 seconds unless told, until interrupted",
    )
    parser.add_argument(
        "--max-lag", type=seconds, metavar="SECONDS", help="a lag above this ends with 69 too"
    )


def execute(args: argparse.Namespace) -> int:
    """Ask every daemon and print what they say; once, or until interrupted."""
    configs = [load(path) for path in _files(args.config)]
    if args.watch is None:
        status, silent = _show(args, configs)
        if silent:
            raise SourceError("\n".join(silent))
        return status
    with until_signal() as stop:
        while True:
            if sys.stdout.isatty():
                sys.stdout.write(_CLEAR)
            status, silent = _show(args, configs)
            for text in silent:
                print(text, file=sys.stderr)
            sys.stdout.flush()
            if stop.wait(args.watch):
                return status


def _files(paths: Sequence[Path]) -> list[Path]:
    """Put the files of a directory in its place."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(path.glob("*.yaml"))
        if not inside:
            raise ConfigError(f"{path}: no configuration (*.yaml) in this directory")
        found += inside
    return found


def _show(args: argparse.Namespace, configs: Sequence[Config]) -> tuple[int, list[str]]:
    """Print one reading; give the exit status, and what to say of those that are silent."""
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
    is_good = not silent and all(_is_good(record, args.max_lag) for record in records)
    return EX_OK if is_good else EX_UNAVAILABLE, silent


def _is_good(record: Record, max_lag: float | None) -> bool:
    lag = record.get("lag_seconds")
    is_late = max_lag is not None and (not isinstance(lag, int | float) or lag > max_lag)
    return record.get("state") == "streaming" and not is_late


def _explain(record: Record) -> None:
    """Say what limits, and what is wrong."""
    limit = record.get("limit")
    if isinstance(limit, dict) and limit.get("setting"):
        text = f"{limit.get('sentence')} What moves it: {limit['setting']}"
        print(f" {record['slot_name']}: {text}")
    _show_snapshots(record)
    for key in ("detail", "warnings"):
        texts = record.get(key) or []
        for text in [texts] if isinstance(texts, str) else texts:
            print(f"{record['slot_name']}: {text}", file=sys.stderr)


def _show_snapshots(record: Record) -> None:
    """Say how far the tables are whose rows are being landed, and what is wrong with others."""
    tables = record.get("snapshot") or {}
    open_tables = [(title, of) for title, of in tables.items() if of.get("state") != "done"]
    for title, of in open_tables[:_SHOWN_TABLES]:
        print(f" {record['slot_name']}: snapshot of {title}: {describe_table(of)}")
    if len(open_tables) > _SHOWN_TABLES:
        print(f" {record['slot_name']}: {len(open_tables) - _SHOWN_TABLES} more; see --json")


def _cell(name: str, value: object) -> str:
    if name == "limit" and isinstance(value, dict):
        value = value.get("stage")
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
