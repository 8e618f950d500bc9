"""Query a target in SQL: ``gaussdecode spark query``."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from gaussdecode.console.arguments import count, place
from gaussdecode.console.spark_session import spark_session
from gaussdecode.console.table import print_table
from gaussdecode.errors import EX_OK
from gaussdecode.model.words import counted
from gaussdecode.operations.spark.arguments import (
    flag,
    point_arguments,
    point_of,
    session_arguments,
    settings_of,
    target_argument,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    target_argument(parser)
    parser.add_argument(
        "sql",
        help="name tables as schema.name, or name; their products as NAME_history, NAME_changelog",
    )
    parser.add_argument(
        "--root", type=place, help="root of the landing; needed for --time and --csn"
    )
    parser.add_argument("--limit", type=count, default=100, metavar="ROWS")
    flag(parser, "--json", "print one object per row")
    session_arguments(parser)
    point_arguments(parser, "")


def execute(args: argparse.Namespace) -> int:
    """Print the rows."""
    with spark_session(args.master, settings_of(args)) as session:
        return _answer(session, args)


def _answer(session: "SparkSession", args: argparse.Namespace) -> int:
    from pyspark.errors import PySparkException

    from gaussdecode.spark.sql.views import ask, refusal

    frame = ask(session, args.target, args.sql, at=point_of(args), root=args.root)
    try:
        rows = frame.limit(args.limit + 1).collect()
    except PySparkException as error:
        raise refusal(error) from None
    shown = rows[: args.limit]
    if args.json:
        for row in shown:
            print(json.dumps(row.asDict(recursive=True), default=str))
    else:
        print_table(frame.columns, [[_cell(value) for value in row] for row in shown])
    if len(rows) > args.limit:
        print(
            f"gaussdecode: only the first {counted(args.limit, 'row')}, see --limit",
            file=sys.stderr,
        )
    return EX_OK


def _cell(value: Any) -> str:  # Any: whatever Spark gives
    return "" if value is None else str(value)
