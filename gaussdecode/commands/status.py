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
import http.client
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gaussdecode.commands._arguments import seconds
from gaussdecode.commands._table import print_table
from gaussdecode.config import Config, load
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE, ConfigError, SourceError

_SECONDS: Final = 5.0
_MAX_BYTES: Final = 1_000_000
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

Record = dict[str, Any]  # Any: JSON


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
    status = EX_OK
    try:
        while True:
            if sys.stdout.isatty():
                sys.stdout.write(_CLEAR)
            status, silent = _show(args, configs)
            for text in silent:
                print(text, file=sys.stderr)
            sys.stdout.flush()
            time.sleep(args.watch)
    except KeyboardInterrupt:
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
            records.append(_ask(config))
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
    for key in ("detail", "warnings"):
        texts = record.get(key) or []
        for text in [texts] if isinstance(texts, str) else texts:
            print(f"{record['slot_name']}: {text}", file=sys.stderr)


def _ask(config: Config) -> Record:
    listen = config.monitoring.listen
    connection = http.client.HTTPConnection(listen.host, listen.port, timeout=_SECONDS)
    try:
        connection.request("GET", "/status")
        response = connection.getresponse()
        body = response.read(_MAX_BYTES)
        record = json.loads(body) if response.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        record = None
    finally:
        connection.close()
    if not isinstance(record, dict) or "slot_name" not in record:
        raise SourceError(
            f"{config.path.name}: no daemon answers on {listen}; "
            f"is it running? (systemctl status gaussdecode@{config.name})"
        )
    if record["slot_name"] != config.slot:
        raise SourceError(
            f"{config.path.name}: the daemon on {listen} follows slot {record['slot_name']}, "
            f"not {config.slot}; give each slot a port of its own"
        )
    return record


def _cell(name: str, value: object) -> str:
    if name == "limit" and isinstance(value, dict):
        value = value.get("stage")
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
