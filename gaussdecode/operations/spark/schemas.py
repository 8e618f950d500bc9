"""Show the history of tables' columns: ``gaussdecode spark schemas``."""

import argparse
import json
from typing import Any

from gaussdecode.console.table import print_table
from gaussdecode.errors import EX_OK
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.spark.arguments import flag, landing_argument, point_arguments, point_of

_HEAD = ("table", "entry", "epoch", "lsn", "row", "seen in", "command", "changes", "columns")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    landing_argument(parser)
    parser.add_argument("table", nargs="?", help="schema.table, under any of its names; else all")
    point_arguments(parser, "to-")
    flag(parser, "--json", "print one object per change")


def execute(args: argparse.Namespace) -> int:
    """Print a row for each change; needs no Spark."""
    from gaussdecode.spark.log.landing import Landing
    from gaussdecode.spark.stream.schema_history import read_schemas

    rows = read_schemas(Landing(args.root), args.table, point_of(args)).to_pylist()
    if args.json:
        for row in rows:
            print(json.dumps(row, default=str))
    else:
        print_table(_HEAD, [_cells(row) for row in rows])
    return EX_OK


def _cells(row: dict[str, Any]) -> list[str]:  # Any: values of a history
    shown = [row["table"], row["gd_n"], row["gd_epoch"], Lsn(row["gd_lsn"]), row["gd_seq"]]
    shown += [row["seen_in"], row["command_tag"]]
    texts = ["-" if value is None else str(value) for value in shown]
    return [*texts, _listed(row["changes"], _change), _listed(row["columns"], _column)]


def _listed(items: list[Any] | None, spell: Any) -> str:  # Any: of a history
    return "-" if items is None else ", ".join(map(spell, items))


def _change(change: dict[str, Any]) -> str:  # Any: see above
    was = "" if change["was"] is None else f" (was {change['was']})"
    return f"{change['kind']} {change['name']}{was}"


def _column(column: dict[str, Any]) -> str:  # Any: see above
    not_null = " not null" if column["not_null"] else ""
    return f"{column['name']} {column['type'] or '-'}{not_null}"
