"""Copy the source's comments to a target's tables: ``gaussdecode spark comments``."""

import argparse
import json

from gaussdecode.console.arguments import count, seconds
from gaussdecode.errors import EX_IOERR, EX_OK
from gaussdecode.operations.spark.arguments import (
    flag,
    landing_argument,
    names,
    session_arguments,
    source_arguments,
    tables_argument,
    target_argument,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Give the tables of a target, with their histories and changelogs, the "
        "comments of the source's tables and columns. Equal comments are not written again."
    )
    landing_argument(parser)
    target_argument(parser)
    source_arguments(parser)
    tables_argument(parser)
    parser.add_argument(
        "--max-length", type=count, metavar="LETTERS",
        help="cut longer comments; catalogs of Hive and Glue take 255 for a column",
    )  # fmt: skip
    flag(parser, "--dry-run", "change nothing, print the changes")
    parser.add_argument(
        "--wait",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="longest wait for a running apply",
    )
    flag(parser, "--json", "print one object")
    session_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    """Copy them."""
    from gaussdecode.operations.compare import lake_comments

    request = lake_comments.Request(
        root=args.root,
        target=args.target,
        tables=names(args.tables),
        dsn=args.dsn,
        config=args.config,
        is_insecure_allowed=args.allow_insecure,
        max_length=args.max_length,
        wait=args.wait,
        is_dry=args.dry_run,
    )
    asked = lake_comments.ask(request)
    found = lake_comments.update(request, asked)
    if args.json:
        print(json.dumps(lake_comments.record(found, is_dry=args.dry_run)))
    else:
        print("\n".join(lake_comments.report_lines(found, args.target, is_dry=args.dry_run)))
    return EX_IOERR if any(of.is_failed for of in found) else EX_OK
