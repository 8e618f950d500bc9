"""Show how far running daemons are, one line per slot.

Asks the monitoring port of each configuration. The columns up to
decode_change_queue_length are those of GaussDB's gs_get_parallel_decode_status().

Examples:
  gaussdecode status /etc/gaussdecode/orders.yaml
  gaussdecode status /etc/gaussdecode/*.yaml
  gaussdecode status --json orders.yaml | jq .lag_bytes
"""

import argparse
import http.client
import json
import sys
from pathlib import Path
from typing import Final

from gaussdecode.commands._table import print_table
from gaussdecode.config import Config, load
from gaussdecode.errors import EX_OK, SourceError

_SECONDS: Final = 5.0
_MAX_BYTES: Final = 1_000_000
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
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, nargs="+", help="configuration files")
    parser.add_argument("--json", action="store_true", help="print all fields, one object a line")


def execute(args: argparse.Namespace) -> int:
    """Ask every daemon, print what they say, then complain about those that did not."""
    records: list[dict[str, object]] = []
    silent: list[SourceError] = []
    for config in [load(path) for path in args.config]:
        try:
            records.append(_ask(config))
        except SourceError as error:
            silent.append(error)
    if args.json:
        for record in records:
            print(json.dumps(record))
    elif records:
        print_table(
            _COLUMNS, [[_cell(record.get(name)) for name in _COLUMNS] for record in records]
        )
    for record in records:
        if record.get("detail") and not args.json:
            print(f"{record['slot_name']}: {record['detail']}", file=sys.stderr)
    if silent:
        raise SourceError("\n".join(error.reason for error in silent))
    return EX_OK


def _ask(config: Config) -> dict[str, object]:
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


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
